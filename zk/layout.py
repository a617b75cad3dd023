"""Encoding and decoding of the znodes (layout 3, 4.4 and 6): writes the bytes of Kafka 3.9, reads those of older versions too.

Writers format text, with Apache Kafka's order of keys. Readers ignore unknown keys and accept missing optional ones. Where Apache Kafka
treats a znode that is not JSON as empty or missing, readers do the same; where it fails on a znode, they raise Unreadable, and the caller
decides, or they log it and treat the znode as missing. Numbers are as strict as in Apache Kafka: no fractions, no texts, nothing beyond
int32, so that every number fits into requests. Partition states are the most frequent: both directions cache the last values, and bytes in
the form that Apache Kafka writes are read without a JSON parser.
"""

from __future__ import annotations

import json
import logging
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from klamm.controller.values import RECOVERED, RECOVERING, Assignment, LeaderAndIsr, StoredTopic, StoreRefused, intern_ints
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.zk.key_order import partition_order, properties_order, scala_order

log = logging.getLogger(__name__)

# Entries kept by each of the two memories of partition states; when full they start over.
_REMEMBERED = 65_536


_INT16 = range(-(2**15), 2**15)
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


class Unreadable(StoreRefused):
    """A znode holds what Apache Kafka cannot read either."""


def _parse(data: bytes | None) -> Any:
    """The JSON in a znode, None when it holds none."""
    if data is None:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def int32(value: Any) -> int:
    """A number as JSON gives it. Raises ValueError where Apache Kafka takes none: fractions (1.0 too), texts, booleans, larger ones."""
    if type(value) is not int or value not in _INT32:
        raise ValueError(f"{value!r} is not an int32")
    return value


_DECIMAL = re.compile(r"[-+]?[0-9]{1,19}")


def parse_int(text: str, within: range = _INT32) -> int:
    """A number in decimal digits, as a name of a znode or a text in one. Raises ValueError."""
    if not isinstance(text, str) or _DECIMAL.fullmatch(text) is None or int(text) not in within:
        raise ValueError(f"{text!r} is not an int{within.stop.bit_length()}")
    return int(text)


# /controller, /controller_epoch (3.1)


class ControllerNode(NamedTuple):
    """Content of `/controller`; a `kraft_epoch` other than -1 means that KRaft controllers are taking over."""

    broker_id: int
    kraft_epoch: int = -1


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return b'{"version":2,"brokerid":%d,"timestamp":"%d","kraftControllerEpoch":-1}' % (broker_id, timestamp_ms)


