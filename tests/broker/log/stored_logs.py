"""Logs on the simulated storage."""

from __future__ import annotations

import random

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import FileRead, LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.protocol.records.batch import each_header, whole_batches
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.naive_log import NaiveLog
from klamm.tests.broker.log.simulated_storage import SimulatedStorage, empty


def make(storage: SimulatedStorage, config: LogConfig | None = None, tail_bytes: int = 0, budget: MemoryBudget | None = None) -> Log:
    environment = LogEnvironment(budget or MemoryBudget(), lambda: 1_000, lambda bound: 0, tail_bytes)
    return Log("t", 0, bytes(16), config or LogConfig(), environment, storage, empty())


async def everything(log: Log) -> bytes:
    """All that is written at this moment."""
    whole, at, end = b"", log.log_start_offset, log.log_end_offset
    while at < end:
        piece = log.read(at, 50_000, end, True)
        data = await piece.load() if isinstance(piece, FileRead) else piece
        if not data:
            break
        whole += whole_batches(data)
        at = list(each_header(data))[-1][1].next_offset
    return whole


def append(log: Log, naive: NaiveLog, chance: random.Random, epoch: int) -> None:
    offset = log.next_offset
    data = b""
    for _ in range(chance.choice((1, 1, 1, 30))):
        one = batch(chance.randint(1, 3), chance.choice((5, 500, 3_000)), base_offset=offset, leader_epoch=epoch, timestamp=1_000)
        data += one
        offset += one[26] + 1
    log.append_as_follower(data, 0)
    naive.append(data, epoch)
