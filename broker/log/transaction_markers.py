"""The markers that end transactions, read from control batches."""

from __future__ import annotations

from typing import NamedTuple

from klamm.protocol.records.batch import HEADER_SIZE, BatchHeader, Buffer
from klamm.protocol.records.scan import read_varint

_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """The control record that ends a transaction."""

    is_commit: bool
    coordinator_epoch: int
    timestamp: int


def read_marker(data: Buffer, header: BatchHeader, position: int = 0) -> Marker | None:
    """The marker in the control batch at `position`; None if the cleaner has removed it, or if it does not end a transaction."""
    if header.record_count == 0:
        return None
    at = position + HEADER_SIZE
    _, at = read_varint(data, at)
    timestamp_delta, at = read_varint(data, at + 1, 10)
    _, at = read_varint(data, at)
    _, at = read_varint(data, at)
    kind = int.from_bytes(data[at + 2 : at + 4], "big", signed=True)
    if kind not in (_ABORT, _COMMIT):
        return None
    _, at = read_varint(data, at + 4)
    coordinator_epoch = int.from_bytes(data[at + 2 : at + 6], "big", signed=True)
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Marker(kind == _COMMIT, coordinator_epoch, timestamp)
