"""Tells a LeaderAndIsr answer without errors from its bytes, without making an object of each of its rows.

A broker answers with a row for every partition it was told of, and hardly ever does a row say anything but "no error". The rows
of a topic are of one length, so their error codes stand in two columns; a slice with a stride counts the zeros in each. Whatever
does not look exactly like that is for the decoder.
"""

from __future__ import annotations

FIRST_BY_TOPIC = 5
"""From this version on rows are grouped by topic id."""

_ROW = 7
"""Bytes of a row: partition index, error code, no tags."""


def is_clean_leader_and_isr(version: int, payload: bytes, offset: int) -> bool:
    """Whether the answer's body at `offset` is whole, ends with the payload and holds no error code but 0."""
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
    except IndexError:
        return False


def _count(payload: bytes, at: int) -> tuple[int, int]:
    """A compact array's number of elements (one to three bytes; a null or longer one is left to the decoder)."""
    first = payload[at]
    if 0 < first < 128:
        return first - 1, at + 1
    second = payload[at + 1]
    if first >= 128 and second < 128:
        return (first & 127 | second << 7) - 1, at + 2
    third = payload[at + 2]
    if first >= 128 and third < 128:
        return (first & 127 | (second & 127) << 7 | third << 14) - 1, at + 3
    raise IndexError