def decode_controller(data: bytes | None) -> ControllerNode | None:
    """None when the znode names no controller."""
    content = _parse(data)
    try:
        return ControllerNode(int32(content["brokerid"]), int32(content.get("kraftControllerEpoch", -1)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(data: bytes | None) -> int:
    try:
        return parse_int((data or b"").decode())
    except ValueError:
        raise Unreadable(f"/controller_epoch holds {data!r}") from None


# /brokers/topics/<t> (3.4)


def encode_topic(topic_id: bytes | None, assignments: Mapping[int, Assignment]) -> bytes:
    count = len(assignments)
    names: Sequence[str] = partition_order(count)
    if any(index not in assignments for index in range(count)):
        names = scala_order(map(str, assignments))
    partitions, adding, removing = [], [], []
    for name in names:
        replicas = assignments[int(name)]
        partitions.append(f'"{name}":{_ints(replicas.replicas)}')
        if replicas.adding:
            adding.append(name)
        if replicas.removing:
            removing.append(name)
    identity = f'"topic_id":"{encode_uuid(topic_id)}",' if topic_id is not None else ""
    adding_text = ",".join(f'"{name}":{_ints(assignments[int(name)].adding)}' for name in scala_order(adding))
    removing_text = ",".join(f'"{name}":{_ints(assignments[int(name)].removing)}' for name in scala_order(removing))
    return (
        f'{{"partitions":{{{",".join(partitions)}}},{identity}'
        f'"adding_replicas":{{{adding_text}}},"removing_replicas":{{{removing_text}}},"version":3}}'
    ).encode()


def decode_topic(name: str, data: bytes | None) -> StoredTopic | None:
    """The topic of a znode; one that is not JSON counts as a topic without partitions and id. None for one that cannot be read."""
    quick = _decode_settled_topic(data)
    if quick is not None:
        return quick
    content = _parse(data)
    if data is not None and content is None:
        return StoredTopic(None, {})
    try:
        partitions = content.get("partitions") or {}
        adding = content.get("adding_replicas") or {}
        removing = content.get("removing_replicas") or {}
        if adding or removing:
            assignments = {
                parse_int(index): Assignment(_int_tuple(replicas), _int_tuple(adding.get(index, ())), _int_tuple(removing.get(index, ())))
                for index, replicas in partitions.items()
            }
        else:
            assignments = {parse_int(index): _settled(_int_tuple(replicas)) for index, replicas in partitions.items()}
        identity = content.get("topic_id")
        return StoredTopic(None if identity is None else decode_uuid(identity), assignments)
    except (TypeError, ValueError, AttributeError) as problem:
        log.error("Topic %s counts as absent: its znode cannot be read: %s: %.200r", name, problem, data)
        return None


_PARTITIONS = b'"partitions":{"'
_MARK, _MARKED = b'"":0', {"": 0}
_PLAIN = b'0123456789",:[]'
_MAX_KEPT_LISTS = 1 << 16
_kept_lists: dict[bytes, Assignment] = {}


def _decode_settled_topic(data: bytes | None) -> StoredTopic | None:
    """A znode as every writer writes it, with nothing adding or removing: partitions of equal replica lists share one.

    None where it looks otherwise; then it is read as JSON. The partitions are cut out by their brackets, each list is read as JSON
    when it is seen first, and what is left of the znode is read as JSON too.
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
                found = _kept_lists[replicas] = _settled(_int_tuple(json.loads(b"[%b]" % replicas)))
            if name[:1] != b'"' or name[-1:] != b'"':
                return None
            assignments[int(name[1:-1])] = found
        if max(assignments) not in _INT32:
            return None
        identity = rest.get("topic_id")
        return StoredTopic(None if identity is None else decode_uuid(identity), assignments)
    except (TypeError, ValueError, AttributeError, KeyError):
        return None


_settled_assignments: dict[Ints, Assignment] = {}


def _settled(replicas: Ints) -> Assignment:
    """A shared assignment of these replicas outside a reassignment."""
    assignment = _settled_assignments.get(replicas)
    if assignment is None:
        if len(_settled_assignments) >= _REMEMBERED:
            _settled_assignments.clear()
        assignment = _settled_assignments[replicas] = Assignment(intern_ints(replicas))
    return assignment


def _int_tuple(values: Iterable[Any]) -> Ints:
    return tuple(map(int32, values))


def _ints(values: Ints) -> str:
    return f"[{','.join(map(str, values))}]"


def encode_uuid(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    value = urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise ValueError(f"{text!r} is not an id")
    return value


# /brokers/topics/<t>/partitions/<p>/state (3.5, 4.4)

_written_states: dict[tuple[int, int, Ints, int, int], bytes] = {}
_read_states: dict[tuple[bytes, int], LeaderAndIsr] = {}
# Nine digits are always an int32. Whatever has more is read as JSON.
_STATE = re.compile(
    rb'\{"controller_epoch":(-?\d{1,9}),"leader":(-?\d{1,9}),"version":1,(?:"leader_recovery_state":([01]),)?"leader_epoch":(-?\d{1,9}),'
    rb'"isr":\[((?:-?\d{1,9}(?:,-?\d{1,9})*)?)\]\}'
)


def encode_state(state: LeaderAndIsr) -> bytes:
    """Bytes of a state; its partition epoch is not in them."""
    leader, leader_epoch, isr, recovery, _, controller_epoch = state
    key = (leader, leader_epoch, isr, recovery, controller_epoch)
    data = _written_states.get(key)
    if data is None:
        if len(_written_states) >= _REMEMBERED:
            _written_states.clear()
        recovering = b'"leader_recovery_state":%d,' % recovery if recovery != RECOVERED else b""
        data = _written_states[key] = b'{"controller_epoch":%d,"leader":%d,"version":1,%b"leader_epoch":%d,"isr":%b}' % (
            controller_epoch,
            leader,
            recovering,
            leader_epoch,
            _ints(isr).encode(),
        )
    return data


def decode_state(data: bytes | None, version: int, of: tuple[str, int] = ("a topic", -1)) -> LeaderAndIsr | None:
    """The state of a partition whose znode has `version`; None, which is logged, when the znode holds none that can be read."""
    if data is None:
        return None
    state = _read_states.get((data, version))
    if state is None:
        try:
            state = _parse_state(data, version)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as problem:
            log.error("The state of %s-%d cannot be read and counts as missing: %r: %.200r", *of, problem, data)
            return None
        if len(_read_states) >= _REMEMBERED:
            _read_states.clear()
        _read_states[data, version] = state
    return state


def remembered_states() -> Mapping[tuple[bytes, int], LeaderAndIsr]:
    """What `decode_state` has read before, by its arguments."""
    return _read_states


def _parse_state(data: bytes, version: int) -> LeaderAndIsr:
    match = _STATE.fullmatch(data)
    if match is not None:
        controller_epoch, leader, recovery, leader_epoch, isr = match.groups()
        members = intern_ints(tuple(map(int, isr.split(b",")))) if isr else ()
        recovery = RECOVERED if recovery is None else int(recovery)
        return LeaderAndIsr(int(leader), int(leader_epoch), members, recovery, version, int(controller_epoch))
    content = json.loads(data)
    recovery = content.get("leader_recovery_state")
    if recovery is None:
        recovery = RECOVERING if content.get("is_unclean") is True else RECOVERED
    leader, leader_epoch, controller_epoch = map(int32, (content["leader"], content["leader_epoch"], content["controller_epoch"]))
    if int32(recovery) not in (RECOVERED, RECOVERING):
        raise ValueError(f"leader_recovery_state {recovery}")
    return LeaderAndIsr(leader, leader_epoch, intern_ints(_int_tuple(content["isr"])), recovery, version, controller_epoch)


# /admin/* and the notifications (3.6, 3.7)


def encode_reassignments(entries: Mapping[TopicPartition, Ints]) -> bytes:
    return _text(
        {"version": 1, "partitions": [{"topic": t, "partition": p, "replicas": list(replicas)} for (t, p), replicas in entries.items()]}
    )


def decode_reassignments(data: bytes | None) -> dict[TopicPartition, Ints]:
    """Empty when unreadable; of a partition named twice the last entry counts."""
    content = _parse(data)
    try:
        return {TopicPartition(str(e["topic"]), *_int_tuple((e["partition"],))): _int_tuple(e["replicas"]) for e in content["partitions"]}
    except (KeyError, TypeError, ValueError):
        log.warning("/admin/reassign_partitions cannot be read and counts as empty: %.200r", data)
        return {}


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """The shape of `/admin/preferred_replica_election` and of ISR change notifications."""
    return _text({"version": 1, "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions]})


def decode_partitions(data: bytes | None) -> list[TopicPartition]:
    """Empty when unreadable; each partition once."""
    content = _parse(data)
    try:
        return list(dict.fromkeys(TopicPartition(str(e["topic"]), *_int_tuple((e["partition"],))) for e in content["partitions"]))
    except (KeyError, TypeError, ValueError):
        log.warning("A list of partitions cannot be read and counts as empty: %.200r", data)
        return []


def encode_log_dir_event(broker_id: int) -> bytes:
    return b'{"version":1,"broker":%d,"event":1}' % broker_id


def decode_log_dir_event(data: bytes | None) -> int | None:
    """The broker whose log directory failed; None when unreadable."""
    content = _parse(data)
    try:
        return int32(content["broker"])
    except (KeyError, TypeError, ValueError):
        return None


# /admin/throttled_*_removal (4.1)


def encode_throttled_topics(topics: Iterable[str]) -> bytes:
    return _text({"version": 1, "topics": sorted(set(topics))})


def decode_throttled_topics(data: bytes | None) -> list[str]:
    """Empty when unreadable, which is logged."""
    content = _parse(data)
    match content:
        case {"topics": list(topics)} if all(isinstance(topic, str) for topic in topics):
            return topics
    log.warning("/admin/throttled_replicas_removal cannot be read and counts as empty: %.200r", data)
    return []


def encode_throttled_brokers(broker_ids: Iterable[int]) -> bytes:
    return _text({"version": 1, "brokers": sorted(set(broker_ids))})


def decode_throttled_brokers(data: bytes | None) -> list[int]:
    """Empty when unreadable, which is logged."""
    content = _parse(data)
    try:
        return list(_int_tuple(content["brokers"]))
    except (KeyError, TypeError, ValueError):
        log.warning("/admin/throttled_rates_removal cannot be read and counts as empty: %.200r", data)
        return []


# /config/* (3.8, 3.10)


def encode_config(properties: Mapping[str, str]) -> bytes:
    return _text({"version": 1, "config": {name: properties[name] for name in properties_order(properties)}})


def decode_config(data: bytes | None) -> dict[str, str]:
    """Properties of an entity, none when the znode holds no JSON. Raises Unreadable when a value is not a text."""
    content = _parse(data)
    config = content.get("config") if isinstance(content, dict) else None
    if not isinstance(config, dict):
        return {}
    for name, value in config.items():
        if not isinstance(value, str):
            raise Unreadable(f"the value of {name} is {value!r}")
    return config


def encode_config_change(entity_path: str) -> bytes:
    return _text({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes | None) -> str | None:
    """The entity whose config changed, such as `topics/foo`; None when there is no JSON. Raises Unreadable."""
    content = _parse(data)
    if not isinstance(content, dict):
        return None
    match content:
        case {"version": 1, "entity_type": "topics" | "clients" as kind, "entity_name": str(name)}:
            return f"{kind}/{name}"
        case {"version": 2, "entity_path": str(path)}:
            return path
        case _:
            raise Unreadable(f"not a config change: {data!r}")


# /cluster/id, /feature, /latest_producer_id_block (3.11)


def encode_cluster_id(cluster_id: str) -> bytes:
    return _text({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    content = _parse(data)
    if not isinstance(content, dict) or not isinstance(content.get("id"), str):
        raise Unreadable(f"/cluster/id holds {data!r}")
    identity: str = content["id"]
    return identity


class FeatureNode(NamedTuple):
    """Content of `/feature`: the JSON version, whether features are on, and what is finalised as it stands in the znode."""

    version: int
    enabled: bool
    features: dict[str, Any]


def encode_feature(node: FeatureNode) -> bytes:
    return _text({"features": node.features, "version": node.version, "status": int(node.enabled)})


def _is_level(levels: Any) -> bool:
    """Whether a finalised feature has its highest level, an int16 on the wire."""
    level = levels.get("max_version_level") if isinstance(levels, dict) else None
    return type(level) is int and level in _INT16


def decode_feature(data: bytes | None) -> FeatureNode:
    content = _parse(data)
    match content:
        case {"version": 1 | 2 as version, "status": 0 | 1 as status, "features": dict(features)} if all(map(_is_level, features.values())):
            return FeatureNode(version, status == 1, features)
        case _:
            raise Unreadable(f"/feature holds {data!r}")


class ProducerIdBlock(NamedTuple):
    """A block of producer ids, both ends inclusive, and the broker that requested it."""

    broker_id: int
    first: int
    last: int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    return b'{"version":1,"broker":%d,"block_start":"%d","block_end":"%d"}' % block


def decode_producer_ids(data: bytes | None) -> ProducerIdBlock | None:
    """None when no block was given out yet (null data)."""
    if data is None:
        return None
    content = _parse(data)
    try:
        return ProducerIdBlock(int32(content["broker"]), parse_int(content["block_start"], _INT64), parse_int(content["block_end"], _INT64))
    except (KeyError, TypeError, ValueError):
        raise Unreadable(f"/latest_producer_id_block holds {data!r}") from None
