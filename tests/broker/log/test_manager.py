"""The owner of a broker's logs: configs of topics, opening, deletion, and what comes with time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping, Sequence

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.validation import Origin
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.simulated_storage import SimulatedStorage, empty
from klamm.tests.broker.log.stored_configs import StoredConfigs
from klamm.tests.harness.waits import eventually
from klamm.tests.services import broker_config


def manager(stored: StoredConfigs, clock=SYSTEM_CLOCK, budget: MemoryBudget | None = None, **properties: object) -> LogManager:
    return LogManager(broker_config(1, **properties), clock, budget or MemoryBudget(), lambda bound: 0, stored)


async def opened(logs: LogManager, topic: str, partition: int = 0) -> Log:
    return await logs.open(topic, partition, bytes(16), True)


def append(log: Log, count: int = 1, now_ms: int = 1_000, size: int = 10) -> None:
    log.append_as_leader(batch(count, size, timestamp=now_ms), 0, 9, Origin.CLIENT, now_ms)
    log.set_high_watermark(log.log_end_offset)


async def test_logs_that_are_opened_at_the_same_time_read_the_configs_of_their_topics_in_one_request() -> None:
    stored = StoredConfigs({"a": {"retention.ms": "5"}})
    logs = manager(stored)
    await asyncio.gather(*(opened(logs, topic, partition) for topic in "abc" for partition in range(3)))
    assert stored.requests == [["a", "b", "c"]]
    a, b, c = (logs.get(topic, 1) for topic in "abc")
    assert a and b and c
    assert a.config.retention_ms == 5
    assert b.config is c.config


async def test_a_log_is_opened_once_however_many_want_it() -> None:
    logs = manager(StoredConfigs())
    first, second = await asyncio.gather(opened(logs, "t"), opened(logs, "t"))
    assert first is second is await opened(logs, "t")


async def test_a_change_that_comes_while_configs_are_read_is_not_undone_by_what_was_read() -> None:
    stored = StoredConfigs({"t": {"retention.ms": "1"}})
    stored.gate = asyncio.Event()
    logs = manager(stored)
    opening = asyncio.create_task(opened(logs, "t"))
    await stored.requested.wait()
    logs.set_topic_config("t", {"retention.ms": "2"})
    stored.gate.set()
    assert (await opening).config.retention_ms == 2


async def test_open_logs_follow_the_configs_of_their_topic_and_of_the_broker() -> None:
    logs = manager(StoredConfigs())
    one, other = await opened(logs, "one"), await opened(logs, "other")
    logs.set_topic_config("one", {"max.message.bytes": "100", "segment.bytes": "nonsense", "unknown.name": "x"})
    assert (one.config.max_message_bytes, one.config.segment_bytes) == (100, 1 << 30)
    logs._config.apply_dynamic({"log.retention.ms": "77", "message.max.bytes": "200"}, {})
    logs.defaults_changed()
    assert [log.config.retention_ms for log in (one, other)] == [77, 77]
    assert [log.config.max_message_bytes for log in (one, other)] == [100, 200]
    logs.set_topic_config("one", {})
    assert one.config is other.config


async def test_configs_that_cannot_be_read_are_an_error_of_the_open_and_are_read_again_by_the_next() -> None:
    stored = StoredConfigs()
    stored.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    logs = manager(stored)
    with pytest.raises(ApiError):
        await opened(logs, "t")
    assert logs.get("t", 0) is None
    stored.error = None
    assert (await opened(logs, "t")).log_end_offset == 0


async def test_configs_that_cannot_be_read_do_not_keep_what_is_opened_meanwhile_waiting() -> None:
    class Partly(StoredConfigs):
        async def __call__(self, topics: Sequence[str]) -> list[Mapping[str, str] | None]:
            found = await super().__call__(topics)
            if "a" in topics:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
            return found

    stored = Partly()
    stored.gate = asyncio.Event()
    logs = manager(stored)
    first = asyncio.create_task(opened(logs, "a"))
    await stored.requested.wait()
    second = asyncio.create_task(opened(logs, "b"))
    await asyncio.sleep(0)
    stored.gate.set()
    with pytest.raises(ApiError):
        await first
    assert (await second).topic == "b"
    assert stored.requests == [["a"], ["b"]]


async def test_a_log_is_flushed_when_it_was_not_for_flush_ms() -> None:
    storage = SimulatedStorage()
    logs = manager(StoredConfigs())
    environment = LogEnvironment(MemoryBudget(), lambda: 1_000, lambda bound: 0)
    log = Log("t", 0, bytes(16), LogConfig(flush_ms=100), environment, storage, empty())
    logs._flush(log, 5_000)
    assert not storage.queue, "nothing was appended"
    append(log)
    storage.run()
    logs._flush(log, 1_099)
    assert not storage.queue
    logs._flush(log, 1_100)
    storage.run()
    assert log.recovery_point == 1


async def test_a_log_whose_background_work_fails_does_not_hold_up_others(caplog: pytest.LogCaptureFixture) -> None:
    clock = DrivenClock()
    logs = manager(StoredConfigs(), clock, log_retention_check_interval_ms=1000, log_initial_task_delay_ms=100, log_retention_ms=1)
    broken, log = await opened(logs, "a"), await opened(logs, "b")
    append(log)
    broken.config = None  # type: ignore[assignment]
    background = asyncio.create_task(logs.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    try:
        await clock.advance(1.5)
        assert log.log_start_offset == 1
        assert "background work on Log(" in caplog.text
    finally:
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)


async def test_an_open_that_fails_when_nobody_waits_for_it_any_more_is_no_unretrieved_exception() -> None:
    """As when the ZooKeeper session of a broker expires, and its fetchers are closed meanwhile."""
    stored = StoredConfigs()
    stored.gate, stored.error = asyncio.Event(), ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    logs = manager(stored)
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    waiting = [asyncio.create_task(opened(logs, "t", partition)) for partition in range(3)]
    await stored.requested.wait()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    stored.gate.set()
    await eventually(lambda: not logs._opening, "the logs are not being opened any more")
    del waiting, task
    gc.collect()
    assert reported == []


async def test_a_log_that_is_made_again_while_its_deleted_one_was_being_opened_is_opened_once() -> None:
    stored = StoredConfigs()
    stored.gate = asyncio.Event()
    logs = manager(stored)
    first = asyncio.create_task(opened(logs, "t"))
    await stored.requested.wait()
    logs.delete("t", 0)
    second = asyncio.create_task(opened(logs, "t"))
    with pytest.raises(asyncio.CancelledError):
        await first
    third = asyncio.create_task(opened(logs, "t"))
    await asyncio.sleep(0)
    stored.gate.set()
    assert await second is await third is logs.get("t", 0)


async def test_a_deleted_log_gives_its_memory_back_and_a_new_one_of_its_name_is_empty_and_reads_its_configs_again() -> None:
    stored = StoredConfigs({"t": {"retention.ms": "1"}})
    budget = MemoryBudget()
    logs = manager(stored, budget=budget)
    append(await opened(logs, "t"))
    assert budget.used > 0
    logs.delete("t", 0)
    assert budget.used == 0
    stored.configs = {}
    again = await opened(logs, "t")
    assert (again.log_end_offset, again.config.retention_ms) == (0, 604_800_000)


async def test_a_log_that_is_deleted_while_it_is_opened_is_not_there_afterwards() -> None:
    stored = StoredConfigs()
    stored.gate = asyncio.Event()
    logs = manager(stored)
    opening = asyncio.create_task(opened(logs, "t"))
    await stored.requested.wait()
    logs.delete("t", 0)
    stored.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert logs.get("t", 0) is None


async def test_the_first_search_for_idle_producers_is_after_one_interval() -> None:
    clock = DrivenClock()
    logs = manager(StoredConfigs(), clock, log_initial_task_delay_ms=100, producer_id_expiration_check_interval_ms=500)
    log = await opened(logs, "t")
    log.append_as_leader(batch(producer=7, epoch=0, sequence=0, timestamp=0), 0, 9, Origin.CLIENT, clock.now_ms())
    background = asyncio.create_task(logs.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    try:
        await clock.advance(0.4)
        assert len(log.active_producers()) == 1
        await clock.advance(0.2)
        assert not log.active_producers()
    finally:
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)


async def test_retention_and_expiry_of_producers_come_with_time() -> None:
    clock = DrivenClock()
    logs = manager(
        StoredConfigs(), clock, log_retention_check_interval_ms=1000, log_initial_task_delay_ms=100, log_retention_ms=5_000,
        producer_id_expiration_ms=2_000, producer_id_expiration_check_interval_ms=500,
    )
    log = await opened(logs, "t")
    log.append_as_leader(batch(producer=7, epoch=0, sequence=0, timestamp=clock.now_ms()), 0, 9, Origin.CLIENT, clock.now_ms())
    log.set_high_watermark(1)
    background = asyncio.create_task(logs.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    try:
        await clock.advance(1.5)
        assert (log.log_start_offset, len(log.active_producers())) == (0, 1)
        await clock.advance(2)
        assert (log.log_start_offset, len(log.active_producers())) == (0, 0)
        await clock.advance(4)
        assert log.log_start_offset == 1
    finally:
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
