"""Outputs for record batches: lines of JSON, or a segment file of a Kafka log.

The JSON of a record is the payload that Kafka's log dump tool prints (type, version, data), after the offset and the controller epoch.
Kafka's tool takes the first offset of a file from its name, and does not accept gaps between offsets. So a segment file gets consecutive
batches of one controller epoch, and an existing file is never changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from klamm.cli.tools.failures import ToolFailed
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.json_form import to_json
from klamm.protocol.records.batch import each_header
from klamm.protocol.records.metadata_records import decode_value
from klamm.protocol.records.record import read_records
from klamm.protocol.records.scan import BadRecord

_SEGMENT = re.compile(r"(\d{20})\.log")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


class JsonLines:
    """Prints one line for each record."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def write(self, batches: bytes, first: int, end: int) -> None:
        """See `Sink`. Raises ToolFailed if a record cannot be read."""
        lines = [json.dumps(row, separators=(",", ":")) for row in rows(batches) if first <= row["offset"] < end]
        if lines:
            self._say("\n".join(lines))

    def begin_again(self, _reason: str) -> None:
        """Nothing to do: any record can follow."""

    def close(self) -> None:
        """Nothing to do: no file is open."""


class SegmentFile:
    """Writes batches to a new file. The file is created with the first batch."""

    def __init__(self, path: Path) -> None:
        """Raises ToolFailed if the file exists, or if Kafka's tool does not accept its name."""
        self._path = path
        self._file: BinaryIO | None = None
        self._first = self._end = 0
        if path.is_dir():
            return
        if _SEGMENT.fullmatch(path.name) is None:
            raise ToolFailed(f"--output {path}: Kafka's tool needs the first offset as the file name, such as {_name(0)}; or give a folder")
        if not path.parent.is_dir():
            raise ToolFailed(f"--output {path}: there is no folder {path.parent}")
        self._refuse_existing(path)

    def write(self, batches: bytes, _first: int, end: int) -> None:
        """See `Sink`. A batch is written completely, so it may begin with records before `first`."""
        for position, header in each_header(batches):
            if header.base_offset >= end:
                return
            if self._file is None:
                self._file = self._create(header.base_offset)
            self._file.write(batches[position : position + header.size])
            self._end = header.next_offset
        if self._file is not None:
            self._file.flush()

    def begin_again(self, reason: str) -> None:
        """Raise ToolFailed unless nothing is written yet: a segment cannot have a gap."""
        if self._file is not None:
            raise ToolFailed(f"{reason}; {self.summary()}")

    def summary(self) -> str:
        """One line for the user. Raises ToolFailed if there was no record."""
        if self._file is None:
            raise ToolFailed("the log has no records from this offset on; no file was written")
        return f"{self._path} has the records with offsets {self._first} to {self._end - 1}"

    def close(self) -> None:
        """Close the file if there is one. It keeps what was written."""
        if self._file is not None:
            self._file.close()

    def _create(self, offset: int) -> BinaryIO:
        path = self._path / _name(offset) if self._path.is_dir() else self._path
        if path.name != _name(offset):
            raise ToolFailed(f"--output {path}: the first batch has offset {offset}, so the file name must be {_name(offset)}")
        self._refuse_existing(path)
        self._path, self._first = path, offset
        return path.open("xb")

    @staticmethod
    def _refuse_existing(path: Path) -> None:
        if path.exists():
            raise ToolFailed(f"--output {path}: the file exists and is not overwritten")


def rows(batches: bytes) -> Iterator[dict[str, Any]]:
    """The records of complete batches, each as the object that is printed. Raises ToolFailed if one cannot be read."""
    for position, header in each_header(batches):
        try:
            for record in read_records(batches, header, position):
                value = b"" if record.value is None else record.value
                message, version = decode_value(value)
                row: dict[str, Any] = {"offset": record.offset, "controllerEpoch": header.leader_epoch}
                if record.timestamp >= 0:
                    row["timestamp"] = record.timestamp
                yield row | {"type": kafkas_name(type(message).__name__), "version": version, "data": to_json(message, version)}
        except (BadRecord, RemoteProtocolError) as problem:
            raise ToolFailed(f"the controller sent a record that cannot be read: {problem}") from problem


def kafkas_name(message: str) -> str:
    """The name in Kafka's `MetadataRecordType`: `PARTITION_CHANGE_RECORD` for `PartitionChangeRecord`."""
    return _WORD.sub("_", message).upper()


def _name(offset: int) -> str:
    return f"{offset:020}.log"
