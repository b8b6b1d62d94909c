"""The networks: tensors in, tensors out."""
