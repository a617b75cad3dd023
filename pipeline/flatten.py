"""Flat rows from decoded messages: partition states, brokers, error codes.

A `Columns` collects one list for each column, over a batch of frames, and how many rows each frame has; so Arrow arrays are made of them
without an object for each row. Values are taken from the objects that `json_codec` makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from klamm.pipeline.json_codec import Body
from klamm.protocol.apis import ApiKey
from klamm.protocol.messages import message_type
from klamm.protocol.schema import Struct

Counts = dict[tuple[str, int], int]
"""(path, error code) → how often, without code 0."""

ErrorCounter = Callable[[Body], tuple[int | None, Counts]]
"""The error code at the top of an object, None where it has none, and all error codes other than 0."""

NO_COUNTS: Counts = {}

STATE_FIELDS = (
    "controller_id", "controller_epoch", "broker_epoch", "topic", "topic_id", "partition", "leader", "leader_epoch", "isr", "replicas",
    "offline", "adding", "removing", "partition_epoch", "recovery", "is_new", "deleting", "error_code",
)
BROKER_FIELDS = ("controller_id", "controller_epoch", "broker_id", "epoch", "host", "port", "endpoints", "rack", "source")
ERROR_FIELDS = ("path", "error_code", "count")


class Columns:
    """Rows as one list for each column; `ends` has the number of rows after each frame."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.lists: dict[str, list[Any]] = {name: [] for name in names}
        self.ends: list[int] = [0]
        self.size = 0

    def add(self, count: int, values: dict[str, Any]) -> None:
        """Add rows: a list is one value for each, anything else is the value of all; columns that are not given are null."""
        self.size += count
        for name, column in self.lists.items():
            value = values.get(name)
            column.extend(value if value.__class__ is list else repeat(value, count))

    def end_of_frame(self) -> None:
        """The rows added since the last call belong to one frame."""
        self.ends.append(self.size)


def add_states(key: int, body: Body, states: Columns) -> None:
    """Add the partition states of a LeaderAndIsr, UpdateMetadata or StopReplica request or of a Metadata response."""
    if key == ApiKey.STOP_REPLICA:
        _add_stopped(body, states)
        return
    if key == ApiKey.METADATA:
        for topic in body.get("topics") or ():
            partitions = _whole(topic.get("partitions"), "isrNodes")
            states.add(len(partitions), _metadata_states(body, topic, partitions))
        return
    for topic in body.get("topicStates") or ():
        partitions = _whole(topic.get("partitionStates"), "replicas")
        states.add(len(partitions), _states(body, partitions) | {"topic": topic["topicName"], "topic_id": topic.get("topicId")})
    partitions = _whole(body.get("ungroupedPartitionStates"), "replicas")
    if partitions:
        states.add(len(partitions), _states(body, partitions) | {"topic": [each["topicName"] for each in partitions]})


def _whole(rows: list[Body] | None, name: str) -> list[Body]:
    """The structures that have a field: of a frame that was cut, the last one may lack it."""
    return [row for row in rows if row and name in row] if rows else []


def _column(rows: list[Body], name: str) -> list[Any] | None:
    """A field of each; None where the version lacks it."""
    return [row.get(name) for row in rows] if rows and name in rows[0] else None


def _head(body: Body) -> dict[str, Any]:
    return {
        "controller_id": body.get("controllerId"),
        "controller_epoch": body.get("controllerEpoch"),
        "broker_epoch": body.get("brokerEpoch"),
    }


def _states(body: Body, rows: list[Body]) -> dict[str, Any]:
    return _head(body) | {
        "partition": _column(rows, "partitionIndex"),
        "leader": _column(rows, "leader"),
        "leader_epoch": _column(rows, "leaderEpoch"),
        "isr": _column(rows, "isr"),
        "replicas": _column(rows, "replicas"),
        "offline": _column(rows, "offlineReplicas"),
        "adding": _column(rows, "addingReplicas"),
        "removing": _column(rows, "removingReplicas"),
        "partition_epoch": _column(rows, "partitionEpoch") or _column(rows, "zkVersion"),
        "recovery": _column(rows, "leaderRecoveryState"),
        "is_new": _column(rows, "isNew"),
    }


