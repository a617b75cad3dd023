"""A coordinator has a state for each partition that this broker leads, and for no other: loaded from its log, and given up with its
leadership."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from klamm.broker.groups.log_records import offset_record
from klamm.broker.groups.requests import OffsetCommit
from klamm.broker.replica_effects import Effect
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import Buffer, CorruptRecords, each_header
from klamm.protocol.records.compression import BadCompression
from klamm.protocol.records.scan import BadRecord
from klamm.server.coordinators import owned_partitions
from klamm.server.coordinators.owned_partitions import RETRY_S, OwnedPartitions
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.server.groups.coordinating_broker import CoordinatingBroker, T
from klamm.tests.server.recoveries.recovering import Recoveries
from klamm.tests.server.transactions.transaction_broker import TransactionBroker

RECORD = offset_record("g", T, OffsetCommit(1, -1, "", 1))


class State:
    """`offsets` are those of the batches that were replayed, by slice."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.offsets: list[list[int]] = []


class Owner:
    """Does nothing with its states. `on_replay` is called before each slice."""

    def __init__(self) -> None:
        self.made: list[State] = []
        self.served: list[State] = []
        self.unloaded: list[State] = []
        self.on_replay: Callable[[], object] = lambda: None

    def make(self, index: int) -> State:
        self.made.append(State(index))
        return self.made[-1]

    def replay(self, state: State, batches: Buffer) -> int:
        self.on_replay()
        headers = [header for _, header in each_header(batches)]
        state.offsets.append([header.base_offset for header in headers])
        return headers[-1].next_offset

    def loaded(self, index: int, state: State) -> None:
        self.served.append(state)

    def unload(self, index: int, state: State) -> None:
        self.unloaded.append(state)


class Owning:
    """A broker, and a coordinator of its offsets topic beside that of groups."""

    def __init__(self) -> None:
        self.broker = CoordinatingBroker(partitions=2)
        self.owner = Owner()
        self.effects: list[Effect] = []
        self.partitions: OwnedPartitions[State] = OwnedPartitions(
            OFFSETS_TOPIC, self.broker.replicas, self.owner, self.broker.background, self.broker.clock, 2
        )
        self.broker.replicas.listeners.append(self.partitions.apply)

    def code(self, index: int = 0) -> E:
        """The code for a request that needs the partition."""
        try:
            self.partitions.get(index)
        except ApiError as error:
            return error.code
        return E.NONE

    async def logged(self, batches: int) -> None:
        """The log has so many batches of one record, and nobody coordinates it any more."""
        await self.broker.led()
        for _ in range(batches):
            await self.broker.append(RECORD)
        self.broker.lead(leader=2, epoch=2)
        self.owner.made.clear()
        self.owner.served.clear()
        self.owner.unloaded.clear()


