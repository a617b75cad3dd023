"""The partitions of an internal topic whose keys this broker coordinates, because it leads them.

A coordinator gives each partition a state. When this broker becomes the leader, the state is loaded: all batches of the log are replayed
into it, in slices, while other requests go on. Until then requests for its keys get COORDINATOR_LOAD_IN_PROGRESS. When the broker is not
the leader any more, the state is dropped. A leader that stays leader in a later epoch keeps its state.

A log that cannot be read further ends the load: the coordinator goes on with what it has, as one of Apache Kafka does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from klamm.broker.partition import HostedPartition
from klamm.broker.replica_effects import (
    BecameFollower,
    BecameLeader,
    Deleted,
    Effect,
    LeaderUnavailable,
    Stopped,
    TopicIdAssigned,
    WentOffline,
)
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.hash_order import partition_for
from klamm.protocol.records.batch import Buffer, CorruptRecords
from klamm.protocol.records.compression import BadCompression
from klamm.protocol.records.scan import BadRecord
from klamm.seams.clock import Clock
from klamm.server.ground.background import BackgroundTasks

log = logging.getLogger(__name__)

LOAD_BYTES = 1 << 20
"""Bytes of a log that are replayed in one go."""
RETRY_S = 0.1
"""Pause before a log is opened again whose configs could not be read."""

S = TypeVar("S")


class Owner(Protocol[S]):
    """What the coordinator does with the state of a partition."""

    def make(self, index: int) -> S:
        """An empty state."""

    def replay(self, state: S, batches: Buffer) -> int:
        """Replay whole batches; the offset after the last one. Raises CorruptRecords, BadRecord or BadCompression."""

    def loaded(self, index: int, state: S) -> None:
        """Everything is replayed: begin to serve."""

    def unload(self, index: int, state: S) -> None:
        """Another broker coordinates these keys now. Called only after `loaded`."""


class _Owned(Generic[S]):
    """One partition. `leader_epoch` is the newest one in which this broker leads it. `waits`: nothing is read of its log before it has
    recovered."""

    __slots__ = ("is_loaded", "leader_epoch", "state", "waits")

    def __init__(self, state: S, leader_epoch: int, waits: bool) -> None:
        self.state = state
        self.leader_epoch = leader_epoch
        self.waits = waits
        self.is_loaded = False


class _Changes:
    """Wakes a load that waits for the recovery of its partition."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def partition_changed(self, partition: HostedPartition) -> None:
        self.event.set()


