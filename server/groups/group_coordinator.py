"""The coordinator of the groups whose partition of the offsets topic this broker leads (Apache Kafka's `GroupCoordinator`).

`broker/groups/` decides; `CoordinatorRuntime` does what it wants done.

A request whose result may come later gets a future. The other methods return at once. All of them raise ApiError if this broker cannot
serve the group: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Never, TypeVar

from klamm.broker.groups.group import Group
from klamm.broker.groups.groups import Groups
from klamm.broker.groups.log_replay import replay_batches
from klamm.broker.groups.rebalances import Limits
from klamm.broker.groups.requests import Commit, Join, JoinResult, Leaving, Sync, SyncResult
from klamm.broker.replica_manager import ReplicaManager
from klamm.configs.broker_config import BrokerConfig
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import Buffer, Codec
from klamm.seams.clock import Clock
from klamm.seams.steering import Steering
from klamm.server.coordinators.coordinator_runtime import CoordinatorRuntime
from klamm.server.coordinators.tickets import new_ticket
from klamm.server.ground.background import BackgroundTasks

log = logging.getLogger(__name__)

R = TypeVar("R")

OFFSETS_TOPIC = "__consumer_offsets"


class GroupOptions(NamedTuple):
    """Configs of the coordinator. Times are milliseconds, sizes of metadata characters."""

    limits: Limits
    partitions: int
    codec: Codec
    commit_timeout_ms: int
    retention_ms: int
    retention_check_ms: int
    max_metadata_size: int

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupOptions:
        """Those of a broker."""
        get = config.get
        limits = Limits(
            get("group.min.session.timeout.ms"), get("group.max.session.timeout.ms"), get("group.max.size"),
            get("group.initial.rebalance.delay.ms"),
        )
        return cls(
            limits, get("offsets.topic.num.partitions"), Codec(get("offsets.topic.compression.codec")), get("offsets.commit.timeout.ms"),
            get("offsets.retention.minutes") * 60_000, get("offsets.retention.check.interval.ms"), get("offset.metadata.max.bytes"),
        )


class GroupCoordinator(CoordinatorRuntime[Groups, Never]):
    """All groups that one broker coordinates."""

    def __init__(
        self, options: GroupOptions, replicas: ReplicaManager, background: BackgroundTasks, clock: Clock, fresh_id: Callable[[], str],
        steering: Steering | None = None,
    ) -> None:
        """`fresh_id` draws the UUID of a new member. `steering` holds groups at phases."""
        super().__init__(
            OFFSETS_TOPIC, options.partitions, replicas, background, clock, options.commit_timeout_ms, steering, options.codec
        )
        self.options = options
        self.fresh_id = fresh_id

    # --- requests

    def join(self, request: Join) -> asyncio.Future[JoinResult]:
        """JoinGroup; the ticket of the request is replaced. The result comes when the rebalance lets it."""
        ticket = new_ticket()
        self._ask(request.group_id, lambda groups: groups.join(request._replace(ticket=ticket), self.now()))
        return ticket

    def sync(self, request: Sync) -> asyncio.Future[SyncResult]:
        """SyncGroup; the result comes when the leader's assignment is stored."""
        ticket = new_ticket()
        self._ask(request.group_id, lambda groups: groups.sync(request._replace(ticket=ticket), self.now()))
        return ticket

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat."""
        return self._ask(group_id, lambda groups: groups.heartbeat(group_id, member_id, instance_id, generation, self.now()))

    def leave(self, group_id: str, members: Sequence[Leaving]) -> list[ErrorCode]:
        """LeaveGroup; a code for each member."""
        return self._ask(group_id, lambda groups: groups.leave(group_id, members, self.now()))

    def commit(self, request: Commit) -> asyncio.Future[ErrorCode]:
        """OffsetCommit and TxnOffsetCommit; the code comes when the offsets are in all replicas of the ISR."""
        ticket = new_ticket()
        self.ask(request.group_id, lambda groups: groups.commit(request._replace(ticket=ticket), self.now()))
        return ticket

    def make_group(self, group_id: str) -> int:
        """Make a group if there is none, as TxnOffsetCommit does before it verifies anything; its partition of the offsets topic."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        index, groups = self.partitions.find(group_id)
        groups.made(group_id, self.now())
        return index

    def group(self, group_id: str) -> Group | None:
        """The group as it is, to look at; None if there is none. An empty id is valid here."""
        return self.partitions.find(group_id)[1].get(group_id)

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """OffsetDelete; a code for the group, then one for each partition."""
        return self._ask(group_id, lambda groups: groups.delete_offsets(group_id, partitions, self.now()))

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups, for one group. An empty id is valid here."""
        return self.ask(group_id, lambda groups: groups.delete(group_id, self.now()))

    def groups(self) -> Iterator[Group]:
        """All groups that this broker coordinates."""
        return (group for groups in self.machines() for group in groups)

    def transaction_ended(self, index: int, producer_id: int, is_committed: bool) -> None:
        """The marker of a transaction is in this partition of the offsets topic."""
        try:
            self.partitions.get(index).transaction_ended(producer_id, is_committed)
        except ApiError:
            log.debug("the marker of producer %d in %s-%d is replayed when the partition is loaded", producer_id, OFFSETS_TOPIC, index)

    def _ask(self, group_id: str, decide: Callable[[Groups], R]) -> R:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        return self.ask(group_id, decide)

    # --- what changes without a request

    def topics_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget the offsets of partitions that are deleted."""
        self.tell(lambda groups: groups.topics_deleted(partitions, self.now()))

    async def expire_offsets(self) -> None:
        """Forget old offsets from time to time, until this is cancelled."""
        options = self.options
        await self.each(
            options.retention_check_ms, "the expiry of offsets", lambda _, groups: groups.expire(options.retention_ms, self.now())
        )

    # --- steering

    def end_sessions(self, group_id: str, member_ids: Sequence[str]) -> None:
        """Let the sessions of these members be over now. Raises ApiError: another broker coordinates the group."""
        self._ask(group_id, lambda groups: groups.end_sessions(group_id, member_ids, self.now()))

    def begin_rebalance(self, group_id: str) -> None:
        """Let a group rebalance now. Raises ApiError: another broker coordinates the group."""
        self._ask(group_id, lambda groups: groups.begin_rebalance(group_id, self.now()))

    # --- for the runtime

    def make(self, index: int) -> Groups:
        return Groups(self.options.limits, self.phases.broker_id, index)

    def replay(self, state: Groups, batches: Buffer) -> int:
        return replay_batches(state, batches)
