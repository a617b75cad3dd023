"""Which leaders this broker follows: one fetcher for each, made and stopped as the controller's requests say.

What a LeaderAndIsr or StopReplica request changed comes as effects, after the replica manager has applied them: a follower's partition goes
to the fetcher of its leader, one that leads, was stopped, deleted or went offline leaves its fetcher. A partition whose leader is not alive
stays with the leader it had. A fetcher without partitions ends. A replica without a log has no records,
also on disk: its log is opened when the first ones come.

There is one fetcher for each leader whatever `num.replica.fetchers` says: Kafka's fetchers are threads, this one waits for the leader only.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.broker.metadata_cache import MetadataCache
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
from klamm.server.background import BackgroundTasks
from klamm.server.net.tap import BrokerTap
from klamm.server.replication.fetcher import LeaderFetcher
from klamm.server.replication.followed_logs import FollowerServices
from klamm.server.replication.leader_connection import LeaderConnection


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
    ) -> None:
        self.fetchers: dict[int, LeaderFetcher] = {}
        """By the leader's broker id."""
        self._services = services
        self._replicas = replicas
        self._metadata = metadata
        self._listener = listener
        self._background = background
        self._tap = tap
        self._closed = False
        services.quota.listeners.append(self._quota_changed)

    def apply(self, effects: Iterable[Effect]) -> None:
        """Follow and stop following as the effects say."""
        if self._closed:
            return
        touched: dict[int, LeaderFetcher] = {}
        for effect in effects:
            match effect:
                case BecameFollower(topic, topic_id, states):
                    self._stop(topic, (state.partition_index for state in states), touched)
                    for state in states:
                        hosted = self._replicas.get(topic, state.partition_index)
                        if hosted is not None and not hosted.offline:
                            fetcher = touched[state.leader] = self._fetcher(state.leader)
                            fetcher.follow(hosted, topic_id, state.leader_epoch)
                case BecameLeader(topic, _, states):
                    self._stop(topic, (state.partition_index for state in states), touched)
                case Stopped(topic, partitions) | Deleted(topic, partitions) | WentOffline(topic, partitions):
                    self._stop(topic, partitions, touched)
                case TopicIdAssigned(topic, topic_id, _):
                    for leader, fetcher in self.fetchers.items():
                        if fetcher.session.topic(topic) is not None:
                            fetcher.session.set_topic_id(topic, topic_id)
                            touched[leader] = fetcher
                case LeaderUnavailable():
                    pass
        for leader, fetcher in touched.items():
            if fetcher.session.count:
                fetcher.wake()
            elif self.fetchers.get(leader) is fetcher:
                del self.fetchers[leader]
                self._background.start(fetcher.close())

    def lag(self, topic: str, index: int) -> int | None:
        """Messages that a partition is behind its leader's high watermark, -1 before the leader's first response; None for a partition that
        is not followed.
        """
        for fetcher in self.fetchers.values():
            partition = fetcher.session.get(topic, index)
            if partition is not None:
                return partition.lag
        return None

    async def close(self) -> None:
        """Stop all fetchers."""
        self._closed = True
        for fetcher in self.fetchers.values():
            await fetcher.close()
        self.fetchers.clear()

    def _quota_changed(self) -> None:
        """Have fetchers look again whose partitions wait for the quota."""
        for fetcher in self.fetchers.values():
            if fetcher.is_throttled:
                fetcher.wake()

    def _stop(self, topic: str, partitions: Iterable[int], touched: dict[int, LeaderFetcher]) -> None:
        fetchers = [(leader, fetcher) for leader, fetcher in self.fetchers.items() if fetcher.session.topic(topic) is not None]
        if not fetchers:
            return
        for index in partitions:
            for leader, fetcher in fetchers:
                if fetcher.stop(topic, index):
                    touched[leader] = fetcher
                    break

    def _fetcher(self, leader: int) -> LeaderFetcher:
        fetcher = self.fetchers.get(leader)
        if fetcher is None:
            options = self._services.options
            connection = LeaderConnection(
                f"broker-{options.broker_id}-fetcher-0",
                lambda: self._endpoint(leader),
                options.socket_timeout_ms / 1000,
                options.request_timeout_ms / 1000,
                self._tap,
                self._services.clock,
            )
            fetcher = self.fetchers[leader] = LeaderFetcher(leader, self._services, connection)
        return fetcher

    def _endpoint(self, leader: int) -> Endpoint | None:
        broker = self._metadata.brokers.get(leader)
        return None if broker is None else broker.endpoints.get(self._listener)
