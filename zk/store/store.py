"""Implements the controller's store (controller/store.py) on ZooKeeper. The areas are in the other modules of this package.

Many znodes are read with multiReads and written with fenced multis (see `fenced` and `state_writer`), all pipelined. Watches put events on
the controller's queue (see `watches`). A change that a path does not report still uses up the watch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from klamm.controller.events import catalogue as events
from klamm.seams.value_class import dataclass
from klamm.zk.session.session import ZkSession
from klamm.zk.store.admin import ZkNotifications, ZkPreferredElection, ZkReassignments, ZkThrottleRemovals
from klamm.zk.store.brokers import ZkBrokers
from klamm.zk.store.configs import ZkConfigs, ZkProducerIds
from klamm.zk.store.election import ZkControllerElection, ZkFeature
from klamm.zk.store.fenced_writes import Fence
from klamm.zk.store.registrations import ZkBrokerRegistrations
from klamm.zk.store.topics import ZkPartitionStates, ZkTopicDeletions, ZkTopics


@dataclass(frozen=True, slots=True)
class ZkStoreOptions:
    """Options that depend on the inter-broker protocol: the JSON version of `/feature` (2 since 3.3, 1 since 2.7), or None if it has no
    features. `first_features`: names and finalized levels, for a cluster that has no `/feature` yet.
    """

    feature_version: int | None = 2
    first_features: tuple[tuple[str, int], ...] = ()


async def _not_awaited(version: int) -> None:
    """Do not wait: there is no watch on `/feature`."""


class ZkStore(
    ZkControllerElection,
    ZkFeature,
    ZkBrokers,
    ZkTopics,
    ZkPartitionStates,
    ZkTopicDeletions,
    ZkPreferredElection,
    ZkReassignments,
    ZkNotifications,
    ZkConfigs,
    ZkThrottleRemovals,
    ZkBrokerRegistrations,
    ZkProducerIds,
):
    """The store of the controller that uses this `session`. All areas share one fence."""

    def __init__(
        self,
        session: ZkSession,
        on_event: Callable[[events.WatchEvent], None],
        options: ZkStoreOptions | None = None,
        feature_seen: Callable[[int], Awaitable[None]] = _not_awaited,
    ) -> None:
        """`on_event` gets the events of watches, in the event loop. `feature_seen` waits until this broker has seen a version of
        `/feature`.
        """
        super().__init__(session, Fence(session), on_event)
        wanted = options if options is not None else ZkStoreOptions()
        self._feature_version, self._first_features = wanted.feature_version, wanted.first_features
        self._feature_seen = feature_seen

    def follow_versions(self) -> dict[str, int]:
        if self._fence.versions is None:
            self._fence.versions = {}
        return self._fence.versions
