"""The metadata cache: one broker's view of the cluster. Only UpdateMetadata requests change it; before the first one it is empty.

A request has all live brokers, the controller, and any number of partitions, which are merged (controller 15). Leader -2 removes a
partition; the removal of the last partition also removes the topic and its id. A zero topic id removes the id. Merging only changes the
partitions in the request: the decoded partition states are kept, in one dict for each topic, without a copy. `generation` increases with
every request that changes anything, so that anything made from the cache can be checked. `brokers_generation` increases when the live
brokers or their endpoints change. Topics and the cache can keep encoded responses (`encoded`); those of a topic are cleared when the topic
changes, those of the cache at every change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from klamm.protocol import messages
from klamm.protocol.nouns import LEADER_DURING_DELETE, ZERO_UUID, Endpoint, SecurityProtocol


class CachedBroker(NamedTuple):
    """A live broker, with its endpoints by listener name."""

    id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None


CachedPartition: TypeAlias = "messages.UpdateMetadataRequest.UpdateMetadataPartitionState"
"""The state of a partition from UpdateMetadata; its zk_version is the partition epoch."""


class CachedTopic:
    """A topic with its partitions by number. `topic_id` is zero if it has no id."""

    __slots__ = ("encoded", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, CachedPartition] = {}
        self.encoded: dict[Any, Any] = {}


class MetadataCache:
    """Brokers, controller and topics. The attributes may be read; only `update` changes them."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.brokers: dict[int, CachedBroker] = {}
        self.controller_id: int | None = None
        self.controller_epoch = -1
        self.departed: dict[int, CachedBroker] = {}
        """Brokers that were live and are not, as they were."""
        self.topics: dict[str, CachedTopic] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.generation = 0
        self.brokers_generation = 0
        self.encoded: dict[Any, Any] = {}
        self._names: dict[bytes, str] = {}
        self._live_brokers: Sequence[messages.UpdateMetadataRequest.UpdateMetadataBroker] = []

    def update(self, request: messages.UpdateMetadataRequest) -> set[str]:
        """Merge a decoded UpdateMetadata request of any version; returns the names of the topics in it.

        For versions 1 and 2 call `with_listeners` before, which adds the names of listeners: the update itself must not fail half way.
        """
        changed = self._update_brokers(request)
        touched: set[str] = set()
        ids = self.topic_ids
        for state in request.topic_states:
            name = state.topic_name
            if ids.get(name, ZERO_UUID) != state.topic_id:
                self._set_topic_id(name, state.topic_id)
            self._merge(name, state.partition_states)
            touched.add(name)
        if request.ungrouped_partition_states:
            by_topic: dict[str, list[CachedPartition]] = {}
            for partition in request.ungrouped_partition_states:
                by_topic.setdefault(partition.topic_name, []).append(partition)
            for name, partitions in by_topic.items():
                self._merge(name, partitions)
            touched.update(by_topic)
        if changed or touched:
            self.generation += 1
            self.encoded.clear()
        return touched

    def contains(self, topic: str) -> bool:
        return topic in self.topics

    def partition(self, topic: str, index: int) -> CachedPartition | None:
        cached = self.topics.get(topic)
        return None if cached is None else cached.partitions.get(index)

    def leader(self, topic: str, index: int) -> int | None:
        """Broker id of the leader, -1 if the partition has no leader, None if the partition is unknown."""
        partition = self.partition(topic, index)
        return None if partition is None else partition.leader

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, None if unknown. The topic may have no partitions any more."""
        return self._names.get(topic_id)

    def topic_by_id(self, topic_id: bytes) -> CachedTopic | None:
        name = self._names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic, zero if it has none or is unknown."""
        return self.topic_ids.get(topic, ZERO_UUID)

    def controller_endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the active controller on this listener, None if it is not known or has no such listener."""
        broker = None if self.controller_id is None else self.brokers.get(self.controller_id)
        return None if broker is None else broker.endpoints.get(listener)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def racks(self) -> dict[int, str | None]:
        """Broker id → rack of the live brokers, sorted by id."""
        return {broker_id: self.brokers[broker_id].rack for broker_id in sorted(self.brokers)}

    def _update_brokers(self, request: messages.UpdateMetadataRequest) -> bool:
        """Replace the live brokers and the controller id; returns whether anything changed."""
        controller_id = request.controller_id if request.controller_id >= 0 else None
        changed = controller_id != self.controller_id
        self.controller_id = controller_id
        self.controller_epoch = request.controller_epoch
        if request.live_brokers != self._live_brokers:
            self._live_brokers = request.live_brokers
            brokers = {broker.id: _cached_broker(broker) for broker in request.live_brokers}
            if brokers != self.brokers:
                self.departed = {each: broker for each, broker in (self.departed | self.brokers).items() if each not in brokers}
                self.brokers = brokers
                self.brokers_generation += 1
                changed = True
        return changed

    def _merge(self, name: str, states: Iterable[CachedPartition]) -> None:
        topic = self.topics.get(name)
        if topic is None:
            topic = CachedTopic(name, self.topic_ids.get(name, ZERO_UUID))
        partitions = topic.partitions
        emptied = False
        for state in states:
            if state.leader != LEADER_DURING_DELETE:
                partitions[state.partition_index] = state
            elif partitions.pop(state.partition_index, None) is not None and not partitions:
                emptied = True
        if topic.encoded:
            topic.encoded.clear()
        if partitions:
            self.topics[name] = topic
        else:
            self.topics.pop(name, None)
        if emptied:
            # removing the last partition removed the id, even if the request added others afterwards
            self._set_topic_id(name, ZERO_UUID)

    def _set_topic_id(self, name: str, topic_id: bytes) -> None:
        known = self.topic_ids.get(name, ZERO_UUID)
        if known == topic_id:
            return
        if known != ZERO_UUID and self._names.get(known) == name:
            del self._names[known]
        if topic_id == ZERO_UUID:
            del self.topic_ids[name]
        else:
            self.topic_ids[name] = topic_id
            self._names[topic_id] = name
        topic = self.topics.get(name)
        if topic is not None:
            topic.topic_id = topic_id
            topic.encoded.clear()


def with_listeners(request: messages.UpdateMetadataRequest, version: int) -> messages.UpdateMetadataRequest:
    """The request with names for all listeners: in versions 1 and 2 a listener is named after its security protocol.

    Raises ValueError if the protocol does not exist.
    """
    if version not in (1, 2):
        return request
    brokers = [broker._replace(endpoints=[_named(endpoint) for endpoint in broker.endpoints]) for broker in request.live_brokers]
    return request._replace(live_brokers=brokers)


def _named(
    endpoint: messages.UpdateMetadataRequest.UpdateMetadataEndpoint,
) -> messages.UpdateMetadataRequest.UpdateMetadataEndpoint:
    try:
        protocol = SecurityProtocol(endpoint.security_protocol)
    except ValueError:
        raise ValueError(f"there is no security protocol {endpoint.security_protocol}") from None
    return endpoint._replace(listener=protocol.name)


def _cached_broker(broker: messages.UpdateMetadataRequest.UpdateMetadataBroker) -> CachedBroker:
    """A broker of the request as it is cached. In version 0 it has one endpoint, on listener PLAINTEXT."""
    if not broker.endpoints and broker.v0_host:
        protocol = SecurityProtocol.PLAINTEXT
        return CachedBroker(broker.id, {protocol.name: Endpoint(protocol.name, broker.v0_host, broker.v0_port, protocol)}, broker.rack)
    endpoints = {e.listener: Endpoint(e.listener, e.host, e.port, e.security_protocol) for e in broker.endpoints}
    return CachedBroker(broker.id, endpoints, broker.rack)
