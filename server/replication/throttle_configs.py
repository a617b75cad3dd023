"""Applies the configs that throttle replication to the quotas of a broker.

The rates are configs of this broker; the lists of throttled replicas are configs of topics. A list arrives with the notification about its
topic. Lists from before the start of this broker are read once, when the broker has a rate for the first time. Without a rate the lists do
not matter, and nothing is read. Source: controller 17; `BrokerConfigHandler`, `TopicConfigHandler` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from klamm.broker.replication_quotas import ReplicationQuotas
from klamm.controller.values import StoreLost
from klamm.protocol.errors import ApiError
from klamm.seams.clock import Clock
from klamm.server.ground.background import BackgroundTasks
from klamm.zk.session.requests import ZkError

log = logging.getLogger("klamm.broker.replication_quotas")

AT_ONCE = 1000
RETRY_S = 1.0


class ThrottleConfigs:
    """A listener of `DynamicConfigs`. `topics` lists the topics with configs; `read` returns the configs of topics, None if there are none.
    """

    def __init__(
        self,
        quotas: ReplicationQuotas,
        topics: Callable[[], Awaitable[Sequence[str]]],
        read: Callable[[Sequence[str]], Awaitable[Sequence[Mapping[str, str] | None]]],
        background: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._quotas = quotas
        self._topics = topics
        self._read = read
        self._background = background
        self._clock = clock
        self._is_complete = False
        """Whether the lists of all topics are known, or are being read."""
        self._is_reading = False
        self._announced: set[str] = set()
        """Topics that were announced while the others were being read."""

    def __call__(self, kind: str, name: str, properties: Mapping[str, str]) -> None:
        """Apply changed configs of an entity; the arguments are those of `DynamicConfigs`."""
        if kind == "topics":
            if self._is_reading:
                self._announced.add(name)
            self._quotas.set_topic(name, properties)
        elif kind == "brokers":
            self._quotas.set_rates()
            if not self._is_complete and (self._quotas.leader.bound is not None or self._quotas.follower.bound is not None):
                self._is_complete = True
                self._background.start(self._read_all())

    async def _read_all(self) -> None:
        """Read the lists of all topics, except those from notifications, which are newer."""
        self._is_reading = True
        while True:
            try:
                names = await self._topics()
                for begin in range(0, len(names), AT_ONCE):
                    part = names[begin : begin + AT_ONCE]
                    for name, properties in zip(part, await self._read(part), strict=True):
                        if properties and name not in self._announced:
                            self._quotas.set_topic(name, properties)
            except (ApiError, StoreLost, ZkError) as error:
                log.warning("cannot read the throttled replicas of topics; retrying: %s", error)
            except Exception:
                log.exception("unexpected exception while reading the throttled replicas of topics; retrying")
            else:
                self._is_reading = False
                self._announced.clear()
                return
            await self._clock.sleep(RETRY_S)
