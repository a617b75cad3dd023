"""Moves bytes and wires the rooms together; the only room that listens and knows uvloop."""
