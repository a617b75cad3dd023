"""Reads record batches from a segment's file, block by block. Runs in a thread.

A segment ends after its last whole batch. There may be an incomplete batch after it, or the zeros of a preallocated file. With magic 2 both
have an invalid length or magic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from klamm.broker.log.storage import ReadCommand
from klamm.protocol.records.batch import (
    HEADER_SIZE,
    LEADER_FIELDS_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    SMALLEST_LENGTH,
    BatchHeader,
    batch_size,
    each_header,
    read_header,
)

BLOCK = 1 << 20
SLACK = 16 << 10
"""Additional bytes to read, for batches between an indexed position and the first requested batch."""


class Scanned(NamedTuple):
    """One batch: its position in the file, its header, and the block of bytes that contains it at `at`."""

    position: int
    header: BatchHeader
    block: bytes
    at: int

    @property
    def end(self) -> int:
        """Position after the batch."""
        return self.position + self.header.size


def each_batch(path: str, position: int = 0, block_size: int = BLOCK) -> Iterator[Scanned]:
    """The whole batches of a file from `position` on. Raises CorruptRecords for other bytes, OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while True:
            block = os.pread(descriptor, block_size, position)
            consumed = 0
            for at, header in each_header(block):
                yield Scanned(position + at, header, block, at)
                consumed = at + header.size
            if consumed == 0:
                size = batch_size(block, 0)
                if size is None or size <= len(block):
                    return
                block = os.pread(descriptor, size, position)
                if len(block) < size:
                    return
                yield Scanned(position, read_header(block), block, 0)
                consumed = size
            position += consumed
    finally:
        os.close(descriptor)


def old_message_at(path: str, position: int) -> int | None:
    """The magic, 0 or 1, of the whole message with a right CRC at this position of a file; None if there is none. Raises OSError.

    Apache Kafka wrote such messages before 0.11, and below `log.message.format.version` 0.11 also later.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        start = os.pread(descriptor, LOG_OVERHEAD + SMALLEST_LENGTH, position)
        if len(start) < LOG_OVERHEAD + SMALLEST_LENGTH or start[LEADER_FIELDS_SIZE] >= MAGIC:
            return None
        size = int.from_bytes(start[8:12], "big", signed=True)
        if not SMALLEST_LENGTH <= size <= os.fstat(descriptor).st_size - position - LOG_OVERHEAD:
            return None
        message = os.pread(descriptor, size, position + LOG_OVERHEAD)
        is_whole = len(message) == size and int.from_bytes(message[:4], "big") == crc32(memoryview(message)[4:])
        return start[LEADER_FIELDS_SIZE] if is_whole else None
    finally:
        os.close(descriptor)


def first_header(path: str) -> BatchHeader | None:
    """The header of the first batch of a file, None if there is none."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.pread(descriptor, HEADER_SIZE, 0)
    finally:
        os.close(descriptor)
    return read_header(data) if len(data) == HEADER_SIZE else None


def read_batches(path: str, command: ReadCommand) -> bytes | None:
    """Execute a read command, usually with one read of the file; returns the batches. Raises OSError, CorruptRecords."""
    position, end = command.position, command.end_position
    descriptor = os.open(path, os.O_RDONLY)
    try:
        block, at = b"", 0
        while True:
            if len(block) - at < HEADER_SIZE:
                position += at
                block, at = os.pread(descriptor, min(end - position, command.max_bytes + SLACK), position), 0
                if len(block) < HEADER_SIZE:
                    return None
            header = read_header(block, at)
            size = batch_size(block, at)
            if header.last_offset >= command.offset or size is None:
                break
            at += size
            if position + at >= end:
                return None
        if size is None or header.last_offset >= command.end_offset:
            return b""
        wanted = min(end - position - at, max(size, command.max_bytes) if command.min_one else command.max_bytes)
        needed = min(wanted + HEADER_SIZE, end - position - at)  # the header of the last batch, which may be cut, says whether it is wanted
        if at + needed > len(block):
            block, at = os.pread(descriptor, needed, position + at), 0
        return block[at : min(at + wanted, _end_before(block, at, command.end_offset))]
    finally:
        os.close(descriptor)


def _end_before(data: bytes, position: int, end_offset: int) -> int:
    """Position of the first batch from `position` on that ends at this offset or later; the length if there is none. The last may be cut.
    """
    for at, header in each_header(data, position):
        if header.last_offset >= end_offset:
            return at
        position = at + header.size
    if len(data) - position >= HEADER_SIZE and read_header(data, position).last_offset >= end_offset:
        return position
    return len(data)
