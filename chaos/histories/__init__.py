"""Histories of what clients did and were told, and how each is judged."""
