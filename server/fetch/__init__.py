"""Fetch requests: waiting, and encoding responses."""
