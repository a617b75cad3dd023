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

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from klamm.broker.metadata_cache import MetadataCache
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
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import EPOCH_DURING_DELETE, NO_EPOCH, ZERO_UUID

# plain numbers: these are compared and stored once for each of ten thousand partitions
_NONE = int(ErrorCode.NONE)
_UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_STALE_CONTROLLER_EPOCH = int(ErrorCode.STALE_CONTROLLER_EPOCH)
_KAFKA_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)
_FENCED_LEADER_EPOCH = int(ErrorCode.FENCED_LEADER_EPOCH)
_INCONSISTENT_TOPIC_ID = int(ErrorCode.INCONSISTENT_TOPIC_ID)
_RECOVERY_STATES = frozenset((0, 1))


Row: TypeAlias = "messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError"
ControllerRequest: TypeAlias = "messages.LeaderAndIsrRequest | messages.StopReplicaRequest | messages.UpdateMetadataRequest"
Lists = tuple[list[PartitionState], list[PartitionState], list[PartitionState]]
Response = TypeVar("Response")


class Role(IntEnum):
    """The role of a broker for a partition. NONE: it has a replica, but has not received a live leader."""

    NONE = 0
    LEADER = 1
    FOLLOWER = 2


class HostedPartition:
    """One replica on this broker. `state` is the last LeaderAndIsrPartitionState that took effect, None before the first."""

    __slots__ = ("fetching", "leader_epoch", "offline", "partition_epoch", "role", "state", "topic_id")

    def __init__(self, topic_id: bytes) -> None:
        self.role = Role.NONE
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = 0
        self.state: PartitionState | None = None
        self.topic_id = topic_id
        self.fetching = False
        self.offline = False

    @property
    def leader(self) -> int:
        return -1 if self.state is None else self.state.leader

    @property
    def isr(self) -> Sequence[int]:
        return () if self.state is None else self.state.isr

    @property
    def replicas(self) -> Sequence[int]:
        return () if self.state is None else self.state.replicas

    @property
    def recovery(self) -> int:
        return 0 if self.state is None else self.state.leader_recovery_state

    @property
    def controller_epoch(self) -> int:
        """Epoch of the controller that wrote the state."""
        return -1 if self.state is None else self.state.controller_epoch


class Handled(NamedTuple, Generic[Response]):
    """The response to a controller's request, and what the request changed here."""

    response: Response
    effects: list[Effect]


class ReplicaManager:
    """All replicas of one broker. `broker_epoch` of the handling methods is the broker's own, the czxid of its registration."""

    def __init__(self, broker_id: int, metadata: MetadataCache) -> None:
        self.broker_id = broker_id
        self.metadata = metadata
        self.controller_epoch = 0
        self.log_dir_failed = False
        self.logs_found: Collection[tuple[str, int]] = ()
        """Partitions whose logs were there when this process started, in directories that are well."""
        self._topics: dict[str, dict[int, HostedPartition]] = {}
        self._errors: dict[tuple[int, int], Row] = {}

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
            replica = self._topics.setdefault(topic, {}).setdefault(partition, HostedPartition(ZERO_UUID))
            if not replica.offline:
                replica.offline = True
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
        topics = _each_once(request)
        if topics is None or any(self._has_unknown_recovery(name, states) for (name, _), states in topics):
            return Handled(refuse_leader_and_isr(request, version, ErrorCode.UNKNOWN_SERVER_ERROR), [])
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
        replica = HostedPartition(topic_id)
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
        replica.role = Role.LEADER if leads else Role.FOLLOWER
        replica.fetching = follows
        replica.leader_epoch = state.leader_epoch
        replica.partition_epoch = state.partition_epoch
        replica.state = state

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
            hosted = self._topics[topic]
            del hosted[partition]
            if not hosted:
                del self._topics[topic]
        return _NONE


def stopped_partitions(request: messages.StopReplicaRequest, version: int) -> list[tuple[str, int, int, bool]]:
    """(topic, partition, leader epoch, delete) of a StopReplica of any version; before version 3 without leader epochs."""
    if version >= 3:
        return [
            (topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
    delete = request.delete_partitions
    if version >= 1:
        return [(topic.name, index, NO_EPOCH, delete) for topic in request.topics for index in topic.partition_indexes]
    return [(p.topic_name, p.partition_index, NO_EPOCH, delete) for p in request.ungrouped_partitions]


def refuse_leader_and_isr(request: messages.LeaderAndIsrRequest, version: int, code: ErrorCode) -> messages.LeaderAndIsrResponse:
    """A LeaderAndIsr response with one error, at the top and for every partition."""
    partition_error = messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError
    if version >= 5:
        topic_error = messages.LeaderAndIsrResponse.LeaderAndIsrTopicError
        topics = [
            topic_error(
                topic_id=topic.topic_id,
                partition_errors=[partition_error(partition_index=s.partition_index, error_code=int(code)) for s in topic.partition_states],
            )
            for topic in request.topic_states
        ]
        return messages.LeaderAndIsrResponse(error_code=int(code), topics=topics)
    flat = [
        partition_error(topic_name=name, partition_index=state.partition_index, error_code=int(code))
        for name, states in _flat_or_by_topic(request)
        for state in states
    ]
    return messages.LeaderAndIsrResponse(error_code=int(code), partition_errors=flat)


def refuse_stop_replica(request: messages.StopReplicaRequest, version: int, code: ErrorCode) -> messages.StopReplicaResponse:
    """A StopReplica response with one error, at the top and for every partition: what a caller without CLUSTER_ACTION gets."""
    error = messages.StopReplicaResponse.StopReplicaPartitionError
    results = [error(topic_name=t, partition_index=p, error_code=int(code)) for t, p, _, _ in stopped_partitions(request, version)]
    return messages.StopReplicaResponse(error_code=int(code), partition_errors=results)


def _each_once(request: messages.LeaderAndIsrRequest) -> list[tuple[tuple[str, bytes], Sequence[PartitionState]]] | None:
    """LeaderAndIsr partition states of any version by topic name and id; of a partition named twice the last entry.

    None where two elements are of one topic: an Apache Kafka broker does not take that.
    """
    topics = [((topic.topic_name, topic.topic_id), topic.partition_states) for topic in request.topic_states]
    if len({name for (name, _), _ in topics}) < len(topics):
        return None
    topics += [((state.topic_name, ZERO_UUID), (state,)) for state in request.ungrouped_partition_states]
    if not request.ungrouped_partition_states and all(len({s.partition_index for s in states}) == len(states) for _, states in topics):
        return topics
    last: dict[tuple[str, bytes], dict[int, PartitionState]] = {}
    for name, states in topics:
        last.setdefault(name, {}).update((state.partition_index, state) for state in states)
    return [(name, list(states.values())) for name, states in last.items()]


def _flat_or_by_topic(request: messages.LeaderAndIsrRequest) -> list[tuple[str, Sequence[PartitionState]]]:
    """LeaderAndIsr partition states before version 5 as (topic, states), in the order of the request."""
    if request.topic_states:
        return [(topic.topic_name, topic.partition_states) for topic in request.topic_states]
    return [(state.topic_name, [state]) for state in request.ungrouped_partition_states]
