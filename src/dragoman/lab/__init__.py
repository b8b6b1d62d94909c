"""The paper's laboratory: its tables and figures, each measured again on this machine and this corpus."""
