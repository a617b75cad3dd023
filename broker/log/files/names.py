"""Names of files and folders in a log directory, the same as in Apache Kafka.

A log is a folder `<topic>-<partition>`. The name of a segment's file is the base offset of the segment, in twenty digits, and a suffix for
its kind. Files and folders are renamed before they are deleted: a folder becomes `<topic>-<partition>.<32 hex digits>-delete`, a file gets
the suffix `.deleted`. The folder of a log that moves here from another directory ends in `-future`; a folder that the controller does not
assign any more ends in `-stray`. `.cleaned` and `.swap` are files of an unfinished replacement of segments.
"""

from __future__ import annotations

from typing import NamedTuple

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
"""The files of one segment; a producer snapshot belongs to the log, not to a segment."""

DELETE_FOLDER = "-delete"
FUTURE_FOLDER = "-future"
STRAY_FOLDER = "-stray"
MAX_NAME_LENGTH = 255


class NotALog(ValueError):
    """A folder's name is not the name of a log."""


class LogFolder(NamedTuple):
    """The meaning of a folder's name. `kind` is '' for a log in use, else one of the three suffixes of folders."""

    topic: str
    partition: int
    kind: str


def segment_name(base_offset: int, suffix: str) -> str:
    """The name of a file of the segment that begins at this offset."""
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The offset in the name of a file, None if the name does not begin with a number."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() else None


def is_named_by_offset(name: str, suffix: str) -> bool:
    """Whether this is the name of a file of a segment with this suffix."""
    base_offset = base_offset_of(name)
    return base_offset is not None and name == segment_name(base_offset, suffix)


def log_folder(topic: str, partition: int) -> str:
    """The name of the folder of a log in use."""
    return f"{topic}-{partition}"


def delete_folder(topic: str, partition: int, unique: str) -> str:
    """The name of the folder of a deleted log; `unique` is 32 hex digits. A long topic is shortened: a name has at most 255 bytes."""
    return _suffixed_and_cut(topic, partition, unique, DELETE_FOLDER)


def future_folder(topic: str, partition: int, unique: str) -> str:
    """The name of the folder of a log that moves here from another directory. It is never shortened, because the topic is read from it."""
    return f"{topic}-{partition}.{unique}{FUTURE_FOLDER}"


def parse_folder(name: str) -> LogFolder:
    """Parse the name of a folder. Raises NotALog with the reason, like `UnifiedLog.parseTopicPartitionName`."""
    kind = next((suffix for suffix in (DELETE_FOLDER, FUTURE_FOLDER, STRAY_FOLDER) if name.endswith(suffix)), "")
    stem = name
    if kind:
        stem, dot, unique = name[: -len(kind)].rpartition(".")
        if not dot or not unique:
            raise NotALog(f"{name} ends in {kind} without a unique part before it")
    topic, dash, number = stem.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdecimal()):
        raise NotALog(f"{name} is not of the form topic-partition")
    return LogFolder(topic, int(number), kind)


def _suffixed_and_cut(topic: str, partition: int, unique: str, kind: str) -> str:
    suffix = f"-{partition}.{unique}{kind}"
    return topic[: MAX_NAME_LENGTH - len(suffix)] + suffix
