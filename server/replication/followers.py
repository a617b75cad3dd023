"""The fetchers of a broker: `num.replica.fetchers` for each leader that it follows, started and stopped by the controller's requests.

The changes of a LeaderAndIsr or StopReplica request come as effects, after the replica manager has applied them. A partition that became a
follower goes to a fetcher of its leader. A partition that became leader, was stopped or deleted, or went offline leaves its fetcher. A
partition whose leader is not alive stays with the former leader. A fetcher without partitions ends. A replica without a log does not have
records, also not on disk; its log is opened when the first records come.

The fetcher of a partition follows from a hash of its name, as in Apache Kafka. When the number of fetchers changes, partitions move to
other fetchers after their fetched records have been written. Source: `AbstractFetcherManager` of 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from klamm.broker.metadata_cache import MetadataCache
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
from klamm.protocol.nouns import Endpoint
from klamm.server.ground.background import BackgroundTasks
from klamm.server.net.tap import BrokerTap
from klamm.server.replication.fetcher import LeaderFetcher
from klamm.server.replication.followed_logs import FollowerServices
from klamm.server.replication.leader_connection import LeaderConnection
from klamm.server.replication.leader_requests import Partition
from klamm.server.replication.log_writes import all_written

Fetchers: TypeAlias = "dict[tuple[int, int], LeaderFetcher]"


def fetcher_number(topic: str, partition: int, count: int) -> int:
    """The number of a partition's fetcher, below `count`, by Apache Kafka's hash (that of a Java string, in 32 bits)."""
    units = topic.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = value * 31 + (units[at] << 8 | units[at + 1])
    value = (31 * value + partition) & 0xFFFFFFFF
    value = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if value == -(1 << 31) else abs(value) % count


class Followers:
    """All fetchers of one broker. `listener` is the name of the inter-broker listener."""

    def __init__(
        self,
        services: FollowerServices,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        listener: str,
        background: BackgroundTasks,
        tap: BrokerTap | None = None,
        count: int = 1,
    ) -> None:
        """`count` fetchers for each leader."""
        self.fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        """(broker id of the leader, number of the fetcher from 0 on) → fetcher."""
        self._count = count
        self._services = services
        self._replicas = replicas
        self._metadata = metadata
        self._listener = listener
        self._background = background
        self._tap = tap
        self._closed = False
        services.quota.listeners.append(self._quota_changed)

    def apply(self, effects: Iterable[Effect]) -> None:
        """Start and stop fetching partitions according to the effects."""
        if self._closed:
            return
        touched: Fetchers = {}
        for effect in effects:
            match effect:
                case BecameFollower(topic, topic_id, states):
                    self._stop(topic, (state.partition_index for state in states), touched)
                    for state in states:
                        hosted = self._replicas.get(topic, state.partition_index)
                        if hosted is not None and not hosted.offline:
                            self._follow(hosted, topic_id, state.leader, state.leader_epoch, touched)
                case BecameLeader(topic, _, states):
                    self._stop(topic, (state.partition_index for state in states), touched)
                case Stopped(topic, partitions) | Deleted(topic, partitions) | WentOffline(topic, partitions):
                    self._stop(topic, partitions, touched)
                case TopicIdAssigned(topic, topic_id, _):
                    for key, fetcher in self.fetchers.items():
                        if fetcher.session.topic(topic) is not None:
                            fetcher.session.set_topic_id(topic, topic_id)
                            touched[key] = fetcher
                case LeaderUnavailable():
                    pass
        self._settle(touched)

    def find(self, topic: str, partition: int) -> Partition | None:
        """The partition in the session of its fetcher; None if it is not fetched."""
        sessions = (fetcher.session.get(topic, partition) for fetcher in self.fetchers.values())
        return next((followed for followed in sessions if followed is not None), None)

    def resize(self, count: int) -> None:
        """Use `count` fetchers for each leader from now on."""
        if count == self._count or self._closed:
            return
        self._count = count
        moving = []
        touched: Fetchers = {}
        for key, fetcher in self.fetchers.items():
            leader, number = key
            gone = [partition for partition in fetcher.session if self._number(partition.topic.name, partition.index) != number]
            moving += [(leader, partition) for partition in gone]
            for partition in gone:
                fetcher.stop(partition.topic.name, partition.index)
                touched[key] = fetcher
        self._settle(touched)
        if moving:
            self._background.start(self._follow_when_written(moving))

    async def _follow_when_written(self, moving: Sequence[tuple[int, Partition]]) -> None:
        """Fetch partitions that had another fetcher, after their records are written: the leader counts fetched offsets as replicated."""
        await all_written([partition.hosted for _, partition in moving])
        if self._closed:
            return
        touched: Fetchers = {}
        for leader, partition in moving:
            hosted, topic = partition.hosted, partition.topic
            present = self._replicas.get(hosted.topic, hosted.index) is hosted and hosted.fetching and not hosted.offline
            if present and self.find(topic.name, partition.index) is None:
                self._follow(hosted, topic.topic_id, leader, partition.leader_epoch, touched)
        self._settle(touched)

    def _follow(self, hosted: HostedPartition, topic_id: bytes, leader: int, leader_epoch: int, touched: Fetchers) -> None:
        key = leader, self._number(hosted.topic, hosted.index)
        fetcher = touched[key] = self._fetcher(key)
        fetcher.follow(hosted, topic_id, leader_epoch)

    def _settle(self, touched: Fetchers) -> None:
        """Wake fetchers whose partitions changed. One without partitions ends: at once if the leader is gone, else when the leader knows.
        """
        for fetcher in touched.values():
            if fetcher.session.count or fetcher.leader in self._metadata.brokers:
                fetcher.wake()
            else:
                self._end(fetcher)

    def _end(self, fetcher: LeaderFetcher) -> None:
        """Close an idle fetcher, unless all are being closed."""
        if self._closed:
            return
        key = next((key for key, each in self.fetchers.items() if each is fetcher), None)
        if key is not None:
            del self.fetchers[key]
            self._background.start(fetcher.close())

    def lag(self, topic: str, index: int) -> int | None:
        """Number of records that a partition is behind its leader's high watermark, -1 before the leader's first response; None if the
        partition is not followed.
        """
        partition = self.find(topic, index)
        return None if partition is None else partition.lag

    def _number(self, topic: str, partition: int) -> int:
        """The number of a partition's fetcher."""
        return fetcher_number(topic, partition, self._count) if self._count > 1 else 0

    async def close(self) -> None:
        """Stop all fetchers."""
        self._closed = True
        for fetcher in self.fetchers.values():
            await fetcher.close()
        self.fetchers.clear()

    def _quota_changed(self) -> None:
        """Wake the fetchers whose partitions wait for the quota."""
        for fetcher in self.fetchers.values():
            if fetcher.is_throttled:
                fetcher.wake()

    def _stop(self, topic: str, partitions: Iterable[int], touched: Fetchers) -> None:
        fetchers = [(key, fetcher) for key, fetcher in self.fetchers.items() if fetcher.session.topic(topic) is not None]
        if not fetchers:
            return
        for index in partitions:
            for key, fetcher in fetchers:
                if fetcher.stop(topic, index):
                    touched[key] = fetcher
                    break

    def _fetcher(self, key: tuple[int, int]) -> LeaderFetcher:
        fetcher = self.fetchers.get(key)
        if fetcher is None:
            leader, number = key
            options = self._services.options
            connection = LeaderConnection(
                f"broker-{options.broker_id}-fetcher-{number}",
                lambda: self._endpoint(leader),
                options.socket_timeout_ms / 1000,
                options.request_timeout_ms / 1000,
                self._tap,
                self._services.clock,
                leader,
                self._services.security,
            )
            fetcher = self.fetchers[key] = LeaderFetcher(leader, self._services, connection, self._end)
        return fetcher

    def _endpoint(self, leader: int) -> Endpoint | None:
        broker = self._metadata.brokers.get(leader)
        return None if broker is None else broker.endpoints.get(self._listener)
