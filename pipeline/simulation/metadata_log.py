"""A cluster from its metadata log: a segment file of `klamm metadata-log dump --output`, or the lines of JSON that `dump` prints.

The log of a controller begins with everything that it found, so a whole log gives the whole cluster. Records are applied in their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.pipeline.simulation.snapshot import BadSource, Snapshot
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.json_form import to_json
from klamm.protocol.nouns import TopicPartition, next_epoch
from klamm.protocol.records.metadata_records import BROKER_CONFIG, LEADER_UNCHANGED, RECORDS, TOPIC_CONFIG, decode_records

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def read_metadata_log(path: Path) -> Snapshot:
    """The cluster behind the last record. Raises BadSource; OSError when the file cannot be read."""
    image = _Image()
    for kind, data in _records(path):
        try:
            image.apply(kind, data)
        except (KeyError, TypeError, ValueError) as problem:
            raise BadSource(f"{path}: a {kind} cannot be applied: {type(problem).__name__} {problem}") from problem
    if not image.topics:
        raise BadSource(f"{path}: the log has no topic: it has to begin with the controller's first record")
    return image.snapshot()


def _records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    data = path.read_bytes()
    if data[:1] == b"{":
        for number, line in enumerate(data.splitlines(), 1):
            try:
                row = json.loads(line)
                yield row["type"], row["data"]
            except (ValueError, KeyError, TypeError) as problem:
                raise BadSource(f"{path}: line {number} is no record of a metadata log: {problem!r}") from problem
        return
    try:
        for _, record in decode_records(data):
            name = type(record).__name__
            yield _WORD.sub("_", name).upper(), to_json(record, RECORDS[name].version)
    except RemoteProtocolError as problem:
        raise BadSource(f"{path}: {problem}") from problem


class _Image:
    """What the records have said so far."""

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}
        self.partitions: dict[tuple[str, int], tuple[Assignment, LeaderAndIsr]] = {}
        self.racks: dict[int, str | None] = {}
        self.running: set[int] = set()
        self.configs: dict[tuple[int, str], dict[str, str]] = {}

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        match kind:
            case "TOPIC_RECORD":
                self.topics[data["topicId"]] = data["name"]
            case "REMOVE_TOPIC_RECORD":
                self.topics.pop(data["topicId"], None)
                self.partitions = {key: value for key, value in self.partitions.items() if key[0] != data["topicId"]}
            case "PARTITION_RECORD":
                assignment = Assignment(*(_ints(data.get(name)) for name in ("replicas", "addingReplicas", "removingReplicas")))
                state = LeaderAndIsr(
                    data["leader"], data["leaderEpoch"], _ints(data["isr"]), data.get("leaderRecoveryState", 0), data["partitionEpoch"]
                )
                self.partitions[data["topicId"], data["partitionId"]] = assignment, state
            case "PARTITION_CHANGE_RECORD":
                key = data["topicId"], data["partitionId"]
                self.partitions[key] = _changed(*self.partitions[key], data)
            case "REGISTER_BROKER_RECORD":
                self.racks[data["brokerId"]] = data.get("rack")
                self._fence(data["brokerId"], data.get("fenced", True))
            case "UNREGISTER_BROKER_RECORD":
                self._fence(data["brokerId"], True)
            case "FENCE_BROKER_RECORD" | "UNFENCE_BROKER_RECORD":
                self._fence(data["id"], kind.startswith("FENCE"))
            case "BROKER_REGISTRATION_CHANGE_RECORD":
                if data.get("fenced", 0):
                    self._fence(data["brokerId"], data["fenced"] > 0)
            case "CONFIG_RECORD":
                properties = self.configs.setdefault((data["resourceType"], data["resourceName"]), {})
                if data.get("value") is None:
                    properties.pop(data["name"], None)
                else:
                    properties[data["name"]] = data["value"]

    def _fence(self, broker_id: int, fenced: bool) -> None:
        if fenced:
            self.running.discard(broker_id)
        else:
            self.running.add(broker_id)

    def snapshot(self) -> Snapshot:
        partitions: dict[TopicPartition, tuple[Assignment, LeaderAndIsr | None]] = {}
        for (topic_id, index), (assignment, state) in self.partitions.items():
            partitions[TopicPartition(self.topics[topic_id], index)] = assignment, state if state.partition_epoch >= 0 else None
        defaults = self.configs.get((BROKER_CONFIG, ""), {})
        return Snapshot(
            partitions, frozenset(self.running), dict(self.racks), listed_brokers(defaults),
            defaults.get("unclean.leader.election.enable", "false").strip().lower() == "true",
            {name: properties for (kind, name), properties in self.configs.items() if kind == TOPIC_CONFIG},
        )


def listed_brokers(properties: Mapping[str, str]) -> frozenset[int]:
    """The brokers of `preferred_leader_blacklist`; a value that is no list of ids counts as empty."""
    ids = [part.strip() for part in properties.get("preferred_leader_blacklist", "").split(",") if part.strip()]
    return frozenset(map(int, ids)) if all(part.isdigit() for part in ids) else frozenset()


def _changed(assignment: Assignment, state: LeaderAndIsr, data: Mapping[str, Any]) -> tuple[Assignment, LeaderAndIsr]:
    for field, name in (("replicas", "replicas"), ("adding", "addingReplicas"), ("removing", "removingReplicas")):
        if data.get(name) is not None:
            assignment = assignment._replace(**{field: _ints(data[name])})
    if data.get("isr") is not None:
        state = state._replace(isr=_ints(data["isr"]))
    if data.get("leader", LEADER_UNCHANGED) != LEADER_UNCHANGED:
        state = state._replace(leader=data["leader"], leader_epoch=next_epoch(state.leader_epoch))
    if data.get("leaderRecoveryState", -1) >= 0:
        state = state._replace(recovery=data["leaderRecoveryState"])
    return assignment, state._replace(partition_epoch=next_epoch(state.partition_epoch))


def _ints(values: Iterable[int] | None) -> tuple[int, ...]:
    return () if values is None else tuple(values)
