"""Encoding and decoding of topics and partition states (layout 3.4, 3.5, 4.4).

Partition states are the most frequent znodes. So both directions cache recent values, and data in the form that Apache Kafka writes is read
without a JSON parser. The docstring of `znodes` has the rules for all znodes.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence

from klamm.controller.values import RECOVERED, RECOVERING, Assignment, LeaderAndIsr, StoredTopic, intern_ints
from klamm.protocol.nouns import Ints, TopicPartition, id_text
from klamm.zk.layout.json_values import INT32, decode_uuid, first_value, int32, int_tuple, ints_text, parse_int, parse_json
from klamm.zk.layout.key_order import partition_order, scala_order

log = logging.getLogger("klamm.zk.layout.znodes")

_UNNAMED = TopicPartition("a topic", -1)
# Maximum size of each of the two caches of partition states. A full cache is emptied.
_REMEMBERED = 65_536


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


def decode_topic(name: str, data: bytes | None, version: int = -1) -> StoredTopic | None:
    """The topic of a znode of this version; None if it cannot be read. Data that is not JSON means a topic without partitions and id."""
    quick = _decode_settled_topic(data, version)
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
            assignments = {parse_int(index): _settled(int_tuple(replicas)) for index, replicas in partitions.items()}
        identity = content.get("topic_id")
        return StoredTopic(None if identity is None else decode_uuid(identity), assignments, version)
    except (TypeError, ValueError, AttributeError) as problem:
        log.error("Ignoring topic %s: its znode cannot be read: %s: %.200r", name, problem, data)
        return None


_PARTITIONS = b'"partitions":{"'
_MARK, _MARKED = b'"":0', {"": 0}
_PLAIN = b'0123456789",:[]'
_MAX_KEPT_LISTS = 1 << 16
_kept_lists: dict[bytes, Assignment] = {}


def _decode_settled_topic(data: bytes | None, version: int) -> StoredTopic | None:
    """The topic of a znode in the usual form, outside a reassignment; None for any other form, which is then read as JSON.

    Partitions with equal replica lists share one assignment. The partitions are found by their brackets. Each different list is parsed as
    JSON once, and the rest of the znode is parsed as JSON too.
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
            found = _kept_lists.get(replicas)
            if found is None:
                if len(_kept_lists) >= _MAX_KEPT_LISTS:
                    _kept_lists.clear()
                found = _kept_lists[replicas] = _settled(int_tuple(json.loads(b"[%b]" % replicas)))
            if name[:1] != b'"' or name[-1:] != b'"':
                return None
            assignments[int(name[1:-1])] = found
        if max(assignments) not in INT32:
            return None
        identity = rest.get("topic_id")
        return StoredTopic(None if identity is None else decode_uuid(identity), assignments, version)
    except (TypeError, ValueError, AttributeError, KeyError):
        return None


_settled_assignments: dict[Ints, Assignment] = {}


def _settled(replicas: Ints) -> Assignment:
    """The assignment of these replicas outside a reassignment. Equal ones are the same object."""
    assignment = _settled_assignments.get(replicas)
    if assignment is None:
        if len(_settled_assignments) >= _REMEMBERED:
            _settled_assignments.clear()
        assignment = _settled_assignments[replicas] = Assignment(intern_ints(replicas))
    return assignment


# /brokers/topics/<t>/partitions/<p>/state (3.5, 4.4)

_written_states: dict[tuple[int, int, Ints, int, int], bytes] = {}
_read_states: dict[tuple[bytes, int], LeaderAndIsr] = {}
# Nine digits always fit into an int32. Longer numbers are read as JSON.
_STATE = re.compile(
    rb'\{"controller_epoch":(-?\d{1,9}),"leader":(-?\d{1,9}),"version":1,'
    rb'(?:"leader_recovery_state":([01]),(?:"is_unclean":(?:true|false),)?)?"leader_epoch":(-?\d{1,9}),"isr":\[((?:-?\d{1,9}(?:,-?\d{1,9})*)?)\]\}'
)


def encode_state(state: LeaderAndIsr) -> bytes:
    """The data of a state, without its partition epoch. If the leader recovers, the mark is written in both forms (layout 4.4)."""
    leader, leader_epoch, isr, recovery, _, controller_epoch = state
    key = (leader, leader_epoch, isr, recovery, controller_epoch)
    data = _written_states.get(key)
    if data is None:
        if len(_written_states) >= _REMEMBERED:
            _written_states.clear()
        recovering = b'"leader_recovery_state":%d,"is_unclean":true,' % recovery if recovery != RECOVERED else b""
        data = _written_states[key] = b'{"controller_epoch":%d,"leader":%d,"version":1,%b"leader_epoch":%d,"isr":%b}' % (
            controller_epoch,
            leader,
            recovering,
            leader_epoch,
            ints_text(isr).encode(),
        )
    return data


def decode_state(data: bytes | None, version: int, of: TopicPartition = _UNNAMED) -> LeaderAndIsr | None:
    """The state of a partition whose znode has this `version`. None if it cannot be read, which is logged."""
    if data is None:
        return None
    state = _read_states.get((data, version))
    if state is None:
        try:
            state = _parse_state(data, version)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as problem:
            log.error("Ignoring the state of %s-%d: it cannot be read: %r: %.200r", *of, problem, data)
            return None
        if len(_read_states) >= _REMEMBERED:
            _read_states.clear()
        _read_states[data, version] = state
    return state


def remembered_states() -> Mapping[tuple[bytes, int], LeaderAndIsr]:
    """The cache of `decode_state`, by its arguments."""
    return _read_states


def _parse_state(data: bytes, version: int) -> LeaderAndIsr:
    match = _STATE.fullmatch(data)
    if match is not None:
        controller_epoch, leader, recovery, leader_epoch, isr = match.groups()
        members = intern_ints(tuple(map(int, isr.split(b",")))) if isr else ()
        recovery = RECOVERED if recovery is None else int(recovery)
        return LeaderAndIsr(int(leader), int(leader_epoch), members, recovery, version, int(controller_epoch))
    content = first_value(data)
    recovery = content.get("leader_recovery_state")
    if recovery is None:
        recovery = RECOVERING if content.get("is_unclean") is True else RECOVERED
    leader, leader_epoch, controller_epoch = map(int32, (content["leader"], content["leader_epoch"], content["controller_epoch"]))
    if int32(recovery) not in (RECOVERED, RECOVERING):
        raise ValueError(f"leader_recovery_state {recovery}")
    return LeaderAndIsr(leader, leader_epoch, intern_ints(int_tuple(content["isr"])), recovery, version, controller_epoch)
