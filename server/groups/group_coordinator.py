"""The coordinator of the groups whose partition of the offsets topic this broker leads (Apache Kafka's `GroupCoordinator`).

`broker/groups/` decides; here its effects happen. Records are appended to the group's partition with acks=all, results complete the futures
of the requests that wait, and one timer for each partition calls `tick` when the next deadline has come.

Somebody may hold groups at phases (`phases.py`); then the effects of a group wait, and other groups go on.

A request whose result may come later gets a future. The other methods return at once. All of them raise ApiError if this broker cannot
serve the group: INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from klamm.broker.groups.group import Group
from klamm.broker.groups.groups import CommitAppended, Groups
from klamm.broker.groups.log_replay import replay_batches
from klamm.broker.groups.offsets import NO_PRODUCER
from klamm.broker.groups.rebalances import Limits, RenameAppended, SyncAppended
from klamm.broker.groups.requests import AppendRecords, Commit, Effect, Join, JoinResult, Leaving, Respond, Sync, SyncResult
from klamm.broker.log.log import AppendResult
from klamm.broker.replica_manager import ReplicaManager
from klamm.configs.broker_config import BrokerConfig
from klamm.machine.faults import contained
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import TRANSACTIONAL, Buffer, Codec
from klamm.protocol.records.record import Record, encode_batch
from klamm.seams.clock import Clock, Now, time_of
from klamm.seams.steering import Steering
from klamm.server.coordinators.owned_partitions import OwnedPartitions
from klamm.server.coordinators.partition_timers import PartitionTimers
from klamm.server.coordinators.tickets import complete, new_ticket
from klamm.server.ground.background import BackgroundTasks
from klamm.server.produce.internal_appends import InternalAppends, outcome_of
from klamm.server.produce.record_appends import Verified

if TYPE_CHECKING:
    from klamm.server.coordinators.phase_watchers import Watch
    from klamm.server.coordinators.steered_effects import SteeredEffects

log = logging.getLogger(__name__)

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


class GroupCoordinator:
    """All groups that one broker coordinates."""

    def __init__(
        self, options: GroupOptions, replicas: ReplicaManager, background: BackgroundTasks, clock: Clock, fresh_id: Callable[[], str],
        steering: Steering | None = None,
    ) -> None:
        """`fresh_id` draws the UUID of a new member. `steering` holds groups at phases."""
        self.options = options
        self.fresh_id = fresh_id
        self._broker_id = replicas.broker_id
        self._steering = steering
        self._steered: SteeredEffects | None = None
        """Effects that wait; made when somebody steers for the first time."""
        self._clock = clock
        self._appends = InternalAppends(replicas, clock, options.commit_timeout_ms)
        self.watch: Watch | None = None
        """Is told the phases of groups."""
        self._timers = PartitionTimers(clock, self._tick)
        self.partitions: OwnedPartitions[Groups] = OwnedPartitions(
            OFFSETS_TOPIC, replicas, self, background, clock, options.partitions
        )

    # --- requests

    def join(self, request: Join) -> asyncio.Future[JoinResult]:
        """JoinGroup; the ticket of the request is replaced. The result comes when the rebalance lets it."""
        index, groups = self._find(request.group_id)
        ticket = new_ticket()
        groups.join(request._replace(ticket=ticket), self.now())
        self._settle(index, groups, request.group_id)
        return ticket

    def sync(self, request: Sync) -> asyncio.Future[SyncResult]:
        """SyncGroup; the result comes when the leader's assignment is stored."""
        index, groups = self._find(request.group_id)
        ticket = new_ticket()
        groups.sync(request._replace(ticket=ticket), self.now())
        self._settle(index, groups, request.group_id)
        return ticket

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat."""
        index, groups = self._find(group_id)
        error = groups.heartbeat(group_id, member_id, instance_id, generation, self.now())
        self._settle(index, groups, group_id)
        return error

    def leave(self, group_id: str, members: Sequence[Leaving]) -> list[ErrorCode]:
        """LeaveGroup; a code for each member."""
        index, groups = self._find(group_id)
        errors = groups.leave(group_id, members, self.now())
        self._settle(index, groups, group_id)
        return errors

    def until_free(self, group_id: str) -> Awaitable[None] | None:
        """None if the group is not held at a phase; else what waits until it is not."""
        return self._steered.until_free(group_id) if self._steered is not None and self._steered.is_busy else None

    def commit(self, request: Commit) -> asyncio.Future[ErrorCode]:
        """OffsetCommit and TxnOffsetCommit; the code comes when the offsets are in all replicas of the ISR."""
        index, groups = self._find(request.group_id, may_be_empty=True)
        ticket = new_ticket()
        groups.commit(request._replace(ticket=ticket), self.now())
        self._settle(index, groups, request.group_id)
        return ticket

    def make_group(self, group_id: str) -> int:
        """Make a group if there is none, as TxnOffsetCommit does before it verifies anything; its partition of the offsets topic."""
        index, groups = self._find(group_id)
        groups.made(group_id, self.now())
        return index

    def group(self, group_id: str) -> Group | None:
        """The group as it is, to look at; None if there is none. An empty id is valid here."""
        return self._find(group_id, may_be_empty=True)[1].get(group_id)

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """OffsetDelete; a code for the group, then one for each partition."""
        index, groups = self._find(group_id)
        codes = groups.delete_offsets(group_id, partitions, self.now())
        self._settle(index, groups, group_id)
        return codes

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups, for one group. An empty id is valid here."""
        index, groups = self._find(group_id, may_be_empty=True)
        error = groups.delete(group_id, self.now())
        self._settle(index, groups, group_id)
        return error

    def groups(self) -> Iterator[Group]:
        """All groups that this broker coordinates."""
        return (group for _, groups in self.partitions.loaded() for group in groups)

    def topics_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget the offsets of partitions that are deleted."""
        for index, groups in self.partitions.loaded():
            groups.topics_deleted(partitions, self.now())
            self._settle(index, groups)

    def transaction_ended(self, index: int, producer_id: int, is_committed: bool) -> None:
        """The marker of a transaction is in this partition of the offsets topic."""
        try:
            self.partitions.get(index).transaction_ended(producer_id, is_committed)
        except ApiError:
            log.debug("the marker of producer %d in %s-%d is replayed when the partition is loaded", producer_id, OFFSETS_TOPIC, index)

    async def expire_offsets(self) -> None:
        """Forget old offsets from time to time, until this is cancelled."""
        while True:
            await self._clock.sleep(self.options.retention_check_ms / 1000)
            for index, groups in self.partitions.loaded():
                with contained(log, f"the expiry of offsets in {OFFSETS_TOPIC}-{index}"):
                    if self.partitions.owns(index, groups):
                        groups.expire(self.options.retention_ms, self.now())
                        self._settle(index, groups)
                await asyncio.sleep(0)

    def close(self) -> None:
        """This broker stops: requests that wait get NOT_COORDINATOR."""
        self.partitions.close()

    def now(self) -> Now:
        """The time of an event."""
        return time_of(self._clock)

    def _find(self, group_id: str, *, may_be_empty: bool = False) -> tuple[int, Groups]:
        if not group_id and not may_be_empty:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        return self.partitions.find(group_id)

    # --- the owner of partitions

    def make(self, index: int) -> Groups:
        """From `OwnedPartitions`, as the next three."""
        return Groups(self.options.limits)

    def replay(self, state: Groups, batches: Buffer) -> int:
        return replay_batches(state, batches)

    def loaded(self, index: int, state: Groups) -> None:
        state.loaded(self.now())
        self._settle(index, state)

    def unload(self, index: int, state: Groups) -> None:
        self._timers.set(index, None)
        state.unload(self.now())
        self._settle(index, state)
        for effect in () if self._steered is None else self._steered.drop(index):
            if isinstance(effect, AppendRecords):
                self._settle_append(index, state, effect, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                self._do(index, state, effect)

    # --- effects

    def _settle(self, index: int, groups: Groups, group_id: str | None = None, appended: AppendRecords | None = None) -> None:
        """Do what the groups of a partition want done, and set the timer for their next deadline.

        `group_id` is the only group that may have responses to give, `appended` what is in the log now.
        """
        effects, steering = groups.take_effects(), self._steering
        if self.watch is not None and (effects or appended is not None):
            self._tell(self.watch, index, effects, group_id, appended)
        if steering is not None and (steering.holds or (self._steered is not None and self._steered.is_busy)):
            self._steer(steering, index, groups, effects, group_id, appended)
        else:
            for effect in effects:
                self._do(index, groups, effect)
        if self.partitions.owns(index, groups):  # the timer belongs to the state that is loaded now
            self._timers.set(index, groups.next_deadline_ms)

    def _do(self, index: int, groups: Groups, effect: Effect) -> None:
        match effect:
            case Respond(ticket, result):
                complete(ticket, result)
            case AppendRecords():
                self._append(index, groups, effect)

    def _tell(self, watch: Watch, index: int, effects: list[Effect], group_id: str | None, appended: AppendRecords | None) -> None:
        from klamm.server.groups.phases import phases_of

        for phase in phases_of(self._broker_id, index, effects, group_id, appended):
            watch(phase)

    def _steer(
        self, steering: Steering, index: int, groups: Groups, effects: list[Effect], group_id: str | None, appended: AppendRecords | None
    ) -> None:
        from klamm.server.coordinators.steered_effects import SteeredEffects
        from klamm.server.groups.phases import GroupSteps

        if self._steered is None:
            self._steered = SteeredEffects(steering, self._broker_id)
        steps = GroupSteps(self._broker_id, index, partial(self._settle_append, index, groups))
        do = partial(self._do, index, groups)
        for key, batch in steps.of(effects, group_id, appended).items():
            if key is not None:
                self._steered.run(index, key, batch, do)
                continue
            for effect in batch:
                do(effect)

    def _append(self, index: int, groups: Groups, append: AppendRecords) -> None:
        token = append.token
        if not append.records:
            self._settle_append(index, groups, append, ErrorCode.NONE)
            return
        verified = token.request.verified if isinstance(token, CommitAppended) else None
        appended = self._appends.append(
            TopicPartition(OFFSETS_TOPIC, index), self._batch(append), verified=verified if isinstance(verified, Verified) else None,
            is_wanted=partial(self.partitions.owns, index, groups),
        )
        appended.add_done_callback(partial(self._appended, index, groups, append))

    def _batch(self, append: AppendRecords) -> bytes:
        now_ms, is_transactional = self._clock.now_ms(), append.producer_id != NO_PRODUCER
        return encode_batch(
            [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(append.records)],
            codec=self.options.codec,
            attributes=TRANSACTIONAL if is_transactional else 0,
            producer_id=append.producer_id,
            producer_epoch=append.producer_epoch,
        )

    def _appended(self, index: int, groups: Groups, append: AppendRecords, appended: asyncio.Future[AppendResult]) -> None:
        error, base_offset = outcome_of(appended, TopicPartition(OFFSETS_TOPIC, index))
        self._settle_append(index, groups, append, error, base_offset)

    def _settle_append(self, index: int, groups: Groups, append: AppendRecords, error: ErrorCode, base_offset: int = 0) -> None:
        groups.appended(append, error, base_offset, self.now())
        self._settle(index, groups, group_of(append), append if append.records and error is ErrorCode.NONE else None)

    # --- steering

    def end_sessions(self, group_id: str, member_ids: Sequence[str]) -> None:
        """Let the sessions of these members be over now. Raises ApiError: another broker coordinates the group."""
        index, groups = self._find(group_id)
        groups.end_sessions(group_id, member_ids, self.now())
        self._settle(index, groups, group_id)

    def begin_rebalance(self, group_id: str) -> None:
        """Let a group rebalance now. Raises ApiError: another broker coordinates the group."""
        index, groups = self._find(group_id)
        groups.begin_rebalance(group_id, self.now())
        self._settle(index, groups, group_id)

    # --- time

    def _tick(self, index: int) -> None:
        try:
            groups = self.partitions.get(index)
        except ApiError:
            return
        for group_id in groups.tick_each(self.now()):
            self._settle(index, groups, group_id)
        self._settle(index, groups)


def group_of(append: AppendRecords) -> str | None:
    """The group that waits for these records; None if nobody waits."""
    match append.token:
        case SyncAppended(group_id, _):
            return group_id
        case CommitAppended(request):
            return request.group_id
        case RenameAppended(group_id):
            return group_id
        case _:
            return None
