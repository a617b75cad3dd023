"""Makes the brokers of one process a whole cluster again, with the configs and ACLs of its start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from klamm.control.brokers import Brokers
from klamm.control.changed_configs import ChangedConfigs, announced
from klamm.control.refusal import Refused
from klamm.control.wholeness import LOOK_S, WHOLE_S, Report, has_processed, report_of, until_whole
from klamm.controller.values import ControllerMoved, Election, StoreLost, StoreRefused
from klamm.protocol.errors import ApiError
from klamm.protocol.nouns import TopicPartition
from klamm.server.broker_server import BrokerServer
from klamm.zk.session.session import ZkSession

T = TypeVar("T")


class WholeCluster:
    """All running brokers of a cluster, as far as they are to be whole."""

    def __init__(self, cluster: Brokers, serving: Callable[[], list[BrokerServer]]) -> None:
        """`serving` returns the brokers that run and are not paused."""
        self._cluster = cluster
        self._serving = serving
        self._configs = ChangedConfigs()

    async def remember(self) -> None:
        """Have the present configs and ACLs as what `restored` stores."""
        await self._connected(self._configs.remember)

    async def restored(self) -> list[str]:
        """Store the configs and ACLs that were remembered, and wait until the cluster is whole. Returns what had changed. Raises Refused.
        """
        undone = await self._connected(self._configs.undo)
        brokers = [broker.id for broker in self._cluster.brokers]
        await until_whole(brokers, await self._connected(announced), self._reports, self.elect_preferred)
        return undone

    async def configs_processed(self) -> None:
        """Wait until all brokers have processed the changes of configs and ACLs that ZooKeeper has now. Raises Refused."""
        last = await self._connected(announced)
        while not all(has_processed(each, last) for each in (await self._reports()).values()):  # noqa: ASYNC110 no one event says it
            await asyncio.sleep(LOOK_S)

    async def elect_preferred(self, controller: int, partitions: Sequence[TopicPartition]) -> None:
        """Let the controller elect the preferred replicas of these partitions as leaders. Does nothing if it is not the controller now."""
        broker = next((each for each in self._cluster.brokers if each.id == controller), None)
        with suppress(ApiError):
            if broker is not None:
                await broker.controller.elect_leaders(partitions, Election.PREFERRED)

    async def _reports(self) -> dict[int, Report]:
        brokers = self._serving()
        return {broker.id: report_of(broker, [each.id for each in brokers]) for broker in brokers}

    async def _connected(self, work: Callable[[ZkSession], Awaitable[T]]) -> T:
        """Do this in the session of a broker that is connected to ZooKeeper, again if that is lost. Raises Refused."""
        try:
            async with asyncio.timeout(WHOLE_S):
                while True:
                    with suppress(StoreLost, StoreRefused, ControllerMoved):
                        return await work(self._session())
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise Refused(f"configs and ACLs cannot be read and stored within {WHOLE_S:g} s", 408) from None

    def _session(self) -> ZkSession:
        """The session of a broker that is connected to ZooKeeper. Raises StoreLost."""
        connected = next((broker.zk for broker in self._serving() if broker.zk.is_connected), None)
        if connected is None:
            raise StoreLost("no broker is connected to ZooKeeper")
        return connected
