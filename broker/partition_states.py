"""How LeaderAndIsr and StopReplica change the replicas of a broker.

Each partition of a request is handled by itself. With a higher leader epoch the broker becomes leader or follower; the same or a lower
epoch is refused. A follower does not follow a leader that is not alive in the metadata cache. StopReplica without deletion only ends the
fetching; role, leader epoch and data stay.

The changes are returned with the response, as values (`broker/replica_effects.py`). Work that must wait until these effects have been
applied is collected in `woken` and `recovering`, where the replica manager takes it. The replica manager also refuses requests that are not
for this broker, before they come here. Source: controller 15; `ReplicaManager` and `Partition` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

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
)
from klamm.broker.replica_requests import each_once, refuse_leader_and_isr, stopped_partitions
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import EPOCH_DURING_DELETE, NO_EPOCH, ZERO_UUID, TopicPartition

# plain numbers: these are compared and stored once for each of ten thousand partitions
_NONE = int(ErrorCode.NONE)
_UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_STALE_CONTROLLER_EPOCH = int(ErrorCode.STALE_CONTROLLER_EPOCH)
_KAFKA_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_FENCED_LEADER_EPOCH = int(ErrorCode.FENCED_LEADER_EPOCH)
_INCONSISTENT_TOPIC_ID = int(ErrorCode.INCONSISTENT_TOPIC_ID)
_RECOVERY_STATES = frozenset((0, 1))
_LEADER, _FOLLOWER = Role.LEADER, Role.FOLLOWER

Topics = dict[str, dict[int, HostedPartition]]
Row: TypeAlias = "messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError"
Lists = tuple[list[PartitionState], list[PartitionState], list[PartitionState]]
Response = TypeVar("Response")


class Handled(NamedTuple, Generic[Response]):
    """The response to a controller's request, and its effects on this broker."""

    response: Response
    effects: list[Effect]


