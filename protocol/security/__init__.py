"""Nouns of access control."""
