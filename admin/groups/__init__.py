"""Calls for groups and their offsets."""
