"""The responses that the clients of one broker do not read, all of them together.

An Apache Kafka broker sends the records of a Fetch from its files, so a client that does not read costs it nothing. Here a response is in
memory until it is sent. When those that wait to be sent exceed `klamm.unread.responses.bytes`, a Fetch gets SMALL_RESPONSE_BYTES or its
first batch, until clients have read: each client still gets records, and one that does not read costs little.
"""

from __future__ import annotations

LIMIT_BYTES = 256 << 20
SMALL_RESPONSE_BYTES = 1_048_588
"""The default of `message.max.bytes`: old versions of Fetch get no batch that is larger than their limit."""


class UnreadResponses:
    """Counts the bytes of responses in the buffers of connections."""

    __slots__ = ("limit", "size")

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self.limit = limit
        self.size = 0

    def most(self) -> int | None:
        """The most bytes of records that a response may have now; None without a limit."""
        return None if self.size < self.limit else SMALL_RESPONSE_BYTES
