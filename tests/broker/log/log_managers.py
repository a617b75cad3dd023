"""The managers of a broker's logs in one folder, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.tests.broker.log.stored_configs import StoredConfigs
from klamm.tests.logs_on_disk.filled_directories import directories_in
from klamm.tests.services import broker_config

MakeManager = Callable[[], LogManager]


@asynccontextmanager
async def managers_in(folder: Path, configs: Mapping[str, Mapping[str, str]], memory: int) -> AsyncIterator[MakeManager]:
    """Makes the manager of a broker's logs, always on this folder, with these configs of topics and a budget of memory in bytes."""
    async with directories_in(folder) as directories:

        def new() -> LogManager:
            budget = MemoryBudget(memory)
            return LogManager(broker_config(), SYSTEM_CLOCK, budget, lambda bound: 0, StoredConfigs(configs), directories("."))

        yield new