@pytest.fixture
async def owning() -> AsyncIterator[Owning]:
    owning = Owning()
    yield owning
    await owning.broker.close()


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is replayed by itself."""
    monkeypatch.setattr(owned_partitions, "LOAD_BYTES", 1)


async def test_only_partitions_of_the_topic_are_coordinated(owning: Owning) -> None:
    owning.broker.lead(topic=T.topic)
    assert (owning.code(), owning.owner.made) == (E.NOT_COORDINATOR, [])


async def test_partitions_that_are_being_loaded_are_not_listed(owning: Owning) -> None:
    await owning.broker.led(0)
    owning.broker.lead(1)
    assert [index for index, _ in owning.partitions.loaded()] == [0]
    assert owning.partitions.is_loading
    await owning.broker.settle()
    assert [index for index, _ in owning.partitions.loaded()] == [0, 1]


async def test_a_partition_that_this_broker_goes_on_leading_is_not_given_up(owning: Owning) -> None:
    await owning.broker.led()
    owning.broker.lead(leader=9, epoch=2)
    assert (owning.code(), owning.owner.unloaded) == (E.NONE, [])


async def test_the_state_of_a_former_leadership_is_not_the_partition_s(owning: Owning) -> None:
    await owning.broker.led()
    former = owning.partitions.get(0)
    assert owning.partitions.owns(0, former)
    owning.broker.lead(leader=2, epoch=2)
    assert not owning.partitions.owns(0, former)
    await owning.broker.led(epoch=3)
    assert not owning.partitions.owns(0, former)
    assert owning.partitions.owns(0, owning.partitions.get(0))
    assert owning.owner.unloaded == [former]


async def test_a_leadership_that_is_over_before_it_is_heard_of_makes_no_state(owning: Owning) -> None:
    heard: list[Effect] = []
    owning.broker.replicas.listeners[:] = [heard.extend]
    owning.broker.lead()
    owning.broker.lead(leader=2, epoch=2)
    owning.partitions.apply(heard)
    assert (owning.owner.made, owning.code()) == ([], E.NOT_COORDINATOR)


async def test_a_broker_that_stops_loads_nothing(owning: Owning) -> None:
    owning.partitions.close()
    await owning.broker.led()
    assert owning.owner.made == []


async def test_a_state_that_was_never_loaded_is_not_unloaded(owning: Owning) -> None:
    owning.broker.lead()
    owning.broker.lead(leader=2, epoch=2)
    await owning.broker.settle()
    assert (len(owning.owner.made), owning.owner.served, owning.owner.unloaded) == (1, [], [])


# --- loads


async def test_a_log_is_replayed_to_its_end_in_slices_and_others_run_meanwhile(owning: Owning, small_slices: None) -> None:
    await owning.logged(3)
    turns: list[int] = []

    async def count() -> None:
        while True:
            turns.append(len(owning.owner.made[0].offsets) if owning.owner.made else 0)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await owning.broker.led(epoch=3)
    counting.cancel()
    assert owning.partitions.get(0).offsets == [[0], [1], [2]]
    assert {1, 2, 3} <= set(turns)


async def test_a_load_begins_at_the_start_of_the_log(owning: Owning, small_slices: None) -> None:
    await owning.logged(3)
    move_start(owning, 1)
    await owning.broker.led(epoch=3)
    assert owning.partitions.get(0).offsets == [[1], [2]]


async def test_a_load_goes_on_at_a_start_that_moves_meanwhile(owning: Owning, small_slices: None) -> None:
    await owning.logged(4)
    owning.owner.on_replay = lambda: move_start(owning, 2)
    await owning.broker.led(epoch=3)
    assert owning.partitions.get(0).offsets == [[0], [2], [3]]


def move_start(owning: Owning, offset: int) -> None:
    replica = owning.broker.replicas.get(OFFSETS_TOPIC, 0)
    assert replica is not None
    assert replica.log is not None
    replica.log.log_start_offset = offset


async def test_a_load_ends_with_its_leadership_and_serves_nobody(owning: Owning, small_slices: None) -> None:
    await owning.logged(3)
    owning.owner.on_replay = lambda: owning.broker.lead(leader=2, epoch=4)
    await owning.broker.led(epoch=3)
    assert [state.offsets for state in owning.owner.made] == [[[0]]]
    assert (owning.owner.served, owning.owner.unloaded, owning.code()) == ([], [], E.NOT_COORDINATOR)


@pytest.mark.parametrize("problem", [CorruptRecords("bad"), BadRecord("bad"), BadCompression("bad")])
async def test_what_was_read_before_a_batch_that_cannot_be_is_served(owning: Owning, small_slices: None, problem: Exception) -> None:
    await owning.logged(3)

    def fail() -> None:
        if owning.owner.made[0].offsets:
            raise problem

    owning.owner.on_replay = fail
    await owning.broker.led(epoch=3)
    assert owning.partitions.get(0).offsets == [[0]]
    assert owning.owner.served == owning.owner.made


async def test_a_log_whose_configs_cannot_be_read_is_opened_again_after_a_pause(owning: Owning) -> None:
    outcomes = [ApiError(E.COORDINATOR_NOT_AVAILABLE), ApiError(E.UNKNOWN_SERVER_ERROR)]
    owning.broker.config_errors = outcomes
    await owning.broker.led()
    assert owning.code() is E.COORDINATOR_LOAD_IN_PROGRESS
    assert len(outcomes) == 1
    await owning.broker.advance(RETRY_S / 2)
    assert len(outcomes) == 1
    await owning.broker.advance(RETRY_S)
    assert (owning.code(), outcomes) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
    await owning.broker.advance(RETRY_S)
    assert owning.code() is E.NONE


async def test_a_log_is_not_opened_again_once_the_leadership_is_over(owning: Owning) -> None:
    outcomes = [ApiError(E.COORDINATOR_NOT_AVAILABLE)] * 100
    owning.broker.config_errors = outcomes
    await owning.broker.led()
    await owning.broker.advance(RETRY_S)
    owning.partitions.close()
    owning.broker.groups.close()
    await owning.broker.advance(RETRY_S)
    tried = len(outcomes)
    await owning.broker.advance(10 * RETRY_S)
    assert len(outcomes) == tried


async def test_a_log_in_a_directory_that_failed_is_not_served_and_not_opened_again(owning: Owning) -> None:
    outcomes = [ApiError(E.KAFKA_STORAGE_ERROR)]
    owning.broker.config_errors = outcomes
    await owning.broker.led()
    assert owning.code() is E.NOT_COORDINATOR
    await owning.broker.advance(10 * RETRY_S)
    assert (owning.code(), owning.owner.served, owning.owner.unloaded) == (E.NOT_COORDINATOR, [], [])
    owning.broker.lead(topic=T.topic)  # another topic does not bring it back
    assert (len(owning.owner.made), owning.code()) == (1, E.NOT_COORDINATOR)


def test_a_key_has_the_partition_that_its_hash_says() -> None:
    owning = Owning()
    assert {owning.partitions.partition_of(f"key-{number}") for number in range(20)} == {0, 1}
    assert owning.broker.metadata.leader(*TopicPartition(OFFSETS_TOPIC, 0)) == 1


@pytest.mark.parametrize("kind", ["offsets", "ids"])
async def test_nothing_expires_in_a_partition_that_was_given_up_while_another_one_expired(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The round goes on with the states that it found at its beginning."""
    broker = TransactionBroker(partitions=2)
    await broker.start()
    coordinator: Any = broker.groups if kind == "offsets" else broker.coordinator
    topic = OFFSETS_TOPIC if kind == "offsets" else TRANSACTION_TOPIC
    if kind == "ids":
        broker.publish({TopicPartition(TRANSACTION_TOPIC, 0): 1, TopicPartition(TRANSACTION_TOPIC, 1): 1})
        coordinator.partitions.count = 2
    for index in range(2):
        await broker.led(index, topic=topic)
    states = [coordinator.partitions.get(index) for index in range(2)]
    expired: list[Any] = []

    def expire(state: Any, *_: object) -> None:
        expired.append(state)
        broker.lead(1, leader=2, epoch=2, topic=topic)
        broker.lead(1, epoch=3, topic=topic)

    monkeypatch.setattr(type(states[0]), "expire", expire)
    round_ = asyncio.ensure_future(coordinator.expire_offsets() if kind == "offsets" else coordinator.expire_ids())
    await broker.settle()
    await broker.advance((coordinator.options.retention_check_ms if kind == "offsets" else coordinator.options.expiry_check_ms) / 1000 + 1)
    round_.cancel()
    assert expired == [states[0]]
    await broker.close()


