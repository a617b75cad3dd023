"""The partitions a broker hosts, as LeaderAndIsr and StopReplica made them, and what it takes from a controller at all.

Three requests of the controller end here (controller 15). Each is refused when it was meant for an earlier life of this broker
(stale broker epoch), or when it comes from a controller older than the newest one seen in *any* of the three. What passes is
judged partition by partition: a higher leader epoch makes the broker leader or follower, the same or a lower one is refused, a
follower does not move to a leader that the metadata cache does not know as alive. StopReplica without deletion only ends the
fetching; role, leader epoch and data stay. UpdateMetadata goes into the metadata cache.

The decoded partition state is kept as it came. What changed is returned with the response, as values (`broker/replica_effects.py`).
A broker with logs on disk makes those that are missing before it responds; `offline`, `log_dir_failed` and `logs_found` are what the log
directories report through. What this broker does as a leader is in `broker/leaders.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from klamm.broker.leaders import Leaders
from klamm.broker.log.log import Log
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition, Role
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
from klamm.protocol.nouns import EPOCH_DURING_DELETE, NO_EPOCH, ZERO_UUID

log = logging.getLogger("klamm.broker.replica_manager")

# plain numbers: these are compared and stored once for each of ten thousand partitions
_NONE = int(ErrorCode.NONE)
_UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_STALE_CONTROLLER_EPOCH = int(ErrorCode.STALE_CONTROLLER_EPOCH)
_KAFKA_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_FENCED_LEADER_EPOCH = int(ErrorCode.FENCED_LEADER_EPOCH)
_INCONSISTENT_TOPIC_ID = int(ErrorCode.INCONSISTENT_TOPIC_ID)
_RECOVERY_STATES = frozenset((0, 1))
_LEADER, _FOLLOWER = Role.LEADER, Role.FOLLOWER

Row: TypeAlias = "messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError"
ControllerRequest: TypeAlias = "messages.LeaderAndIsrRequest | messages.StopReplicaRequest | messages.UpdateMetadataRequest"
Lists = tuple[list[PartitionState], list[PartitionState], list[PartitionState]]
Response = TypeVar("Response")


class Handled(NamedTuple, Generic[Response]):
    """The response to a controller's request, and what the request changed here."""

    response: Response
    effects: list[Effect]


