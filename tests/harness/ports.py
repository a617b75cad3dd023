"""Ports that no other test run on this machine uses at the same time.

A port that was free a moment ago may be taken when the broker that was given it starts, or while it is down to start again: by another
run of the tests, or by an outgoing connection of anybody. So ports are below those that the system gives to outgoing connections, and come
from blocks. The first port of a block is bound, and stays bound until this process ends: whoever holds it owns the rest of the block. A
port is given out once.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

FIRST, END = 10_240, 32_000
BLOCK = 32
ALL = range(FIRST, END, BLOCK)


def _bound(port: int) -> socket.socket | None:
    """A socket bound to this port on all addresses; None when somebody has it."""
    probe = socket.socket()
    try:
        probe.bind(("", port))
    except OSError:
        probe.close()
        return None
    return probe


def _is_free(port: int) -> bool:
    probe = _bound(port)
    if probe is None:
        return False
    probe.close()
    return True


class Ports:
    """Blocks of ports that this process owns."""

    def __init__(self, blocks: Iterable[int] | None = None) -> None:
        """`blocks` are the first ports of the blocks to try, in this order; all of them in a random one if not given."""
        self._held: list[socket.socket] = []
        """A socket on the first port of every block, never closed."""
        self._unused: list[int] = []
        self._blocks = iter(random.sample(ALL, len(ALL)) if blocks is None else blocks)

    def take(self, count: int = 1) -> list[int]:
        """Ports one after the other that are free now, and that no other `Ports` gives out while this process runs."""
        while True:
            while len(self._unused) >= count:
                found, self._unused = self._unused[:count], self._unused[count:]
                if all(map(_is_free, found)):
                    return found
            self._own(next(self._blocks))

    def _own(self, first: int) -> None:
        held = _bound(first)
        if held is not None:
            self._held.append(held)
            self._unused = list(range(first + 1, first + BLOCK))


_PORTS = Ports()


def free_port() -> int:
    """A free port that is given to nobody else."""
    return _PORTS.take()[0]


def free_ports(count: int) -> list[int]:
    """So many free ports, one after the other."""
    return _PORTS.take(count)
