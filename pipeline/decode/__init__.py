"""Journaled frames as messages, JSON and flat rows."""
