"""Encoding and decoding of topics and partition states (layout 3.4, 3.5, 4.4).

Partition states are the most frequent znodes. So a session keeps recent ones (`TopicNodes`), in both directions, and data in the form that
Apache Kafka writes is read without a JSON parser. The docstring of `znodes` has the rules for all znodes.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence

from klamm.controller.values import RECOVERED, RECOVERING, Assignment, LeaderAndIsr, SharedInts, StoredTopic
from klamm.protocol.nouns import Ints, TopicPartition, id_text
from klamm.zk.layout.json_values import INT32, decode_uuid, first_value, int32, int_tuple, ints_text, parse_int, parse_json
from klamm.zk.layout.key_order import partition_order, scala_order

log = logging.getLogger("klamm.zk.layout.znodes")

_UNNAMED = TopicPartition("a topic", -1)
_REMEMBERED = 65_536
"""Maximum size of each table of `TopicNodes`. A full one is emptied."""


# /brokers/topics/<t> (3.4)


def encode_topic(topic_id: bytes | None, assignments: Mapping[int, Assignment]) -> bytes:
    count = len(assignments)
    names: Sequence[str] = partition_order(count)
    if any(index not in assignments for index in range(count)):
        names = scala_order(map(str, assignments))
    partitions, adding, removing = [], [], []
    for name in names:
        replicas = assignments[int(name)]
        partitions.append(f'"{name}":{ints_text(replicas.replicas)}')
        if replicas.adding:
            adding.append(name)
        if replicas.removing:
            removing.append(name)
    identity = f'"topic_id":"{id_text(topic_id)}",' if topic_id is not None else ""
    adding_text = ",".join(f'"{name}":{ints_text(assignments[int(name)].adding)}' for name in scala_order(adding))
    removing_text = ",".join(f'"{name}":{ints_text(assignments[int(name)].removing)}' for name in scala_order(removing))
    return (
        f'{{"partitions":{{{",".join(partitions)}}},{identity}'
        f'"adding_replicas":{{{adding_text}}},"removing_replicas":{{{removing_text}}},"version":3}}'
    ).encode()


_PARTITIONS = b'"partitions":{"'
_MARK, _MARKED = b'"":0', {"": 0}
_PLAIN = b'0123456789",:[]'

# /brokers/topics/<t>/partitions/<p>/state (3.5, 4.4)

# Nine digits always fit into an int32. Longer numbers are read as JSON.
_STATE = re.compile(
    rb'\{"controller_epoch":(-?\d{1,9}),"leader":(-?\d{1,9}),"version":1,'
    rb'(?:"leader_recovery_state":([01]),(?:"is_unclean":(?:true|false),)?)?"leader_epoch":(-?\d{1,9}),"isr":\[((?:-?\d{1,9}(?:,-?\d{1,9})*)?)\]\}'
)


def encode_state(state: LeaderAndIsr) -> bytes:
    """The data of a state, without its partition epoch. If the leader recovers, the mark is written in both forms (layout 4.4)."""
    leader, leader_epoch, isr, recovery, _, controller_epoch = state
    recovering = b'"leader_recovery_state":%d,"is_unclean":true,' % recovery if recovery != RECOVERED else b""
    return b'{"controller_epoch":%d,"leader":%d,"version":1,%b"leader_epoch":%d,"isr":%b}' % (
        controller_epoch,
        leader,
        recovering,
        leader_epoch,
        ints_text(isr).encode(),
    )


class TopicNodes:
    """Decodes topics and states, and encodes states. What is equal is one object, and is encoded and decoded once."""

    def __init__(self) -> None:
        self.states: dict[tuple[bytes, int], LeaderAndIsr] = {}
        """What `decode_state` has returned, by its arguments."""
        self._written: dict[tuple[int, int, Ints, int, int], bytes] = {}
        self._lists: dict[bytes, Assignment] = {}
        self._assignments: dict[Ints, Assignment] = {}
        self._shared = SharedInts()

    def decode_topic(self, name: str, data: bytes | None, version: int = -1) -> StoredTopic | None:
        """The topic of a znode of this version; None if it cannot be read. Data that is not JSON means a topic without partitions and id.
        """
        quick = self._decode_settled_topic(data, version)
        if quick is not None:
            return quick
        content = parse_json(data)
        if data is not None and content is None:
            return StoredTopic(None, {}, version)
        try:
            partitions = content.get("partitions") or {}
            adding = content.get("adding_replicas") or {}
            removing = content.get("removing_replicas") or {}
            if adding or removing:
                assignments = {
                    parse_int(index): Assignment(int_tuple(replicas), int_tuple(adding.get(index, ())), int_tuple(removing.get(index, ())))
                    for index, replicas in partitions.items()
                }
            else:
                assignments = {parse_int(index): self._settled(int_tuple(replicas)) for index, replicas in partitions.items()}
            identity = content.get("topic_id")
            return StoredTopic(None if identity is None else decode_uuid(identity), assignments, version)
        except (TypeError, ValueError, AttributeError) as problem:
            log.error("Ignoring topic %s: its znode cannot be read: %s: %.200r", name, problem, data)
            return None

    def _decode_settled_topic(self, data: bytes | None, version: int) -> StoredTopic | None:
        """The topic of a znode in the usual form, outside a reassignment; None for any other form, which is then read as JSON.

        Partitions with equal replica lists share one assignment. The partitions are found by their brackets. Each different list is parsed
        as JSON once, and the rest of the znode is parsed as JSON too.
        """
        if data is None:
            return None
        start = data.find(_PARTITIONS)
        stop = data.find(b"]}", start)
        if start < 0 or stop < 0 or data[start + len(_PARTITIONS) : stop].translate(None, _PLAIN):
            return None
        start += len(_PARTITIONS) - 1
        assignments: dict[int, Assignment] = {}
        try:
            rest = json.loads(data[:start] + _MARK + data[stop + 1 :])
            if rest["partitions"] != _MARKED or rest.get("adding_replicas") or rest.get("removing_replicas"):
                return None
            for piece in data[start:stop].split(b"],"):
                name, _, replicas = piece.partition(b":[")
                found = self._lists.get(replicas)
                if found is None:
                    if len(self._lists) >= _REMEMBERED:
                        self._lists.clear()
                    found = self._lists[replicas] = self._settled(int_tuple(json.loads(b"[%b]" % replicas)))
                if name[:1] != b'"' or name[-1:] != b'"':
                    return None
                assignments[int(name[1:-1])] = found
            if max(assignments) not in INT32:
                return None
            identity = rest.get("topic_id")
            return StoredTopic(None if identity is None else decode_uuid(identity), assignments, version)
        except (TypeError, ValueError, AttributeError, KeyError):
            return None

    def _settled(self, replicas: Ints) -> Assignment:
        """The assignment of these replicas outside a reassignment. Equal ones are the same object."""
        assignment = self._assignments.get(replicas)
        if assignment is None:
            if len(self._assignments) >= _REMEMBERED:
                self._assignments.clear()
            assignment = self._assignments[replicas] = Assignment(self._shared[replicas])
        return assignment

    def encode_state(self, state: LeaderAndIsr) -> bytes:
        """As the function."""
        leader, leader_epoch, isr, recovery, _, controller_epoch = state
        key = (leader, leader_epoch, isr, recovery, controller_epoch)
        data = self._written.get(key)
        if data is None:
            if len(self._written) >= _REMEMBERED:
                self._written.clear()
            data = self._written[key] = encode_state(state)
        return data

    def decode_state(self, data: bytes | None, version: int, of: TopicPartition = _UNNAMED) -> LeaderAndIsr | None:
        """The state of a partition whose znode has this `version`. None if it cannot be read, which is logged."""
        if data is None:
            return None
        state = self.states.get((data, version))
        if state is None:
            try:
                state = self._parse_state(data, version)
            except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as problem:
                log.error("Ignoring the state of %s-%d: it cannot be read: %r: %.200r", *of, problem, data)
                return None
            if len(self.states) >= _REMEMBERED:
                self.states.clear()
            self.states[data, version] = state
        return state

    def _parse_state(self, data: bytes, version: int) -> LeaderAndIsr:
        match = _STATE.fullmatch(data)
        if match is not None:
            controller_epoch, leader, recovery, leader_epoch, isr = match.groups()
            members = self._shared[tuple(map(int, isr.split(b",")))] if isr else ()
            recovery = RECOVERED if recovery is None else int(recovery)
            return LeaderAndIsr(int(leader), int(leader_epoch), members, recovery, version, int(controller_epoch))
        content = first_value(data)
        recovery = content.get("leader_recovery_state")
        if recovery is None:
            recovery = RECOVERING if content.get("is_unclean") is True else RECOVERED
        leader, leader_epoch, controller_epoch = map(int32, (content["leader"], content["leader_epoch"], content["controller_epoch"]))
        if int32(recovery) not in (RECOVERED, RECOVERING):
            raise ValueError(f"leader_recovery_state {recovery}")
        return LeaderAndIsr(leader, leader_epoch, self._shared[int_tuple(content["isr"])], recovery, version, controller_epoch)
