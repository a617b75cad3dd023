"""A broker with logs in memory for tests of Fetch and its relatives: everything real but the network and the controller's requests."""

from __future__ import annotations

import dataclasses
import inspect
import random
from collections.abc import Iterable, Sequence
from typing import Any

from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replication_quotas import ReplicationQuotas
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.records.validation import Origin
from klamm.server.apis.handlers import HANDLERS
from klamm.server.faults.fault import Faults
from klamm.server.faults.slow_disk import BrokerDisk
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.requests.context import Context
from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.requests.services import Services
from klamm.server.security.authorizer import Authorizer
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.update_metadata import broker, update
from klamm.tests.services import broker_config, make_services, no_topic_configs

FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 1, 2, 23
REQUEST = messages.FetchRequest
NEWEST = 17


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")[:16]


class World:
    """Broker 1; brokers 2 and 3 are others of its cluster. `services` is what its handlers get."""

    def __init__(
        self, *, authorizer: Authorizer | None = None, racks: Sequence[str] = ("a", "b", "b"), **properties: object
    ) -> None:
        """`properties` are the broker's, with underscores for dots."""
        self.clock = DrivenClock()
        self.metadata = MetadataCache(1)
        config = broker_config(1, **properties)
        self.faults = Faults()
        disk = BrokerDisk(self.faults, 1, self.clock)
        self.logs = LogManager(config, self.clock, MemoryBudget(), random.randrange, no_topic_configs, delays=disk)
        self.replicas = ReplicaManager(1, self.metadata, self.logs, self.clock)
        self.replicas.states.recover = lambda replica: None
        made = make_services(metadata=self.metadata, config=config, authorizer=authorizer)
        self.quotas = ReplicationQuotas(1, config.get, self.clock)
        self.services: Services = dataclasses.replace(
            made, replicas=self.replicas, clock=self.clock, replication_quotas=self.quotas
        )
        self.racks = racks
        self.states: dict[str, dict[int, Any]] = {}
        self.peer = Peer("PLAINTEXT", "127.0.0.1", ResponseCache())

    def host(
        self, topic: str, count: int = 1, *, leader: int = 1, epoch: int = 0, isr: Sequence[int] = (1,), replicas: Sequence[int] = (1,),
        first: int = 0, recovery: int = 0, has_id: bool = True,
    ) -> None:
        """The controller says who leads these partitions, in UpdateMetadata and LeaderAndIsr."""
        known = messages.UpdateMetadataRequest
        part = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState
        identity = topic_id(topic) if has_id else bytes(16)
        states = [
            known.UpdateMetadataPartitionState(
                partition_index=index, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=tuple(isr), zk_version=epoch,
                replicas=tuple(replicas), offline_replicas=(),
            )
            for index in range(first, first + count)
        ]
        named = known.UpdateMetadataTopicState(topic_name=topic, topic_id=identity, partition_states=states)
        self.replicas.handle_update_metadata(update(named, brokers=self.brokers()), 1)
        if 1 not in replicas:
            return
        led = [
            part(
                partition_index=state.partition_index, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=tuple(isr),
                partition_epoch=epoch, replicas=tuple(replicas), adding_replicas=(), removing_replicas=(), is_new=True,
                leader_recovery_state=recovery,
            )
            for state in states
        ]
        request = messages.LeaderAndIsrRequest(
            controller_epoch=1, broker_epoch=7,
            topic_states=[messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name=topic, topic_id=identity, partition_states=led)],
        )
        request = messages.decode("LeaderAndIsrRequest", 7, messages.encode(request, 7))[0]
        self.replicas.apply(self.replicas.handle_leader_and_isr(request, 7, 1).effects)

    def brokers(self) -> Iterable[Any]:
        return [broker(number, rack=rack) for number, rack in enumerate(self.racks, 1)]

    def delete(self, topic: str, *partitions: int) -> None:
        """The controller deletes these partitions."""
        kind = messages.StopReplicaRequest
        states = [kind.StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True) for index in partitions]
        gone = messages.UpdateMetadataRequest.UpdateMetadataPartitionState(
            controller_epoch=1, leader=-2, leader_epoch=-2, isr=(), zk_version=0, replicas=(), offline_replicas=()
        )
        named = messages.UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=topic, topic_id=topic_id(topic), partition_states=[gone._replace(partition_index=index) for index in partitions]
        )
        self.replicas.handle_update_metadata(update(named, brokers=self.brokers()), 1)
        topics = [kind.StopReplicaTopicState(topic_name=topic, partition_states=states)]
        request = kind(controller_epoch=1, broker_epoch=7, topic_states=topics)
        self.replicas.apply(self.replicas.handle_stop_replica(request, 4, 1).effects)

    def replica(self, topic: str, index: int = 0) -> HostedPartition:
        replica = self.replicas.get(topic, index)
        assert replica is not None
        return replica

    async def append(self, topic: str, *records: bytes, index: int = 0) -> None:
        """Append batches as their leader."""
        replica = self.replica(topic, index)
        await self.replicas.open_log(replica)
        for each in records or (batch(),):
            self.replicas.append(replica, each, 11, 1, Origin.CLIENT, self.clock.now_ms())

    def begin(self, request: Any, version: int = NEWEST, api_key: int = FETCH) -> Any:
        """What the handler returns for a request that was bytes: a response, or a coroutine."""
        name = type(request).__name__
        received = messages.decode(name, version, messages.encode(request, version))[0]
        ctx = Context(self.services, self.peer, ApiKey(api_key), version)
        return HANDLERS[api_key].handle(ctx, received)

    async def respond(self, request: Any, version: int = NEWEST, api_key: int = FETCH) -> Any:
        """The response as a client decodes it."""
        return await self.finish(self.begin(request, version, api_key), version, type(request).__name__.replace("Request", "Response"))

    async def finish(self, response: Any, version: int = NEWEST, name: str = "FetchResponse") -> Any:
        if inspect.isawaitable(response):
            response = await response
        if isinstance(response, list):
            body = b"".join(response)
        else:
            body = response if isinstance(response, bytes) else messages.encode(response, version)
        decoded, end = messages.decode(name, version, body)
        assert end == len(body)
        return decoded


