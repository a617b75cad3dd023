"""Speaks to people."""
