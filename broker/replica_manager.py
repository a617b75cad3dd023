"""The replica manager: the replicas of a broker, and the requests of the controller that change them.

It handles three requests of the controller (controller 15). Each is refused if it was meant for an earlier registration of this broker
(stale broker epoch), or if it comes from an older controller than any of the three requests before. `broker/partition_states.py` applies
LeaderAndIsr and StopReplica; the metadata cache applies UpdateMetadata.

The changes are returned with the response, as values (`broker/replica_effects.py`); `apply` acts on them. A broker with logs on disk
creates missing logs before it responds. The work of a leader is in `broker/leaders.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from klamm.broker.leaders import Leaders
from klamm.broker.log.log import Log
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition, Role
from klamm.broker.partition_log import Logs
from klamm.broker.partition_states import Handled, PartitionStates, Topics
from klamm.broker.replica_effects import (
    BecameFollower,
    BecameLeader,
    Deleted,
    Effect,
    LeaderUnavailable,
    WentOffline,
)
from klamm.broker.replica_requests import refuse_leader_and_isr
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH, ZERO_UUID, TopicPartition
from klamm.seams.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger("klamm.broker.replica_manager")

_LEADER = Role.LEADER

ControllerRequest: TypeAlias = "messages.LeaderAndIsrRequest | messages.StopReplicaRequest | messages.UpdateMetadataRequest"


class ReplicaManager:
    """All replicas of one broker. The argument `broker_epoch` is the epoch of this broker's present registration."""

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
        self.logs = logs
        self.leaders = leaders = Leaders(broker_id, metadata, self.get, clock, max_lag_ms)
        self.listeners: list[Callable[[Sequence[Effect]], None]] = []
        """Called with the effects of each request, for example to start and stop fetchers."""
        self._topics: Topics = {}
        self.states = PartitionStates(broker_id, metadata, logs, leaders, self._topics)
        """Applies LeaderAndIsr and StopReplica."""
        # methods of `leaders` that requests of clients and followers need, so that they need only one object
        self.append, self.append_assigned, self.append_run = leaders.append, leaders.append_assigned, leaders.append_run
        self.low_watermark = leaders.low_watermark
        self.follower_requested, self.check_follower = leaders.follower_requested, leaders.check_follower
        self.follower_fetched, self.has_noted = leaders.follower_fetched, leaders.has_noted

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

    def fail_log_dir(self, partitions: Iterable[TopicPartition]) -> list[Effect]:
        """A log directory failed: its partitions are offline until the process ends, and their logs are not created again elsewhere."""
        self.states.log_dir_failed = True
        offline: dict[str, list[int]] = {}
        for topic, partition in partitions:
            replica = self._topics.setdefault(topic, {}).setdefault(partition, HostedPartition(topic, partition, ZERO_UUID))
            if not replica.offline:
                replica.offline = True
                self.states.drop(replica)
                offline.setdefault(topic, []).append(partition)
        return [WentOffline(topic, indexes) for topic, indexes in offline.items()]

    def _refusal(self, request: ControllerRequest, broker_epoch: int) -> ErrorCode:
        """The error if a controller's request is out of date; otherwise NONE, and its controller epoch is remembered.

        Raises ApiError if a controller without ZooKeeper sent it.
        """
        if request.broker_epoch != -1 and request.is_k_raft_controller:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "A broker of a cluster with ZooKeeper has no KRaft controller.")
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
        """Apply an UpdateMetadata request; returns the response and the topics that it named."""
        refusal = self._refusal(request, broker_epoch)
        brokers = self.metadata.brokers
        touched = set() if refusal else self.metadata.update(request)
        if self.metadata.brokers is not brokers:
            self.leaders.brokers_changed()
        return messages.UpdateMetadataResponse(error_code=int(refusal)), touched

    # LeaderAndIsr and StopReplica

    def handle_leader_and_isr(
        self, request: messages.LeaderAndIsrRequest, version: int, broker_epoch: int
    ) -> Handled[messages.LeaderAndIsrResponse]:
        """Apply a LeaderAndIsr request; returns the response and the effects (see `PartitionStates.leader_and_isr`)."""
        refusal = self._refusal(request, broker_epoch)
        if refusal:
            return Handled(refuse_leader_and_isr(request, version, refusal), [])
        return self.states.leader_and_isr(request, version)

    def handle_stop_replica(
        self, request: messages.StopReplicaRequest, version: int, broker_epoch: int
    ) -> Handled[messages.StopReplicaResponse]:
        """Apply a StopReplica request; returns the response and the effects. The response to a refused request does not list partitions."""
        refusal = self._refusal(request, broker_epoch)
        if refusal:
            return Handled(messages.StopReplicaResponse(error_code=int(refusal)), [])
        return self.states.stop_replica(request, version)

    # the effects of a request

    def apply(self, effects: Sequence[Effect]) -> Coroutine[Any, Any, set[TopicPartition]] | None:
        """Act on the effects of a request: logs, fetchers, waiting requests.

        Returns a coroutine if logs must be created on disk first. It returns the partitions whose logs cannot be created; they are then
        offline.
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
        pending = self.states
        recovering, pending.recovering = pending.recovering, []
        if pending.recover is not None:
            for replica in recovering:
                pending.recover(replica)
        woken, pending.woken = pending.woken, []
        for replica in woken:
            replica.changed()
        if logs is None or not logs.on_disk:
            return None
        made = [effect for effect in effects if isinstance(effect, BecameLeader | BecameFollower | LeaderUnavailable)]
        return self._make_logs(made) if made else None

    async def _make_logs(self, effects: Sequence[BecameLeader | BecameFollower | LeaderUnavailable]) -> set[TopicPartition]:
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
                log.warning("broker %d: cannot create the log of %s: %s", self.broker_id, replica, result)
                if self.get(replica.topic, replica.index) is replica and result.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    failed.setdefault(replica.topic, []).append(replica.index)
                    if not replica.offline:
                        replica.offline = True
                        self.states.drop(replica)
            elif isinstance(result, BaseException):
                raise result
        if failed:
            self.apply([WentOffline(topic, indexes) for topic, indexes in failed.items()])
        return {TopicPartition(topic, index) for topic, indexes in failed.items() for index in indexes}

    # for requests of clients and followers

    def leader(self, topic: str, index: int, current_leader_epoch: int = NO_EPOCH) -> HostedPartition:
        """The partition, which this broker leads, in the leader epoch that the client knows (-1: not checked).

        Raises ApiError: KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER (also while the leader recovers, KIP-704), UNKNOWN_TOPIC_OR_PARTITION,
        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        replica = self.replica(topic, index, current_leader_epoch)
        if replica.role is not _LEADER:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def replica(self, topic: str, index: int, current_leader_epoch: int = NO_EPOCH) -> HostedPartition:
        """The partition, whether this broker leads or follows it. Raises ApiError like `leader`; NOT_LEADER_OR_FOLLOWER if it has no
        replica, or while the leader recovers.
        """
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
        """The error code for a partition of which this broker does not have a replica."""
        known = self.metadata.partition(topic, index) is not None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def open_log(self, replica: HostedPartition, is_new: bool = True) -> Log:
        """Open the partition's log; creates it if there is none. Raises ApiError: KAFKA_STORAGE_ERROR, or the code for a removed replica.
        """
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
            self.states.attach(replica, made)
            if replica.role is _LEADER:
                made.assign_epoch(replica.leader_epoch, made.next_offset)
                self.leaders.open(replica)
        return made

    def replication_result(self, replica: HostedPartition, last_offset: int) -> ErrorCode | None:
        """The result of records that were appended with acks=-1, up to `last_offset`; None while the request must wait."""
        if replica.role is not _LEADER:
            if replica.offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            hosted = self.get(replica.topic, replica.index) is replica
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if hosted else self._absence(replica.topic, replica.index)
        if replica.high_watermark <= last_offset:
            return None
        return ErrorCode.NONE if replica.min_isr() <= len(replica.maximal_isr) else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
