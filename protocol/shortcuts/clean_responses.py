"""Recognizes a LeaderAndIsr response without errors by its bytes, without an object for each row.

The response has a row for every partition of the request, and almost every row has no error. All rows of a topic have the same length, so
their error codes are two columns of bytes; a slice with a stride counts the zeros in each column. Any other form goes to the decoder.
"""

from __future__ import annotations

from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.primitives import read_uvarint

FIRST_BY_TOPIC = 5
"""First version with rows grouped by topic id."""

_ROW = 7
"""Bytes of a row: partition index, error code, no tags."""


def is_clean_leader_and_isr(version: int, payload: bytes, offset: int) -> bool:
    """Whether the body at `offset` is complete, ends with the payload, and has no error code except 0."""
    if version < FIRST_BY_TOPIC:
        return False
    try:
        if payload[offset] or payload[offset + 1]:
            return False
        topics, at = _count(payload, offset + 2)
        for _ in range(topics):
            rows, at = _count(payload, at + 16)
            end = at + rows * _ROW
            for column in (4, 5, 6):
                if payload[at + column : end : _ROW].count(0) != rows:
                    return False
            if payload[end]:
                return False
            at = end + 1
        return payload[at] == 0 and at + 1 == len(payload)
    except (IndexError, RemoteProtocolError):
        return False


def _count(payload: bytes, at: int) -> tuple[int, int]:
    """The number of elements of a compact array (null goes to the decoder)."""
    first = payload[at]
    if 0 < first < 128:
        return first - 1, at + 1
    number, at = read_uvarint(payload, at)
    if number < 1:
        raise IndexError
    return number - 1, at
