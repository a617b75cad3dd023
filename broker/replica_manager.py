"""The partitions a broker hosts, as LeaderAndIsr and StopReplica made them, and what it takes from a controller at all.

Three requests of the controller end here (controller 15). Each is refused when it was meant for an earlier life of this broker
(stale broker epoch), or when it comes from a controller older than the newest one seen in *any* of the three. What passes is
judged partition by partition: a higher leader epoch makes the broker leader or follower, the same or a lower one is refused, a
follower does not move to a leader that the metadata cache does not know as alive. StopReplica without deletion only ends the
fetching; role, leader epoch and data stay. UpdateMetadata goes into the metadata cache.

The decoded partition state is kept as it came. What changed is returned with the response, as values (`broker/replica_effects.py`).
Nothing is on disk here: `offline`, `log_dir_failed` and `logs_found` are what the logs will report through once there are any.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from klamm.broker.leadership import NEVER, IsrProposal, Leadership
from klamm.broker.log.log import AppendResult, Log
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition, IdleFollowers, Role
from klamm.broker.partition_log import Logs
from klamm.broker.replica_effects import (
    BecameFollower,
    BecameLeader,
    Deleted,
    Effect,
    LeaderUnavailable,
    PartitionState,
    Stopped,
    TopicIdAssigned,
    WentOffline,
)
from klamm.broker.replica_requests import each_once, refuse_leader_and_isr, stopped_partitions
from klamm.protocol import messages
from klamm.protocol.clock import SYSTEM_CLOCK, Clock
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import EPOCH_DURING_DELETE, NO_EPOCH, ZERO_UUID, Ints
from klamm.protocol.records.batch import Buffer
from klamm.protocol.records.validation import Assigned, Origin

log = logging.getLogger("klamm.broker.replica_manager")

# plain numbers: these are compared and stored once for each of ten thousand partitions
_NONE = int(ErrorCode.NONE)
_UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_STALE_CONTROLLER_EPOCH = int(ErrorCode.STALE_CONTROLLER_EPOCH)
_KAFKA_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_FENCED_LEADER_EPOCH = int(ErrorCode.FENCED_LEADER_EPOCH)
_INCONSISTENT_TOPIC_ID = int(ErrorCode.INCONSISTENT_TOPIC_ID)
_RECOVERY_STATES = frozenset((0, 1))

MAX_SHARED_LISTS = 10_000

Row: TypeAlias = "messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError"
ControllerRequest: TypeAlias = "messages.LeaderAndIsrRequest | messages.StopReplicaRequest | messages.UpdateMetadataRequest"
Lists = tuple[list[PartitionState], list[PartitionState], list[PartitionState]]
Response = TypeVar("Response")

NOTHING_CHANGED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
STATE_UNKNOWN = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST, ErrorCode.NEW_LEADER_ELECTED,
})  # fmt: skip
"""Results after which a leader proposes nothing before the next LeaderAndIsr."""


class IsrUpdates(Protocol):
    """What brings proposals to the controller (`server/replication/isr_updates.py`)."""

    def submit(self, proposal: IsrProposal) -> None:
        """Propose; the result comes to `ReplicaManager.isr_altered` or `isr_refused`, never before this returns."""


class Handled(NamedTuple, Generic[Response]):
    """The response to a controller's request, and what the request changed here."""

    response: Response
    effects: list[Effect]


