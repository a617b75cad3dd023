"""ISR changes of leaders below inter-broker protocol 2.7-IV2: the leader writes the state znode itself and notifies the controller.

The write is conditional on the partition epoch and keeps the controller epoch with which the leader was elected. Changes are collected and
checked every CHECK_S seconds. One notification names them all, if the last change is older than LINGER_S or the last notification is older
than MAX_DELAY_S. Source: controller 9.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from klamm.broker.leaders import Leaders
from klamm.broker.leadership import IsrProposal
from klamm.controller.values import LeaderAndIsr, StoreLost
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Clock
from klamm.server.ground.background import BackgroundTasks
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)

CHECK_S, LINGER_S, MAX_DELAY_S = 2.5, 5.0, 60.0
RETRY_S = 1.0


class StateStore(Protocol):
    """Stores the states of partitions; see `AdminZk`."""

    async def write_isr(self, topic: str, partition: int, state: LeaderAndIsr) -> int | None:
        """Write a state if its znode has the version `state.partition_epoch`; returns the new version, None if it had another version."""

    async def announce_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Create a notification of ISR changes."""


class StoredIsrUpdates:
    """Writes the proposals of leaders to ZooKeeper."""

    def __init__(self, leaders: Leaders, store: StateStore, background: BackgroundTasks, clock: Clock) -> None:
        self._leaders = leaders
        self._store = store
        self._background = background
        self._clock = clock
        self._changed: dict[TopicPartition, None] = {}
        self._last_change = self._last_notification = clock.monotonic()
        self._is_notifying = False

    def submit(self, proposal: IsrProposal) -> None:
        """Write a change, in the background."""
        self._background.start(self._write(proposal))

    async def _write(self, proposal: IsrProposal) -> None:
        partition = proposal.partition
        name = TopicPartition(partition.topic, partition.index)
        state = LeaderAndIsr(
            partition.leader, proposal.leader_epoch, proposal.isr, proposal.recovery, proposal.partition_epoch, proposal.controller_epoch
        )
        while self._leaders.is_wanted(proposal):
            try:
                version = await self._store.write_isr(*name, state)
            except (StoreLost, ZkError) as error:
                log.debug("cannot write the ISR of %s yet: %s", name, error)
            except Exception:
                log.exception("unexpected exception while writing the ISR of %s", name)
            else:
                self._written(proposal, name, version)
                return
            await self._clock.sleep(RETRY_S)

    def _written(self, proposal: IsrProposal, name: TopicPartition, version: int | None) -> None:
        """The znode has this version now; None: it was changed before."""
        if version is None:
            self._leaders.isr_refused(proposal, ErrorCode.INVALID_UPDATE_VERSION)
            return
        self._changed[name] = None
        self._last_change = self._clock.monotonic()
        if not self._is_notifying:
            self._is_notifying = True
            self._background.start(self._notify())
        self._leaders.isr_altered(proposal, proposal.leader_epoch, version, proposal.isr, proposal.recovery)

    async def _notify(self) -> None:
        """Send notifications until no change is left."""
        try:
            while self._changed:
                await self._clock.sleep(CHECK_S)
                now = self._clock.monotonic()
                if self._last_change + LINGER_S < now or self._last_notification + MAX_DELAY_S < now:
                    await self._announce(now)
        finally:
            self._is_notifying = False

    async def _announce(self, now: float) -> None:
        names, self._changed = self._changed, {}
        try:
            await self._store.announce_isr_changes(names)
        except (StoreLost, ZkError) as error:
            log.debug("cannot notify the controller of ISR changes yet: %s", error)
        except Exception:
            log.exception("unexpected exception while notifying the controller of ISR changes")
        else:
            self._last_notification = now
            return
        self._changed = names | self._changed
