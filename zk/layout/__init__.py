"""Paths of znodes, and encoding and decoding of their data."""
