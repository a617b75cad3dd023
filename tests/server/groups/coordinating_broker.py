"""A broker whose replicas, logs and group coordinator are real, without a network: the test is its controller and its clock."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from klamm.broker.groups.requests import NO_MEMBER, Commit, Join, JoinResult, OffsetCommit, Protocol, Sync
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol import messages
from klamm.protocol.errors import ApiError
from klamm.protocol.nouns import LEADER_DURING_DELETE, TopicPartition
from klamm.protocol.records.batch import each_header
from klamm.protocol.records.record import Record, encode_batch, read_records
from klamm.protocol.records.validation import Origin
from klamm.seams.steering import Steering
from klamm.server.ground.background import BackgroundTasks
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC, GroupCoordinator, GroupOptions
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.requests.services import AdminStore, Services
from klamm.server.security.authorizer import Authorizer
from klamm.tests.broker import update_metadata
from klamm.tests.services import broker_config, make_services, no_topic_configs

GROUP = "g"
T = TopicPartition("t", 0)


class CoordinatingBroker:
    """Broker 1. The offsets topic has `partitions` partitions; nobody leads them until `lead`. Topic t has two."""

    def __init__(
        self, partitions: int = 1, *, replicas: Sequence[int] = (1,), steering: Steering | None = None, **properties: object
    ) -> None:
        """`steering` holds groups at phases."""
        self.clock = DrivenClock()
        self.config = broker_config(1, **{"group_initial_rebalance_delay_ms": 0, **properties})
        self.metadata = metadata = MetadataCache(1)
        rows = [update_metadata.partition(index, 1, tuple(replicas), tuple(replicas)) for index in range(partitions)]
        topic = update_metadata.topic(T.topic, 3, *[update_metadata.partition(index, 1, (1,), (1,)) for index in range(2)])
        metadata.update(update_metadata.update(update_metadata.topic(OFFSETS_TOPIC, 2, *rows), topic))
        self.config_errors: list[ApiError] = []
        """Why the configs of topics cannot be read, the next times that a log is opened."""
        logs = LogManager(self.config, self.clock, MemoryBudget(), random.randrange, self._read_configs)
        self.replicas = ReplicaManager(1, metadata, logs, self.clock)
        self.replica_ids = tuple(replicas)
        self.background = BackgroundTasks()
        ids = itertools.count(1)
        options = GroupOptions.of(self.config)
        self.groups = GroupCoordinator(options, self.replicas, self.background, self.clock, lambda: f"id{next(ids)}", steering)
        self.groups.partitions.count = partitions
        self.replicas.listeners.append(self.groups.partitions.apply)

    def services(self, authorizer: Authorizer | None = None, store: AdminStore | None = None) -> Services:
        """What handlers of this broker get."""
        made = make_services(config=self.config, metadata=self.metadata, authorizer=authorizer, admin_store=store)
        return dataclasses.replace(made, replicas=self.replicas, groups=self.groups, clock=self.clock)

    async def close(self) -> None:
        self.groups.close()
        await self.background.close()

    async def _read_configs(self, topics: Sequence[str]) -> list[Mapping[str, str]]:
        if self.config_errors:
            raise self.config_errors.pop(0)
        return await no_topic_configs(topics)

    # --- the controller

    def lead(self, index: int = 0, leader: int = 1, epoch: int = 1, topic: str = OFFSETS_TOPIC, recovery: int = 0) -> None:
        """Make broker `leader` the leader of a partition, of the offsets topic unless another one is named. With `recovery` 1 it was
        elected uncleanly, and has to recover."""
        request = messages.LeaderAndIsrRequest
        row = request.LeaderAndIsrPartitionState(
            partition_index=index, leader=leader, leader_epoch=epoch, isr=(leader,) if recovery else self.replica_ids,
            replicas=self.replica_ids, controller_epoch=1, is_new=epoch == 1, leader_recovery_state=recovery, partition_epoch=epoch,
        )
        topic_id = self.metadata.topic_id(topic)
        state = request.LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[row])
        live = [request.LeaderAndIsrLiveLeader(broker_id=leader, host_name="h", port=1)]
        sent = request(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=[state], live_leaders=live)
        self.replicas.apply(self.replicas.handle_leader_and_isr(sent, 7, 1).effects)

    def delete(self, index: int = 0) -> None:
        """Delete the replica of a partition of the offsets topic."""
        request = messages.StopReplicaRequest
        row = request.StopReplicaPartitionState(partition_index=index, leader_epoch=LEADER_DURING_DELETE, delete_partition=True)
        state = request.StopReplicaTopicState(topic_name=OFFSETS_TOPIC, partition_states=[row])
        sent = request(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=[state])
        self.replicas.apply(self.replicas.handle_stop_replica(sent, 3, 1).effects)

    async def led(self, index: int = 0, epoch: int = 1, topic: str = OFFSETS_TOPIC) -> None:
        """As `lead`, and the partition is loaded."""
        self.lead(index, epoch=epoch, topic=topic)
        await self.settle()

    async def settle(self) -> None:
        """Let everything that does not wait for time happen."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds, self.settle)
        await self.settle()

    # --- the log

    async def append(self, *records: tuple[bytes, bytes | None], index: int = 0, topic: str = OFFSETS_TOPIC) -> None:
        """Put records into the log as an earlier coordinator did."""
        replica = self.replicas.get(topic, index)
        assert replica is not None
        log = await self.replicas.open_log(replica)
        batch = encode_batch([Record(at, 1, key, value) for at, (key, value) in enumerate(records)])
        self.replicas.append(replica, batch, 11, -1, now_ms=self.clock.now_ms(), origin=Origin.COORDINATOR)
        assert log.log_end_offset > 0

    def data(self, index: int = 0, topic: str = OFFSETS_TOPIC) -> bytes:
        """All batches of a partition's log."""
        replica = self.replicas.get(topic, index)
        assert replica is not None
        read, offset = b"", 0
        while replica.log is not None and offset < replica.log.log_end_offset:  # one segment after the other
            data = replica.log.read(offset, 1 << 20, replica.log.log_end_offset, True)
            assert isinstance(data, bytes)
            read += data
            offset = max(header.next_offset for _, header in each_header(data))
        return read

    def records(self, index: int = 0, topic: str = OFFSETS_TOPIC) -> list[Record]:
        """All records of a partition's log."""
        data = self.data(index, topic)
        return [record for position, header in each_header(data) for record in read_records(data, header, position)]

    # --- members

    def join_request(self, client_id: str = "c", member_id: str = NO_MEMBER, *, session_ms: int = 10_000, **fields: Any) -> Join:
        return Join(
            None, GROUP, member_id, None, client_id, "/127.0.0.1", 60_000, session_ms, "consumer", (Protocol("range", b"\0\0\0\0\0\0"),),
            self.groups.fresh_id(), needs_known_id=False, can_skip_assignment=True,
        )._replace(**fields)

    async def joined(self, client_id: str = "c", **fields: Any) -> JoinResult:
        """The result of a member's first JoinGroup."""
        future = self.groups.join(self.join_request(client_id, **fields))
        await self.advance(0)
        return await future

    async def stable(self, **fields: Any) -> JoinResult:
        """A group with one member that has its assignment."""
        result = await self.joined(**fields)
        synced = self.groups.sync(Sync(None, GROUP, result.generation, result.member_id, None, None, None, ((result.member_id, b"mine"),)))
        await self.settle()
        assert (await synced).assignment == b"mine"
        return result

    def commit_request(self, offset: int = 5, partition: TopicPartition = T, **fields: Any) -> Commit:
        commit = OffsetCommit(offset, -1, "", self.clock.now_ms())
        return Commit(None, GROUP, -1, NO_MEMBER, None, {partition: commit})._replace(**fields)

    def offset(self, partition: TopicPartition = T) -> int | None:
        """What the group has committed."""
        group = self.groups.group(GROUP)
        committed = None if group is None else group.offsets.committed.get(partition)
        return None if committed is None else committed.commit.offset
