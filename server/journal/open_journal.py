"""A broker's journal while the broker lives: its writer, its rows about the broker, and who looks on at its controller."""

from __future__ import annotations

import asyncio
from importlib import metadata as metadata_of_packages

from klamm.configs.broker_config import BrokerConfig
from klamm.controller.store import Store
from klamm.journal.writer import JournalWriter
from klamm.server.journal.broker_events import BrokerEvents
from klamm.server.journal.journaled_store import JournaledStore
from klamm.server.journal.journaling import ControllerJournal
from klamm.server.net.tap import BrokerTap


class OpenJournal:
    """The open journal of one broker. From now on the tap writes the frames of new connections to it."""

    def __init__(self, writer: JournalWriter, tap: BrokerTap, broker_id: int, config: BrokerConfig) -> None:
        self.writer = writer
        self.events = BrokerEvents(writer, writer, broker_id)
        self._tap = tap
        self._broker_id = broker_id
        tap.journal = writer
        self.events.started(config, metadata_of_packages.version("klamm"))

    def observed(self, store: Store, ibp: str) -> tuple[Store, ControllerJournal]:
        """The store of the controller with a row for each write, and the observer of the controller. `ibp` is its protocol."""
        observer = ControllerJournal(self.writer, self._broker_id, ibp, self.writer)
        return JournaledStore(store, observer), observer

    async def close(self, *, in_order: bool) -> None:
        """Write what is left and end. `in_order`: the broker was not killed."""
        self._tap.journal = None
        if in_order:
            self.events.stopped()
        await asyncio.to_thread(self.writer.close)
