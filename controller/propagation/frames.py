"""Bodies of the three requests a controller sends, from what the cluster knows (controller 13.3, 13.4).

The newest versions, which a current inter-broker protocol uses, are put together from kept bytes: each partition keeps the
encoded part that both requests share (`wire`) until it changes, and a request joins them. Older versions go
through the codec field by field.
Both paths give the same bytes (a test compares them).

Everything that was read from ZooKeeper can be encoded; a broker that cannot be encoded is logged and left out, so that the others are
sent. `is_encodable` finds a partition that cannot be encoded (see `batch`).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.values import Broker, LeaderAndIsr
from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.identity_memo import IdentityMemo
from klamm.protocol.nouns import LEADER_DURING_DELETE, Ints
from klamm.protocol.primitives import write_uvarint

log = logging.getLogger("klamm.controller")

UNENCODABLE = (struct.error, ValueError, LocalProtocolError)
"""What encoding raises over a number or a text that has no place in a request."""


_LISR_KEPT_FROM, _UMR_KEPT_FROM = 6, 7
"""From these versions on a partition state has the layout of the kept bytes."""

_SETTLED = b"\x01\x01\x00\x00\x00"
"""The end of a LeaderAndIsr state: nothing adding, nothing removing, not new, recovered, no tags."""


_index = struct.Struct(">i").pack


@lru_cache(maxsize=4096)
def _wire_struct(isr: int, replicas: int) -> struct.Struct:
    return struct.Struct(f">4iB{isr}iiB{replicas}i")


@lru_cache(maxsize=4096)
def _compact(values: Ints) -> bytes:
    """A compact array of int32."""
    return write_uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def _wire(p: Partition, info: LeaderAndIsr) -> bytes:
    """What both requests begin a partition's state with: index, epochs, leader, ISR, replicas."""
    isr, replicas = info.isr, p.assignment.replicas
    ni, nr = len(isr), len(replicas)
    if ni < 127 and nr < 127:  # a compact array's length takes one byte
        pack = _wire_struct(ni, nr).pack
        return pack(
            p.index, info.controller_epoch, info.leader, info.leader_epoch, ni + 1, *isr, info.partition_epoch, nr + 1, *replicas
        )
    fixed = struct.pack(">4i", p.index, info.controller_epoch, info.leader, info.leader_epoch)
    return fixed + _compact(isr) + struct.pack(">i", info.partition_epoch) + _compact(replicas)


def _lisr_tail(adding: Ints, removing: Ints, is_new: bool, recovery: int) -> bytes:
    return _compact(adding) + _compact(removing) + bytes((is_new, recovery, 0))


def _lisr_state(p: Partition, info: LeaderAndIsr, is_new: bool, version: int) -> Any:
    a = p.assignment
    recovery = info.recovery if version >= 6 else 0  # an older protocol does not have the mark; it stays in ZooKeeper
    return messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        topic_name=p.topic.name, partition_index=p.index, controller_epoch=info.controller_epoch, leader=info.leader,
        leader_epoch=info.leader_epoch, isr=info.isr, partition_epoch=info.partition_epoch, replicas=a.replicas,
        adding_replicas=a.adding, removing_replicas=a.removing, is_new=is_new, leader_recovery_state=recovery,
    )


def _umr_state(p: Partition, info: LeaderAndIsr, offline: Ints) -> Any:
    return messages.UpdateMetadataRequest.UpdateMetadataPartitionState(
        topic_name=p.topic.name, partition_index=p.index, controller_epoch=info.controller_epoch, leader=info.leader,
        leader_epoch=info.leader_epoch, isr=info.isr, zk_version=info.partition_epoch, replicas=p.assignment.replicas,
        offline_replicas=offline,
    )


def _head(topic: Topic) -> bytes:
    """Name and id, as both requests write them."""
    head = topic.wire_head
    if head is None:
        name = topic.name.encode()
        head = topic.wire_head = write_uvarint(len(name) + 1) + name + topic.wire_id
    return head


def _topic_struct(head: bytes, states: list[bytes]) -> bytes:
    return b"".join((head, write_uvarint(len(states) + 1), *states, b"\x00"))


def _encodable(brokers: Iterable[Broker], encode: Callable[[Broker], bytes]) -> list[bytes]:
    """Encoded brokers but for those that cannot be."""
    out = []
    for broker in brokers:
        try:
            out.append(encode(broker))
        except UNENCODABLE as problem:
            log.error("broker %d is left out of requests because it cannot be encoded: %s", broker.id, problem)
    return out


_topic_of = attrgetter("topic")


