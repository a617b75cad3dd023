"""The controller's store on a real ZooKeeper: controller/store.py, area by area in the modules `store_*`.

Reads of many znodes are multiReads, writes of many are fenced multis (see `fenced` and `state_writer`), all pipelined. Watches put the
controller's events on its queue (see `watches`); a kind of change that a path does not report uses the watch up all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from klamm.controller.events import catalogue as events
from klamm.protocol.value_class import dataclass
from klamm.zk.session.session import ZkSession
from klamm.zk.store.admin import ZkNotifications, ZkPreferredElection, ZkReassignments, ZkThrottleRemovals
from klamm.zk.store.brokers import ZkBrokers
from klamm.zk.store.configs import ZkConfigs, ZkProducerIds
from klamm.zk.store.election import ZkControllerElection, ZkFeature
from klamm.zk.store.fenced import Fence
from klamm.zk.store.registrations import ZkBrokerRegistrations
from klamm.zk.store.topics import ZkPartitionStates, ZkTopicDeletions, ZkTopics


@dataclass(frozen=True, slots=True)
class ZkStoreOptions:
    """What the inter-broker protocol decides: version of the JSON in `/feature` (2 from 3.3, 1 from 2.7), None for no features."""

    feature_version: int | None = 2


async def _not_awaited(version: int) -> None:
    """Nobody follows `/feature`."""


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
    """Store of the controller in the process that holds `session`: all areas behind one fence."""

    def __init__(
        self,
        session: ZkSession,
        on_event: Callable[[events.WatchEvent], None],
        options: ZkStoreOptions | None = None,
        feature_seen: Callable[[int], Awaitable[None]] = _not_awaited,
    ) -> None:
        """`on_event` gets what watches saw, on the loop. `feature_seen` waits until this broker has seen a version of `/feature`."""
        super().__init__(session, Fence(session), on_event)
        self._feature_version = (options if options is not None else ZkStoreOptions()).feature_version
        self._feature_seen = feature_seen

    def follow_versions(self) -> dict[str, int]:
        if self._fence.versions is None:
            self._fence.versions = {}
        return self._fence.versions
