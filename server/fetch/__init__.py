"""Fetch requests: reading, waiting, and encoding responses."""
