"""HOST:PORT as people write it."""

from __future__ import annotations

Address = tuple[str, int]
"""Host, without brackets, and port."""


def address_of(text: str, lowest_port: int = 1) -> Address:
    """Parse `HOST:PORT`. An IPv6 address may be in brackets. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if host[:1] + host[-1:] == "[]":
        host = host[1:-1]
    is_host = host and not any(each in "[]/@,=" or each.isspace() for each in host)
    if not is_host or not (port.isascii() and port.isdigit() and len(port) <= 5 and lowest_port <= int(port) <= 65535):
        raise ValueError(f"{text!r} is not HOST:PORT, such as localhost:9092")
    return host, int(port)
