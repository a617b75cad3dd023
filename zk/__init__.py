"""Remembers and notices; the only room that knows kazoo."""
