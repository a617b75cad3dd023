"""The leader of a partition of the transaction topic coordinates its transactional ids: what they become is in the log, and every partition
of a transaction gets its marker, whichever broker leads it by then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from klamm.broker.transactions.log_records import StoredTransaction, key_of, read_key, read_value, record_of
from klamm.broker.transactions.requests import Description, EndTransaction, InitProducerId, Listed, ProducerIdResult
from klamm.broker.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from klamm.broker.transactions.transactions import RETRY_MS
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.harness.waits import eventually
from klamm.tests.server.transactions.transaction_broker import (
    FIRST,
    ID,
    OWN,
    SECOND,
    THIRD,
    UNKNOWN,
    CountedIds,
    Marker,
    TransactionBroker,
    answer,
    requested,
)

RETRY_S = RETRY_MS / 1000


@pytest.fixture
async def broker() -> AsyncIterator[TransactionBroker]:
    broker = TransactionBroker()
    await broker.start()
    yield broker
    await broker.close()


def code_of(broker: TransactionBroker, transactional_id: str = ID) -> E:
    """The code for a request about a transactional id."""
    try:
        found = broker.coordinator.describe(transactional_id)
    except ApiError as error:
        return error.code
    return found if isinstance(found, E) else E.NONE


def stored(broker: TransactionBroker) -> list[tuple[str | None, StoredTransaction | None]]:
    """What the log of the transaction topic says."""
    return [
        (read_key(record.key), None if record.value is None else read_value(record.value))
        for record in broker.records(topic=TRANSACTION_TOPIC)
    ]


def states(broker: TransactionBroker) -> list[TransactionState]:
    return [value.state for _, value in stored(broker) if value is not None]


async def becomes(broker: TransactionBroker, state: TransactionState) -> None:
    await eventually(lambda: broker.state is state, f"the transaction is {state.text}")


# --- which broker coordinates


async def test_only_the_leader_of_the_partition_coordinates(broker: TransactionBroker) -> None:
    assert code_of(broker) is E.NOT_COORDINATOR
    assert (await broker.add(OWN), await broker.end()) == (E.NOT_COORDINATOR, E.NOT_COORDINATOR)
    assert await broker.init() == ProducerIdResult(E.NOT_COORDINATOR)
    broker.lead(topic=TRANSACTION_TOPIC)
    assert code_of(broker) is E.COORDINATOR_LOAD_IN_PROGRESS
    await broker.settle()
    assert code_of(broker) is E.TRANSACTIONAL_ID_NOT_FOUND
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    assert code_of(broker) is E.NOT_COORDINATOR


async def test_a_broker_that_stops_coordinates_nothing(broker: TransactionBroker) -> None:
    await broker.coordinate()
    await broker.begun(OWN)
    broker.coordinator.close()
    assert code_of(broker) is E.COORDINATOR_NOT_AVAILABLE
    assert await broker.init() == ProducerIdResult(E.COORDINATOR_NOT_AVAILABLE)
    assert await broker.add(FIRST) is E.COORDINATOR_NOT_AVAILABLE
    assert list(broker.coordinator.transactions()) == []


async def test_an_empty_id_is_invalid_wherever_the_coordinator_is(broker: TransactionBroker) -> None:
    assert code_of(broker, "") is E.INVALID_REQUEST
    assert await broker.init(transactional_id="") == ProducerIdResult(E.INVALID_REQUEST)
    assert broker.coordinator.verify("", 0, 0, [OWN]) == {OWN: E.INVALID_REQUEST}


async def test_a_timeout_that_is_not_allowed_comes_before_the_question_who_coordinates(broker: TransactionBroker) -> None:
    assert await broker.init(timeout_ms=0) == ProducerIdResult(E.INVALID_TRANSACTION_TIMEOUT)
    assert await broker.init(timeout_ms=900_001) == ProducerIdResult(E.INVALID_TRANSACTION_TIMEOUT)
    assert await broker.init(timeout_ms=900_000) == ProducerIdResult(E.NOT_COORDINATOR)


# --- the log


async def test_each_step_is_in_the_log_before_the_client_has_its_response(broker: TransactionBroker) -> None:
    await broker.coordinate()
    assert await broker.init(5_000) == ProducerIdResult(E.NONE, 0, 0)
    assert stored(broker) == [(ID, StoredTransaction(0, 0, 5_000, EMPTY, (), broker.clock.now_ms(), -1))]
    assert await broker.add(OWN) is E.NONE
    assert stored(broker)[1:] == [(ID, StoredTransaction(0, 0, 5_000, ONGOING, (OWN,), broker.clock.now_ms(), broker.clock.now_ms()))]
    assert await broker.end() is E.NONE
    await becomes(broker, COMPLETE_COMMIT)
    assert states(broker) == [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]
    assert {record.timestamp for record in broker.records(topic=TRANSACTION_TOPIC)} == {broker.clock.now_ms()}


async def test_a_record_waits_for_the_replicas_as_long_as_a_transaction_may_be_open() -> None:
    broker = TransactionBroker(replicas=(1, 2))
    await broker.start()
    await broker.coordinate()
    waiting = broker.coordinator.init_producer_id(InitProducerId(None, ID, 5_000))
    await broker.settle()
    await broker.advance(4.9)
    assert not waiting.done()
    await broker.advance(0.2)
    assert await broker.result(waiting) == ProducerIdResult(E.COORDINATOR_NOT_AVAILABLE)
    await broker.close()


async def test_a_record_whose_leader_goes_is_for_the_next_coordinator() -> None:
    broker = TransactionBroker(replicas=(1, 2))
    await broker.start()
    await broker.coordinate()
    waiting = broker.coordinator.init_producer_id(InitProducerId(None, ID, 5_000))
    await broker.settle()
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    assert await broker.result(waiting) == ProducerIdResult(E.NOT_COORDINATOR)
    await broker.close()


async def test_without_a_producer_id_the_client_has_the_error_and_may_try_again(broker: TransactionBroker) -> None:
    await broker.coordinate()
    broker.ids.error = E.COORDINATOR_LOAD_IN_PROGRESS
    assert await broker.init() == ProducerIdResult(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert stored(broker) == []
    assert await broker.init() == ProducerIdResult(E.NONE, 0, 0)


async def test_the_result_for_a_client_that_has_gone_is_dropped(broker: TransactionBroker) -> None:
    await broker.coordinate()
    broker.coordinator.init_producer_id(InitProducerId(None, ID, 5_000)).cancel()
    await broker.settle()
    assert states(broker) == [EMPTY]
    assert await broker.init() == ProducerIdResult(E.NONE, 0, 1)


async def test_a_record_that_cannot_be_read_does_not_stop_the_load(broker: TransactionBroker) -> None:
    broker.lead(topic=TRANSACTION_TOPIC)
    await broker.settle()
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    old = StoredTransaction(3, 4, 60_000, EMPTY, (), 1, -1)
    broker.lead(epoch=3, topic=TRANSACTION_TOPIC)
    await broker.append((b"\0", b""), record_of("old", old), (key_of("gone"), None), topic=TRANSACTION_TOPIC)
    await broker.settle()
    assert code_of(broker, "old") is E.NONE
    assert code_of(broker, "gone") is E.TRANSACTIONAL_ID_NOT_FOUND


# --- markers


async def test_a_transaction_is_complete_when_all_leaders_have_written_their_markers(broker: TransactionBroker) -> None:
    await broker.coordinate(epoch=4)
    await broker.begun(OWN, FIRST, THIRD, UNKNOWN)
    assert await broker.end(is_commit=False) is E.NONE
    for number, partition in ((2, FIRST), (3, THIRD)):
        assert broker.state is PREPARE_ABORT
        await broker.others[number].received(1)
        assert requested(broker.others[number], 0) == [(Marker(0, 0, 4, False), [partition])]
        answer(broker.others[number], 0, {0: {partition: 0}})
    await becomes(broker, COMPLETE_ABORT)
    assert broker.written() == [Marker(0, 0, 4, False)]


async def test_a_marker_follows_its_partition_to_the_new_leader(broker: TransactionBroker) -> None:
    two, three = broker.others[2], broker.others[3]
    await broker.coordinate()
    await broker.begun(FIRST, SECOND)
    await broker.end()
    await two.received(1)
    broker.publish({FIRST: 3})
    answer(two, 0, {0: {FIRST: E.NOT_LEADER_OR_FOLLOWER, SECOND: 0}})
    await eventually(lambda: broker.coordinator.describe(ID) == description(broker, "PrepareCommit", FIRST), "one marker is missing")
    await broker.advance(RETRY_S - 0.001)
    assert three.requests == []
    await broker.advance(0.001)
    await three.received(1)
    assert requested(three, 0) == [(Marker(0, 0, 1, True), [FIRST])]
    answer(three, 0, {0: {FIRST: 0}})
    await becomes(broker, COMPLETE_COMMIT)
    await two.received(1)


def description(broker: TransactionBroker, state: str, *partitions: TopicPartition) -> Description:
    return Description(0, 0, state, 60_000, broker.clock.now_ms(), partitions)


async def test_a_marker_waits_until_its_leader_is_back(broker: TransactionBroker) -> None:
    two = broker.others[2]
    await broker.coordinate()
    await broker.begun(FIRST)
    broker.publish({}, live=(1, 3))
    await broker.end()
    for _ in range(5):
        await broker.advance(RETRY_S)
    assert (broker.state, two.requests) == (PREPARE_COMMIT, [])
    broker.publish({})
    await broker.advance(RETRY_S)
    await two.received(1)
    two.writers[0].close()
    await eventually(lambda: broker.coordinator.partitions.get(0).next_deadline_ms is not None, "the marker is sent again later")
    await broker.advance(RETRY_S)
    await two.received(2)
    answer(two, 1, {0: {FIRST: 0}})
    await becomes(broker, COMPLETE_COMMIT)


async def test_a_partition_that_is_deleted_needs_no_marker_any_more(broker: TransactionBroker) -> None:
    await broker.coordinate()
    await broker.begun(FIRST)
    await broker.end()
    await broker.others[2].received(1)
    answer(broker.others[2], 0, {0: {FIRST: E.UNKNOWN_TOPIC_OR_PARTITION}})
    await eventually(lambda: broker.coordinator.partitions.get(0).next_deadline_ms is not None, "the marker is sent again later")
    broker.publish({FIRST: -2})
    await broker.advance(RETRY_S)
    assert broker.state is COMPLETE_COMMIT


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
async def test_a_refused_marker_ends_the_work_of_this_coordinator(broker: TransactionBroker, code: E) -> None:
    await broker.coordinate()
    await broker.begun(FIRST)
    await broker.end()
    await broker.others[2].received(1)
    answer(broker.others[2], 0, {0: {FIRST: code}})
    await eventually(lambda: broker.coordinator.partitions.get(0)._completions == {}, "the coordinator gives up")
    await broker.advance(10 * RETRY_S)
    await broker.others[2].received(1)
    assert (broker.state, states(broker)[-1]) == (PREPARE_COMMIT, PREPARE_COMMIT)


async def test_offsets_of_a_transaction_end_with_the_marker_in_the_own_log(broker: TransactionBroker) -> None:
    await broker.led()
    await broker.coordinate()
    await broker.begun(TopicPartition(OFFSETS_TOPIC, 0))
    assert await broker.result(broker.groups.commit(broker.commit_request(producer_id=0, producer_epoch=0))) is E.NONE
    assert broker.offset() is None
    await broker.end()
    await becomes(broker, COMPLETE_COMMIT)
    assert broker.offset() == 5
    assert broker.written(TopicPartition(OFFSETS_TOPIC, 0)) == [Marker(0, 0, 1, True)]


async def test_offsets_of_an_aborted_transaction_do_not_count(broker: TransactionBroker) -> None:
    await broker.led()
    await broker.coordinate()
    await broker.begun(TopicPartition(OFFSETS_TOPIC, 0))
    assert await broker.result(broker.groups.commit(broker.commit_request(producer_id=0, producer_epoch=0))) is E.NONE
    await broker.end(is_commit=False)
    await becomes(broker, COMPLETE_ABORT)
    assert broker.offset() is None


async def test_a_marker_in_another_topic_says_nothing_of_offsets(broker: TransactionBroker) -> None:
    await broker.led()
    await broker.coordinate()
    await broker.begun(OWN)
    assert await broker.result(broker.groups.commit(broker.commit_request(producer_id=0, producer_epoch=0))) is E.NONE
    await broker.end()
    await becomes(broker, COMPLETE_COMMIT)
    assert broker.offset() is None


# --- the coordinator moves


async def test_the_next_coordinator_sends_the_markers_of_a_decision_again_with_its_own_epoch(broker: TransactionBroker) -> None:
    two = broker.others[2]
    await broker.coordinate()
    await broker.begun(FIRST)
    await broker.end()
    await two.received(1)
    broker.lead(leader=3, epoch=2, topic=TRANSACTION_TOPIC)
    await broker.coordinate(epoch=3)
    assert broker.state is PREPARE_COMMIT
    answer(two, 0, {0: {FIRST: 0}})
    await two.received(2)
    assert requested(two, 1) == [(Marker(0, 0, 3, True), [FIRST])]
    assert broker.state is PREPARE_COMMIT
    answer(two, 1, {0: {FIRST: 0}})
    await becomes(broker, COMPLETE_COMMIT)
    assert states(broker) == [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]


async def test_a_coordinator_that_has_moved_writes_no_end_and_sends_nothing_again(broker: TransactionBroker) -> None:
    two = broker.others[2]
    await broker.coordinate()
    await broker.begun(FIRST, SECOND)
    await broker.end()
    await two.received(1)
    broker.lead(leader=3, epoch=2, topic=TRANSACTION_TOPIC)
    answer(two, 0, {0: {FIRST: 0, SECOND: E.NOT_LEADER_OR_FOLLOWER}})
    await eventually(lambda: broker.coordinator.sender._queues == {}, "the response is there")
    assert await broker.clock.advance(10 * RETRY_S, broker.settle) == 0
    await two.received(1)
    assert states(broker)[-1] is PREPARE_COMMIT


async def test_an_epoch_that_fences_is_not_given_again_by_the_next_coordinator(broker: TransactionBroker) -> None:
    await broker.coordinate()
    await broker.begun(OWN)
    assert await broker.init() == ProducerIdResult(E.CONCURRENT_TRANSACTIONS)
    await becomes(broker, COMPLETE_ABORT)
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    await broker.coordinate(epoch=3)
    assert await broker.add(OWN) is E.PRODUCER_FENCED
    assert await broker.init() == ProducerIdResult(E.NONE, 0, 2)


# --- time


async def test_transactions_are_looked_through_for_timeouts_at_the_interval_of_the_config() -> None:
    broker = TransactionBroker(transaction_abort_timed_out_transaction_cleanup_interval_ms=10_000)
    await broker.start()
    await broker.coordinate()
    broker.background.start(broker.coordinator.abort_timed_out())
    await broker.begun(OWN, timeout_ms=12_000)
    await broker.advance(19.999)
    assert broker.state is ONGOING
    await broker.advance(0.001)
    assert broker.state is COMPLETE_ABORT
    assert broker.written() == [Marker(0, 1, 1, False)]
    assert await broker.init() == ProducerIdResult(E.NONE, 0, 2)
    assert await broker.add(OWN, producer_epoch=2) is E.NONE
    await broker.advance(70)
    assert broker.written()[1:] == [Marker(0, 3, 1, False)]
    await broker.close()


async def test_ids_that_are_not_used_expire_at_the_interval_of_the_config() -> None:
    broker = TransactionBroker(
        transactional_id_expiration_ms=15_000, transaction_remove_expired_transaction_cleanup_interval_ms=10_000,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
    )
    await broker.start()
    await broker.coordinate()
    broker.background.start(broker.coordinator.expire_ids())
    await broker.init()
    await broker.advance(19.999)
    assert code_of(broker) is E.NONE
    await broker.advance(0.001)
    assert code_of(broker) is E.TRANSACTIONAL_ID_NOT_FOUND
    assert stored(broker)[-1] == (ID, None)
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    await broker.coordinate(epoch=3)
    assert code_of(broker) is E.TRANSACTIONAL_ID_NOT_FOUND
    await broker.close()


async def test_a_partition_that_is_given_up_has_no_timer(broker: TransactionBroker) -> None:
    await broker.coordinate()
    await broker.begun(FIRST)
    broker.publish({}, live=(1, 3))
    await broker.end()
    broker.lead(leader=3, epoch=2, topic=TRANSACTION_TOPIC)
    assert await broker.clock.advance(RETRY_S, broker.settle) == 0


# --- the broker stops


async def test_a_broker_that_stops_closes_its_connections_and_coordinates_nothing(broker: TransactionBroker) -> None:
    await broker.coordinate()
    await broker.begun(FIRST)
    await broker.end()
    await broker.others[2].received(1)
    broker.parts.close()
    await eventually(broker.others[2].writers[0].is_closing, "the connection is closed")
    assert code_of(broker) is E.COORDINATOR_NOT_AVAILABLE


# --- what administrators see


async def test_transactions_of_all_partitions_are_listed_by_state_producer_and_duration(broker: TransactionBroker) -> None:
    await broker.coordinate()
    await broker.begun(OWN)
    await broker.init(transactional_id="other")
    await broker.advance(1)
    listed = broker.coordinator.listed
    ongoing, other = Listed(ID, 0, "Ongoing"), Listed("other", 1, "Empty")
    assert listed(None, (), -1) == [ongoing, other]
    assert listed({ONGOING}, (), -1) == [ongoing]
    assert listed(None, (1,), -1) == [other]
    assert listed({ONGOING}, (), 1_000) == []
    assert listed({ONGOING}, (), 999) == [ongoing]
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    assert listed(None, (), -1) == []


async def test_of_two_requests_that_come_together_the_first_is_decided(broker: TransactionBroker) -> None:
    await broker.coordinate()
    first, second = await asyncio.gather(broker.init(), broker.init())
    assert (first, second) == (ProducerIdResult(E.NONE, 0, 0), ProducerIdResult(E.CONCURRENT_TRANSACTIONS))


async def test_a_transaction_whose_end_is_being_stored_cannot_time_out_by_hand(broker: TransactionBroker) -> None:
    await broker.coordinate()
    await broker.begun(OWN)
    ending = broker.coordinator.end(EndTransaction(None, ID, 0, 0, True))
    assert broker.coordinator.time_out(ID) is False
    assert await broker.result(ending) is E.NONE
    assert [marker.is_commit for marker in broker.written()] == [True]


class _WaitingIds(CountedIds):
    """No producer id comes; `failure` is raised in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def next_id(self) -> int:
        return await self.failure


@pytest.mark.parametrize(("is_stopped", "code"), [(True, E.NOT_COORDINATOR), (False, E.UNKNOWN_SERVER_ERROR)])
async def test_who_waits_for_a_producer_id_that_cannot_come_gets_a_code(broker: TransactionBroker, is_stopped: bool, code: E) -> None:
    """If the broker stops, one with which the producer asks the next coordinator: UNKNOWN_SERVER_ERROR would be its end."""
    await broker.coordinate()
    broker.coordinator._producer_ids = ids = _WaitingIds()
    waiting = broker.coordinator.init_producer_id(InitProducerId(None, "another", 60_000))
    await broker.settle()
    assert not waiting.done()
    if is_stopped:
        broker.coordinator.close()
        await broker.background.close()
    else:
        ids.failure.set_exception(RuntimeError("a fault"))
        await broker.settle()
    assert waiting.result() == ProducerIdResult(code)
