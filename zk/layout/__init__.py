"""Paths of znodes, and their bytes both ways."""
