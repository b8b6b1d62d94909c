"""Searching for the best output."""
