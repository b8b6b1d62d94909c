"""Measure training and decoding speed on this machine, beside other engines that are installed."""
