"""Attention records as pages, notebook widgets and pictures, and statistics of attention heads."""
