"""Bytes to messages and back; no sockets, no state."""
