"""Bodies of the three requests a controller sends, from what the cluster knows (controller 13.3, 13.4).

The newest versions, which a current inter-broker protocol uses, are put together from kept bytes: each partition keeps its
encoded state (`lisr`, `umr`) until it changes, and a request joins them. Older versions go through the codec field by field.
Both paths give the same bytes (a test compares them).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.values import LEADER_DURING_DELETE, Broker, Ints, LeaderAndIsr
from klamm.protocol import messages

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6

_LISR_KEPT_FROM, _UMR_KEPT_FROM = 6, 7
"""From these versions on a partition state has the layout of the kept bytes."""

_NOT_NEW, _IS_NEW = b"\x00", b"\x01"


@lru_cache(maxsize=4096)
def _lisr_struct(isr: int, replicas: int, adding: int, removing: int) -> struct.Struct:
    return struct.Struct(f">4iB{isr}iiB{replicas}iB{adding}iB{removing}i")


@lru_cache(maxsize=4096)
def _umr_struct(isr: int, replicas: int, offline: int) -> struct.Struct:
    return struct.Struct(f">4iB{isr}iiB{replicas}iB{offline}iB")


def _small(*lists: Ints) -> bool:
    """A compact array's length takes one byte below 127 elements."""
    return all(len(x) < 127 for x in lists)


def _lisr_bytes(p: Partition, info: LeaderAndIsr, version: int) -> bytes:
    """Encoded state up to the flag "is new" (version 6 and later)."""
    a = p.assignment
    isr, replicas, adding, removing = info.isr, a.replicas, a.adding, a.removing
    if not _small(isr, replicas):
        return _encode_state(_lisr_state(p, info, False), "LeaderAndIsrRequest", "LeaderAndIsrPartitionState", version)[:-3]
    ni, nr, na, nm = len(isr), len(replicas), len(adding), len(removing)
    return _lisr_struct(ni, nr, na, nm).pack(
        p.index, info.controller_epoch, info.leader, info.leader_epoch, ni + 1, *isr, info.partition_epoch, nr + 1, *replicas,
        na + 1, *adding, nm + 1, *removing,
    )  # fmt: skip


def _umr_bytes(p: Partition, info: LeaderAndIsr, offline: Ints, version: int) -> bytes:
    isr, replicas = info.isr, p.assignment.replicas
    if not _small(isr, replicas):
        return _encode_state(_umr_state(p, info, offline), "UpdateMetadataRequest", "UpdateMetadataPartitionState", version)
    ni, nr, no = len(isr), len(replicas), len(offline)
    return _umr_struct(ni, nr, no).pack(
        p.index, info.controller_epoch, info.leader, info.leader_epoch, ni + 1, *isr, info.partition_epoch, nr + 1, *replicas,
        no + 1, *offline, 0,
    )  # fmt: skip


def _encode_state(state: Any, message: str, name: str, version: int) -> bytes:
    encoded: bytes = messages.struct_encoder(message, name, version)(state)
    return encoded


def _lisr_state(p: Partition, info: LeaderAndIsr, is_new: bool) -> Any:
    a = p.assignment
    return messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        topic_name=p.topic.name, partition_index=p.index, controller_epoch=info.controller_epoch, leader=info.leader,
        leader_epoch=info.leader_epoch, isr=info.isr, partition_epoch=info.partition_epoch, replicas=a.replicas,
        adding_replicas=a.adding, removing_replicas=a.removing, is_new=is_new, leader_recovery_state=info.recovery,
    )  # fmt: skip


def _umr_state(p: Partition, info: LeaderAndIsr, offline: Ints) -> Any:
    return messages.UpdateMetadataRequest.UpdateMetadataPartitionState(
        topic_name=p.topic.name, partition_index=p.index, controller_epoch=info.controller_epoch, leader=info.leader,
        leader_epoch=info.leader_epoch, isr=info.isr, zk_version=info.partition_epoch, replicas=p.assignment.replicas,
        offline_replicas=offline,
    )  # fmt: skip


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _head(topic: Topic) -> bytes:
    """Name and id, as both requests write them."""
    head = topic.wire_head
    if head is None:
        name = topic.name.encode()
        head = topic.wire_head = _varint(len(name) + 1) + name + topic.wire_id
    return head


