"""Brokers that register with the controller of a stage, and fetch its metadata log."""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.broker.metadata_view import MetadataView
from klamm.controller.metadata_log.fetches import MetadataFetch, MetadataFetched
from klamm.controller.values import BrokerRegistration
from klamm.protocol.errors import ErrorCode
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.controller.stage import OneConnection, Stage

SESSION_S, INTERVAL_S, NOTICE_S = 9.0, 2.0, 3.0


class DrivenStage(Stage):
    """A stage whose time moves when a test says so, with RegisterBroker on."""

    def __init__(self, **options: Any) -> None:
        self.time = DrivenClock()
        super().__init__(clock=self.time, **{"registerbroker_enable": True, **options})

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        await self.time.advance(seconds, self.settle)
        await self.settle()

    def states(self) -> dict[int, str]:
        """States of registered brokers as ZooKeeper has them; the controller must know the same."""
        assert dict(self.world.registrations) == dict(self.cluster.registrations)
        return {b: registration.state.name for b, registration in self.world.registrations.items()}

    async def registered(self, broker_id: int, **fields: Any) -> RegisteredBroker:
        """A broker that has registered: it is fenced."""
        broker = RegisteredBroker(self, broker_id)
        await broker.register(**fields)
        return broker

    async def online(self, broker_id: int) -> RegisteredBroker:
        """A broker that has registered and read the whole log."""
        broker = await self.registered(broker_id)
        await broker.come_online()
        return broker


class RegisteredBroker:
    """One broker: what it has of the log, and a connection."""

    def __init__(self, stage: DrivenStage, broker_id: int) -> None:
        self.id = broker_id
        self.epoch = -1
        self.connection = OneConnection()
        self.view = MetadataView()
        self._stage = stage

    async def register(self, **fields: Any) -> BrokerRegistration:
        """Register, on the connection of this broker. Raises ApiError."""
        stored = await self._stage.register(self.id, self.connection, **fields)
        self.epoch, self.view = stored.epoch, MetadataView()
        return stored

    def request(self, **fields: Any) -> MetadataFetch:
        """The next fetch, without waiting."""
        view = self.view
        return MetadataFetch(self.id, self.epoch, view.controller_epoch, view.next_offset, 0, 1 << 20)._replace(**fields)

    async def fetch(self, **fields: Any) -> MetadataFetched:
        """One fetch; what it brings is applied."""
        fetched = await self._stage.controller.metadata_fetch(self.request(**fields), self.connection)
        if fetched.error is ErrorCode.NONE and fetched.records is not None and fetched.records:
            self.view.apply(fetched.records, fetched.controller_epoch)
        elif fetched.error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE):
            self.view.restart(fetched.controller_epoch, fetched.start_offset)
        await self._stage.settle()
        return fetched

    async def start_fetch(self, **fields: Any) -> asyncio.Task[MetadataFetched]:
        """A fetch that may wait, and has arrived; what it brings is not applied."""
        task = asyncio.get_running_loop().create_task(self._stage.controller.metadata_fetch(self.request(**fields), self.connection))
        await self._stage.settle()
        return task

    async def come_online(self) -> None:
        """Read everything, and once more at the end of the log."""
        while (fetched := await self.fetch()).high_watermark > self.view.next_offset or fetched.error is not ErrorCode.NONE:
            pass
        await self.fetch()
        await self.fetch()
        assert self._stage.states()[self.id] == "ONLINE"
