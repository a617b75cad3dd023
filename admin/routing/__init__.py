"""Finds the broker that serves each key of a call, and sends the keys there again when it moves."""
