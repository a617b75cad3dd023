"""Who may cut a log, and when: truncations beside elections, followers of another leader, the cleaner, and each other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import NamedTuple

import pytest

from klamm.broker.follower_truncation import truncation
from klamm.broker.log.compaction import LogCleaner, candidate
from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import FileRead, LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.storage import EpochEntry, ReadCommand
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import each_header
from klamm.protocol.records.record import read_records
from klamm.protocol.records.validation import Origin
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.broker.log.batches import batch, record
from klamm.tests.broker.log.simulated_storage import SimulatedStorage
from klamm.tests.broker.log.stored_logs import make
from klamm.tests.broker.replica_requests import EPOCH, hosting, state, stop, tell
from klamm.tests.services import broker_config

CONFIG = LogConfig(compact=True, delete=False, min_cleanable_dirty_ratio=0.0, index_interval_bytes=1)


class SlowReads(SimulatedStorage):
    """Each read waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def read(self, command: ReadCommand) -> bytes | None:
        await self.gate.wait()
        return await super().read(command)


class Cut(NamedTuple):
    """A follower of broker 2 with ten records on disk, which truncates its log to offset 5 and waits for a read."""

    replicas: ReplicaManager
    storage: SlowReads
    log: Log
    cutting: asyncio.Future[None]

    def tell(self, leader: int) -> None:
        """This broker, or broker 2, leads in the next epoch."""
        assert tell(self.replicas, state(1, leader, isr=[leader], partition_epoch=1)) == [0]


async def a_follower_that_looks_for_its_place() -> Cut:
    storage = SlowReads()
    log = make(storage, budget=MemoryBudget(1 << 20))
    replicas = hosting()
    assert tell(replicas, state(0, 2, isr=[2])) == [0]
    replica = replicas.get("t", 0)
    assert replica is not None
    replica.log = log
    for offset in range(10):
        log.append_as_follower(batch(base_offset=offset, leader_epoch=0), 0)
    storage.run()
    while log.drop_oldest():
        pass
    unfinished = log.truncate_to(5)
    assert unfinished is not None and log.is_truncating
    cutting = asyncio.ensure_future(unfinished)
    await asyncio.sleep(0)
    return Cut(replicas, storage, log, cutting)


@pytest.mark.parametrize("what", ["leads", "follows", "is stopped"])
async def test_a_truncation_of_a_former_leader_epoch_does_not_cut_the_log(what: str) -> None:
    cut = await a_follower_that_looks_for_its_place()
    replicas, storage, log, cutting = cut
    if what == "is stopped":
        replicas.handle_stop_replica(stop((0, 1, False)), 4, EPOCH)
    else:
        cut.tell(1 if what == "leads" else 2)
    storage.gate.set()
    await cutting
    assert (log.next_offset, log.log_end_offset, log.is_truncating) == (10, 10, False)


async def test_a_leader_whose_truncation_was_given_up_appends_behind_its_records() -> None:
    cut = await a_follower_that_looks_for_its_place()
    _, storage, log, cutting = cut
    cut.tell(1)
    assert log.append_as_leader(batch(), 1, 9, Origin.CLIENT, 0).base_offset == 10
    storage.gate.set()
    await cutting
    assert log.epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 10))
    assert log.next_offset == 11


async def test_the_newer_of_two_truncations_counts() -> None:
    _, storage, log, first = await a_follower_that_looks_for_its_place()
    second = log.truncate_to(8)
    assert second is not None
    storage.gate.set()
    await asyncio.gather(first, second)
    assert (log.next_offset, log.is_truncating) == (8, False)


async def test_a_truncation_that_needs_no_file_ends_one_that_still_looks_for_its_place() -> None:
    _, storage, log, first = await a_follower_that_looks_for_its_place()
    log.truncate_fully_and_start_at(3)
    assert log.truncate_to(3) is None
    storage.gate.set()
    await first
    assert (log.log_start_offset, log.next_offset, log.is_truncating) == (3, 3, False)


