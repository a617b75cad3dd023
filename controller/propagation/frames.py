"""Bodies of the three requests a controller sends, from what the cluster knows (controller 13.3, 13.4).

The newest versions, which a current inter-broker protocol uses, are joined from encoded partition states that are kept until they
change (`encoded_topics.py`). Older versions go through the codec field by field. Both ways give the same bytes (a test compares them).

Everything that was read from ZooKeeper can be encoded; a broker that cannot be encoded is logged and left out, so that the others are
sent. `is_encodable` finds a partition that cannot be encoded (see `batch`).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.propagation.encoded_topics import (
    EncodedTopics,
    encode_head,
    encode_index,
    encode_ints,
    encode_state,
    encode_tail,
    join_states,
)
from klamm.controller.values import Broker, LeaderAndIsr
from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.nouns import LEADER_DURING_DELETE, Ints

T = TypeVar("T")
M = TypeVar("M")

log = logging.getLogger("klamm.controller")

UNENCODABLE = (struct.error, ValueError, LocalProtocolError)
"""What encoding raises over a number or a text that has no place in a request."""

_LISR_KEPT_FROM, _UMR_KEPT_FROM = 6, 7
"""From these versions on a partition state has the layout of `encoded_topics.py`."""


def _lisr_state(
    p: Partition, info: LeaderAndIsr, is_new: bool, version: int
) -> messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    a = p.assignment
    recovery = info.recovery if version >= 6 else 0  # an older protocol does not have the mark; it stays in ZooKeeper
    return messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        topic_name=p.topic.name, partition_index=p.index, controller_epoch=info.controller_epoch, leader=info.leader,
        leader_epoch=info.leader_epoch, isr=info.isr, partition_epoch=info.partition_epoch, replicas=a.replicas,
        adding_replicas=a.adding, removing_replicas=a.removing, is_new=is_new, leader_recovery_state=recovery,
    )


def _umr_state(p: Partition, info: LeaderAndIsr, offline: Ints) -> messages.UpdateMetadataRequest.UpdateMetadataPartitionState:
    return messages.UpdateMetadataRequest.UpdateMetadataPartitionState(
        topic_name=p.topic.name, partition_index=p.index, controller_epoch=info.controller_epoch, leader=info.leader,
        leader_epoch=info.leader_epoch, isr=info.isr, zk_version=info.partition_epoch, replicas=p.assignment.replicas,
        offline_replicas=offline,
    )


def _told(p: Partition, info: LeaderAndIsr) -> LeaderAndIsr:
    """The leadership that UpdateMetadata tells of a partition."""
    if p.topic.deletion is None:
        return info
    return LeaderAndIsr(LEADER_DURING_DELETE, 0, info.isr, info.recovery, 0, info.controller_epoch)


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


def _by_topic(members: Iterable[M], topic_of: Callable[[M], T]) -> dict[T, list[M]]:
    """What belongs to a topic, in the order of the first of each topic."""
    by_topic: dict[T, list[M]] = {}
    for topic, group in groupby(members, key=topic_of):
        if topic in by_topic:
            by_topic[topic] += group
        else:
            by_topic[topic] = list(group)
    return by_topic


class Encoder:
    """Builds request bodies for one controller term."""

    def __init__(self, controller_id: int, lisr_version: int, umr_version: int, sr_version: int) -> None:
        self.controller_id = controller_id
        self.lisr_version = lisr_version
        self.umr_version = umr_version
        self.sr_version = sr_version
        self._whole: dict[Topic, bytes] = {}
        self._topics = EncodedTopics()

    def begin(self) -> None:
        """A new batch: nothing changes until its last request is encoded."""
        self._whole.clear()
        self._topics.begin()

    @staticmethod
    def is_encodable(p: Partition) -> bool:
        """Whether a partition can be encoded."""
        try:
            encode_index(p.index)
            encode_head(p.topic)
            if p.info is not None:
                encode_state(p.index, p.info, p.assignment.replicas)
                encode_tail(p.assignment, False, p.info.recovery)
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
        leaders = {p.info.leader for p in partitions if p.info is not None}
        request = messages.LeaderAndIsrRequest
        new_request = partial(
            request, controller_id=self.controller_id, controller_epoch=cluster.epoch, broker_epoch=broker.epoch,
            live_leaders=self._live_leaders([cluster.brokers[b] for b in sorted(leaders) if b in cluster.brokers], listener),
        )
        has_new = isinstance(partitions, Mapping) and True in partitions.values()
        if version >= _LISR_KEPT_FROM and not has_new:
            body = new_request(topic_states=self._settled_topics(partitions))
            return bytes(messages.encode(body, version))
        flags = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions, False)
        if version >= _LISR_KEPT_FROM:
            body = new_request(topic_states=self._topics_with_new(flags))
        elif version < 2:
            states = [_lisr_state(p, p.info, is_new, version) for p, is_new in flags.items() if p.info is not None]
            by_topic = _by_topic(states, attrgetter("topic_name"))
            body = new_request(ungrouped_partition_states=[state for group in by_topic.values() for state in group])
        else:
            topics = _by_topic([p for p in flags if p.info is not None], _topic_of)
            body = new_request(topic_states=[
                request.LeaderAndIsrTopicState(
                    topic_name=topic.name, topic_id=topic.wire_id,
                    partition_states=[_lisr_state(p, p.info, flags[p], version) for p in held if p.info is not None],
                )
                for topic, held in topics.items()
            ])
        return bytes(messages.encode(body, version))

    def _topics_with_new(self, flags: Mapping[Partition, bool]) -> list[bytes]:
        """Encoded topics; `flags` says of each partition whether it is new."""
        out = []
        for topic, held in _by_topic(flags, _topic_of).items():
            encoded = self._topics.encoded(topic, held)
            states = [
                encoded.states[p.index] + (encode_tail(p.assignment, True, p.info.recovery) if flags[p] else encoded.tails[p.index])
                for p in held if p.info is not None
            ]
            if states:
                out.append(join_states(encoded.head, states))
        return out

    def _settled_topics(self, partitions: Iterable[Partition]) -> list[bytes]:
        """Encoded topics where no partition is new. A topic that is sent as a whole is encoded once in a batch."""
        out = []
        for topic, held in _by_topic(partitions, _topic_of).items():
            is_whole = len(held) == len(topic.partitions)
            joined = self._whole.get(topic) if is_whole else None
            if joined is None:
                encoded = self._topics.encoded(topic, held)
                states, tails = encoded.states, encoded.tails
                entries = [states[p.index] + tails[p.index] for p in held if p.info is not None]
                if not entries:
                    continue
                joined = join_states(encoded.head, entries)
                if is_whole:
                    self._whole[topic] = joined
            out.append(joined)
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
        version, request = self.umr_version, messages.UpdateMetadataRequest
        if version >= _UMR_KEPT_FROM:
            return self._joined_metadata(cluster, partitions)
        topics = {
            topic: [_umr_state(p, _told(p, p.info), cluster.offline_replicas(p)) for p in held if p.info is not None]
            for topic, held in _by_topic(partitions, _topic_of).items()
        }
        if version < 5:
            encode = messages.struct_encoder("UpdateMetadataRequest", "UpdateMetadataPartitionState", version)
            return [encode(state) for states in topics.values() for state in states]
        encode = messages.struct_encoder("UpdateMetadataRequest", "UpdateMetadataTopicState", version)
        topic_state = request.UpdateMetadataTopicState
        return [encode(topic_state(topic_name=t.name, topic_id=t.wire_id, partition_states=s)) for t, s in topics.items() if s]

    def _joined_metadata(self, cluster: Cluster, partitions: Iterable[Partition]) -> list[bytes]:
        """`metadata_topics` for the newest versions."""
        by_topic: dict[Topic, list[bytes]] = {}
        tails: dict[Ints, bytes] = {}
        shared_tails = not cluster.offline_dirs
        for topic, group in groupby(partitions, key=_topic_of):
            entries = by_topic.setdefault(topic, [])
            if topic.queued or not shared_tails:
                entries += [
                    encode_state(p.index, _told(p, p.info), p.assignment.replicas) + encode_ints(cluster.offline_replicas(p)) + b"\x00"
                    for p in group if p.info is not None
                ]
                continue
            held = list(group)
            states = self._topics.encoded(topic, held).states
            for p in held:
                state = states[p.index]
                if not state:
                    continue
                replicas = p.assignment.replicas
                tail = tails.get(replicas)
                if tail is None:
                    tail = tails[replicas] = encode_ints(cluster.offline_replicas(p)) + b"\x00"
                entries.append(state + tail)
        return [join_states(self._topics.head(topic), entries) for topic, entries in by_topic.items() if entries]

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

    def stop_replica(
        self, cluster: Cluster, broker: Broker, partitions: Mapping[Partition, tuple[int, bool]]
    ) -> list[tuple[bytes, frozenset[Partition]]]:
        """(body, the partitions that it deletes) of each StopReplica request: one, or one per delete flag below version 3.

        `partitions` gives the leader epoch and whether to delete.
        """
        version, request = self.sr_version, messages.StopReplicaRequest
        new_request = partial(
            request, controller_id=self.controller_id, controller_epoch=cluster.epoch, broker_epoch=broker.epoch
        )
        if version >= 3:
            by_topic: dict[str, list[messages.StopReplicaRequest.StopReplicaPartitionState]] = {}
            for p, (leader_epoch, delete) in partitions.items():
                state = request.StopReplicaPartitionState(partition_index=p.index, leader_epoch=leader_epoch, delete_partition=delete)
                by_topic.setdefault(p.topic.name, []).append(state)
            states = [request.StopReplicaTopicState(topic_name=t, partition_states=s) for t, s in by_topic.items()]
            body = new_request(topic_states=states)
            return [(bytes(messages.encode(body, version)), frozenset(p for p, (_, delete) in partitions.items() if delete))]
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
            out.append((bytes(messages.encode(body, version)), frozenset(chosen if flag else ())))
        return out
