"""A Produce request that came alone, from the bytes of its frame to those of its response in one function.

A producer that waits for each response sends one frame at a time. When it is the request of before with other records (see
`server/produce/repeated_produce.py`), acks=1, and its one batch needs no change but its offset, nothing else has to be done: the header of
the request and that of the batch are unpacked together, everything is compared, and the batch goes into the log. Whatever is not so goes
the general way, and nothing has happened here. The checks are those of `protocol/records/plain_batches.py` and `Log.append_assigned`, and
`tests/server/test_single_produce.py` compares the two ways.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from klamm.broker.log.config import LogConfig
from klamm.broker.partition import HostedPartition, Role
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.records.batch import CRC_COVERS_FROM, HEADER_SIZE, LOG_OVERHEAD, MAGIC, NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from klamm.protocol.records.scan import BadRecord, scan_fields
from klamm.protocol.records.validation import new_tuple
from klamm.server.produce.produce_prefix import Prefix
from klamm.server.requests import request_log

LOG_START_SINCE = 5
MOST = 16_000
"""Larger batches go the general way, which copies them once less."""
LEAST_FLEXIBLE = 127
"""From here on, up to `MOST`, the length in front of the records has two bytes from version 9 on."""

_LEADER = Role.LEADER
_BATCH = "qiibIhiqqqhii"
_pack_head = Struct(">qiibI").pack
"""The first 21 bytes of a batch, which the CRC does not cover."""


class Pieces(NamedTuple):
    """`pack(length, correlation id, head, offset, time, log start offset where the version has it, tail)` is a good response."""

    pack: Callable[..., bytes]
    length: bytes
    head: bytes
    tail: bytes


class SingleProduce:
    """Handles frames with one prefix, for a partition whose log has this config of plain rules. It may be asked about any bytes."""

    def __init__(
        self, prefix: Prefix, partition: HostedPartition, config: LogConfig, pieces: Pieces, replicas: ReplicaManager,
        now_ms: Callable[[], int],
    ) -> None:
        rules = config.rules
        self._partition = partition
        self._config = config
        self._pieces = pieces
        self._log_end_moved = replicas.leaders.log_end_moved
        self._now_ms = now_ms
        self._is_flexible = prefix.is_flexible
        self._head, self._prefix = prefix.head, prefix.bytes
        self._unpack = Struct(f">i4s4s{len(prefix.bytes)}s{'H' if prefix.is_flexible else 'i'}{_BATCH}").unpack_from
        self._records_at = 4 + prefix.end + (2 if prefix.is_flexible else 4)
        self._tail = b"\0\0\0" if prefix.is_flexible else b""
        self._around = self._records_at + len(self._tail)
        self._least = LEAST_FLEXIBLE if prefix.is_flexible else HEADER_SIZE
        self._most = min(MOST, rules.max_message_bytes, config.segment_bytes)
        self._before_ms, self._after_ms = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
        self._names_start = prefix.version >= LOG_START_SINCE

    def __call__(self, data: bytes) -> bytes | None:
        """The response to the one request that `data` is the frame of; None, with nothing done, where it has to go the general way."""
        size = len(data) - self._around
        if not self._least <= size <= self._most:
            return None
        (
            length, head, correlation_id, prefix, size_field,
            offset, batch_length, _, magic, crc, attributes, last_delta, base_ms, max_ms, producer_id, epoch, sequence, count,
        ) = self._unpack(data)
        if (
            head != self._head
            or prefix != self._prefix
            or length != len(data) - 4
            or size_field != (_two_byte_varint(size + 1) if self._is_flexible else size)
            or offset
            or attributes
            or magic != MAGIC
            or batch_length != size - LOG_OVERHEAD
            or producer_id != NO_PRODUCER_ID
            or last_delta != count - 1
            or count < 1
        ):
            return None
        partition = self._partition
        log, leadership, now_ms = partition.log, partition.leadership, self._now_ms()
        if (
            log is None
            or log.config is not self._config
            or partition.role is not _LEADER
            or leadership is None
            or leadership.recovering
            or not -1 <= max_ms <= now_ms + self._after_ms
            or request_log.log.isEnabledFor(logging.DEBUG)
        ):
            return None
        start = self._records_at
        end = start + size
        checked = data[start + CRC_COVERS_FROM : end]
        if crc32c(checked) != crc or data[end:] != self._tail:
            return None
        try:
            highest, lowest, is_consecutive, _ = scan_fields(data, start + HEADER_SIZE, end, count, True)
        except BadRecord:
            return None
        if not is_consecutive or base_ms + highest != max_ms or base_ms + lowest < now_ms - self._before_ms:
            return None
        base_offset, leader_epoch = log.next_offset, partition.leader_epoch
        header = new_tuple(
            BatchHeader,
            (base_offset, batch_length, leader_epoch, MAGIC, crc, 0, last_delta, base_ms, max_ms, producer_id, epoch, sequence, count),
        )
        stored = _pack_head(base_offset, batch_length, leader_epoch, MAGIC, crc) + checked
        if not log.append_plain(stored, header, now_ms):
            return None
        self._log_end_moved(partition)
        pack, length_of_response, head, tail = self._pieces
        if self._names_start:
            return pack(length_of_response, correlation_id, head, base_offset, NO_TIMESTAMP, log.log_start_offset, tail)
        return pack(length_of_response, correlation_id, head, base_offset, NO_TIMESTAMP, tail)


def _two_byte_varint(number: int) -> int:
    """The two bytes of an unsigned varint, which come as one big-endian number."""
    return (number & 0x7F | 0x80) << 8 | number >> 7