async def test_a_truncation_that_is_cancelled_lets_others_append() -> None:
    _, _, log, cutting = await a_follower_that_looks_for_its_place()
    cutting.cancel()
    await asyncio.gather(cutting, return_exceptions=True)
    assert not log.is_truncating
    log.append_as_follower(batch(base_offset=10, leader_epoch=0), 0)


async def test_a_truncation_whose_segment_was_replaced_meanwhile_is_for_another_time() -> None:
    _, storage, log, cutting = await a_follower_that_looks_for_its_place()
    storage.files[100] = storage.files.pop(0)
    storage.gate.set()
    with pytest.raises(ApiError) as refused:
        await cutting
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.next_offset, log.is_truncating) == (10, False)


# --- the high watermark of a former leader


async def test_a_log_on_disk_forgets_what_a_former_leader_had_behind_its_end() -> None:
    """The replica lags; its leader's high watermark is 1000. What it appends later as leader is not replicated by that."""
    storage = SimulatedStorage()
    log = make(storage)
    for offset in range(10):
        log.append_as_follower(batch(base_offset=offset, leader_epoch=0), 1_000)
    storage.run()
    assert (log.log_end_offset, log.high_watermark) == (10, 10)
    log.append_as_leader(batch(), 1, 9, Origin.CLIENT, 0)
    storage.run()
    assert (log.log_end_offset, log.high_watermark) == (11, 10)


async def test_records_that_the_former_leader_had_replicated_count_as_such_when_they_are_written() -> None:
    storage = SimulatedStorage()
    log = make(storage)
    log.append_as_follower(batch(4, leader_epoch=0), 1_000)
    log.append_as_leader(batch(), 1, 9, Origin.CLIENT, 0)  # the first four are on their way to the disk
    storage.run()
    assert (log.log_end_offset, log.high_watermark) == (5, 4)


@pytest.mark.parametrize("starts_again", [False, True], ids=["cut", "started again"])
async def test_a_high_watermark_from_before_a_truncation_says_nothing_of_later_records(starts_again: bool) -> None:
    storage = SimulatedStorage()
    log = make(storage)
    log.append_as_follower(batch(9, leader_epoch=0), 9)
    if starts_again:
        log.truncate_fully_and_start_at(0)
    else:
        assert log.truncate_to(0) is None
    log.append_as_leader(batch(9), 1, 9, Origin.CLIENT, 0)
    storage.run()
    assert (log.log_end_offset, log.high_watermark) == (9, 0)


def test_a_log_that_starts_again_has_nothing_clean() -> None:
    log = Log("t", 0, bytes(16), CONFIG, LogEnvironment(MemoryBudget(), lambda: 1_000, lambda bound: 0))
    log.append_as_follower(batch(9, leader_epoch=0), 9)
    log.clean_offset = 9
    log.truncate_fully_and_start_at(2)
    assert log.clean_offset == 2


# --- the cleaner


def one(offset: int, epoch: int, text: str) -> bytes:
    return batch(base_offset=offset, leader_epoch=epoch, records=[record(0, text.encode(), f"key {offset} {epoch}".encode())])


def texts(data: bytes) -> dict[int, str]:
    return {each.offset: (each.value or b"").decode() for at, header in each_header(data) for each in read_records(data, header, at)}


@pytest.mark.parametrize("rolls", [True, False], ids=["closed again", "open"])
async def test_a_round_of_the_cleaner_does_not_bring_back_what_was_cut_meanwhile(rolls: bool) -> None:
    log = Log("t", 0, bytes(16), CONFIG, LogEnvironment(MemoryBudget(), lambda: 1_000, lambda bound: 0))
    for offset in range(11):
        if offset == 10:
            log.roll(1)
        log.append_as_follower(one(offset, 0, f"old {offset}"), 100)

    async def work(function, *arguments):
        result = function(*arguments)
        if function.__name__ == "clean" and log.epochs.latest == 0:  # the thread works while a new leader is followed
            log.truncate_to(5)
            for offset in range(5, 11):
                if offset == 10 and rolls:
                    log.roll(1)
                log.append_as_follower(one(offset, 1, f"new {offset}"), 100)
        return result

    cleaner = LogCleaner(lambda: [log], broker_config(1), DrivenClock(), work)
    chosen = candidate(log, 1_000)
    assert chosen is not None
    assert await cleaner._clean(chosen) is False
    assert cleaner.uncleanable() == []
    assert log.clean_offset <= 5
    found: dict[int, str] = {}
    while len(found) < 11:
        data = log.read(len(found), 1 << 20, log.log_end_offset, True)
        assert isinstance(data, bytes) and data
        found |= texts(data)
    assert list(found.values()) == [f"old {offset}" for offset in range(5)] + [f"new {offset}" for offset in range(5, 11)]