class ReplicaManager:
    """All replicas of one broker. `broker_epoch` of the handling methods is the broker's own, the czxid of its registration."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        logs: Logs | None = None,
        clock: Clock = SYSTEM_CLOCK,
        max_lag_ms: int = 30_000,
    ) -> None:
        self.broker_id = broker_id
        self.metadata = metadata
        self.controller_epoch = 0
        self.log_dir_failed = False
        self.logs_found: Mapping[tuple[str, int], bytes] = {}
        """Partitions whose logs were there when this process started, in directories that are well, with their topic ids."""
        self.logs = logs
        self.leaders = leaders = Leaders(broker_id, metadata, self.get, clock, max_lag_ms)
        self.listeners: list[Callable[[Sequence[Effect]], None]] = []
        """Called with what each request changed: who fetches from leaders, coordinates groups."""
        self.recover: Callable[[HostedPartition], object] | None = None
        """Called when this broker leads a partition that it has to recover first (KIP-704). None: a leader serves at once."""
        self._topics: dict[str, dict[int, HostedPartition]] = {}
        self._errors: dict[tuple[int, int], Row] = {}
        self._share = leaders.pairs.setdefault
        self._woken: list[HostedPartition] = []
        self._recovering: list[HostedPartition] = []
        # what requests of clients and followers need of `leaders`, so that they need one object
        self.append, self.append_assigned = leaders.append, leaders.append_assigned
        self.min_isr, self.low_watermark = leaders.min_isr, leaders.low_watermark
        self.follower_requested, self.check_follower = leaders.follower_requested, leaders.check_follower
        self.follower_fetched = leaders.follower_fetched

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
        return sum(replica.role is _LEADER for _, _, replica in self)

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
        brokers = self.metadata.brokers
        touched = set() if refusal else self.metadata.update(request)
        if self.metadata.brokers is not brokers:
            self.leaders.brokers_changed()
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
        self.leaders.begin_request()
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
        name = topic, state.partition_index
        found_id = self.logs_found.get(name, ZERO_UUID)
        if found_id != topic_id and ZERO_UUID not in (found_id, topic_id):
            return _INCONSISTENT_TOPIC_ID
        replica = HostedPartition(topic, state.partition_index, topic_id)
        hosted[state.partition_index] = replica
        if self.log_dir_failed and not state.is_new and name not in self.logs_found:
            replica.offline = True
            return _KAFKA_STORAGE_ERROR
        if self.logs is not None and self.logs.on_disk:
            found = self.logs.get(*name)
            if found is not None:
                self._attach(replica, found)
        self._become(replica, state, topic_id, into)
        return _NONE

    def _become(
        self, replica: HostedPartition, state: PartitionState, topic_id: bytes, into: Lists
    ) -> None:
        """Leader or follower, by the state. With a leader that is not alive only the log's id is taken; with a lower partition
        epoch nothing is. `into` gets the states that took effect: as leader, as follower, with a leader that is not alive."""
        _, _, controller_epoch, leader, leader_epoch, isr, partition_epoch, replicas, _, _, _, recovery = state
        leads = leader == self.broker_id
        follows = not leads and leader in self.metadata.brokers
        if partition_epoch < replica.partition_epoch and (leads or follows):
            return
        if topic_id != ZERO_UUID:
            replica.topic_id = topic_id
        if not leads and not follows:
            into[2].append(state)
            return
        into[follows].append(state)
        led = replica.role is _LEADER
        replica.fetching = follows
        replica.leader_epoch = leader_epoch
        replica.partition_epoch = partition_epoch
        replica.leader = leader
        shared = tuple(isr), tuple(replicas)
        replica.isr, replica.replicas = self._share(shared, shared)
        replica.recovery = recovery
        replica.controller_epoch = controller_epoch
        if follows:
            replica.role = _FOLLOWER
            if led:
                self.leaders.drop(replica)
        else:
            replica.role = _LEADER
            if recovery and self.recover is not None:
                self.leaders.begin_epoch(replica, led, recovering=True)
                self._recovering.append(replica)
            elif replica.idle is None and replica.log is None and replica.leadership is None:
                replica.idle = self.leaders.idle
            else:
                self.leaders.lead(replica, led)
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
            if delete and self.logs is not None and self.logs.on_disk:
                self.logs.delete(topic, partition)  # what is left of it on disk
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

    def apply(self, effects: Sequence[Effect]) -> Coroutine[Any, Any, set[tuple[str, int]]] | None:
        """Act on what a request changed: logs, fetchers, waiting requests. A coroutine where logs have to be made on disk first: it returns
        the partitions whose logs cannot be made; they are offline now.
        """
        logs = self.logs
        for effect in effects:
            match effect:
                case BecameLeader(topic, _, states):
                    self.leaders.leads(topic, [state.partition_index for state in states])
                case Deleted(topic, partitions) if logs is not None:
                    for partition in partitions:
                        logs.delete(topic, partition)
                case _:
                    pass
        for listener in self.listeners:
            listener(effects)
        recovering, self._recovering = self._recovering, []
        if self.recover is not None:
            for replica in recovering:
                self.recover(replica)
        woken, self._woken = self._woken, []
        for replica in woken:
            replica.changed()
        if logs is None or not logs.on_disk:
            return None
        made = [effect for effect in effects if isinstance(effect, BecameLeader | BecameFollower | LeaderUnavailable)]
        return self._make_logs(made) if made else None

    async def _make_logs(self, effects: Sequence[BecameLeader | BecameFollower | LeaderUnavailable]) -> set[tuple[str, int]]:
        missing = [
            (replica, state.is_new)
            for effect in effects
            for state in effect.states
            if (replica := self.get(effect.topic, state.partition_index)) is not None and replica.log is None and not replica.offline
        ]
        results = await asyncio.gather(*(self.open_log(replica, is_new) for replica, is_new in missing), return_exceptions=True)
        failed: dict[str, list[int]] = {}
        for (replica, _), result in zip(missing, results, strict=True):
            if isinstance(result, ApiError):
                log.warning("broker %d: no log of %s: %s", self.broker_id, replica, result)
                if self.get(replica.topic, replica.index) is replica and result.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    failed.setdefault(replica.topic, []).append(replica.index)
                    if not replica.offline:
                        replica.offline = True
                        self._drop(replica)
            elif isinstance(result, BaseException):
                raise result
        if failed:
            self.apply([WentOffline(topic, indexes) for topic, indexes in failed.items()])
        return {(topic, index) for topic, indexes in failed.items() for index in indexes}

    def _drop(self, replica: HostedPartition) -> None:
        """This broker does not serve the replica any more."""
        replica.role = Role.NONE
        self.leaders.drop(replica)
        replica.log = None
        if replica.waiters:
            self._woken.append(replica)

    # what requests of clients and followers need

    def leader(self, topic: str, index: int, current_leader_epoch: int = NO_EPOCH) -> HostedPartition:
        """The partition, which this broker leads in the epoch that the client knows (-1: it does not say).

        Raises ApiError: KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (also while the leader recovers, KIP-704), UNKNOWN_TOPIC_OR_PARTITION,
        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        replica = self.replica(topic, index, current_leader_epoch)
        if replica.role is not _LEADER:
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
        try:
            made = await self.logs.open(replica.topic, replica.index, replica.topic_id, is_new)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ApiError(self._absence(replica.topic, replica.index)) from None  # deleted while it was being opened
        if self.get(replica.topic, replica.index) is not replica:
            raise ApiError(self._absence(replica.topic, replica.index))
        if replica.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        if replica.log is None:
            self._attach(replica, made)
            if replica.role is _LEADER:
                made.assign_epoch(replica.leader_epoch, made.next_offset)
                self.leaders.open(replica)
        return made

    def _attach(self, replica: HostedPartition, opened: Log) -> None:
        replica.log = opened
        opened.on_written = partial(self.leaders.log_end_moved, replica)
        opened.on_start_moved = replica.changed

    def replication_result(self, replica: HostedPartition, last_offset: int) -> ErrorCode | None:
        """What became of records appended with acks=-1, up to `last_offset`: a code once that is settled, None to wait on."""
        if replica.role is not _LEADER:
            if replica.offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            hosted = self.get(replica.topic, replica.index) is replica
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if hosted else self._absence(replica.topic, replica.index)
        if replica.high_watermark <= last_offset:
            return None
        return ErrorCode.NONE if self.min_isr(replica) <= len(replica.maximal_isr) else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
