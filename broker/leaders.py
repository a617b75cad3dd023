"""The partitions that this broker leads: it appends records, follows the fetch offsets of followers, and changes the ISR.

A partition that was never written to has no `Leadership`, only a note of the followers that have fetched it (`IdleFollowers`). Its
followers are checked once after `replica.lag.time.max.ms`. A partition with records is checked every time while a follower is missing
records, and then not again until its leader appends. So idle partitions cost nothing, independent of their number. Rules:
`broker/leadership.py`. Source: controller 14; `Partition` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from klamm.broker.leadership import NEVER, IsrProposal, Leadership
from klamm.broker.log.log import AppendResult, Log
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition, IdleFollowers, Role
from klamm.machine.faults import contained
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH, Ints
from klamm.protocol.records.batch import Buffer
from klamm.protocol.records.batch_runs import joined
from klamm.protocol.records.validation import Assigned, Origin
from klamm.seams.clock import Clock

log = logging.getLogger("klamm.broker.leaders")

MAX_SHARED_LISTS = 10_000
MAX_SHARED_IDLES = 1_000
"""Clear the shared `IdleFollowers` above this number. Every LeaderAndIsr request makes new ones, so most of them are out of date."""
_LEADER = Role.LEADER

NOTHING_CHANGED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
STATE_UNKNOWN = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST, ErrorCode.NEW_LEADER_ELECTED,
})
"""After these errors the leader does not propose a change before the next LeaderAndIsr."""


class IsrUpdates(Protocol):
    """Sends proposals to the controller (`server/replication/isr_updates.py`)."""

    def submit(self, proposal: IsrProposal) -> None:
        """Send a proposal. The result is reported to `Leaders.isr_altered` or `isr_refused`, after this method has returned."""


class Leaders:
    """The work of a broker as leader. `hosted` returns the replica of a partition, or None."""

    def __init__(
        self, broker_id: int, metadata: MetadataCache, hosted: Callable[[str, int], HostedPartition | None], clock: Clock, max_lag_ms: int
    ) -> None:
        self.isr_updates: IsrUpdates | None = None
        self.isr_shrinks = self.isr_expands = self.failed_isr_updates = 0
        """Changes of ISRs that the controller confirmed or refused since the start of this broker."""
        self.transactions_committed = self.transactions_aborted = 0
        """Transactions that recoveries have ended since the start of this broker."""
        self.max_lag_ms = max_lag_ms
        self._broker_id = broker_id
        self._metadata = metadata
        self._hosted = hosted
        self._clock = clock
        self.lists: dict[Ints, Ints] = {}
        """Lists of broker ids that partitions share; each list maps to itself."""
        self.pairs: dict[tuple[Ints, Ints], tuple[Ints, Ints]] = {}
        """Pairs (ISR, replicas) that partitions share; each pair maps to itself."""
        self._idles: dict[IdleFollowers, IdleFollowers] = {}
        """`IdleFollowers` that empty partitions share; each maps to itself."""
        self.idle = IdleFollowers(NEVER, ())
        """The state of followers for partitions that become led by the present request."""
        self._unproven: deque[tuple[int, str, list[int]]] = deque()
        """(time ms, topic, partitions) led since that time, whose followers have not been checked yet."""
        self._checked: dict[HostedPartition, None] = {}
        """Led partitions with followers that may fall behind."""
        self._last_requests_ms: dict[int, int] = {}

    # becoming and being leader

    def begin_request(self) -> None:
        """Begin a LeaderAndIsr request: the broker leads its new partitions since this moment."""
        self.idle = IdleFollowers(self._now_ms(), ())
        if len(self.lists) > MAX_SHARED_LISTS:
            self.lists.clear()
        if len(self.pairs) > MAX_SHARED_LISTS:
            self.pairs.clear()
        if len(self._idles) > MAX_SHARED_IDLES:
            self._idles = {}

    def share(self, ids: Ints) -> Ints:
        """Return the shared list that equals this list of broker ids."""
        return self.lists.setdefault(ids, ids)

    def lead(self, replica: HostedPartition, led: bool) -> None:
        """This broker leads the partition in a new epoch. `led`: it was the leader before."""
        if replica.log is not None or replica.leadership is not None:
            self.begin_epoch(replica, led)
        else:
            idle = replica.idle
            replica.idle = self.idle if idle is None or not idle.fetched else IdleFollowers(self.idle.since_ms, idle.fetched)

    def leads(self, topic: str, indexes: list[int]) -> None:
        """Check the followers of these partitions once, after `replica.lag.time.max.ms`."""
        self._unproven.append((self.idle.since_ms, topic, indexes))

    def drop(self, replica: HostedPartition) -> None:
        """This broker does not lead the partition any more."""
        replica.leadership = replica.idle = None
        self._checked.pop(replica, None)

    def append(
        self, replica: HostedPartition, records: Buffer, version: int, required_acks: int, origin: Origin, now_ms: int
    ) -> AppendResult:
        """Append records of a producer with `Log.append_as_leader`; the log must be open.

        Raises what that raises, and ApiError: NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS if acks=-1 and the ISR is too small.
        """
        log = self._writable(replica, required_acks)
        end_offset = log.log_end_offset
        result = log.append_as_leader(records, replica.leader_epoch, version, origin, now_ms)
        if log.log_end_offset != end_offset:
            self.log_end_moved(replica)
        return result

    def append_assigned(
        self, replica: HostedPartition, assigned: Assigned, required_acks: int, origin: Origin, now_ms: int
    ) -> AppendResult:
        """Like `append`, for records that a thread has prepared. Also raises ValueError if the log has grown in the meantime."""
        log = self._writable(replica, required_acks)
        end_offset = log.log_end_offset
        result = log.append_assigned(assigned, origin, now_ms)
        if log.log_end_offset != end_offset:
            self.log_end_moved(replica)
        return result

    def append_run(
        self, replica: HostedPartition, run: Sequence[Assigned], required_acks: int, origin: Origin, now_ms: int
    ) -> list[AppendResult]:
        """Append batches of several requests as one piece; returns the result of each. If this raises an error, nothing is appended."""
        start = self.append_assigned(replica, joined(run), required_acks, origin, now_ms).log_start_offset
        return [AppendResult(each.headers[0].base_offset, each.headers[0].last_offset, each.log_append_time_ms, start) for each in run]

    def append_while_recovering(
        self, replica: HostedPartition, leader_epoch: int, batch: Buffer, version: int, now_ms: int
    ) -> None:
        """Append a marker, or a record of the recovery, to a partition that this broker recovers in this leader epoch (KIP-704). Its log
        must be open.

        The leader is the only member of the ISR, and cannot have another one before it has recovered; so `min.insync.replicas` does not
        count. Raises ApiError: NOT_LEADER_OR_FOLLOWER if the recovery is over, and what the log raises.
        """
        log = replica.log
        if replica.role is not _LEADER or log is None or not replica.is_recovering or replica.leader_epoch != leader_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log.append_as_leader(batch, leader_epoch, version, Origin.COORDINATOR, now_ms)
        self.log_end_moved(replica)

    def _writable(self, replica: HostedPartition, required_acks: int) -> Log:
        """The log of the partition. Raises ApiError if records may not be appended."""
        if replica.role is not _LEADER or replica.log is None or replica.is_recovering:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR if replica.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == -1 and len(replica.isr) < replica.min_isr():
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return replica.log


    # followers fetch

    def follower_requested(self, broker_id: int) -> None:
        """A follower sent a Fetch request. Also for partitions in its session that the request does not name, its offset is still valid."""
        self._last_requests_ms[broker_id] = self._now_ms()

    def check_follower(self, replica: HostedPartition, broker_id: int, current_leader_epoch: int) -> None:
        """Raises ApiError if the broker `broker_id` is not a follower of the partition: UNKNOWN_LEADER_EPOCH if its request has a leader
        epoch, otherwise NOT_LEADER_OR_FOLLOWER.
        """
        if broker_id not in replica.replicas or broker_id == self._broker_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if current_leader_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def follower_fetched(
        self, replica: HostedPartition, broker_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> None:
        """A follower fetches from this offset, so it has all records before it. It may join the ISR, and the high watermark may move.

        This broker leads the partition. The offset must be in the log, and the follower's log must not diverge.
        """
        leadership = replica.leadership
        if leadership is None:
            idle = replica.idle
            if idle is None:
                return
            if broker_id in replica.isr and fetch_offset == 0:
                if broker_id not in idle.fetched:
                    fetched = (*idle.fetched, broker_id)
                    now_idle = IdleFollowers(idle.since_ms, self.share(fetched))
                    replica.idle = self._idles.setdefault(now_idle, now_idle)
                return
            leadership = self.open(replica)
        follower = leadership.followers.get(broker_id)
        if follower is None:
            return
        log = replica.log
        had, started = follower.log_end_offset, follower.log_start_offset
        follower.fetched(fetch_offset, log_start_offset, broker_epoch, replica.log_end_offset, self._now_ms())
        if broker_id not in replica.isr and leadership.pending is None:
            self._propose(leadership.expansion(broker_id, replica.high_watermark, self._metadata.brokers))
        if (log is not None and had != fetch_offset and self._move_high_watermark(replica, leadership, log)) or started != log_start_offset:
            replica.changed()

    def has_noted(self, replica: HostedPartition, broker_id: int, fetch_offset: int) -> bool:
        """Whether a follower is in the ISR, and nothing would change if it fetched from this offset again."""
        if broker_id not in replica.isr:
            return False
        if replica.leadership is None:
            return replica.idle is None or broker_id in replica.idle.fetched
        follower = replica.leadership.followers.get(broker_id)
        return follower is None or follower.log_end_offset == fetch_offset

    def low_watermark(self, replica: HostedPartition) -> int:
        """The lowest log start offset of this leader and its live followers."""
        leadership = replica.leadership
        return replica.log_start_offset if leadership is None else leadership.low_watermark(self._metadata.brokers)

    def _propose(self, proposal: IsrProposal | None) -> None:
        """Send a proposal to the controller. Does nothing for None."""
        if proposal is None or self.isr_updates is None:
            return
        replica = self._hosted(proposal.partition.topic, proposal.partition.index)
        if replica is not None and replica.leadership is not None:
            replica.leadership.pending = proposal
            self.isr_updates.submit(proposal)

    # changes of the ISR

    def recovered(self, replica: HostedPartition, leader_epoch: int) -> None:
        """The partition has been recovered. If it is still led in this epoch, propose that; the controller's confirmation makes the
        leader serve it (R704-11).
        """
        leadership = replica.leadership
        if leadership is not None and leadership.recovering and replica.leader_epoch == leader_epoch and leadership.pending is None:
            self._propose(IsrProposal(replica, replica.isr, replica.isr))

    def is_wanted(self, proposal: IsrProposal) -> bool:
        """Whether a proposal is still pending: there was no new leader epoch and no other change in the meantime."""
        replica = self._hosted(proposal.partition.topic, proposal.partition.index)
        return replica is not None and replica.leadership is not None and replica.leadership.pending is proposal

    def isr_altered(self, proposal: IsrProposal, leader_epoch: int, partition_epoch: int, isr: Ints, recovery: int) -> None:
        """The controller has accepted a proposal. Adopt the new state, unless there is a newer one already."""
        replica = self._hosted(proposal.partition.topic, proposal.partition.index)
        leadership = None if replica is None else replica.leadership
        if replica is None or leadership is None or leadership.pending is not proposal:
            return
        if leader_epoch != replica.leader_epoch or partition_epoch < replica.partition_epoch:
            return  # it stays pending: a LeaderAndIsr follows
        leadership.pending = None
        leadership.recovering = leadership.recovering and recovery != 0
        self.isr_shrinks += len(isr) < len(replica.isr)
        self.isr_expands += len(isr) > len(replica.isr)
        replica.isr = self.share(isr)
        replica.partition_epoch = partition_epoch
        replica.recovery = recovery
        log.info("broker %d: the ISR of %s is now %s, partition epoch %d", self._broker_id, replica, list(isr), partition_epoch)
        if replica.log is not None:
            self._move_high_watermark(replica, leadership, replica.log)
        replica.changed()

    def isr_refused(self, proposal: IsrProposal, code: ErrorCode) -> bool:
        """The controller has refused a proposal with this code; returns whether the same proposal must be sent again.

        After INELIGIBLE_REPLICA and OPERATION_NOT_ATTEMPTED nothing has changed, and another proposal may follow. After the errors in
        STATE_UNKNOWN this broker does not know the present state: it does not propose a change before the next LeaderAndIsr.
        """
        if not self.is_wanted(proposal):
            return False
        self.failed_isr_updates += 1
        replica = self._hosted(proposal.partition.topic, proposal.partition.index)
        log.info("broker %d: the controller refused ISR %s for %s: %s", self._broker_id, list(proposal.isr), replica, code.name)
        if code in NOTHING_CHANGED and replica is not None and replica.leadership is not None:
            if replica.leadership.recovering:
                return True  # the leader does not serve before the controller has confirmed it
            replica.leadership.pending = None
            self._wait_no_more(replica, replica.leadership)  # the high watermark waited for the replica that wanted to join
            return False
        return code not in STATE_UNKNOWN

    async def run(self) -> None:
        """Check followers every half of `replica.lag.time.max.ms`, until this is cancelled."""
        while True:
            await self._clock.sleep(self.max_lag_ms / 2000)
            with contained(log, "the check of followers"):
                self.check_followers()

    def check_followers(self) -> None:
        """Propose ISRs without the followers that fell behind.

        If all followers have all records, the partition is not checked again until its leader appends.
        """
        now_ms = self._now_ms()
        while self._unproven and now_ms - self._unproven[0][0] > self.max_lag_ms:
            _, topic, indexes = self._unproven.popleft()
            for replica in [self._hosted(topic, index) for index in indexes]:
                if replica is not None and replica.idle is not None and not _all_fetched(replica, replica.idle):
                    self.open(replica)
        for replica in list(self._checked):
            leadership = replica.leadership
            if leadership is None:
                del self._checked[replica]
                continue
            end_offset = replica.log_end_offset
            self._propose(leadership.shrinking(end_offset, now_ms, self.max_lag_ms))
            self._wait_no_more(replica, leadership)
            if leadership.is_settled(end_offset):
                del self._checked[replica]

    def brokers_changed(self) -> None:
        """The live brokers have changed. High watermarks do not wait any more for dead followers outside the ISR."""
        for replica in list(self._checked):
            if replica.leadership is not None:
                self._wait_no_more(replica, replica.leadership)

    def _wait_no_more(self, replica: HostedPartition, leadership: Leadership) -> None:
        log = replica.log
        if log is not None and log.high_watermark < log.log_end_offset and self._move_high_watermark(replica, leadership, log):
            replica.changed()

    # offsets move

    def log_end_moved(self, replica: HostedPartition) -> None:
        """The log end of a replica has moved. The high watermark may move too, and waiting requests are checked again."""
        log, leadership = replica.log, replica.leadership
        if log is None:
            return
        if replica.role is _LEADER and leadership is not None:
            if len(replica.replicas) > 1:
                leadership.end_offset_moved(log.log_end_offset, self._last_requests_ms)
                self._checked[replica] = None
                self._move_high_watermark(replica, leadership, log)
            else:  # the leader is the only replica
                leadership.seen_end_offset = log.log_end_offset
                log.set_high_watermark(log.log_end_offset)
        if replica.waiters:
            replica.changed()

    def _move_high_watermark(self, replica: HostedPartition, leadership: Leadership, log: Log) -> bool:
        offset = leadership.high_watermark(
            log.log_end_offset, replica.min_isr(), self._now_ms(), self.max_lag_ms, self._metadata.brokers
        )
        return offset is not None and offset > log.high_watermark and log.set_high_watermark(offset)

    def begin_epoch(self, replica: HostedPartition, led: bool, recovering: bool = False) -> None:
        """Like `lead`, for a partition that has a log or a `Leadership`."""
        log = replica.log
        start_offset = 0 if log is None else log.next_offset
        if log is not None:
            log.assign_epoch(replica.leader_epoch, start_offset)
        if replica.leadership is None:
            replica.leadership = Leadership(replica, start_offset)
        leadership = replica.leadership
        leadership.pending = None
        if recovering and not leadership.recovering:
            leadership.recovery_begun_ms = self._now_ms()
        leadership.recovering = recovering
        leadership.begin_epoch(start_offset, self._now_ms(), not led)
        if len(replica.replicas) > 1:
            self._checked[replica] = None
        if log is not None:
            self._move_high_watermark(replica, leadership, log)

    def open(self, replica: HostedPartition) -> Leadership:
        """Return the `Leadership` of a partition; creates it if the partition was empty until now."""
        leadership = replica.leadership
        if leadership is None:
            idle = self.idle if replica.idle is None else replica.idle
            leadership = replica.leadership = Leadership(replica, replica.log_end_offset)
            leadership.begin_epoch(replica.log_end_offset, idle.since_ms, True)
            for broker_id, follower in leadership.followers.items():
                if broker_id in idle.fetched:
                    follower.fetched(0, 0, -1, 0, self._last_requests_ms.get(broker_id, idle.since_ms))
            replica.idle = None
        if len(replica.replicas) > 1:
            self._checked[replica] = None
        return leadership

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _all_fetched(replica: HostedPartition, idle: IdleFollowers) -> bool:
    """Whether every follower in the ISR of an empty partition has fetched."""
    return len(idle.fetched) >= len(replica.isr) - 1 and all(b in idle.fetched for b in replica.isr if b != replica.leader)
