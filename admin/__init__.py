"""A client that asks."""