class ReplicaManager:
    """All replicas of one broker. `broker_epoch` of the handling methods is the broker's own, the czxid of its registration."""

    def __init__(
        self, broker_id: int, metadata: MetadataCache, logs: Logs | None = None, clock: Clock = SYSTEM_CLOCK, max_lag_ms: int = 30_000
    ) -> None:
        self.broker_id = broker_id
        self.metadata = metadata
        self.controller_epoch = 0
        self.log_dir_failed = False
        self.logs_found: Collection[tuple[str, int]] = ()
        """Partitions whose logs were there when this process started, in directories that are well."""
        self.logs = logs
        self.isr_updates: IsrUpdates | None = None
        self.listeners: list[Callable[[Sequence[Effect]], None]] = []
        """Called with what each request changed: who fetches from leaders, coordinates groups."""
        self.max_lag_ms = max_lag_ms
        self._clock = clock
        self._topics: dict[str, dict[int, HostedPartition]] = {}
        self._errors: dict[tuple[int, int], Row] = {}
        self._lists: dict[Ints, Ints] = {}
        """Lists of broker ids, each once."""
        self._woken: list[HostedPartition] = []
        self._idle = IdleFollowers(NEVER, ())
        """Of partitions that the present request makes this broker lead."""
        self._unproven: deque[tuple[int, str, list[int]]] = deque()
        """What was led since when: its followers have not been checked yet."""
        self._checked: dict[HostedPartition, None] = {}
        """Led partitions whose followers may fall behind."""
        self._last_requests_ms: dict[int, int] = {}

    def get(self, topic: str, partition: int) -> HostedPartition | None:
        hosted = self._topics.get(topic)
        return None if hosted is None else hosted.get(partition)

    def __iter__(self) -> Iterator[tuple[str, int, HostedPartition]]:
        for topic, hosted in self._topics.items():
            for partition, replica in hosted.items():
                yield topic, partition, replica

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def leader_count(self) -> int:
        return sum(replica.role is Role.LEADER for _, _, replica in self)

    def fail_log_dir(self, partitions: Iterable[tuple[str, int]]) -> list[Effect]:
        """A log directory failed: the partitions in it are offline until the process ends, and no old log is made anew elsewhere."""
        self.log_dir_failed = True
        offline: dict[str, list[int]] = {}
        for topic, partition in partitions:
            replica = self._topics.setdefault(topic, {}).setdefault(partition, HostedPartition(topic, partition, ZERO_UUID))
            if not replica.offline:
                replica.offline = True
                self._drop(replica)
                offline.setdefault(topic, []).append(partition)
        return [WentOffline(topic, indexes) for topic, indexes in offline.items()]

    def _refusal(self, request: ControllerRequest, broker_epoch: int) -> ErrorCode:
        """Why a controller's request is not for this broker, or NONE: then its controller epoch is remembered."""
        if request.broker_epoch != -1 and request.broker_epoch < broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    # UpdateMetadata

    def handle_update_metadata(
        self, request: messages.UpdateMetadataRequest, broker_epoch: int
    ) -> tuple[messages.UpdateMetadataResponse, set[str]]:
        """The response, and the topics whose waiting requests should look again."""
        refusal = self._refusal(request, broker_epoch)
        touched = set() if refusal else self.metadata.update(request)
        return messages.UpdateMetadataResponse(error_code=int(refusal)), touched

    # LeaderAndIsr

    def handle_leader_and_isr(
        self, request: messages.LeaderAndIsrRequest, version: int, broker_epoch: int
    ) -> Handled[messages.LeaderAndIsrResponse]:
        """The response and the effects. Versions 0-1 list partitions flat, 2 and later by topic. The last entry of a partition counts.

        A topic in two elements, or a follower with a recovery state that does not exist, makes it an unknown server error as a whole,
        before anything has changed.
        """
        refusal = self._refusal(request, broker_epoch)
        if refusal:
            return Handled(refuse_leader_and_isr(request, version, refusal), [])
        topics = each_once(request)
        if topics is None or any(self._has_unknown_recovery(name, states) for (name, _), states in topics):
            return Handled(refuse_leader_and_isr(request, version, ErrorCode.UNKNOWN_SERVER_ERROR), [])
        self._idle = IdleFollowers(self._now_ms(), ())
        if len(self._lists) > MAX_SHARED_LISTS:
            self._lists = {}
        effects: list[Effect] = []
        if version >= 5:
            topic_error = messages.LeaderAndIsrResponse.LeaderAndIsrTopicError
            by_id: dict[bytes, list[Row]] = {}
            for (name, topic_id), states in topics:
                errors = self._apply(name, topic_id, states, effects)
                if topic_id in by_id:
                    by_id[topic_id] += errors
                else:
                    by_id[topic_id] = errors
            response = messages.LeaderAndIsrResponse(topics=[topic_error(topic_id, errors) for topic_id, errors in by_id.items()])
            return Handled(response, effects)
        partition_error = messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError
        flat = []
        for (name, _), states in topics:
            errors = self._apply(name, ZERO_UUID, states, effects)
            flat += [partition_error(topic_name=name, partition_index=e.partition_index, error_code=e.error_code) for e in errors]
        return Handled(messages.LeaderAndIsrResponse(partition_errors=flat), effects)

    def _has_unknown_recovery(self, topic: str, states: Sequence[PartitionState]) -> bool:
        """Whether this broker would follow with a recovery state that is neither; leading it is not looked at, as in Apache Kafka."""
        if {state.leader_recovery_state for state in states} <= _RECOVERY_STATES:
            return False
        me, alive = self.broker_id, self.metadata.brokers
        for state in states:
            if (
                state.leader_recovery_state not in _RECOVERY_STATES
                and state.leader != me
                and state.leader in alive
                and me in state.replicas
            ):
                replica = self.get(topic, state.partition_index)
                if state.leader_epoch > (NO_EPOCH if replica is None else replica.leader_epoch):
                    return True
        return False

    def _apply(self, topic: str, topic_id: bytes, states: Sequence[PartitionState], effects: list[Effect]) -> list[Row]:
        """Results of one topic's partition states, each made effective where it is good. Equal results are one object."""
        leads: list[PartitionState] = []
        follows: list[PartitionState] = []
        waits: list[PartitionState] = []
        identified: list[int] = []
        into = leads, follows, waits
        me = self.broker_id
        known = self._errors
        hosted = self._topics.get(topic)
        if hosted is None:
            hosted = self._topics[topic] = {}
        errors = []
        for state in states:
            index = state.partition_index
            replica = hosted.get(index)
            if replica is None:
                code = self._host(hosted, topic, state, topic_id, into)
            elif replica.offline:
                code = _KAFKA_STORAGE_ERROR
            elif topic_id != replica.topic_id and topic_id != ZERO_UUID and replica.topic_id != ZERO_UUID:
                code = _INCONSISTENT_TOPIC_ID
            elif state.leader_epoch > replica.leader_epoch:
                if me in state.replicas:
                    self._become(replica, state, topic_id, into)
                    code = _NONE
                else:
                    code = _UNKNOWN_TOPIC_OR_PARTITION
            elif state.leader_epoch < replica.leader_epoch or topic_id == replica.topic_id:
                code = _STALE_CONTROLLER_EPOCH
            elif topic_id != ZERO_UUID:
                # the log has no id yet
                replica.topic_id = topic_id
                identified.append(index)
                code = _NONE
            else:
                # the log has an id, the controller knows none: a follower goes on fetching without one
                code = _STALE_CONTROLLER_EPOCH if state.leader == me else _NONE
            error = known.get((index, code))
            if error is None:
                error = messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError(partition_index=index, error_code=code)
                known[index, code] = error
            errors.append(error)
        if not hosted:
            del self._topics[topic]
        if leads:
            effects.append(BecameLeader(topic, topic_id, leads))
        if follows:
            effects.append(BecameFollower(topic, topic_id, follows))
        if waits:
            effects.append(LeaderUnavailable(topic, topic_id, waits))
        if identified:
            effects.append(TopicIdAssigned(topic, topic_id, identified))
        return errors

    def _host(
        self, hosted: dict[int, HostedPartition], topic: str, state: PartitionState, topic_id: bytes, into: Lists
    ) -> int:
        """A partition this broker does not have yet; its local leader epoch counts as -1."""
        if state.leader_epoch <= NO_EPOCH:
            return _STALE_CONTROLLER_EPOCH
        if self.broker_id not in state.replicas:
            return _UNKNOWN_TOPIC_OR_PARTITION
        replica = HostedPartition(topic, state.partition_index, topic_id)
        hosted[state.partition_index] = replica
        if self.log_dir_failed and not state.is_new and (topic, state.partition_index) not in self.logs_found:
            replica.offline = True
            return _KAFKA_STORAGE_ERROR
        self._become(replica, state, topic_id, into)
        return _NONE

    def _become(
        self, replica: HostedPartition, state: PartitionState, topic_id: bytes, into: Lists
    ) -> None:
        """Leader or follower, by the state. With a leader that is not alive only the log's id is taken; with a lower partition
        epoch nothing is. `into` gets the states that took effect: as leader, as follower, with a leader that is not alive."""
        leads = state.leader == self.broker_id
        follows = not leads and state.leader in self.metadata.brokers
        if (leads or follows) and state.partition_epoch < replica.partition_epoch:
            return
        if topic_id != ZERO_UUID:
            replica.topic_id = topic_id
        if not leads and not follows:
            into[2].append(state)
            return
        into[not leads].append(state)
        led = replica.role is Role.LEADER
        replica.role = Role.LEADER if leads else Role.FOLLOWER
        replica.fetching = follows
        replica.leader_epoch = state.leader_epoch
        replica.partition_epoch = state.partition_epoch
        replica.leader = state.leader
        isr, replicas, share = tuple(state.isr), tuple(state.replicas), self._lists.setdefault
        replica.isr = share(isr, isr)
        replica.replicas = share(replicas, replicas)
        replica.recovery = state.leader_recovery_state
        replica.controller_epoch = state.controller_epoch
        if not leads:
            replica.leadership = replica.idle = None
        elif replica.log is not None or replica.leadership is not None:
            self._begin_epoch(replica, led)
        else:
            idle = replica.idle
            replica.idle = self._idle if idle is None or not idle.fetched else IdleFollowers(self._idle.since_ms, idle.fetched)
        if replica.waiters:
            self._woken.append(replica)

    # StopReplica

    def handle_stop_replica(
        self, request: messages.StopReplicaRequest, version: int, broker_epoch: int
    ) -> Handled[messages.StopReplicaResponse]:
        """The response and the effects; a refused request lists no partitions. Of a partition named twice the last entry counts."""
        refusal = self._refusal(request, broker_epoch)
        if refusal:
            return Handled(messages.StopReplicaResponse(error_code=int(refusal)), [])
        error = messages.StopReplicaResponse.StopReplicaPartitionError
        last = {
            (topic, partition): (leader_epoch, delete) for topic, partition, leader_epoch, delete in stopped_partitions(request, version)
        }
        stopped: dict[str, list[int]] = {}
        deleted: dict[str, list[int]] = {}
        results = [
            error(
                topic_name=topic,
                partition_index=partition,
                error_code=self._stop(topic, partition, leader_epoch, delete, deleted if delete else stopped),
            )
            for (topic, partition), (leader_epoch, delete) in last.items()
        ]
        effects: list[Effect] = [Stopped(topic, indexes) for topic, indexes in stopped.items()]
        effects += [Deleted(topic, indexes) for topic, indexes in deleted.items()]
        return Handled(messages.StopReplicaResponse(partition_errors=results), effects)

    def _stop(self, topic: str, partition: int, leader_epoch: int, delete: bool, into: dict[str, list[int]]) -> int:
        replica = self.get(topic, partition)
        if replica is None:
            return _NONE
        if replica.offline:
            return _KAFKA_STORAGE_ERROR
        if leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and leader_epoch < replica.leader_epoch:
            return _FENCED_LEADER_EPOCH
        replica.fetching = False
        into.setdefault(topic, []).append(partition)
        if delete:
            self._drop(replica)
            hosted = self._topics[topic]
            del hosted[partition]
            if not hosted:
                del self._topics[topic]
        return _NONE

    # what a request changed

    def apply(self, effects: Sequence[Effect]) -> Coroutine[Any, Any, None] | None:
        """Act on what a request changed: logs, fetchers, waiting requests. A coroutine where logs have to be made on disk first."""
        for effect in effects:
            match effect:
                case BecameLeader(topic, _, states):
                    self._unproven.append((self._idle.since_ms, topic, [state.partition_index for state in states]))
                case Deleted(topic, partitions) if self.logs is not None:
                    for partition in partitions:
                        self.logs.delete(topic, partition)
                case _:
                    pass
        for listener in self.listeners:
            listener(effects)
        woken, self._woken = self._woken, []
        for replica in woken:
            replica.changed()
        if self.logs is None or not self.logs.on_disk:
            return None
        return self._make_logs(effects)

    async def _make_logs(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, BecameLeader | BecameFollower | LeaderUnavailable):
                for state in effect.states:
                    replica = self.get(effect.topic, state.partition_index)
                    if replica is not None and not replica.offline:
                        await self.open_log(replica, state.is_new)

    def _drop(self, replica: HostedPartition) -> None:
        """This broker does not serve the replica any more."""
        replica.role = Role.NONE
        replica.leadership = replica.idle = replica.log = None
        self._checked.pop(replica, None)
        if replica.waiters:
            self._woken.append(replica)

    # what requests of clients and followers need

    def leader(self, topic: str, index: int, current_leader_epoch: int = NO_EPOCH) -> HostedPartition:
        """The partition, which this broker leads in the epoch that the client knows (-1: it does not say).

        Raises ApiError: KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (also while the leader recovers, KIP-704), UNKNOWN_TOPIC_OR_PARTITION,
        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        replica = self.replica(topic, index, current_leader_epoch)
        if replica.role is not Role.LEADER:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def replica(self, topic: str, index: int, current_leader_epoch: int = NO_EPOCH) -> HostedPartition:
        """The partition, whatever the role. Raises ApiError as `leader`, NOT_LEADER_OR_FOLLOWER only where this broker has no replica."""
        hosted = self._topics.get(topic)
        replica = None if hosted is None else hosted.get(index)
        if replica is None:
            raise ApiError(self._absence(topic, index))
        if replica.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        if current_leader_epoch not in (NO_EPOCH, replica.leader_epoch):
            fenced = current_leader_epoch < replica.leader_epoch
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if replica.leadership is not None and replica.leadership.recovering:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def _absence(self, topic: str, index: int) -> ErrorCode:
        """The code for a partition that this broker has no replica of."""
        known = self.metadata.partition(topic, index) is not None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def open_log(self, replica: HostedPartition, is_new: bool = True) -> Log:
        """The partition's log, made if it has none yet. Raises ApiError: KAFKA_STORAGE_ERROR, or that it is not hosted any more."""
        if replica.log is not None:
            return replica.log
        if self.logs is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        log = await self.logs.open(replica.topic, replica.index, replica.topic_id, is_new)
        if replica.log is not None:
            return replica.log
        if self.get(replica.topic, replica.index) is not replica:
            raise ApiError(self._absence(replica.topic, replica.index))
        replica.log = log
        log.on_written = lambda: self.log_end_moved(replica)
        if replica.role is Role.LEADER:
            log.assign_epoch(replica.leader_epoch, log.next_offset)
            self._lead(replica)
        return log

    def append(
        self, replica: HostedPartition, records: Buffer, version: int, required_acks: int, origin: Origin, now_ms: int
    ) -> AppendResult:
        """Append what a producer sent, by `Log.append_as_leader`; the log is open. Raises what that raises, and ApiError:
        NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS where acks=-1 needs more replicas in sync than there are.
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
        """As `append`, for records that a thread has prepared. Raises ValueError too, where the log has gone on meanwhile."""
        log = self._writable(replica, required_acks)
        end_offset = log.log_end_offset
        result = log.append_assigned(assigned, origin, now_ms)
        if log.log_end_offset != end_offset:
            self.log_end_moved(replica)
        return result

    def _writable(self, replica: HostedPartition, required_acks: int) -> Log:
        """The log, if records may be appended."""
        if replica.role is not Role.LEADER or replica.log is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR if replica.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == -1 and len(replica.isr) < self.min_isr(replica):
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return replica.log

    def min_isr(self, replica: HostedPartition) -> int:
        """`min.insync.replicas` of the topic, but not more than there are replicas."""
        return 1 if replica.log is None else min(replica.log.config.min_insync_replicas, len(replica.replicas))

    def replication_result(self, replica: HostedPartition, last_offset: int) -> ErrorCode | None:
        """What became of records appended with acks=-1, up to `last_offset`: a code once that is settled, None to wait on."""
        if replica.role is not Role.LEADER:
            if replica.offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            hosted = self.get(replica.topic, replica.index) is replica
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if hosted else self._absence(replica.topic, replica.index)
        if replica.high_watermark <= last_offset:
            return None
        return ErrorCode.NONE if self.min_isr(replica) <= len(replica.maximal_isr) else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # followers fetch

    def follower_requested(self, broker_id: int) -> None:
        """A follower sent a Fetch request, whatever partitions it names: it has what it had of all that are in its session."""
        self._last_requests_ms[broker_id] = self._now_ms()

    def check_follower(self, replica: HostedPartition, broker_id: int, current_leader_epoch: int) -> None:
        """Raises ApiError where this broker is no replica of the partition: UNKNOWN_LEADER_EPOCH if its request has a leader epoch,
        NOT_LEADER_OR_FOLLOWER otherwise."""
        if broker_id not in replica.replicas or broker_id == self.broker_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if current_leader_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def follower_fetched(
        self, replica: HostedPartition, broker_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> None:
        """A follower fetches from this offset of a partition that this broker leads, and so has everything before it.

        It may join the ISR, and the high watermark may move. The offset is in the log, and the follower's log does not diverge.
        """
        leadership = replica.leadership
        if leadership is None:
            idle = replica.idle
            if idle is None:
                return
            if broker_id in replica.isr and fetch_offset == 0:
                if broker_id not in idle.fetched:
                    fetched = (*idle.fetched, broker_id)
                    replica.idle = IdleFollowers(idle.since_ms, self._lists.setdefault(fetched, fetched))
                return
            leadership = self._lead(replica)
        follower = leadership.followers.get(broker_id)
        if follower is None:
            return
        log = replica.log
        had, started = follower.log_end_offset, follower.log_start_offset
        follower.fetched(fetch_offset, log_start_offset, broker_epoch, replica.log_end_offset, self._now_ms())
        if broker_id not in replica.isr and leadership.pending is None:
            self._propose(leadership.expansion(broker_id, replica.high_watermark, self.metadata.brokers))
        if (log is not None and had != fetch_offset and self._move_high_watermark(replica, leadership, log)) or started != log_start_offset:
            replica.changed()

    def low_watermark(self, replica: HostedPartition) -> int:
        """The lowest log start offset of this leader and its live followers."""
        leadership = replica.leadership
        return replica.log_start_offset if leadership is None else leadership.low_watermark(self.metadata.brokers)

    def _propose(self, proposal: IsrProposal | None) -> None:
        """Request a change from the controller, if there is one."""
        if proposal is None or self.isr_updates is None:
            return
        replica = self.get(proposal.partition.topic, proposal.partition.index)
        if replica is not None and replica.leadership is not None:
            replica.leadership.pending = proposal
            self.isr_updates.submit(proposal)

    # changes of the ISR

    def is_wanted(self, proposal: IsrProposal) -> bool:
        """Whether the result of a proposal still counts: no other leader epoch and no other change came meanwhile."""
        replica = self.get(proposal.partition.topic, proposal.partition.index)
        return replica is not None and replica.leadership is not None and replica.leadership.pending is proposal

    def isr_altered(self, proposal: IsrProposal, leader_epoch: int, partition_epoch: int, isr: Ints, recovery: int) -> None:
        """The controller has confirmed a proposal: this is the state now, unless a newer one came meanwhile."""
        replica = self.get(proposal.partition.topic, proposal.partition.index)
        leadership = None if replica is None else replica.leadership
        if replica is None or leadership is None or leadership.pending is not proposal:
            return
        if leader_epoch != replica.leader_epoch or partition_epoch < replica.partition_epoch:
            return  # it goes on as pending: a LeaderAndIsr comes
        leadership.pending = None
        replica.isr = self._lists.setdefault(isr, isr)
        replica.partition_epoch = partition_epoch
        replica.recovery = recovery
        log.info("broker %d: the ISR of %s is %s now, its partition epoch %d", self.broker_id, replica, list(isr), partition_epoch)
        if replica.log is not None:
            self._move_high_watermark(replica, leadership, replica.log)
        replica.changed()

    def isr_refused(self, proposal: IsrProposal, code: ErrorCode) -> bool:
        """The controller has refused a proposal with this code; true when the same is to be sent again.

        INELIGIBLE_REPLICA and OPERATION_NOT_ATTEMPTED say that nothing was changed: another proposal may follow. After errors that say that
        this broker does not know the present state nothing is proposed before the next LeaderAndIsr.
        """
        if not self.is_wanted(proposal):
            return False
        replica = self.get(proposal.partition.topic, proposal.partition.index)
        log.info("broker %d: no change of the ISR of %s to %s: %s", self.broker_id, replica, list(proposal.isr), code.name)
        if code in NOTHING_CHANGED:
            if replica is not None and replica.leadership is not None:
                replica.leadership.pending = None
            return False
        return code not in STATE_UNKNOWN

    def check_followers(self) -> None:
        """Propose ISRs without the followers that fell behind. Called every half of `replica.lag.time.max.ms`.

        Partitions whose followers have everything are not looked at again before their leader appends.
        """
        now_ms = self._now_ms()
        while self._unproven and now_ms - self._unproven[0][0] > self.max_lag_ms:
            _, topic, indexes = self._unproven.popleft()
            for replica in map(self._topics.get(topic, {}).get, indexes):
                if replica is not None and replica.idle is not None and not _all_fetched(replica, replica.idle):
                    self._lead(replica)
        for replica in list(self._checked):
            leadership = replica.leadership
            if leadership is None:
                del self._checked[replica]
                continue
            end_offset = replica.log_end_offset
            self._propose(leadership.shrinking(end_offset, now_ms, self.max_lag_ms))
            if leadership.is_settled(end_offset):
                del self._checked[replica]

    # offsets move

    def log_end_moved(self, replica: HostedPartition) -> None:
        """The end of a replica's log moved: the high watermark may follow it, and who waits looks again."""
        log, leadership = replica.log, replica.leadership
        if log is None:
            return
        if replica.role is Role.LEADER and leadership is not None:
            leadership.end_offset_moved(log.log_end_offset, self._last_requests_ms)
            if len(replica.replicas) > 1:
                self._checked[replica] = None
            self._move_high_watermark(replica, leadership, log)
        replica.changed()

    def _move_high_watermark(self, replica: HostedPartition, leadership: Leadership, log: Log) -> bool:
        offset = leadership.high_watermark(
            log.log_end_offset, self.min_isr(replica), self._now_ms(), self.max_lag_ms, self.metadata.brokers
        )  # fmt: skip
        return offset is not None and offset > log.high_watermark and log.set_high_watermark(offset)

    def _begin_epoch(self, replica: HostedPartition, led: bool) -> None:
        """This broker leads the partition in a new epoch; `led`: it did before."""
        log = replica.log
        start_offset = 0 if log is None else log.next_offset
        if log is not None:
            log.assign_epoch(replica.leader_epoch, start_offset)
        if replica.leadership is None:
            replica.leadership = Leadership(replica, start_offset)
        leadership = replica.leadership
        leadership.pending = None
        leadership.begin_epoch(start_offset, self._now_ms(), not led)
        if len(replica.replicas) > 1:
            self._checked[replica] = None
        if log is not None:
            self._move_high_watermark(replica, leadership, log)

    def _lead(self, replica: HostedPartition) -> Leadership:
        """The state of the followers of a partition that was empty until now."""
        leadership = replica.leadership
        if leadership is None:
            idle = self._idle if replica.idle is None else replica.idle
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
