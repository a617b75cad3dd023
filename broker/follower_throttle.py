"""Leaves partitions out of a fetcher's requests while the broker's quota as a follower is exceeded.

A partition is left out if it is throttled and not in sync: the leader's high watermark in the last response is ahead, or there was no
response yet. All other partitions are fetched. This is decided before each request; if nothing has changed since the last request, it is a
comparison of two numbers. Source: `RemoteLeaderEndPoint.shouldFollowerThrottle` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from typing import Generic

from klamm.broker.follower_session import FollowedPartition, FollowerSession, Hosted, Standing
from klamm.broker.replication_quotas import ReplicationQuota


class FollowerThrottle(Generic[Hosted]):
    """The throttle of one fetcher. `left_out` are the partitions that wait for the quota."""

    def __init__(self, quota: ReplicationQuota, session: FollowerSession[Hosted]) -> None:
        self.quota = quota
        self.left_out: dict[FollowedPartition[Hosted], None] = {}
        self._session = session
        self._seen = (-1, -1)

    def look(self) -> None:
        """Leave partitions that must wait out of the session, and resume those that must not wait any more."""
        quota, session = self.quota, self._session
        if not quota.is_exceeded():
            self._take_back(list(self.left_out))
            return
        if self._seen == (quota.generation, session.entered):
            return
        self._take_back([partition for partition in self.left_out if not quota.is_throttled(partition.topic.name, partition.index)])
        for name in quota.throttled:
            topic = session.topic(name)
            for partition in () if topic is None else topic.partitions.values():
                if partition.lag and partition.standing is Standing.READY and quota.is_throttled(name, partition.index):
                    session.leave(partition, Standing.THROTTLED)
                    self.left_out[partition] = None
        self._seen = quota.generation, session.entered

    def received(self, partition: FollowedPartition[Hosted], size: int, lag: int) -> None:
        """Record `size` received bytes of a partition, which now lags by `lag`. Call this only while the quota is active."""
        if lag and not partition.lag:
            self._seen = (-1, -1)
        if size and self.quota.is_throttled(partition.topic.name, partition.index):
            self.quota.record(size)

    def _take_back(self, partitions: list[FollowedPartition[Hosted]]) -> None:
        for partition in partitions:
            del self.left_out[partition]
            if partition.standing is Standing.THROTTLED:
                self._session.resume(partition)
