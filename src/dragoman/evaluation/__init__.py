"""How good the output is: scores of hypotheses against references, never of tensors."""
