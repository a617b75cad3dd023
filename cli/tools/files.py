"""The JSON files of the tools: topics to move, reassignments, and partitions of an election (controller 18, 19).

    {"version":1,"topics":[{"topic":"orders"}]}
    {"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}
    {"partitions":[{"topic":"orders","partition":0}]}

`version` and `log_dirs` are optional; unknown keys are ignored. Any other mistake is reported in one line with the file and the place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from klamm.protocol.nouns import Ints, TopicPartition
from klamm.zk.layout.json_values import first_value

ANY = "any"
"""Used instead of a log directory: the broker chooses one."""

VERSION = 1
_LARGEST = 2**31 - 1


class BadFile(Exception):
    """The file is not valid. The message is one line."""


class Move(NamedTuple):
    """One entry of a reassignment. `log_dirs` has a directory for each replica, or ANY."""

    replicas: Ints
    log_dirs: tuple[str, ...]


Moves = dict[TopicPartition, Move]
"""Entries by partition, in the order of the file."""


def read_reassignment(path: Path) -> Moves:
    """The entries of a reassignment file. Raises BadFile; OSError if it cannot be read."""
    content = _read(path)
    moves: Moves = {}
    for place, entry in _entries(path, content, "partitions"):
        partition = TopicPartition(_text(path, place, entry, "topic"), _number(path, place, entry.get("partition"), "partition"))
        if partition in moves:
            raise BadFile(f"{path}: Partition reassignment contains duplicate topic partitions: {partition}")
        moves[partition] = _move(path, f"partition {partition}", entry)
    if not moves:
        raise BadFile(f"{path}: Partition reassignment list cannot be empty")
    return moves


def read_topics(path: Path) -> list[str]:
    """The topics to move, in the order of the file. Raises BadFile; OSError if it cannot be read."""
    content = _read(path)
    topics = [_text(path, place, entry, "topic") for place, entry in _entries(path, content, "topics")]
    twice = _first_twice(topics)
    if twice is not None:
        raise BadFile(f"{path}: List of topics to reassign contains duplicate entries: {twice}")
    if not topics:
        raise BadFile(f"{path}: List of topics to reassign cannot be empty")
    return topics


def read_partitions(path: Path) -> list[TopicPartition]:
    """The partitions of an election, in the order of the file. `version` is ignored. Raises BadFile; OSError if the file cannot be read."""
    content = _object(path)
    partitions = [
        TopicPartition(_text(path, place, entry, "topic"), _number(path, place, entry.get("partition"), "partition"))
        for place, entry in _entries(path, content, "partitions")
    ]
    twice = _first_twice(partitions)
    if twice is not None:
        raise BadFile(f"{path}: Replica election data contains duplicate partitions: {twice}")
    return partitions


def as_json(replicas: Mapping[TopicPartition, Ints]) -> str:
    """The JSON of a reassignment file in one line, sorted by topic and partition, with "any" as every log directory."""
    entries = [
        {"topic": topic, "partition": partition, "replicas": list(ids), "log_dirs": [ANY] * len(ids)}
        for (topic, partition), ids in sorted(replicas.items())
    ]
    return json.dumps({"version": VERSION, "partitions": entries}, separators=(",", ":"), ensure_ascii=False)


def _read(path: Path) -> dict[str, Any]:
    """The content of a file whose version must be 1. Raises BadFile, OSError."""
    content = _object(path)
    version = content.get("version", VERSION)
    if version is True or version != VERSION:
        raise BadFile(f"{path}: Not supported version field value {json.dumps(version)}")
    return content


def _object(path: Path) -> dict[str, Any]:
    try:
        content = first_value(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise BadFile(f"{path} is not JSON: {problem}") from problem
    if not isinstance(content, dict):
        raise BadFile(f"{path} is not a JSON object with a list")
    return content


def _entries(path: Path, content: Mapping[str, Any], name: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """(place, entry) of a list of objects."""
    entries = content.get(name)
    if not isinstance(entries, list):
        raise BadFile(f'{path} has no list "{name}"')
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise BadFile(f"{path}: entry {number} of {name} is not an object")
        yield f"entry {number} of {name}", entry


def _move(path: Path, place: str, entry: Mapping[str, Any]) -> Move:
    given = entry.get("replicas")
    if not isinstance(given, list):
        raise BadFile(f'{path}: {place} has no list "replicas"')
    replicas = tuple(_number(path, place, broker, "broker id") for broker in given)
    if not replicas:
        raise BadFile(f"{path}: Partition replica list cannot be empty: {place}")
    twice = _first_twice(replicas)
    if twice is not None:
        raise BadFile(f"{path}: Partition replica lists may not contain duplicate entries: {place} contains multiple entries for {twice}")
    log_dirs = entry.get("log_dirs", [ANY] * len(replicas))
    if not isinstance(log_dirs, list) or not all(isinstance(directory, str) for directory in log_dirs):
        raise BadFile(f'{path}: "log_dirs" of {place} is not a list of strings')
    if len(log_dirs) != len(replicas):
        raise BadFile(f"{path}: Size of replicas list {list(replicas)} is different from size of log dirs list {log_dirs} for {place}")
    wrong = next((directory for directory in log_dirs if directory != ANY and not directory.startswith("/")), None)
    if wrong is not None:
        raise BadFile(f"{path}: {place} has the log directory {wrong!r}, which is neither an absolute path nor {ANY!r}")
    return Move(replicas, tuple(log_dirs))


def _text(path: Path, place: str, entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise BadFile(f'{path}: {place} has no string "{name}"')
    return value


def _number(path: Path, place: str, value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        shown = "nothing" if value is None else json.dumps(value)
        raise BadFile(f"{path}: {place} has {shown} as {what}, which is not a number of 0 or more")
    return value


def _first_twice(values: Sequence[Any]) -> Any:
    """The first value that occurs a second time; None if all are different."""
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
