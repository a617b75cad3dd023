"""What a broker with logs in memory leaves when it ends, and finds when it starts again."""

from __future__ import annotations

import pytest

from klamm.broker.log.local_log import FileRead
from klamm.broker.log.log import Log
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.memory_directory import MemoryDirectory
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.validation import Origin
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.tests.broker.log.batches import batch, marker
from klamm.tests.broker.log.stored_configs import StoredConfigs
from klamm.tests.services import broker_config

ID = b"i" * 16


class Broker:
    """The logs of one broker over several lives. `logs` are those of the present one."""

    def __init__(self) -> None:
        self.budget = MemoryBudget()
        self.memory = MemoryDirectory()
        self.stored = StoredConfigs()
        self.logs = self._manager()

    def _manager(self) -> LogManager:
        return LogManager(broker_config(1), SYSTEM_CLOCK, self.budget, lambda bound: 0, self.stored, memory=self.memory)

    async def open(self, topic: str = "t") -> Log:
        return await self.logs.open(topic, 0, ID, False)

    async def restart(self, is_killed: bool) -> Log | None:
        """End this life and begin another one; what the start finds of t-0."""
        if is_killed:
            self.logs.drop()
        else:
            await self.logs.close()
        self.logs = self._manager()
        await self.logs.start()
        return self.logs.get("t", 0)


def append(log: Log, records: bytes, epoch: int = 0, origin: Origin = Origin.CLIENT) -> None:
    log.append_as_leader(records, epoch, 9, origin, 1_000)


async def test_a_log_that_was_handed_over_is_read_and_goes_on_and_the_old_one_takes_no_records() -> None:
    broker = Broker()
    before = await broker.open()
    append(before, batch(3))
    append(before, batch(2), epoch=4)
    before.set_high_watermark(5)
    used = broker.budget.used
    after = await broker.restart(is_killed=True)
    assert after is not None and after is not before and after.topic_id == ID
    assert (after.log_start_offset, after.log_end_offset) == (0, 5)
    read = after.read(0, 1 << 20, 5, True)
    assert isinstance(read, bytes) and len(read) == len(batch(3)) + len(batch(2))
    assert after.epochs.entries == ((0, 0), (4, 3))
    assert broker.budget.used == used
    with pytest.raises(ApiError) as refused:
        append(before, batch(1), epoch=4)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append(after, batch(1), epoch=5)
    assert (after.log_end_offset, after.epochs.latest) == (6, 5)


@pytest.mark.parametrize(("is_killed", "found"), [(True, (1, 3)), (False, (2, 6))], ids=["killed", "stopped"])
async def test_a_kill_leaves_the_offsets_of_the_last_checkpoint_and_a_stop_the_last_ones(is_killed: bool, found: tuple[int, int]) -> None:
    broker = Broker()
    log = await broker.open()
    append(log, batch(3))
    log.set_high_watermark(3)
    log.set_log_start_offset(1)
    broker.memory.checkpoint(broker.logs._offsets())
    append(log, batch(3))
    log.set_high_watermark(6)
    log.set_log_start_offset(2)
    after = await broker.restart(is_killed)
    assert after is not None
    assert (after.log_start_offset, after.high_watermark) == found
    assert after.log_end_offset == 6


async def test_records_whose_segments_are_gone_do_not_come_back_with_an_old_checkpoint() -> None:
    broker = Broker()
    log = await broker.open()
    append(log, batch(3))
    log.roll(1_000)
    append(log, batch(3))
    log.set_high_watermark(6)
    broker.memory.checkpoint(broker.logs._offsets())
    log.set_log_start_offset(4)
    after = await broker.restart(is_killed=True)
    assert after is not None
    assert (after.log_start_offset, after.log_end_offset) == (3, 6)
    after.truncate_fully_and_start_at(100)
    again = await broker.restart(is_killed=True)
    assert again is not None
    assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (100, 100, 100)


