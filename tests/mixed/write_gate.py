"""A TCP proxy in front of ZooKeeper that counts the writes of one broker, and kills the broker right before or right after one of them.

Before: the write never reaches ZooKeeper. After: ZooKeeper has responded, and the broker does not get the response.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from kazoo.client import KazooClient

from klamm.tests.frames.socket_frames import read_frame, write_frame

WRITES = {1, 2, 5, 14, 15}
"""ZooKeeper's numbers of create, delete, setData, multi, create2."""


class WriteGate:
    """Listens from its making on; `kill` ends the broker that connects through it."""

    def __init__(self, target_port: int) -> None:
        self.kill: Callable[[], None] = lambda: None
        self.written: list[bytes] = []
        """Writes that reached ZooKeeper since `arm`."""
        self.struck = False
        self._target_port = target_port
        self._at, self._after, self._count = 0, False, 0
        self._session: tuple[int, bytes] | None = None
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, at: int, *, after: bool) -> None:
        """Kill at write number `at` from now on, counted from 1; 0 for never."""
        self.written, self.struck = [], False
        self._at, self._after, self._count = at, after, 0

    def close(self) -> None:
        self._server.close()

    def end_session(self) -> None:
        """End the broker's session now, as ZooKeeper does when it has expired."""
        assert self._session is not None
        twin = KazooClient(f"127.0.0.1:{self._target_port}", client_id=self._session)
        twin.start()
        twin.stop()
        twin.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port))
                waiting: dict[int, threading.Event] = {}
                threading.Thread(target=self._requests, args=(client, server, waiting), daemon=True).start()
                threading.Thread(target=self._responses, args=(client, server, waiting), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, waiting: dict[int, threading.Event]) -> None:
        with contextlib.suppress(OSError), client, server:
            write_frame(server, read_frame(client))  # the session begins
            while True:
                frame = read_frame(client)
                xid, kind = struct.unpack_from(">ii", frame)
                if kind not in WRITES:
                    write_frame(server, frame)
                    continue
                self._count += 1
                strikes = self._count == self._at
                if strikes and not self._after:
                    self._strike()
                    return
                self.written.append(frame)
                if strikes:
                    done = waiting[xid] = threading.Event()
                    write_frame(server, frame)
                    assert done.wait(20)
                    self._strike()
                    return
                write_frame(server, frame)

    def _strike(self) -> None:
        self.struck = True  # whoever sees that the broker is gone sees why
        self.kill()

    def _responses(self, client: socket.socket, server: socket.socket, waiting: dict[int, threading.Event]) -> None:
        with contextlib.suppress(OSError):
            first = read_frame(server)
            session_id, password_length = struct.unpack_from(">qi", first, 8)
            if session_id:
                self._session = session_id, first[20 : 20 + password_length]
            write_frame(client, first)
            while True:
                frame = read_frame(server)
                xid = struct.unpack_from(">i", frame)[0]
                if xid in waiting:
                    waiting[xid].set()
                else:
                    write_frame(client, frame)