def _topic_struct(head: bytes, states: list[bytes]) -> bytes:
    return b"".join((head, _varint(len(states) + 1), *states, b"\x00"))


class Encoder:
    """Builds request bodies for one controller term."""

    def __init__(self, controller_id: int, lisr_version: int, umr_version: int, sr_version: int) -> None:
        self.controller_id = controller_id
        self.lisr_version = lisr_version
        self.umr_version = umr_version
        self.sr_version = sr_version

    # --- LeaderAndIsr ---

    def leader_and_isr(self, cluster: Cluster, broker: Broker, partitions: Mapping[Partition, bool], listener: str) -> bytes:
        """Body of a LeaderAndIsr request; `partitions` says of each whether it is new."""
        version = self.lisr_version
        leaders = set()
        by_topic: dict[Topic, list[Any]] = {}
        kept = version >= _LISR_KEPT_FROM
        for p, is_new in partitions.items():
            info = p.info
            if info is None:
                continue
            leaders.add(info.leader)
            if kept:
                state = p.lisr
                if state is None:
                    state = p.lisr = _lisr_bytes(p, info, version)
                flags = (_IS_NEW if is_new else _NOT_NEW) + (b"\x01\x00" if info.recovery else b"\x00\x00")
                entry: Any = state + flags
            else:
                entry = _lisr_state(p, info, is_new)
            topic = p.topic
            if topic in by_topic:
                by_topic[topic].append(entry)
            else:
                by_topic[topic] = [entry]
        request = messages.LeaderAndIsrRequest
        common = {
            "controller_id": self.controller_id,
            "controller_epoch": cluster.epoch,
            "broker_epoch": broker.epoch,
            "live_leaders": [self._live_leader(cluster.brokers[b], listener) for b in sorted(leaders) if b in cluster.brokers],
        }
        if version < 2:
            body = request(ungrouped_partition_states=[e for entries in by_topic.values() for e in entries], **common)
        elif kept:
            body = request(topic_states=[_topic_struct(_head(t), e) for t, e in by_topic.items()], **common)
        else:
            topic_state = request.LeaderAndIsrTopicState
            states = [topic_state(topic_name=t.name, topic_id=t.wire_id, partition_states=e) for t, e in by_topic.items()]
            body = request(topic_states=states, **common)
        return bytes(messages.encode(body, version))

    @staticmethod
    def _live_leader(broker: Broker, listener: str) -> Any:
        endpoint = broker.endpoint(listener)
        host, port = ("", -1) if endpoint is None else (endpoint.host, endpoint.port)
        return messages.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=broker.id, host_name=host, port=port)

    # --- UpdateMetadata ---

    def metadata_topics(self, cluster: Cluster, partitions: Iterable[Partition]) -> list[Any]:
        """The topic part of an UpdateMetadata request, the same for every receiver of a batch.

        Partitions without leadership are left out; those of a topic queued for deletion say leader -2.
        """
        version = self.umr_version
        kept = version >= _UMR_KEPT_FROM
        by_topic: dict[Topic, list[Any]] = {}
        offline_replicas = cluster.offline_replicas
        for p in partitions:
            info = p.info
            if info is None:
                continue
            offline = offline_replicas(p)
            topic = p.topic
            if topic.queued:
                gone = LeaderAndIsr(LEADER_DURING_DELETE, 0, info.isr, info.recovery, 0, info.controller_epoch)
                entry: Any = _umr_bytes(p, gone, offline, version) if kept else _umr_state(p, gone, offline)
            elif kept:
                state = p.umr
                if state is None or (p.umr_offline is not offline and p.umr_offline != offline):
                    state = p.umr = _umr_bytes(p, info, offline, version)
                    p.umr_offline = offline
                entry = state
            else:
                entry = _umr_state(p, info, offline)
            if topic in by_topic:
                by_topic[topic].append(entry)
            else:
                by_topic[topic] = [entry]
        if version < 5:
            return [e for entries in by_topic.values() for e in entries]
        if kept:
            return [_topic_struct(_head(t), e) for t, e in by_topic.items()]
        topic_state = messages.UpdateMetadataRequest.UpdateMetadataTopicState
        return [topic_state(topic_name=t.name, topic_id=t.wire_id, partition_states=e) for t, e in by_topic.items()]

    def live_brokers(self, cluster: Cluster, listener: str) -> list[bytes]:
        """Every registered broker with all its endpoints, encoded."""
        request, version = messages.UpdateMetadataRequest, self.umr_version
        encode = messages.struct_encoder("UpdateMetadataRequest", "UpdateMetadataBroker", version)
        out = []
        for _, b in sorted(cluster.brokers.items()):
            first = b.endpoint(listener)
            host, port = ("", -1) if first is None else (first.host, first.port)
            endpoints = [
                request.UpdateMetadataEndpoint(port=e.port, host=e.host, listener=e.listener, security_protocol=e.security_protocol)
                for e in b.endpoints
            ]
            broker = request.UpdateMetadataBroker(id=b.id, rack=b.rack if version >= 2 else None)
            broker = broker._replace(v0_host=host, v0_port=port) if version == 0 else broker._replace(endpoints=endpoints)
            out.append(encode(broker))
        return out

    def update_metadata(self, cluster: Cluster, broker: Broker, topics: list[Any], live_brokers: list[bytes]) -> bytes:
        """Body of an UpdateMetadata request from the shared parts of a batch."""
        version = self.umr_version
        field = "ungrouped_partition_states" if version < 5 else "topic_states"
        body = messages.UpdateMetadataRequest(
            controller_id=self.controller_id, controller_epoch=cluster.epoch, broker_epoch=broker.epoch, live_brokers=live_brokers,
            **{field: topics},
        )  # fmt: skip
        return bytes(messages.encode(body, version))

    # --- StopReplica ---

    def stop_replica(self, cluster: Cluster, broker: Broker, partitions: Mapping[Partition, tuple[int, bool]]) -> list[tuple[bytes, bool]]:
        """(body, deletes) of each StopReplica request: one, or one per delete flag below version 3.

        `partitions` gives the leader epoch and whether to delete; "deletes" is true when the answer must be looked at.
        """
        version, request = self.sr_version, messages.StopReplicaRequest
        common = {"controller_id": self.controller_id, "controller_epoch": cluster.epoch, "broker_epoch": broker.epoch}
        if version >= 3:
            by_topic: dict[str, list[Any]] = {}
            for p, (leader_epoch, delete) in partitions.items():
                state = request.StopReplicaPartitionState(partition_index=p.index, leader_epoch=leader_epoch, delete_partition=delete)
                by_topic.setdefault(p.topic.name, []).append(state)
            states = [request.StopReplicaTopicState(topic_name=t, partition_states=s) for t, s in by_topic.items()]
            body = request(topic_states=states, **common)
            return [(bytes(messages.encode(body, version)), any(d for _, d in partitions.values()))]
        out = []
        for flag in (False, True):
            chosen = [p for p, (_, delete) in partitions.items() if delete is flag]
            if not chosen:
                continue
            if version == 0:
                flat = [request.StopReplicaPartitionV0(topic_name=p.topic.name, partition_index=p.index) for p in chosen]
                body = request(delete_partitions=flag, ungrouped_partitions=flat, **common)
            else:
                indexes: dict[str, list[int]] = {}
                for p in chosen:
                    indexes.setdefault(p.topic.name, []).append(p.index)
                topics = [request.StopReplicaTopicV1(name=t, partition_indexes=i) for t, i in indexes.items()]
                body = request(delete_partitions=flag, topics=topics, **common)
            out.append((bytes(messages.encode(body, version)), flag))
        return out
