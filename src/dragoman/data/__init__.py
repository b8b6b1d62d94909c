"""Files of text to batches of token ids."""
