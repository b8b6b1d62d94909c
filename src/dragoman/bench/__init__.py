"""This machine's figures, side by side with those of other engines that are installed."""