# --- recoveries after unclean elections


@pytest.mark.requirement("R704-10")
async def test_a_partition_that_recovers_is_loaded_when_the_controller_has_confirmed_its_recovery(owning: Owning) -> None:
    await owning.logged(3)
    recoveries = Recoveries(owning.broker, "manual")
    owning.broker.lead(epoch=3, recovery=1)
    await owning.broker.settle()
    assert (owning.code(), owning.owner.made[0].offsets) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
    recoveries.gate.release()
    await owning.broker.settle()
    assert (owning.code(), owning.owner.made[0].offsets) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
    await recoveries.confirm()
    assert (owning.code(), owning.partitions.get(0).offsets) == (E.NONE, [[0, 1, 2]])


@pytest.mark.requirement("R704-10")
async def test_a_leader_that_is_elected_uncleanly_again_loads_again(owning: Owning) -> None:
    await owning.logged(1)
    await owning.broker.led(epoch=3)
    former = owning.partitions.get(0)
    recoveries = Recoveries(owning.broker)
    owning.broker.lead(epoch=5, recovery=1)
    await owning.broker.settle()
    assert (owning.code(), owning.owner.unloaded) == (E.COORDINATOR_LOAD_IN_PROGRESS, [former])
    await recoveries.confirm()
    assert owning.partitions.get(0) is not former


@pytest.mark.requirement("R704-10")
async def test_a_leader_that_is_elected_uncleanly_while_it_loads_begins_again_after_its_recovery(
    owning: Owning, small_slices: None
) -> None:
    await owning.logged(3)
    recoveries = Recoveries(owning.broker)

    def elect_once() -> None:
        if len(owning.owner.made) == 1:
            owning.broker.lead(epoch=5, recovery=1)

    owning.owner.on_replay = elect_once
    owning.broker.lead(epoch=3)
    await owning.broker.settle()
    assert (owning.code(), len(owning.owner.made), owning.owner.served) == (E.COORDINATOR_LOAD_IN_PROGRESS, 2, [])
    await recoveries.confirm()
    assert (owning.owner.served, owning.partitions.get(0).offsets) == (owning.owner.made[1:], [[0], [1], [2]])


async def test_a_load_that_waits_for_a_recovery_goes_on_waiting_in_the_next_epoch(owning: Owning) -> None:
    await owning.logged(1)
    recoveries = Recoveries(owning.broker, "manual")
    for epoch in (3, 4):
        owning.broker.lead(epoch=epoch, recovery=1)
        await owning.broker.settle()
    assert (len(owning.owner.made), owning.partitions.leader_epoch(0)) == (1, 4)
    recoveries.gate.release()
    await owning.broker.settle()
    await recoveries.confirm()
    assert owning.code() is E.NONE


async def test_a_partition_that_another_broker_leads_before_it_has_recovered_is_not_loaded(owning: Owning) -> None:
    await owning.logged(1)
    Recoveries(owning.broker, "manual")
    owning.broker.lead(epoch=3, recovery=1)
    await owning.broker.settle()
    owning.broker.lead(leader=2, epoch=4)
    await owning.broker.settle()
    assert (owning.code(), owning.owner.made[0].offsets, owning.owner.served) == (E.NOT_COORDINATOR, [], [])