async def test_an_epoch_that_began_at_the_log_end_is_not_found() -> None:
    broker = Broker()
    log = await broker.open()
    append(log, batch(3))
    log.assign_epoch(7, 3)
    after = await broker.restart(is_killed=False)
    assert after is not None
    assert after.epochs.entries == ((0, 0),)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_producers_that_are_idle_for_too_long_are_forgotten_at_the_start_unless_their_transaction_is_open(is_killed: bool) -> None:
    """As by a broker that loads a snapshot of them from disk."""
    broker = Broker()
    log = await broker.open()
    now_ms, old_ms = SYSTEM_CLOCK.now_ms(), SYSTEM_CLOCK.now_ms() - broker_config(1).get("producer.id.expiration.ms") - 1000
    append(log, batch(1, producer=1, epoch=0, sequence=0, timestamp=old_ms))
    append(log, batch(1, producer=2, epoch=0, sequence=0, timestamp=now_ms))
    append(log, batch(1, producer=3, epoch=0, sequence=0, timestamp=old_ms, attributes=0x10))
    assert [known.producer_id for known in log.active_producers()] == [1, 2, 3]
    after = await broker.restart(is_killed)
    assert after is not None and [known.producer_id for known in after.active_producers()] == [2, 3]


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_producers_and_transactions_are_found(is_killed: bool) -> None:
    broker = Broker()
    log = await broker.open()
    append(log, batch(1, producer=1, epoch=0, sequence=0, attributes=0x10))
    append(log, marker(1, 0, commit=False, timestamp=SYSTEM_CLOCK.now_ms()), origin=Origin.COORDINATOR)
    append(log, batch(1, producer=2, epoch=3, sequence=0, attributes=0x10))
    log.set_high_watermark(3)
    broker.memory.checkpoint(broker.logs._offsets())
    producers, aborted = log.active_producers(), log.aborted_transactions(0, 3)
    assert len(aborted) == 1 and log.last_stable_offset == 2
    after = await broker.restart(is_killed)
    assert after is not None
    assert (after.active_producers(), after.aborted_transactions(0, 3), after.last_stable_offset) == (producers, aborted, 2)
    assert after.has_open_transaction(2, 3)
    duplicate = after.append_as_leader(batch(1, producer=2, epoch=3, sequence=0, attributes=0x10), 0, 9, Origin.CLIENT, 1_000)
    assert duplicate.is_duplicate and duplicate.base_offset == 2


async def test_what_is_deleted_is_not_found_and_gives_its_memory_back() -> None:
    broker = Broker()
    append(await broker.open(), batch(3))
    append(await broker.open("u"), batch(3))
    broker.memory.host("empty", 0, ID)
    broker.logs.delete("u", 0)
    broker.logs.drop()
    assert broker.memory.found == {("t", 0): ID, ("empty", 0): ID}
    broker.memory.delete("t", 0)  # before the broker starts
    assert await broker.restart(is_killed=True) is None
    assert broker.memory.found == {("empty", 0): ID} and broker.budget.used == 0


async def test_the_configs_of_topics_are_read_again_in_one_request() -> None:
    broker = Broker()
    for topic in ("t", "u"):
        append(await broker.open(topic), batch(1))
    broker.stored.configs, broker.stored.requests = {"t": {"retention.ms": "5"}}, []
    after = await broker.restart(is_killed=False)
    assert after is not None
    assert (after.config.retention_ms, broker.stored.requests) == (5, [["t", "u"]])


async def test_memory_that_is_needed_is_taken_from_logs_of_brokers_that_are_down() -> None:
    broker = Broker()
    log = await broker.open()
    for _ in range(20):
        append(log, batch(1, 100_000))
    log.set_high_watermark(20)
    await broker.logs.close()
    broker.budget.limit = broker.budget.used
    broker.budget.reserve(1_000_000)
    broker.logs = broker._manager()
    await broker.logs.start()
    after = await broker.open()
    assert (after.log_start_offset, after.log_end_offset) == (0, 20)
    assert isinstance(after.read(0, 1, 20, True), FileRead)
    assert after.read(after.log_start_offset, 1 << 20, 20, True)