class OwnedPartitions(Generic[S]):
    """Those of one topic. `count` is how many partitions the topic had when this broker started, or gets when it is created. It does not
    change as long as the broker runs, whatever happens to the topic: all brokers and clients have to find a key in one partition.
    """

    def __init__(
        self, topic: str, replicas: ReplicaManager, owner: Owner[S], background: BackgroundTasks, clock: Clock, count: int
    ) -> None:
        self.topic = topic
        self.count = count
        self._replicas = replicas
        self._owner = owner
        self._background = background
        self._clock = clock
        self._owned: dict[int, _Owned[S]] = {}
        self._is_closed = False

    def partition_of(self, key: str) -> int:
        """The number of the partition that has a key; its leader may be any broker."""
        return partition_for(key, self.count)

    def find(self, key: str) -> tuple[int, S]:
        """The partition of a key and its state. Raises ApiError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; COORDINATOR_NOT_AVAILABLE
        while this broker stops.
        """
        index = self.partition_of(key)
        return index, self.get(index)

    def get(self, index: int) -> S:
        """The state of a partition. Raises ApiError as `find` does."""
        if self._is_closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        owned = self._owned.get(index)
        if owned is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not owned.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return owned.state

    def owns(self, index: int, state: S) -> bool:
        """Whether this is still the state of the partition."""
        owned = self._owned.get(index)
        return owned is not None and owned.state is state

    def leader_epoch(self, index: int) -> int:
        """The leader epoch of a partition that this broker coordinates: the epoch of the coordinator."""
        return self._owned[index].leader_epoch

    def loaded(self) -> Iterator[tuple[int, S]]:
        """The partitions that are loaded, with their states."""
        return ((index, owned.state) for index, owned in list(self._owned.items()) if owned.is_loaded)

    @property
    def is_loading(self) -> bool:
        """Whether some partition is not loaded yet."""
        return any(not owned.is_loaded for owned in self._owned.values())

    def apply(self, effects: Iterable[Effect]) -> None:
        """Listen to the replica manager: leaderships of the topic that came or went."""
        for effect in effects:
            if effect.topic != self.topic or isinstance(effect, TopicIdAssigned):
                continue
            if isinstance(effect, BecameLeader):
                for state in effect.states:
                    self._leads(state.partition_index, state.is_new)
            else:
                for index in _partitions(effect):
                    replica = self._replicas.get(self.topic, index)
                    if replica is None or not replica.is_leader:
                        self._drop(index)

    def close(self) -> None:
        """This broker stops: what waits ends, and later requests find no coordinator here."""
        self._is_closed = True
        for index in list(self._owned):
            self._drop(index)

    def _leads(self, index: int, is_new: bool) -> None:
        replica = self._replicas.get(self.topic, index)
        if replica is None or not replica.is_leader or self._is_closed:
            return
        owned = self._owned.get(index)
        if owned is not None and replica.is_recovering and not owned.waits:  # its state may be of records that the log has lost
            self._drop(index)
        elif owned is not None:
            owned.leader_epoch = replica.leader_epoch
            return
        owned = self._owned[index] = _Owned(self._owner.make(index), replica.leader_epoch, replica.is_recovering)
        self._background.start(self._load(index, owned, replica, is_new))

    def _drop(self, index: int) -> None:
        owned = self._owned.pop(index, None)
        if owned is not None and owned.is_loaded:
            log.debug("broker %d: %s-%d is not coordinated here any more", self._replicas.broker_id, self.topic, index)
            self._owner.unload(index, owned.state)

    async def _load(self, index: int, owned: _Owned[S], replica: HostedPartition, is_new: bool) -> None:
        offset = 0
        try:
            offset = await self._replay_all(index, owned, replica, is_new)
        except ApiError as error:
            log.warning("broker %d: cannot load %s-%d: %s", self._replicas.broker_id, self.topic, index, error)
            if self._owned.get(index) is owned:
                del self._owned[index]
            return
        except (CorruptRecords, BadRecord, BadCompression) as error:
            log.error("broker %d: %s-%d cannot be read to its end: %s", self._replicas.broker_id, self.topic, index, error)
        except Exception:  # otherwise its clients would be told for ever that it is loading
            log.exception("broker %d: %s-%d cannot be read to its end", self._replicas.broker_id, self.topic, index)
        if self._owned.get(index) is owned:
            owned.is_loaded = True
            log.debug("broker %d: %s-%d is loaded up to offset %d", self._replicas.broker_id, self.topic, index, offset)
            self._owner.loaded(index, owned.state)

    async def _recovered(self, index: int, owned: _Owned[S], replica: HostedPartition) -> None:
        """Return when the partition is not recovering, or not coordinated here any more."""
        changes = _Changes()
        replica.watch(changes)
        try:
            while replica.is_recovering and self._owned.get(index) is owned:
                await changes.event.wait()
                changes.event.clear()
        finally:
            replica.unwatch(changes)

    async def _replay_all(self, index: int, owned: _Owned[S], replica: HostedPartition, is_new: bool) -> int:
        if owned.waits:
            await self._recovered(index, owned, replica)
            owned.waits = False
        while True:
            try:
                opened = await self._replicas.open_log(replica, is_new)
                break
            except ApiError as error:
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR or self._owned.get(index) is not owned:
                    raise
            await self._clock.sleep(RETRY_S)
        offset = opened.log_start_offset
        while offset < opened.log_end_offset and self._owned.get(index) is owned:
            batches = await opened.load(max(offset, opened.log_start_offset), LOAD_BYTES, opened.log_end_offset, True)
            if not batches:
                break
            offset = max(self._owner.replay(owned.state, batches), offset + 1)
            await asyncio.sleep(0)
        return offset


def _partitions(effect: BecameFollower | LeaderUnavailable | Stopped | Deleted | WentOffline) -> Sequence[int]:
    if isinstance(effect, BecameFollower | LeaderUnavailable):
        return [state.partition_index for state in effect.states]
    return effect.partitions
