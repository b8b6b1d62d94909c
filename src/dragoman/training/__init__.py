"""Learning the parameters."""
