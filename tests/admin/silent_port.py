"""A port that accepts connections and never says anything."""

from __future__ import annotations

import socket


def silent_port() -> socket.socket:
    """A listener that accepts connections (the system does) and never reads."""
    return socket.create_server(("127.0.0.1", 0))