def _metadata_states(body: Body, topic: Body, rows: list[Body]) -> dict[str, Any]:
    return {
        "controller_id": body.get("controllerId"),
        "topic": topic.get("name"),
        "topic_id": topic.get("topicId"),
        "partition": _column(rows, "partitionIndex"),
        "leader": _column(rows, "leaderId"),
        "leader_epoch": _column(rows, "leaderEpoch"),
        "isr": _column(rows, "isrNodes"),
        "replicas": _column(rows, "replicaNodes"),
        "offline": _column(rows, "offlineReplicas"),
        "error_code": _column(rows, "errorCode"),
    }


def _add_stopped(body: Body, states: Columns) -> None:
    head = _head(body)
    every = body.get("deletePartitions")
    for topic in body.get("topicStates") or ():
        rows = _whole(topic.get("partitionStates"), "deletePartition")
        states.add(len(rows), head | {
            "topic": topic["topicName"],
            "partition": _column(rows, "partitionIndex"),
            "leader_epoch": _column(rows, "leaderEpoch"),
            "deleting": _column(rows, "deletePartition"),
        })
    for topic in body.get("topics") or ():
        indexes = list(topic.get("partitionIndexes") or ())
        states.add(len(indexes), head | {"topic": topic.get("name"), "partition": indexes, "deleting": every})
    rows = _whole(body.get("ungroupedPartitions"), "partitionIndex")
    if rows:
        states.add(len(rows), head | {
            "topic": _column(rows, "topicName"), "partition": _column(rows, "partitionIndex"), "deleting": every
        })


def add_brokers(key: int, body: Body, brokers: Columns) -> None:
    """Add the brokers that an UpdateMetadata request or a Metadata response lists."""
    is_update = key == ApiKey.UPDATE_METADATA
    head = {"controller_id": body.get("controllerId"), "controller_epoch": body.get("controllerEpoch"), "epoch": body.get("brokerEpoch")}
    rows = _whole(body.get("liveBrokers" if is_update else "brokers"), "id" if is_update else "nodeId")
    for row in rows:
        endpoints = row.get("endpoints") or [{"port": row.get("v0Port", row.get("port")), "host": row.get("v0Host", row.get("host"))}]
        brokers.add(1, head | {
            "broker_id": row["id" if is_update else "nodeId"],
            "host": endpoints[0].get("host"),
            "port": endpoints[0].get("port"),
            "endpoints": json.dumps(endpoints),
            "rack": row.get("rack"),
            "source": "UpdateMetadata" if is_update else "Metadata",
        })


def error_counter(name: str, version: int) -> ErrorCounter | None:
    """A function that counts the error codes of this response; None where it has no such field."""
    kind = message_type(name)
    lines: list[str] = []
    if not _counting(kind.schema.root, version, "body", "", 1, lines):
        return None
    has_top = any(field.name == "errorCode" and version in field.versions for field in kind.schema.root.fields)
    top = "body.get('errorCode')" if has_top else None
    source = "\n".join([
        "def count(body):",
        "    counts = None",
        *lines,
        f"    return {top}, NO_COUNTS if counts is None else counts",
    ])
    names: dict[str, Any] = {"NO_COUNTS": NO_COUNTS}
    exec(compile(source, f"<errors of {name} {version}>", "exec"), names)
    count: ErrorCounter = names["count"]
    return count


def _counting(struct: Struct, version: int, row: str, path: str, depth: int, lines: list[str]) -> bool:
    """Write the lines that count the error codes of one structure and of those inside it; whether there are any."""
    pad, any_codes = "    " * depth, False
    for field in struct.fields:
        if version not in field.versions:
            continue
        where = f"{path}{field.name}"
        if field.type == "int16" and not field.is_array and field.name.endswith(("errorCode", "ErrorCode")):
            any_codes = True
            lines.append(f"{pad}code = {row}.get({field.name!r})")
            lines.append(f"{pad}if code:")
            lines.append(f"{pad}    if counts is None: counts = {{}}")
            lines.append(f"{pad}    counts[{where!r}, code] = counts.get(({where!r}, code), 0) + 1")
        elif field.struct is not None:
            inner: list[str] = []
            each = f"r{depth}"
            suffix = "[]." if field.is_array else "."
            if _counting(field.struct, version, each, f"{where}{suffix}", depth + 2, inner):
                any_codes = True
                rows = f"{row}.get({field.name!r}) or ()"
                lines.append(f"{pad}for {each} in {rows if field.is_array else f'({row}.get({field.name!r}),)'}:")
                lines.append(f"{pad}    if {each}:")
                lines += inner
    return any_codes
