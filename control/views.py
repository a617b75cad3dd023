"""Brokers, topics, groups, phases and faults as plain values for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from enum import Enum
from typing import Any

from klamm.broker.groups.group import Group
from klamm.broker.metadata_cache import CachedTopic
from klamm.broker.recovery import Recovery
from klamm.broker.transactions.transaction import Transaction
from klamm.control.history import time_text
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.controller import changes
from klamm.controller.changes import Change
from klamm.protocol.apis import APIS
from klamm.protocol.nouns import ZERO_UUID, SecurityProtocol, TopicPartition, id_text
from klamm.server.broker_server import BrokerServer
from klamm.server.faults.fault import DiskFilter, DiskHit, Effect, Fault, Hit, RequestFilter
from klamm.server.lifecycle.disks import are_on_disk

MAX_ROWS = 100
"""Of a change of more partitions only so many are shown."""


def fields_of(reached: Any) -> JsonObject:
    """The fields of a phase that was reached."""
    return {field.name: _plain(getattr(reached, field.name)) for field in dataclasses.fields(reached)}


def _plain(value: object) -> object:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value.name if isinstance(value, Enum) else value
    if isinstance(value, TopicPartition):
        return {"topic": value.topic, "partition": value.partition}
    if isinstance(value, (tuple, list, frozenset, set)):
        return [_plain(each) for each in value]
    return str(value)


def features(broker: BrokerServer) -> JsonObject:
    """The features that a broker shows."""
    shown = broker.services.features
    return {
        "epoch": shown.current.epoch, "finalized": dict(shown.current.finalized),
        "supported": {name: list(levels) for name, levels in shown.supported.items()},
    }


def fault(one: Fault) -> JsonObject:
    """A fault with its counts and last hits."""
    effect, limits = one.effect, one.limits
    shown = _disk_filter(one.filter) if isinstance(one.filter, DiskFilter) else _request_filter(one.filter, effect)
    if one.condition is not None:
        shown["while"] = dict(one.condition.values)
    done = {
        "error": None if effect.error is None else effect.error.name, "message": effect.message, "delay_ms": effect.delay_ms or None,
        "drop": effect.is_dropped or None, "lose_response": effect.is_lost or None, "close": effect.close,
        "corrupt": effect.is_corrupt or None, "truncate": effect.truncate, "correlation_id": effect.correlation_id,
        "throttle_time_ms": effect.throttle_time_ms, "values": effect.values, "unknown_tags": effect.has_unknown_tags or None,
        "slow_disk_ms": effect.slow_disk_ms or None,
    }
    return {
        "id": one.number,
        "filter": {key: value for key, value in shown.items() if value is not None},
        "effect": {key: value for key, value in done.items() if value is not None},
        "first": limits.first, "after": limits.after, "probability": limits.probability, "seed": limits.seed,
        "hits": one.hits, "matches": one.matches, "spent": one.is_spent,
        "last": [hit_json(hit) for hit in one.last],
    }


def _request_filter(wanted: RequestFilter, effect: Effect) -> JsonObject:
    shown = {
        "api": None if wanted.api is None else APIS[wanted.api].name,
        "versions": None if wanted.versions is None else list(wanted.versions),
        "broker": wanted.broker, "from_broker": wanted.from_broker, "client_id": wanted.client_id, "principal": wanted.principal,
        "direction": "response" if effect.after_work else "request",
    }
    for key, value in wanted.parts.items():
        shown[key if not isinstance(value, bytes) else "topic_id"] = uuid(value) if isinstance(value, bytes) else value
    return shown


def _disk_filter(wanted: DiskFilter) -> JsonObject:
    return {
        "broker": wanted.broker, "disk": wanted.operation, "log_dir": wanted.directory, "topic": wanted.topic,
        "partition": wanted.partition,
    }


def hit_json(hit: Hit | DiskHit) -> JsonObject:
    """A request, or an operation of a log, that a fault hit."""
    if isinstance(hit, DiskHit):
        return {
            "at": time_text(hit.at_ms), "broker": hit.broker, "disk": hit.operation, "topic": hit.topic, "partition": hit.partition,
        }
    return {
        "at": time_text(hit.at_ms), "broker": hit.broker, "client_id": hit.client_id, "api": hit.api, "version": hit.version,
        "correlation_id": hit.correlation_id,
    }


def recovery(waiting: Recovery) -> JsonObject:
    """A leader that waits in recovery."""
    topic, partition = waiting.partition
    return {"broker": waiting.broker_id, "topic": topic, "partition": partition, "leader_epoch": waiting.leader_epoch}


def uuid(value: bytes | None) -> str | None:
    """A topic id as Kafka writes it; None for none."""
    return None if value is None or value == ZERO_UUID else id_text(value)


def broker(running: BrokerServer, state: str) -> JsonObject:
    """A broker that runs."""
    endpoints = [
        {"listener": e.listener, "host": e.host, "port": e.port, "security_protocol": SecurityProtocol(e.security_protocol).name}
        for e in running.advertised
    ]
    inner = next((e for e in endpoints if e["listener"] == running.inter_broker_listener), endpoints[0] if endpoints else None)
    shown: JsonObject = {
        "id": running.id, "state": state, "host": inner and inner["host"], "port": inner and inner["port"], "listeners": endpoints,
        "rack": running.config.get("broker.rack"), "epoch": running.identity.broker_epoch, "is_controller": running.controller.is_active,
        "zookeeper_session": f"0x{running.zk.session_id:x}", "replicas": len(running.replicas),
        "leaders": running.replicas.leader_count(),
        "log_dirs": list(running.config.log_dirs) if are_on_disk(running.config) else [],
    }
    return shown


def controller(running: BrokerServer) -> JsonObject:
    """The active controller."""
    current = running.controller.current
    return {
        "id": running.id, "epoch": running.controller.epoch, "queue": len(running.controller.queue),
        "event": None if current is None else type(current.event).__name__,
    }


def change(controller_id: int, one: Change) -> JsonObject | None:
    """A change of the cluster that users of a cluster can see: leaders, ISRs, topics, brokers, controllers. None for others."""
    match one:
        case changes.StatesChanged(states):
            rows = [
                {"topic": p.topic, "partition": p.partition} | ({} if s is None else {
                    "leader": s.leader, "isr": list(s.isr), "leader_epoch": s.leader_epoch,
                })
                for p, s in states[:MAX_ROWS]
            ]
            return {"change": "StatesChanged", "partitions": rows, "more": max(0, len(states) - MAX_ROWS)}
        case changes.TermBegan(epoch) | changes.TermEnded(epoch):
            return {"change": type(one).__name__, "controller_id": controller_id, "controller_epoch": epoch}
        case changes.TopicAdded() | changes.TopicRemoved() | changes.TopicDeletionQueued():
            return {"change": type(one).__name__, "topic": one.topic}
        case changes.ReassignmentsBegan(partitions) | changes.ReassignmentsEnded(partitions):
            rows = [{"topic": p.topic, "partition": p.partition} for p in partitions[:MAX_ROWS]]
            return {"change": type(one).__name__, "partitions": rows, "more": max(0, len(partitions) - MAX_ROWS)}
        case changes.BrokersRegistered(brokers):
            return {"change": "BrokersRegistered", "broker_ids": [each.id for each in brokers]}
        case changes.BrokersUnregistered(broker_ids):
            return {"change": "BrokersUnregistered", "broker_ids": list(broker_ids)}
    return None


def cached_states(cached: CachedTopic) -> list[JsonObject]:
    """The partitions of a topic as a broker has them in its metadata."""
    return [
        {"partition": index, "leader": state.leader, "isr": list(state.isr), "replicas": list(state.replicas)}
        for index, state in sorted(cached.partitions.items())
    ]


async def topic(reader: BrokerServer, brokers: Iterable[BrokerServer], name: str) -> JsonObject:
    """A topic as ZooKeeper and each running broker see it. Raises Refused when there is none."""
    (stored,) = await reader.store.read_topics([name])
    if stored is None:
        raise Refused(f"there is no topic {name!r}", 404)
    indexes = sorted(stored.assignments)
    states = await reader.store.read_states([TopicPartition(name, index) for index in indexes])
    rows = []
    for index, state in zip(indexes, states, strict=True):
        assignment = stored.assignments[index]
        seen = {
            "replicas": list(assignment.replicas), "adding": list(assignment.adding), "removing": list(assignment.removing),
        }
        written = None if state is None else {
            "leader": state.leader, "isr": list(state.isr), "leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch,
            "controller_epoch": state.controller_epoch, "leader_recovery_state": state.recovery,
        }
        rows.append(
            {"partition": index, **seen, "leader": -1 if state is None else state.leader, "isr": [] if state is None else list(state.isr)}
            | {"zookeeper": seen | (written or {}), "brokers": {str(each.id): as_seen(each, name, index) for each in brokers}}
        )
    return {"name": name, "topic_id": uuid(stored.topic_id), "partitions": rows}


def as_seen(by: BrokerServer, name: str, index: int) -> JsonObject:
    """What a broker's metadata cache has of a partition and, if it has a replica, what that has."""
    cached, hosted = by.metadata.partition(name, index), by.replicas.get(name, index)
    shown: JsonObject = {}
    if cached is not None:
        shown |= {"leader": cached.leader, "isr": list(cached.isr), "leader_epoch": cached.leader_epoch}
    if hosted is not None:
        shown |= {
            "role": hosted.role.name.lower(), "log_start_offset": hosted.log_start_offset, "log_end_offset": hosted.log_end_offset,
            "high_watermark": hosted.high_watermark, "last_stable_offset": hosted.last_stable_offset,
        }
    return shown


def group(coordinator: int, one: Group) -> JsonObject:
    """A group of a coordinator."""
    members = [
        {"member_id": member.member_id, "client_id": member.client_id, "instance_id": member.instance_id} for member in one.members.values()
    ]
    return {
        "group": one.group_id, "coordinator": coordinator, "state": one.state.value, "generation": one.generation,
        "protocol_type": one.protocol_type, "protocol": one.protocol, "leader": one.leader, "members": members,
        "offsets": len(one.offsets.committed),
    }


def transaction(coordinator: int, one: Transaction) -> JsonObject:
    """A transactional id of a coordinator."""
    return {
        "transactional_id": one.transactional_id, "coordinator": coordinator, "state": one.state.text,
        "producer_id": one.stored.producer_id, "producer_epoch": one.producer_epoch,
        "partitions": [{"topic": topic, "partition": index} for topic, index in one.open_partitions],
    }