class Encoder:
    """Builds request bodies for one controller term."""

    def __init__(self, controller_id: int, lisr_version: int, umr_version: int, sr_version: int) -> None:
        self.controller_id = controller_id
        self.lisr_version = lisr_version
        self.umr_version = umr_version
        self.sr_version = sr_version
        self._whole: dict[Topic, bytes] = {}
        self._alike: IdentityMemo[tuple[bytes, bytes]] = IdentityMemo()

    def begin(self) -> None:
        """A new batch: nothing changes until its last request is encoded."""
        self._whole.clear()
        self._alike.clear()

    def _keep(self, p: Partition) -> bytes:
        """Encode a partition's state and keep it until it changes. It must have one.

        Partitions whose state and assignment are the same objects differ in their index only.
        """
        info, a = p.info, p.assignment
        assert info is not None
        key = (id(info), id(a))
        found = self._alike.get(key)
        if found is None:
            settled = not (a.adding or a.removing or info.recovery)
            tail = _SETTLED if settled else _lisr_tail(a.adding, a.removing, False, info.recovery)
            found = self._alike.keep(key, (_wire(p, info)[4:], tail), info, a)
        rest, p.lisr_tail = found
        wire = p.wire = _index(p.index) + rest
        return wire

    @staticmethod
    def is_encodable(p: Partition) -> bool:
        """Whether a partition can be encoded."""
        try:
            _index(p.index)
            _head(p.topic)
            if p.info is not None:
                _wire(p, p.info)
                _lisr_tail(p.assignment.adding, p.assignment.removing, False, p.info.recovery)
        except UNENCODABLE as problem:
            log.error("%s is left out of requests because it cannot be encoded: %s", p, problem)
            return False
        return True

    # --- LeaderAndIsr ---

    def leader_and_isr(
        self, cluster: Cluster, broker: Broker, partitions: Mapping[Partition, bool] | Sequence[Partition], listener: str
    ) -> bytes:
        """Body of a LeaderAndIsr request; `partitions` says of each whether it is new, in a mere sequence none is."""
        version = self.lisr_version
        kept = version >= _LISR_KEPT_FROM
        leaders = {p.info.leader for p in partitions if p.info is not None}
        topics: list[Any]
        by_topic: dict[Topic, list[Any]] = {}
        if kept and not (isinstance(partitions, Mapping) and True in partitions.values()):
            topics = self._settled_topics(partitions)
        else:
            flags = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, False)
            for p, is_new in flags.items():
                if p.info is None:
                    continue
                if not kept:
                    entry = _lisr_state(p, p.info, is_new, version)
                elif is_new:
                    entry = (p.wire or self._keep(p)) + _lisr_tail(p.assignment.adding, p.assignment.removing, True, p.info.recovery)
                else:
                    entry = (p.wire or self._keep(p)) + p.lisr_tail
                by_topic.setdefault(p.topic, []).append(entry)
            topics = [_topic_struct(_head(t), e) for t, e in by_topic.items()] if kept else []
        request = messages.LeaderAndIsrRequest
        new_request = partial(
            request, controller_id=self.controller_id, controller_epoch=cluster.epoch, broker_epoch=broker.epoch,
            live_leaders=self._live_leaders([cluster.brokers[b] for b in sorted(leaders) if b in cluster.brokers], listener),
        )
        if version < 2:
            body = new_request(ungrouped_partition_states=[e for entries in by_topic.values() for e in entries])
        elif kept:
            body = new_request(topic_states=topics)
        else:
            topic_state = request.LeaderAndIsrTopicState
            states = [topic_state(topic_name=t.name, topic_id=t.wire_id, partition_states=e) for t, e in by_topic.items() if e]
            body = new_request(topic_states=states)
        return bytes(messages.encode(body, version))

    def _settled_topics(self, partitions: Iterable[Partition]) -> list[bytes]:
        """Encoded topics where no partition is new. A topic that is sent as a whole is encoded once in a batch."""
        members: dict[Topic, list[Partition]] = {}
        for topic, group in groupby(partitions, key=_topic_of):
            if topic in members:
                members[topic] += group
            else:
                members[topic] = list(group)
        out = []
        for topic, held in members.items():
            is_whole = len(held) == len(topic.partitions)
            encoded = self._whole.get(topic) if is_whole else None
            if encoded is None:
                states = [(p.wire or self._keep(p)) + p.lisr_tail for p in held if p.info is not None]
                if not states:
                    continue
                encoded = _topic_struct(_head(topic), states)
                if is_whole:
                    self._whole[topic] = encoded
            out.append(encoded)
        return out

    def _live_leaders(self, brokers: Iterable[Broker], listener: str) -> list[bytes]:
        encode = messages.struct_encoder("LeaderAndIsrRequest", "LeaderAndIsrLiveLeader", self.lisr_version)

        def encoded(broker: Broker) -> bytes:
            endpoint = broker.endpoint(listener)
            host, port = ("", -1) if endpoint is None else (endpoint.host, endpoint.port)
            return encode(messages.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=broker.id, host_name=host, port=port))

        return _encodable(brokers, encoded)

    # --- UpdateMetadata ---

    def metadata_topics(self, cluster: Cluster, partitions: Iterable[Partition]) -> list[bytes]:
        """The topic part of an UpdateMetadata request, encoded, the same for every receiver of a batch.

        Partitions without leadership are left out; those of a topic queued for deletion say leader -2.
        """
        version = self.umr_version
        kept = version >= _UMR_KEPT_FROM
        by_topic: dict[Topic, list[Any]] = {}
        tails: dict[Ints, bytes] = {}
        shared_tails = kept and not cluster.offline_dirs
        for topic, group in groupby(partitions, key=_topic_of):
            entries = by_topic.setdefault(topic, [])
            if topic.queued or not shared_tails:
                entries += [self._metadata_state(cluster, p, p.info, kept) for p in group if p.info is not None]
                continue
            for p in group:
                wire = p.wire
                if wire is None:
                    if p.info is None:
                        continue
                    wire = self._keep(p)
                replicas = p.assignment.replicas
                tail = tails.get(replicas)
                if tail is None:
                    tail = tails[replicas] = _compact(cluster.offline_replicas(p)) + b"\x00"
                entries.append(wire + tail)
        if kept:
            return [_topic_struct(_head(t), e) for t, e in by_topic.items() if e]
        if version < 5:
            encode = messages.struct_encoder("UpdateMetadataRequest", "UpdateMetadataPartitionState", version)
            return [encode(e) for entries in by_topic.values() for e in entries]
        encode = messages.struct_encoder("UpdateMetadataRequest", "UpdateMetadataTopicState", version)
        topic_state = messages.UpdateMetadataRequest.UpdateMetadataTopicState
        return [encode(topic_state(topic_name=t.name, topic_id=t.wire_id, partition_states=e)) for t, e in by_topic.items() if e]

    @staticmethod
    def _metadata_state(cluster: Cluster, p: Partition, info: LeaderAndIsr, kept: bool) -> Any:
        offline = cluster.offline_replicas(p)
        if p.topic.deletion is not None:
            info = LeaderAndIsr(LEADER_DURING_DELETE, 0, info.isr, info.recovery, 0, info.controller_epoch)
        return _wire(p, info) + _compact(offline) + b"\x00" if kept else _umr_state(p, info, offline)

    def live_brokers(self, cluster: Cluster, listener: str) -> list[bytes]:
        """Every registered broker with all its endpoints, encoded."""
        request, version = messages.UpdateMetadataRequest, self.umr_version
        encode = messages.struct_encoder("UpdateMetadataRequest", "UpdateMetadataBroker", version)

        def encoded(b: Broker) -> bytes:
            first = b.endpoint(listener)
            host, port = ("", -1) if first is None else (first.host, first.port)
            endpoints = [
                request.UpdateMetadataEndpoint(port=e.port, host=e.host, listener=e.listener, security_protocol=e.security_protocol)
                for e in b.endpoints
            ]
            broker = request.UpdateMetadataBroker(id=b.id, rack=b.rack if version >= 2 else None)
            broker = broker._replace(v0_host=host, v0_port=port) if version == 0 else broker._replace(endpoints=endpoints)
            return encode(broker)

        return _encodable((b for _, b in sorted(cluster.brokers.items())), encoded)

    def update_metadata(self, cluster: Cluster, broker: Broker, topics: list[bytes], live_brokers: list[bytes]) -> bytes:
        """Body of an UpdateMetadata request from the shared parts of a batch."""
        version = self.umr_version
        new_request = partial(
            messages.UpdateMetadataRequest, controller_id=self.controller_id, controller_epoch=cluster.epoch,
            broker_epoch=broker.epoch, live_brokers=live_brokers,
        )
        body = new_request(ungrouped_partition_states=topics) if version < 5 else new_request(topic_states=topics)
        return bytes(messages.encode(body, version))

    # --- StopReplica ---

    def stop_replica(self, cluster: Cluster, broker: Broker, partitions: Mapping[Partition, tuple[int, bool]]) -> list[tuple[bytes, bool]]:
        """(body, deletes) of each StopReplica request: one, or one per delete flag below version 3.

        `partitions` gives the leader epoch and whether to delete; "deletes" is true when the response must be looked at.
        """
        version, request = self.sr_version, messages.StopReplicaRequest
        new_request = partial(
            request, controller_id=self.controller_id, controller_epoch=cluster.epoch, broker_epoch=broker.epoch
        )
        if version >= 3:
            by_topic: dict[str, list[Any]] = {}
            for p, (leader_epoch, delete) in partitions.items():
                state = request.StopReplicaPartitionState(partition_index=p.index, leader_epoch=leader_epoch, delete_partition=delete)
                by_topic.setdefault(p.topic.name, []).append(state)
            states = [request.StopReplicaTopicState(topic_name=t, partition_states=s) for t, s in by_topic.items()]
            body = new_request(topic_states=states)
            return [(bytes(messages.encode(body, version)), any(d for _, d in partitions.values()))]
        out = []
        for flag in (False, True):
            chosen = [p for p, (_, delete) in partitions.items() if delete is flag]
            if not chosen:
                continue
            if version == 0:
                flat = [request.StopReplicaPartitionV0(topic_name=p.topic.name, partition_index=p.index) for p in chosen]
                body = new_request(delete_partitions=flag, ungrouped_partitions=flat)
            else:
                indexes: dict[str, list[int]] = {}
                for p in chosen:
                    indexes.setdefault(p.topic.name, []).append(p.index)
                topics = [request.StopReplicaTopicV1(name=t, partition_indexes=i) for t, i in indexes.items()]
                body = new_request(delete_partitions=flag, topics=topics)
            out.append((bytes(messages.encode(body, version)), flag))
        return out
