"""Health check of a container: `python -m klamm.cli.serving.health PORT` sends ApiVersions to a listener of this machine.

Exit code 0 if the broker responds, 1 with a line on stderr if not. It runs every few seconds, so it imports the standard library only.
"""

from __future__ import annotations

import socket
import struct
import sys

_API_VERSIONS_0 = struct.pack(">hhih", 18, 0, 1, 6) + b"health"
WITHIN_S = 3.0


def check(port: int) -> None:
    """Raises OSError if the broker does not respond."""
    with socket.create_connection(("127.0.0.1", port), WITHIN_S) as connection, connection.makefile("rb") as responses:
        connection.sendall(struct.pack(">i", len(_API_VERSIONS_0)) + _API_VERSIONS_0)
        head = responses.read(10)
        if len(head) < 10 or struct.unpack(">iih", head)[1:] != (1, 0):
            raise ConnectionError("the response to ApiVersions is wrong")


def main(port: str = "9092") -> int:
    """Check; returns the exit code."""
    try:
        check(int(port))
    except OSError as problem:
        print(f"klamm: port {port}: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
