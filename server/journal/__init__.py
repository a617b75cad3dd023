"""Writes the events of a broker and its controller to the broker's journal."""
