"""Opens a broker's journal if its configs request one. Only then Arrow is imported."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.configs.broker_config import BrokerConfig
from klamm.machine.extras import install_command
from klamm.seams.clock import Clock
from klamm.server.net.tap import BrokerTap

if TYPE_CHECKING:
    from klamm.journal.writer import JournalWriter
    from klamm.server.journal.open_journal import OpenJournal

DIRECTORY = "klamm.journal.dir"


class JournalMissing(Exception):
    """The broker should keep a journal but cannot; the text says why."""


def keeps_journal(config: BrokerConfig) -> bool:
    """Whether the configs request a journal."""
    return bool(config.get(DIRECTORY))


async def open_journal(config: BrokerConfig, cluster_id: str, broker_id: int, tap: BrokerTap, clock: Clock) -> OpenJournal:
    """Open the journal of this broker. Raises JournalMissing."""
    try:
        from klamm.configs.tables.public_configs import public_configs
        from klamm.journal.writer import JournalRefused, JournalWriter
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise JournalMissing(f"{DIRECTORY} needs pyarrow: {install_command('journal')}") from error
    from klamm.server.journal.open_journal import OpenJournal

    frames: str | None = config.get("klamm.journal.frames")
    run: str | None = config.get("klamm.journal.run")

    def open_it() -> JournalWriter:
        return JournalWriter(
            Path(config.get(DIRECTORY)), cluster_id if run is None else run, broker_id, clock=clock,
            frames=int(frames) if frames is not None and frames.isdigit() else frames, public_configs=public_configs(),
        )

    opening = asyncio.ensure_future(asyncio.to_thread(open_it))
    try:
        writer = await asyncio.shield(opening)
    except JournalRefused as error:
        raise JournalMissing(str(error)) from error
    except asyncio.CancelledError:  # the thread goes on, and what it opens must not stay open
        await asyncio.wait({opening})
        if opening.exception() is None:
            await asyncio.to_thread(opening.result().close)
        raise
    return OpenJournal(writer, tap, broker_id, config)
