"""Calls of the admin client about security."""
