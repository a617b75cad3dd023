"""Every loop of a broker that runs in the background outlives an exception of its body: it is logged, and the next turn comes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NamedTuple

import pytest

from klamm.broker.log import compaction
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.transactions.requests import SendMarkers
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.server.transactions.transaction_broker import TransactionBroker
from klamm.tests.services import broker_config, no_topic_configs


class Loop(NamedTuple):
    """A loop, where its body is, and how often the body runs at most (s)."""

    run: Coroutine[Any, Any, None]
    owner: Any
    body: str
    interval_s: float
    clock: DrivenClock


@pytest.fixture
async def broker() -> AsyncIterator[TransactionBroker]:
    broker = TransactionBroker()
    await broker.start()
    await broker.led()
    await broker.coordinate()
    yield broker
    await broker.close()


def logs(clock: DrivenClock) -> LogManager:
    return LogManager(broker_config(1), clock, MemoryBudget(), random.Random(0).randrange, no_topic_configs)


def find(name: str, broker: TransactionBroker) -> Loop:
    groups, coordinator, clock = broker.groups, broker.coordinator, broker.clock
    match name:
        case "expiry of offsets":
            return Loop(groups.expire_offsets(), groups.partitions.get(0), "expire", groups.options.retention_check_ms / 1000, clock)
        case "transactions over time":
            state = coordinator.partitions.get(0)
            return Loop(coordinator.abort_timed_out(), state, "abort_timed_out", coordinator.options.abort_check_ms / 1000, clock)
        case "expiry of ids":
            state = coordinator.partitions.get(0)
            return Loop(coordinator.expire_ids(), state, "expire", coordinator.options.expiry_check_ms / 1000, clock)
        case "check of followers":
            leaders = broker.replicas.leaders
            return Loop(leaders.run(), leaders, "check_followers", leaders.max_lag_ms / 1000, clock)
        case "cleaner":
            own = DrivenClock()
            return Loop(logs(own).run(), compaction, "choose", 60, own)
        case "checkpoints":
            own = DrivenClock()
            made = logs(own)
            made._memory = object()  # type: ignore[assignment] # so that it has checkpoints to write
            return Loop(made.run(), made, "_write_changed_checkpoints", 60, own)
        case _:
            raise AssertionError(name)


@pytest.mark.parametrize(
    "name", ["expiry of offsets", "transactions over time", "expiry of ids", "check of followers", "cleaner", "checkpoints"]
)
async def test_a_loop_outlives_an_exception_of_its_body(
    name: str, broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if name == "expiry of ids":
        await broker.replicas.open_log(broker.replicas.replica(TRANSACTION_TOPIC, 0))
    loop, calls = find(name, broker), list[int]()

    def fail_once(*arguments: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("a fault of the body")

    monkeypatch.setattr(loop.owner, loop.body, fail_once)
    task = asyncio.get_running_loop().create_task(loop.run)
    await broker.settle()
    for _ in range(3):
        await loop.clock.advance(loop.interval_s + 30, broker.settle)
    assert len(calls) >= 2
    assert not task.done()
    assert caplog.text.count("raised an exception; the work continues") == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_markers_whose_writing_fails_are_reported_and_sent_again(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*arguments: object) -> None:
        raise RuntimeError("a fault")

    sender = broker.coordinator.sender
    monkeypatch.setattr(sender._writer, "write", fail)
    reports: list[dict[TopicPartition, ErrorCode]] = []
    own = TopicPartition(TRANSACTION_TOPIC, 0)
    sender.send(SendMarkers("x", 1, 0, 1, True, (own,)), lambda _, results: reports.append(dict(results)))
    await broker.settle()
    assert reports == [{own: ErrorCode.NETWORK_EXCEPTION}]


