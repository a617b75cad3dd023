"""Flat rows from decoded messages: partition states, brokers, error codes.

A row is a tuple with values from the objects that `json_codec` makes. Fields that the version lacks are None, and so are those that are
missing because the frame was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from klamm.pipeline.decode.json_codec import Body
from klamm.protocol.apis import ApiKey
from klamm.protocol.messages import message_type
from klamm.protocol.schema import Struct

Row = tuple[Any, ...]

Counts = dict[tuple[str, int], int]
"""(path, error code) → how often, without code 0."""

ErrorCounter = Callable[[Body], tuple[int | None, Counts]]
"""The error code at the top of an object, None where it has none, and all error codes other than 0."""

NO_COUNTS: Counts = {}

STATE_FIELDS = (
    "controller_id", "controller_epoch", "broker_epoch", "topic", "topic_id", "partition", "leader", "leader_epoch", "isr", "replicas",
    "offline", "adding", "removing", "partition_epoch", "recovery", "is_new", "deleting", "error_code",
)
BROKER_FIELDS = ("controller_id", "controller_epoch", "broker_id", "epoch", "host", "port", "endpoints", "rack", "source", "cluster_id")
ERROR_FIELDS = ("path", "error_code", "count")


def partition_states(key: int, body: Body) -> list[Row]:
    """The partition states of a LeaderAndIsr, UpdateMetadata or StopReplica request or of a Metadata response: rows of STATE_FIELDS."""
    get = body.get
    if key == ApiKey.METADATA:
        return _metadata_states(body)
    head = (get("controllerId"), get("controllerEpoch"), get("brokerEpoch"))
    if key == ApiKey.STOP_REPLICA:
        return _stopped(head, body)
    topics = get("topicStates")
    if topics is not None:
        rows: list[Row] = []
        for topic in topics:
            states = topic.get("partitionStates")
            if states:
                rows += _states((*head, topic["topicName"], topic.get("topicId")), states)
        return rows
    return [row for state in get("ungroupedPartitionStates") or () for row in _states((*head, state.get("topicName"), None), (state,))]


def _states(begin: Row, states: Iterable[Body]) -> list[Row]:
    """Rows of LeaderAndIsr and UpdateMetadata. Of a frame that was cut the last state may lack its end: it is left out."""
    return [
        (
            *begin, state["partitionIndex"], state["leader"], state["leaderEpoch"], state["isr"], state["replicas"],
            state.get("offlineReplicas"), state.get("addingReplicas"), state.get("removingReplicas"),
            state["partitionEpoch"] if "partitionEpoch" in state else state["zkVersion"],
            state.get("leaderRecoveryState"), state.get("isNew"), None, None,
        )
        for state in states
        if "replicas" in state
    ]


def _metadata_states(body: Body) -> list[Row]:
    controller = body.get("controllerId")
    rows: list[Row] = []
    for topic in body.get("topics") or ():
        begin = (controller, None, None, topic.get("name"), topic.get("topicId"))
        rows += [
            (
                *begin, state["partitionIndex"], state["leaderId"], state.get("leaderEpoch"), state["isrNodes"], state["replicaNodes"],
                state.get("offlineReplicas"), None, None, None, None, None, None, state["errorCode"],
            )
            for state in topic.get("partitions") or ()
            if "isrNodes" in state
        ]
    return rows


def _stopped(head: Row, body: Body) -> list[Row]:
    """Rows of StopReplica. Since version 3 each partition says whether it is deleted, before that the request says it for all."""
    every = body.get("deletePartitions")
    found: list[tuple[Any, Any, Any, Any]] = []
    for topic in body.get("topicStates") or ():
        found += [
            (topic["topicName"], state["partitionIndex"], state.get("leaderEpoch"), state["deletePartition"])
            for state in topic.get("partitionStates") or ()
            if "deletePartition" in state
        ]
    for topic in body.get("topics") or ():
        found += [(topic["name"], index, None, every) for index in topic.get("partitionIndexes") or ()]
    found += [
        (state["topicName"], state["partitionIndex"], None, every)
        for state in body.get("ungroupedPartitions") or ()
        if "partitionIndex" in state
    ]
    none = (None,) * 8
    return [(*head, topic, None, index, None, epoch, *none, deleting, None) for topic, index, epoch, deleting in found]


def listed_brokers(key: int, body: Body, to_json: Callable[[Any], bytes]) -> list[Row]:
    """The brokers that an UpdateMetadata request or a Metadata response lists: rows of BROKER_FIELDS. `to_json` writes their endpoints."""
    get = body.get
    head = (get("controllerId"), get("controllerEpoch"))
    if key == ApiKey.METADATA:
        return [
            (*head, row["nodeId"], None, row["host"], row["port"], None, row.get("rack"), "Metadata", get("clusterId"))
            for row in get("brokers") or ()
            if "port" in row
        ]
    epoch = get("brokerEpoch")
    return [
        (*head, row["id"], epoch, *_endpoints(row, to_json), row.get("rack"), "UpdateMetadata", None)
        for row in get("liveBrokers") or ()
        if row.get("endpoints") or "v0Port" in row
    ]


def _endpoints(row: Body, to_json: Callable[[Any], bytes]) -> Row:
    """Host and port of the first endpoint, and all of them as JSON."""
    endpoints = row.get("endpoints")
    if not endpoints:
        return row["v0Host"], row["v0Port"], None
    first = endpoints[0]
    return first.get("host"), first.get("port"), to_json(endpoints)


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
