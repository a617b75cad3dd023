"""Record batches of a segment's file, read block by block. Runs in a thread.

A segment ends where its last whole batch ends. Behind it there may be half a batch, or the zeros of a file that was given its size
beforehand; with magic 2 both are seen as a length or magic that no batch has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klamm.broker.log.storage import ReadCommand
from klamm.protocol.records.batch import HEADER_SIZE, BatchHeader, batch_size, each_header, read_header

BLOCK = 1 << 20
SLACK = 16 << 10
"""Read beyond the wanted bytes: batches between an indexed position and the one that is looked for."""


class Scanned(NamedTuple):
    """One batch: where it is in the file, its header, and the block of bytes that has it, at `at`."""

    position: int
    header: BatchHeader
    block: bytes
    at: int

    @property
    def end(self) -> int:
        """Position behind the batch."""
        return self.position + self.header.size


def each_batch(path: str, position: int = 0, block_size: int = BLOCK) -> Iterator[Scanned]:
    """The whole batches of a file from `position` on. Raises CorruptRecords where something else stands, OSError."""
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


def first_header(path: str) -> BatchHeader | None:
    """Header of the first batch of a file, None when it has none."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.pread(descriptor, HEADER_SIZE, 0)
    finally:
        os.close(descriptor)
    return read_header(data) if len(data) == HEADER_SIZE else None


def read_batches(path: str, command: ReadCommand) -> bytes:
    """The batches that a command names, usually by one read of the file. Raises OSError, CorruptRecords."""
    position, end = command.position, command.end_position
    descriptor = os.open(path, os.O_RDONLY)
    try:
        block, at = b"", 0
        while True:
            if len(block) - at < HEADER_SIZE:
                position += at
                block, at = os.pread(descriptor, min(end - position, command.max_bytes + SLACK), position), 0
                if len(block) < HEADER_SIZE:
                    return b""
            header = read_header(block, at)
            size = batch_size(block, at)
            if header.last_offset >= command.offset or size is None:
                break
            at += size
            if position + at >= end:
                return b""
        if size is None or header.last_offset >= command.end_offset or (size > command.max_bytes and not command.min_one):
            return b""
        wanted = min(end - position - at, max(size, command.max_bytes))
        data = block[at : at + wanted] if at + wanted <= len(block) else os.pread(descriptor, wanted, position + at)
        return _whole_batches(data, command.end_offset)
    finally:
        os.close(descriptor)


def _whole_batches(data: bytes, end_offset: int) -> bytes:
    """The beginning of `data`: whole batches that end before `end_offset`."""
    end = 0
    for at, header in each_header(data):
        if header.last_offset >= end_offset:
            break
        end = at + header.size
    return data if end == len(data) else data[:end]
