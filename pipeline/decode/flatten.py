"""Flat rows from decoded messages: partition states, brokers.

A row is a tuple with values from the objects that `json_codec` makes. Fields that the version lacks are None, and so are those that are
missing because the frame was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from klamm.pipeline.decode.json_codec import Body
from klamm.protocol.apis import ApiKey

Row = tuple[Any, ...]

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