# --- everything at once


class TurnReads(SimulatedStorage):
    """A read takes a few turns of the event loop, and so does the reading of producer states."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance

    async def read(self, command: ReadCommand) -> bytes | None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        if command.segment not in self.files:
            raise KeyError(command.segment)
        return await super().read(command)


class Replica:
    def __init__(self, chance: random.Random) -> None:
        self.storage = TurnReads(chance)
        self.log = make(self.storage, CONFIG, budget=MemoryBudget(1 << 22))
        self.naive: dict[int, str] = {}
        """What the log has, by offset."""
        self.is_compared = False
        self.work: set[asyncio.Future[object]] = set()

    def note(self, records: dict[int, str], at: int) -> None:
        """These records were appended, when the log ended at this offset."""
        self.naive = {offset: text for offset, text in self.naive.items() if offset < at} | records

    def begin(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self.work.add(task)
        task.add_done_callback(self.work.discard)


class Schedule:
    """Two replicas of a partition. One leads, the other follows; both change roles while truncations, reads and rounds of the cleaner wait.

    An acknowledged record is one before a leader's high watermark, which is the smaller of both log ends. Elections are clean, or
    unclean: then what the new leader lacks is not acknowledged any more. Keys are unique, so cleaning removes nothing.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.replicas = Replica(self.chance), Replica(self.chance)
        self.leader = 0
        self.epoch = 0
        self.serial = 0
        self.acknowledged: dict[int, str] = {}

    @property
    def leads(self) -> Replica:
        return self.replicas[self.leader]

    @property
    def follows(self) -> Replica:
        return self.replicas[1 - self.leader]

    def append(self) -> None:
        log = self.leads.log
        if log.is_truncating:
            return
        text = f"{self.serial} in epoch {self.epoch}"
        self.serial += 1
        data = batch(records=[record(0, text.encode(), str(self.serial).encode())], timestamp=1_000)
        offset = log.append_as_leader(data, self.epoch, 9, Origin.CLIENT, 1_000).base_offset
        self.leads.note({offset: text}, offset)

    def elect(self, is_clean: bool) -> None:
        follows = self.follows
        if is_clean and (not follows.is_compared or follows.log.log_end_offset <= max(self.acknowledged, default=-1)):
            return
        self.leader = 1 - self.leader
        self.epoch += 1
        for replica in self.replicas:
            replica.log.give_up_truncation()
        log = self.leads.log
        log.assign_epoch(self.epoch, log.next_offset)
        self.follows.is_compared = False
        self.leads.note({}, log.next_offset)
        if not is_clean:
            self.acknowledged = dict(self.acknowledged.items() & self.leads.naive.items())

    async def compare(self, epoch: int) -> None:
        """One step of a follower that compares its log with its leader's, as `FollowedLogs._cut`."""
        if epoch != self.epoch:
            return
        leader, follower, log = self.leads, self.follows, self.follows.log
        latest, end = log.epochs.latest, log.next_offset
        if latest < 0:
            follower.is_compared = end == 0
            return
        there = leader.log.end_offset_for(latest)
        cut = truncation(*there, end, end, lambda each: log.epochs.end_offset_for(each, end))
        rest = log.truncate_to(cut.offset)
        if rest is not None:
            try:
                await rest
            except ApiError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                return  # the cleaner has replaced the segment: a follower tries again
        if epoch == self.epoch and log.next_offset == cut.offset:
            follower.is_compared = cut.is_complete

    async def fetch(self, epoch: int) -> None:
        leader, follower, log, at = self.leads, self.follows, self.follows.log, self.follows.log.next_offset
        if epoch != self.epoch or at > leader.log.log_end_offset:
            return
        data = leader.log.read(at, 1_000, leader.log.log_end_offset, True)
        if isinstance(data, FileRead):
            try:
                data = await data.load()
            except ApiError:
                assert at > leader.log.log_end_offset, "only a leader that was cut meanwhile does not have the offset"
                return
        if epoch != self.epoch or not follower.is_compared or log.is_truncating or log.next_offset != at:
            return  # the fetcher does not follow this leader any more
        if data:
            log.append_as_follower(data, leader.log.high_watermark)
            follower.note(texts(data), at)
        else:
            log.follow_high_watermark(leader.log.high_watermark)

    def acknowledge(self) -> None:
        log = self.leads.log
        if not self.follows.is_compared:
            return
        log.set_high_watermark(max(log.high_watermark, min(log.log_end_offset, self.follows.log.log_end_offset)))
        self.acknowledged |= {offset: text for offset, text in self.leads.naive.items() if offset < log.high_watermark}

    async def clean(self, replica: Replica) -> None:
        chosen = candidate(replica.log, 1_000)
        cleaner = LogCleaner(lambda: [replica.log], broker_config(1), DrivenClock())
        if chosen is not None:
            await cleaner._clean(chosen)
            assert not cleaner.uncleanable()

    async def play(self, steps: int) -> None:
        chance = self.chance
        for _ in range(steps):
            match chance.randrange(16):
                case 0 | 1 | 2:
                    self.append()
                case 3:
                    self.elect(is_clean=chance.random() < 0.6)
                case 4 | 5 if not self.follows.is_compared:
                    self.follows.begin(self.compare(self.epoch))
                case 4 | 5 | 6 | 7:
                    self.follows.begin(self.fetch(self.epoch))
                case 8:
                    self.acknowledge()
                case 9:
                    chance.choice(self.replicas).storage.run()
                case 10 if not (log := chance.choice(self.replicas).log).is_truncating:
                    log.roll(1)
                case 11:
                    replica = chance.choice(self.replicas)
                    replica.begin(self.clean(replica))
                case 12:
                    while chance.choice(self.replicas).log.drop_oldest():
                        pass
                case _:
                    await asyncio.sleep(0)
            for replica in self.replicas:
                log = replica.log
                assert log.high_watermark <= log.log_end_offset <= log.next_offset

    async def settle(self) -> None:
        """Everything is written and fetched."""
        while any(replica.work for replica in self.replicas):
            await asyncio.gather(*(task for replica in self.replicas for task in replica.work))
        self.leads.storage.run()
        self.follows.storage.run()
        for _ in range(1_000):
            if self.follows.is_compared and self.follows.log.next_offset == self.leads.log.next_offset:
                break
            await (self.fetch if self.follows.is_compared else self.compare)(self.epoch)
            self.follows.storage.run()
        self.acknowledge()

    @staticmethod
    async def contents(log: Log) -> dict[int, str]:
        found: dict[int, str] = {}
        at = log.log_start_offset
        while at < log.log_end_offset:
            data = await log.load(at, 1 << 20, log.log_end_offset, True)
            assert data, f"nothing at {at} of {log!r}"
            found |= texts(data)
            at = max(found) + 1
        return found


async def judged(seed: int, steps: int = 150) -> None:
    schedule = Schedule(seed)
    await schedule.play(steps)
    await schedule.settle()
    leader, follower = [await schedule.contents(replica.log) for replica in (schedule.leads, schedule.follows)]
    assert leader == follower == schedule.leads.naive, f"seed {seed}"
    assert schedule.acknowledged.items() <= leader.items(), f"seed {seed}"
    for replica in schedule.replicas:
        replica.storage.check(replica.log)


@pytest.mark.parametrize("seed", range(0, 200, 20))
async def test_replicas_are_equal_after_truncations_elections_and_cleaning_in_any_order(seed: int) -> None:
    for each in range(seed, seed + 20):
        await judged(each)