class PartitionStates:
    """Applies LeaderAndIsr and StopReplica to the replicas of a broker, `topics` (topic → index → replica)."""

    def __init__(self, broker_id: int, metadata: MetadataCache, logs: Logs | None, leaders: Leaders, topics: Topics) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._logs = logs
        self._leaders = leaders
        self._topics = topics
        self.log_dir_failed = False
        """Whether a log directory has failed; then a log that is not new is not created again in another directory."""
        self.logs_found: Mapping[TopicPartition, bytes] = {}
        """(topic, partition) → topic id of the logs that existed at the start of this broker, in working directories."""
        self.recover: Callable[[HostedPartition], object] | None = None
        """Called when this broker leads a partition that it must recover first (KIP-704). None: a leader serves at once."""
        self.woken: list[HostedPartition] = []
        """Changed partitions that have waiters."""
        self.recovering: list[HostedPartition] = []
        """Partitions that this broker leads and must recover."""
        self._errors: dict[tuple[int, int], Row] = {}
        self._share = leaders.pairs.setdefault

    # LeaderAndIsr

    def leader_and_isr(
        self, request: messages.LeaderAndIsrRequest, version: int
    ) -> Handled[messages.LeaderAndIsrResponse]:
        """Apply a LeaderAndIsr request of any version; returns the response and the effects. If a partition is named twice, the last entry
        counts.

        The whole request gets UNKNOWN_SERVER_ERROR, without any change, if a topic is in two elements, or if a follower has a recovery
        state that does not exist.
        """
        topics = each_once(request)
        if topics is None or any(self._has_unknown_recovery(name, states) for (name, _), states in topics):
            return Handled(refuse_leader_and_isr(request, version, ErrorCode.UNKNOWN_SERVER_ERROR), [])
        self._leaders.begin_request()
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
        """Whether this broker would become follower with an invalid recovery state. As in Apache Kafka, it is not checked for leaders."""
        if {state.leader_recovery_state for state in states} <= _RECOVERY_STATES:
            return False
        me, alive = self._broker_id, self._metadata.brokers
        for state in states:
            if (
                state.leader_recovery_state not in _RECOVERY_STATES
                and state.leader != me
                and state.leader in alive
                and me in state.replicas
            ):
                replica = self._get(topic, state.partition_index)
                if state.leader_epoch > (NO_EPOCH if replica is None else replica.leader_epoch):
                    return True
        return False

    def _apply(self, topic: str, topic_id: bytes, states: Sequence[PartitionState], effects: list[Effect]) -> list[Row]:
        """Apply the partition states of one topic; returns a result for each. Equal results are the same object."""
        leads: list[PartitionState] = []
        follows: list[PartitionState] = []
        waits: list[PartitionState] = []
        identified: list[int] = []
        into = leads, follows, waits
        me = self._broker_id
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
                # the log has an id, but the controller does not know it: a follower continues to fetch without an id
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
        """Create a replica that this broker does not have yet; returns the error code. Its leader epoch so far counts as -1."""
        if state.leader_epoch <= NO_EPOCH:
            return _STALE_CONTROLLER_EPOCH
        if self._broker_id not in state.replicas:
            return _UNKNOWN_TOPIC_OR_PARTITION
        name = TopicPartition(topic, state.partition_index)
        found_id = self.logs_found.get(name, ZERO_UUID)
        if found_id != topic_id and ZERO_UUID not in (found_id, topic_id):
            return _INCONSISTENT_TOPIC_ID
        replica = HostedPartition(topic, state.partition_index, topic_id)
        hosted[state.partition_index] = replica
        if self.log_dir_failed and not state.is_new and name not in self.logs_found:
            replica.offline = True
            return _KAFKA_STORAGE_ERROR
        if self._logs is not None and (self._logs.on_disk or self.logs_found):
            found = self._logs.get(*name)
            if found is not None:
                self.attach(replica, found)
        self._become(replica, state, topic_id, into)
        return _NONE

    def _become(
        self, replica: HostedPartition, state: PartitionState, topic_id: bytes, into: Lists
    ) -> None:
        """Become leader or follower, as the state says. If the leader is not alive, only the topic id is adopted; a state with a lower
        partition epoch is ignored. `into` gets the applied states: as leader, as follower, with a leader that is not alive.
        """
        _, _, controller_epoch, leader, leader_epoch, isr, partition_epoch, replicas, _, _, _, recovery = state
        leads = leader == self._broker_id
        follows = not leads and leader in self._metadata.brokers
        if partition_epoch < replica.partition_epoch and (leads or follows):
            return
        if topic_id != ZERO_UUID:
            replica.topic_id = topic_id
        if not leads and not follows:
            into[2].append(state)
            return
        into[follows].append(state)
        if replica.log is not None:
            replica.log.give_up_truncation()
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
                self._leaders.drop(replica)
        else:
            replica.role = _LEADER
            if recovery and self.recover is not None:
                self._leaders.begin_epoch(replica, led, recovering=True)
                self.recovering.append(replica)
            elif replica.idle is None and replica.log is None and replica.leadership is None:
                replica.idle = self._leaders.idle
            else:
                self._leaders.lead(replica, led)
        if replica.waiters:
            self.woken.append(replica)

    # StopReplica

    def stop_replica(
        self, request: messages.StopReplicaRequest, version: int
    ) -> Handled[messages.StopReplicaResponse]:
        """Apply a StopReplica request of any version; returns the response and the effects. If a partition is named twice, the last entry
        counts.
        """
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
        replica = self._get(topic, partition)
        if replica is None:
            if delete and self._logs is not None:
                self._logs.delete(topic, partition)  # a log that is left from before the start of this broker
            return _NONE
        if replica.offline:
            return _KAFKA_STORAGE_ERROR
        if leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and leader_epoch < replica.leader_epoch:
            return _FENCED_LEADER_EPOCH
        replica.fetching = False
        if replica.log is not None:
            replica.log.give_up_truncation()
        into.setdefault(topic, []).append(partition)
        if delete:
            self.drop(replica)
            hosted = self._topics[topic]
            del hosted[partition]
            if not hosted:
                del self._topics[topic]
        return _NONE

    # also called by the replica manager

    def drop(self, replica: HostedPartition) -> None:
        """Stop serving a replica: it was deleted or is offline."""
        replica.role = Role.NONE
        self._leaders.drop(replica)
        replica.log = None
        if replica.waiters:
            self.woken.append(replica)

    def attach(self, replica: HostedPartition, opened: Log) -> None:
        """Give the replica its opened log."""
        replica.log = opened
        opened.on_written = partial(self._leaders.log_end_moved, replica)
        opened.on_start_moved = replica.changed

    def _get(self, topic: str, partition: int) -> HostedPartition | None:
        hosted = self._topics.get(topic)
        return None if hosted is None else hosted.get(partition)
