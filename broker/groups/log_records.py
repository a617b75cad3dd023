"""The records of the offsets topic, both ways: a group's metadata and its committed offsets.

A key begins with its version as int16, which says what it is a key of: 0 and 1 of an offset, 2 of a group. A value begins with its
version too; a value of None deletes what the key names. Records with other keys are those of later brokers: they are passed over.
What is written has the newest version that is not flexible, as Apache Kafka 3.9.1 writes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.broker.coordinators.effects import Record
from klamm.broker.coordinators.internal_records import decode, encode, version_of
from klamm.broker.groups.requests import OffsetCommit
from klamm.protocol import messages
from klamm.protocol.nouns import TopicPartition

OFFSET_KEYS, GROUP_KEY = (0, 1), 2
GROUP_VALUE = 3
OFFSET_VALUE, OFFSET_VALUE_WITH_EXPIRY = 3, 1
NO_EXPIRY = -1


class StoredMember(NamedTuple):
    """A member as a group's record has it. The subscription is that of the group's protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """What a group's record says: one generation with its assignments, or an empty one. `state_ms` is the time of its last change of state,
    -1 in records of brokers that did not write it."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[StoredMember, ...]


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    """The key of a group's record."""

    group_id: str


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    return encode("OffsetCommitKey", 1, group=group_id, topic=partition.topic, partition=partition.partition)


def group_key(group_id: str) -> bytes:
    return encode("GroupMetadataKey", GROUP_KEY, group=group_id)


def offset_record(group_id: str, partition: TopicPartition, commit: OffsetCommit) -> Record:
    """The record of a committed offset. Version 1 if the offset has its own expiry time; only that version stores one."""
    version = OFFSET_VALUE if commit.expire_ms is None else OFFSET_VALUE_WITH_EXPIRY
    value = encode(
        "OffsetCommitValue", version, offset=commit.offset, leader_epoch=commit.leader_epoch, metadata=commit.metadata,
        commit_timestamp=commit.commit_ms, expire_timestamp=NO_EXPIRY if commit.expire_ms is None else commit.expire_ms,
    )
    return offset_key(group_id, partition), value


def group_record(group_id: str, group: StoredGroup) -> Record:
    """The record of a group."""
    value_class: Any = messages.message_type("GroupMetadataValue").top
    members = [
        value_class.MemberMetadata(
            member_id=each.member_id, group_instance_id=each.instance_id, client_id=each.client_id, client_host=each.client_host,
            rebalance_timeout=each.rebalance_timeout_ms, session_timeout=each.session_timeout_ms, subscription=each.subscription,
            assignment=each.assignment,
        )
        for each in group.members
    ]
    value = encode(
        "GroupMetadataValue", GROUP_VALUE, protocol_type=group.protocol_type, generation=group.generation, protocol=group.protocol,
        leader=group.leader, current_state_timestamp=group.state_ms, members=members,
    )
    return group_key(group_id), value


def read_key(key: bytes | None) -> OffsetKey | GroupKey | None:
    """What a key names; None for keys of later brokers. Raises RemoteProtocolError for bytes that are not a key."""
    version = version_of(key)
    if version in OFFSET_KEYS:
        body = decode("OffsetCommitKey", version, key)
        return OffsetKey(body.group, TopicPartition(body.topic, body.partition))
    if version == GROUP_KEY:
        return GroupKey(decode("GroupMetadataKey", version, key).group)
    return None


def read_offset(value: bytes) -> OffsetCommit:
    """The committed offset in a value. Raises RemoteProtocolError."""
    body = decode("OffsetCommitValue", version_of(value), value)
    expire_ms = None if body.expire_timestamp == NO_EXPIRY else body.expire_timestamp
    return OffsetCommit(body.offset, body.leader_epoch, body.metadata, body.commit_timestamp, expire_ms)


def read_group(value: bytes) -> StoredGroup:
    """The group in a value. In a record without rebalance time-outs, those are the session time-outs. Raises RemoteProtocolError."""
    version = version_of(value)
    body = decode("GroupMetadataValue", version, value)
    members = tuple(
        StoredMember(
            each.member_id, each.group_instance_id, each.client_id, each.client_host,
            each.session_timeout if version == 0 else each.rebalance_timeout, each.session_timeout, each.subscription, each.assignment,
        )
        for each in body.members
    )
    return StoredGroup(body.protocol_type, body.generation, body.protocol, body.leader, body.current_state_timestamp, members)
