"""Checkpoint files: a version, a count, and a line for each entry.

`leader-epoch-checkpoint` is in the folder of a log; its lines are `epoch start-offset`. The others are in a log directory; their lines are
`topic partition offset`. They are written to a temporary file that is flushed and renamed, so a reader finds either the old or the new
file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.protocol.nouns import TopicPartition

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
_VERSION = 0



class CorruptCheckpoint(ValueError):
    """The file is not a valid checkpoint."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode the offsets of a log directory."""
    return _encode(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def read_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Partition → offset. If a partition is listed twice, the last line counts. Raises CorruptCheckpoint."""
    offsets = {}
    for line in _lines(data):
        parts = line.split()
        if len(parts) != 3:
            raise CorruptCheckpoint(f"a line is not of the form 'topic partition offset': {line!r}")
        offsets[TopicPartition(parts[0], _number(parts[1]))] = _number(parts[2])
    return offsets


def encode_leader_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Encode the (leader epoch, start offset) pairs of a log."""
    return _encode(f"{epoch} {offset}" for epoch, offset in epochs)


def read_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """(leader epoch, start offset) pairs. Raises CorruptCheckpoint."""
    epochs = []
    for line in _lines(data):
        parts = line.split()
        if len(parts) != 2:
            raise CorruptCheckpoint(f"a line is not of the form 'epoch offset': {line!r}")
        epochs.append((_number(parts[0]), _number(parts[1])))
    return epochs


def _encode(lines: Iterable[str]) -> bytes:
    rows = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, len(rows), *rows)).encode()


def _lines(data: bytes) -> list[str]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint("it is not text") from error
    if not lines:
        return []
    if len(lines) < 2:
        raise CorruptCheckpoint("it has no count")
    version, count = _number(lines[0]), _number(lines[1])
    if version != _VERSION:
        raise CorruptCheckpoint(f"version {version} is not known")
    if len(lines) - 2 != count:
        raise CorruptCheckpoint(f"it has {len(lines) - 2} lines, and a count of {count}")
    return lines[2:]


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CorruptCheckpoint(f"{text!r} is no number") from error
