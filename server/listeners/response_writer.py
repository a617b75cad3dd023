"""Writes the responses of one connection to its transport, or to a file while the clients of the broker together have too much unread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.protocol.exchanges.connections import ConnectionSink
from klamm.server.listeners.flow_control import IN_FILE, UNREAD, FlowControl
from klamm.server.listeners.unread_responses import ResponseFile, UnreadResponses

LARGE_BYTES = 16 << 10
"""Larger writes go to a file while the clients of the broker together have too much unread."""


class ResponseWriter:
    """The output of one connection."""

    __slots__ = ("_counted", "_file", "_flow", "_give_up", "_loop", "_send", "_sent_file", "_tap", "_transport", "_unread")

    def __init__(
        self, transport: asyncio.Transport, send: Callable[[bytes], None], tap: ConnectionSink | None, flow: FlowControl,
        unread: UnreadResponses, loop: asyncio.AbstractEventLoop, give_up: Callable[[str], None], sent_file: Callable[[], None],
    ) -> None:
        """`send` writes to the transport, and to the tap. `give_up` is called with a reason if the connection has to be closed, `sent_file`
        when everything from the file is in the buffer of the transport.
        """
        self._transport: asyncio.Transport | None = transport
        self._send = send
        self._tap = tap
        self._flow = flow
        self._unread = unread
        self._loop = loop
        self._give_up = give_up
        self._sent_file = sent_file
        self._counted = 0
        """Bytes in the buffer of the transport that `UnreadResponses` counts: all, from more than its limit on until few are left."""
        self._file: ResponseFile | None = None
        """Responses that are sent after those in the buffer."""

    @property
    def is_in_file(self) -> bool:
        """Whether responses wait in a file."""
        return self._file is not None

    def write(self, out: list[bytes]) -> None:
        """Write responses. After `end` they are dropped."""
        if out and self._transport is not None:
            data = out[0] if len(out) == 1 else b"".join(out)
            if len(data) <= LARGE_BYTES and self._file is None:
                self._send(data)
            else:
                self._write_large(data)

    def _write_large(self, data: bytes) -> None:
        """Send this, or keep it in a file if clients have too much unread."""
        if self._file is None and not self._unread.is_exceeded:
            self._send(data)
            if self._counted:
                self._count()
            return
        if self._tap is not None:
            self._tap.sent(data)
        try:
            if self._file is None:
                self._file = self._unread.file(self._refuse)
                self._flow.stop(IN_FILE)
                self._loop.call_soon(self._send_from_file)
            self._file.write(data)
        except OSError as error:
            self._refuse(f"a response cannot be written to a temporary file: {error}")

    def _send_from_file(self) -> None:
        """Send the next bytes of the file, unless the client has not read those before."""
        file, transport = self._file, self._transport
        if file is None or transport is None or self._flow.stops & UNREAD:
            return
        try:
            transport.write(file.read())
        except OSError as error:
            self._refuse(f"a response cannot be read from its temporary file: {error}")
            return
        if not file.is_empty:
            if not self._flow.stops & UNREAD:
                self._loop.call_soon(self._send_from_file)
            return
        self._close_file()
        self._sent_file()

    def _refuse(self, reason: str) -> None:
        """What the client has to read cannot be kept."""
        self._close_file()
        self._give_up(reason)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._flow.allow(IN_FILE)

    def pause(self) -> None:
        """The client does not read."""
        self._flow.stop(UNREAD)
        self._count()

    def resume(self) -> None:
        """The client has read what is in the buffer, or nearly all of it."""
        self._set(0)
        self._flow.allow(UNREAD)
        self._send_from_file()

    def end(self) -> None:
        """The connection is lost."""
        self._transport = None
        self._set(0)
        self._close_file()
        self._give_up = self._sent_file = _nothing  # so that no reference leads back to the connection

    def _count(self) -> None:
        if self._transport is not None:
            self._set(self._transport.get_write_buffer_size())

    def _set(self, size: int) -> None:
        self._unread.size += size - self._counted
        self._counted = size


def _nothing(*_: str) -> None:
    pass
