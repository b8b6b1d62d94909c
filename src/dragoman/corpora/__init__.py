"""Text that comes with Dragoman."""