def part(index: int = 0, offset: int = 0, *, epoch: int = -1, last: int = -1, max_bytes: int = 1 << 20, start: int = -1) -> Any:
    return REQUEST.FetchPartition(index, epoch, offset, last, start, max_bytes)


def fetch(
    topics: dict[str, list[Any]] | None = None, *, version: int = NEWEST, replica_id: int = -1, session: tuple[int, int] = (0, -1),
    forget: dict[str, list[int]] | None = None, **fields: Any,
) -> Any:
    """A request as this version has it: by name or by id, replica id in the field or in the tagged field."""
    by_id = version >= 13
    named = [
        REQUEST.FetchTopic("" if by_id else name, topic_id(name) if by_id else bytes(16), partitions)
        for name, partitions in (topics or {}).items()
    ]
    forgotten = [
        REQUEST.ForgottenTopic("" if by_id else name, topic_id(name) if by_id else bytes(16), indexes)
        for name, indexes in (forget or {}).items()
    ]
    who: dict[str, Any] = {"replica_state": REQUEST.ReplicaState(replica_id, -1)} if version >= 15 else {"replica_id": replica_id}
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20} | fields
    if version < 3:
        del settings["max_bytes"]
    if version >= 7:
        settings |= {"session_id": session[0], "session_epoch": session[1], "forgotten_topics_data": forgotten}
    return REQUEST(topics=named, **who, **settings)


def rows(response: Any) -> dict[tuple[str, int], Any]:
    """The partitions of a response by topic (name, or the start of its id) and number."""
    found = {}
    for topic in response.responses:
        name = topic.topic or topic.topic_id.rstrip(b".").decode(errors="replace")
        for row in topic.partitions:
            assert (name, row.partition_index) not in found
            found[name, row.partition_index] = row
    return found


def codes(response: Any) -> dict[tuple[str, int], int]:
    return {key: row.error_code for key, row in rows(response).items()}
