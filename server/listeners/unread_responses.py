"""The responses that the clients of one broker do not read, all of them together.

An Apache Kafka broker sends the records of a Fetch from its files, so a client that does not read costs it nothing. Here a response is in
memory until it is sent. When those that wait to be sent exceed `klamm.unread.responses.bytes`, a Fetch gets SMALL_RESPONSE_BYTES or its
first batch, until clients have read: each client still gets records, and one that does not read costs little.

A response of any API that is written in that time goes to a temporary file, from which it is sent as its client reads (`ResponseFile`). So
nobody waits for others, and a client that reads slowly gets everything. When the files together exceed their limit, the client that has
read nothing for longest is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from tempfile import TemporaryFile

log = logging.getLogger(__name__)

LIMIT_BYTES = 256 << 20
SMALL_RESPONSE_BYTES = 1_048_588
"""The default of `message.max.bytes`: old versions of Fetch get no batch that is larger than their limit."""

FILE_LIMIT_BYTES = 4 << 30
"""The limit of the temporary files together."""

PIECE_BYTES = 64 << 10
"""Bytes that are sent from a file at a time."""


class UnreadResponses:
    """Counts the bytes of responses in the buffers of connections, and has the files of those that exceed the limit."""

    __slots__ = ("_is_told", "file_limit", "files", "limit", "size", "size_of_files")

    def __init__(self, limit: int = LIMIT_BYTES, file_limit: int = FILE_LIMIT_BYTES) -> None:
        self.limit = limit
        """Bytes in memory above which responses go to files."""
        self.file_limit = file_limit
        self._is_told = False
        self.size = 0
        self.size_of_files = 0
        self.files: dict[ResponseFile, None] = {}
        """The client that has read nothing for longest is first."""

    @property
    def is_exceeded(self) -> bool:
        """Whether responses go to files now."""
        return self.size >= self.limit

    def most(self) -> int | None:
        """The most bytes of records that a response may have now; None without a limit."""
        return None if self.size < self.limit else SMALL_RESPONSE_BYTES

    def file(self, refuse: Callable[[str], None]) -> ResponseFile:
        """A new file for the responses of one connection. Raises OSError.

        `refuse` is called with a reason if the connection has to be closed.
        """
        file = ResponseFile(self, refuse)
        if not self._is_told:
            self._is_told = True
            log.warning("clients have not read %d bytes of responses: further ones wait in temporary files", self.size)
        self.files[file] = None
        return file

    def close_excess(self) -> None:
        """Close connections until the files do not exceed their limit."""
        while self.size_of_files > self.file_limit and len(self.files) > 1:
            next(iter(self.files)).refuse(f"it has not read its responses, and those of all clients exceed {self.file_limit} bytes")


class ResponseFile:
    """What one connection still has to send, in a temporary file without a name."""

    __slots__ = ("_file", "_read", "_unread", "_written", "refuse")

    def __init__(self, unread: UnreadResponses, refuse: Callable[[str], None]) -> None:
        self._unread = unread
        self._file = TemporaryFile(buffering=0)  # noqa: SIM115 closed with its connection
        self._read = 0
        self._written = 0
        self.refuse = refuse

    @property
    def is_empty(self) -> bool:
        """Whether everything was read."""
        return self._read == self._written

    def write(self, data: bytes) -> None:
        """Add this. Raises OSError.

        It is written on the event loop, usually to the page cache: while it waits for a thread it would be in memory, of each client.
        """
        left = memoryview(data)
        self._file.seek(self._written)
        while left:
            left = left[self._file.write(left) :]
        self._written += len(data)
        self._unread.size_of_files += len(data)
        self._unread.close_excess()

    def read(self) -> bytes:
        """The next bytes to be sent, PIECE_BYTES at most. The client has read those before. Raises OSError."""
        self._unread.files[self] = self._unread.files.pop(self)
        self._file.seek(self._read)
        piece = self._file.read(min(PIECE_BYTES, self._written - self._read))
        if not piece and not self.is_empty:
            raise OSError("the temporary file has ended early")
        self._read += len(piece)
        return piece

    def close(self) -> None:
        """Remove the file."""
        del self._unread.files[self]
        self._unread.size_of_files -= self._written
        self._file.close()
