"""A leader that recovers ends the transactions that are open in its log, as the coordinators say, before it serves (KIP-704)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator

import pytest

from klamm.broker.transactions.log_records import StoredTransaction, record_of
from klamm.broker.transactions.phases import PartitionRecovered, PendingTransactionDecided, PendingTransactionEnded
from klamm.broker.transactions.requests import ProducerIdResult
from klamm.broker.transactions.states import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.seams import pace
from klamm.seams.steering import Steering
from klamm.server.transactions.transaction_coordinator import IDS_PER_ENTRY, TRANSACTION_TOPIC
from klamm.server.transactions.transaction_recovery import RETRY_S
from klamm.tests.server.recoveries.recovering_broker import TRANSACTIONS, RecoveringBroker
from klamm.tests.server.scripted import ScriptedBroker
from klamm.tests.server.transactions.transaction_broker import FIRST, ID, LEADERS, OWN, Marker


@pytest.fixture
async def broker() -> AsyncIterator[RecoveringBroker]:
    broker = RecoveringBroker()
    await broker.start()
    await broker.coordinate()
    yield broker
    await broker.close()


async def ended_once(broker: RecoveringBroker, is_commit: bool) -> None:
    """A transaction of OWN that has ended as the client wanted it."""
    await broker.begun(OWN)
    await broker.produce()
    assert await broker.end(is_commit) is E.NONE
    await broker.settle()
    assert broker.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)


@pytest.mark.requirement("R704-20")
@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_marker_that_the_log_has_lost_is_written_again_before_the_leader_serves(
    broker: RecoveringBroker, caplog: pytest.LogCaptureFixture, is_commit: bool
) -> None:
    await ended_once(broker, is_commit)
    broker.lose_marker()
    assert broker.open() == [0]
    with caplog.at_level(logging.INFO):
        await broker.elect()
    assert (broker.written(), broker.is_recovered) == ([Marker(0, 0, 1, is_commit)], True)
    (line,) = [each.message for each in caplog.records if "transaction of producer" in each.message]
    outcome = "committed, as its coordinator has decided" if is_commit else "aborted, as its coordinator says"
    assert line == f"broker 1: u-0, which recovers: the transaction of producer 0 with epoch 0 ({ID}), open since offset 0, is {outcome}"


@pytest.mark.requirement("R704-20")
async def test_an_ongoing_transaction_is_aborted_by_its_coordinator_and_its_producer_is_fenced(broker: RecoveringBroker) -> None:
    await broker.begun(OWN, FIRST)
    await broker.produce()
    await broker.elect()
    assert not broker.is_recovered
    await broker.advance(RETRY_S)
    assert (broker.written(), broker.is_recovered) == ([Marker(0, 1, 1, False)], True)
    assert await broker.add(OWN) is E.PRODUCER_FENCED
    assert await broker.end() is E.PRODUCER_FENCED


@pytest.mark.requirement("R704-20")
async def test_a_decision_whose_marker_comes_during_the_recovery_is_written_by_the_leader_and_the_marker_comes_again(
    broker: RecoveringBroker,
) -> None:
    await broker.begun(OWN)
    await broker.produce()
    broker.recoveries.process.set_mode("manual")
    await broker.elect()
    assert await broker.end() is E.NONE
    await broker.advance(0.5)
    assert (broker.state, broker.written()) == (PREPARE_COMMIT, [])
    broker.recoveries.gate.release()
    await broker.settle()
    assert (broker.written(), broker.state) == ([Marker(0, 0, 1, True)], PREPARE_COMMIT)
    await broker.recoveries.confirm()
    await broker.advance(0.2)
    assert (broker.written(), broker.state, broker.open()) == ([Marker(0, 0, 1, True)] * 2, COMPLETE_COMMIT, [])


@pytest.mark.requirement("R704-20")
async def test_a_transaction_that_no_coordinator_knows_is_aborted_at_once(broker: RecoveringBroker) -> None:
    await broker.produce(producer=77, epoch=3)
    await broker.elect()
    assert (broker.written(), broker.is_recovered) == ([Marker(77, 3, -1, False)], True)


@pytest.mark.requirement("R704-20")
async def test_without_a_transaction_topic_open_transactions_are_aborted_at_once() -> None:
    broker = RecoveringBroker()
    await broker.start()
    del broker.metadata.topics[TRANSACTION_TOPIC]
    await broker.produce()
    await broker.elect()
    assert (broker.written(), broker.is_recovered) == ([Marker(0, 0, -1, False)], True)
    await broker.close()


@pytest.mark.requirement("R704-20")
async def test_a_coordinator_that_does_not_respond_is_awaited_for_the_time_of_a_request(
    broker: RecoveringBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.produce()
    broker.publish(LEADERS | {TRANSACTIONS: -1})
    await broker.elect()
    await broker.advance(29.5)
    assert (broker.written(), broker.is_recovered) == ([], False)
    with caplog.at_level(logging.INFO):
        await broker.advance(1)
    assert (broker.written(), broker.is_recovered) == ([Marker(0, 0, -1, False)], True)
    assert "is aborted, since its coordinator has not decided within 30 s" in caplog.text


@pytest.mark.requirement("R704-20")
async def test_a_coordinator_that_is_loaded_meanwhile_is_asked_again(broker: RecoveringBroker) -> None:
    await ended_once(broker, True)
    broker.lose_marker()
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    await broker.elect()
    await broker.advance(5)
    assert (broker.written(), broker.is_recovered) == ([], False)
    await broker.led(epoch=3, topic=TRANSACTION_TOPIC)
    await broker.advance(RETRY_S)
    assert (broker.written(), broker.is_recovered) == ([Marker(0, 0, 3, True)], True)


async def lists_its_api(other: ScriptedBroker) -> None:
    """Another broker is one of Klamm; it is asked then."""
    await other.received(1)
    other.list_apis(0, ApiKey.END_PENDING_TRANSACTIONS)
    await other.received(2)


@pytest.mark.requirement("R704-20")
async def test_another_broker_that_coordinates_is_asked_over_the_wire(broker: RecoveringBroker) -> None:
    broker.publish(LEADERS | {TRANSACTIONS: 2})
    await broker.produce(producer=7, epoch=2)
    await broker.elect()
    other = broker.others[2]
    await lists_its_api(other)
    _, header, asked = other.requests[1]
    assert (header.api_key, header.api_version) == (ApiKey.END_PENDING_TRANSACTIONS, 0)
    row = messages.EndPendingTransactionsRequest.PendingTransaction(7, 2)
    assert asked == messages.EndPendingTransactionsRequest(1, "u", 0, 3, [row])
    end = messages.EndPendingTransactionsResponse.PendingTransactionEnd(ID, 7, 0, 2, 9, True)
    other.respond(1, messages.EndPendingTransactionsResponse(0, [0], [end]))
    while not broker.is_recovered:
        await broker.settle()
    assert broker.written() == [Marker(7, 2, 9, True)]


@pytest.mark.requirement("R704-20")
async def test_a_former_coordinator_does_not_count(broker: RecoveringBroker) -> None:
    """Broker 2 does not know yet that broker 3 leads partition 1 of the transaction topic, which has the id."""
    broker.coordinator.partitions.count = 2
    name = next(each for each in ("a", "b", "c", "d") if broker.coordinator.partitions.partition_of(each) == 1)
    broker.publish(LEADERS | {TRANSACTIONS: 2, TRANSACTIONS._replace(partition=1): 3})
    await broker.produce(producer=7)
    await broker.elect()
    rows = messages.EndPendingTransactionsResponse
    for other, answered in ((2, [0, 1]), (3, [])):
        await lists_its_api(broker.others[other])
        ends = [rows.PendingTransactionEnd(name, 7, 0, 0, 9, True)] if other == 2 else []
        broker.others[other].respond(1, rows(0, answered, ends))
    await broker.others[2].received(2)
    for _ in range(20):
        await broker.settle()
    assert (broker.written(), broker.is_recovered) == ([], False)


# --- transactions that one marker cannot tell apart


async def again(broker: RecoveringBroker, is_commit: bool, sequence: int) -> None:
    """One more transaction of the same epoch."""
    assert await broker.add(OWN) is E.NONE
    await broker.produce(sequence=sequence)
    assert await broker.end(is_commit) is E.NONE
    await broker.settle()


async def test_a_log_that_has_lost_more_than_a_marker_is_committed_if_all_transactions_of_the_epoch_were(broker: RecoveringBroker) -> None:
    await ended_once(broker, True)
    await again(broker, True, 1)
    log = broker.recoveries.replica(OWN).log
    assert log is not None
    log.truncate_to(1)
    await broker.elect()
    assert broker.written() == [Marker(0, 0, 1, True)]


@pytest.mark.parametrize("outcomes", [(False, True), (True, False)])
async def test_records_that_may_be_of_an_aborted_transaction_are_aborted(broker: RecoveringBroker, outcomes: tuple[bool, bool]) -> None:
    await ended_once(broker, outcomes[0])
    await again(broker, outcomes[1], 1)
    log = broker.recoveries.replica(OWN).log
    assert log is not None
    log.truncate_to(1)
    await broker.elect()
    assert broker.written() == [Marker(0, 0, 1, False)]


async def test_a_transaction_of_an_earlier_epoch_is_committed_if_it_was(broker: RecoveringBroker) -> None:
    await ended_once(broker, True)
    broker.lose_marker()
    assert await broker.init() == ProducerIdResult(E.NONE, 0, 1)
    await broker.elect()
    assert broker.written() == [Marker(0, 0, 1, True)]


async def test_a_transaction_without_the_partition_goes_on_while_an_earlier_one_ends(broker: RecoveringBroker) -> None:
    await ended_once(broker, True)
    broker.lose_marker()
    assert await broker.add(FIRST) is E.NONE
    await broker.elect()
    assert (broker.written(), broker.state) == ([Marker(0, 0, 1, True)], ONGOING)


async def test_the_next_coordinator_knows_from_its_log_what_was_committed(broker: RecoveringBroker) -> None:
    await ended_once(broker, True)
    broker.lose_marker()
    broker.lead(leader=2, epoch=2, topic=TRANSACTION_TOPIC)
    await broker.led(epoch=3, topic=TRANSACTION_TOPIC)
    await broker.elect()
    assert broker.written() == [Marker(0, 0, 3, True)]


async def test_a_coordinator_that_was_elected_uncleanly_itself_commits_nothing_again(broker: RecoveringBroker) -> None:
    await ended_once(broker, True)
    broker.lose_marker()
    broker.lead(epoch=3, topic=TRANSACTION_TOPIC, recovery=1)
    await broker.settle()
    await broker.recoveries.confirm()
    await broker.elect()
    assert broker.written() == [Marker(0, 0, 3, False)]


@pytest.mark.parametrize(("protocol", "is_commit"), [("3.9", False), ("3.4", True)])
async def test_the_next_coordinator_does_not_know_either_what_the_log_has_lost(protocol: str, is_commit: bool) -> None:
    """The record that says so could not be read by the coordinators of Apache Kafka before 3.5."""
    broker = RecoveringBroker(inter_broker_protocol_version=protocol)
    await broker.start()
    await broker.coordinate()
    await ended_once(broker, True)
    broker.lose_marker()
    broker.lead(epoch=3, topic=TRANSACTION_TOPIC, recovery=1)
    await broker.settle()
    await broker.recoveries.confirm()
    broker.lead(leader=2, epoch=4, topic=TRANSACTION_TOPIC)
    await broker.led(epoch=5, topic=TRANSACTION_TOPIC)
    await broker.elect()
    assert broker.written() == [Marker(0, 0, 5, is_commit)]
    await broker.close()


async def test_what_was_committed_with_a_new_epoch_after_a_loss_is_committed_again(broker: RecoveringBroker) -> None:
    await ended_once(broker, True)
    broker.lead(epoch=3, topic=TRANSACTION_TOPIC, recovery=1)
    await broker.settle()
    await broker.recoveries.confirm()
    assert await broker.init() == ProducerIdResult(E.NONE, 0, 1)
    assert await broker.add(OWN, producer_epoch=1) is E.NONE
    await broker.produce(epoch=1)
    assert await broker.end(producer_epoch=1) is E.NONE
    await broker.settle()
    broker.lose_marker()
    broker.lead(leader=2, epoch=4, topic=TRANSACTION_TOPIC)
    await broker.led(epoch=5, topic=TRANSACTION_TOPIC)
    await broker.elect()
    assert broker.written()[1:] == [Marker(0, 1, 5, True)]


# --- the log and the phases


async def test_a_recovery_that_ends_before_its_marker_begins_again_in_the_next_epoch() -> None:
    steering = Steering()
    broker = RecoveringBroker(steering=steering)
    await broker.start()
    await broker.coordinate()
    await ended_once(broker, True)
    broker.lose_marker()
    hold = steering.hold(PendingTransactionDecided)
    await broker.elect()
    (held,) = hold.held_phases
    assert held.phase == PendingTransactionDecided(1, "u", 0, 3, 0, 0, ID, "commit")
    await broker.elect()
    assert (broker.written(), broker.is_recovered) == ([], False)
    hold.release()
    await broker.settle()
    assert (broker.written(), broker.is_recovered) == ([Marker(0, 0, 1, True)], True)
    assert [proposal.leader_epoch for proposal in broker.recoveries.proposals] == [5]
    await broker.close()


async def test_a_marker_that_is_to_fail_is_written_after_a_pause() -> None:
    steering = Steering()
    broker = RecoveringBroker(steering=steering)
    await broker.start()
    await broker.coordinate()
    await ended_once(broker, False)
    broker.lose_marker()
    for kind in (PendingTransactionDecided, PendingTransactionEnded, PartitionRecovered):
        steering.hold(kind, count=1, action=lambda held: held.fail(OSError("by hand")))
    await broker.elect()
    assert (broker.written(), broker.is_recovered) == ([], False)
    await broker.advance(3 * RETRY_S)
    assert (broker.written(), broker.is_recovered) == ([Marker(0, 0, 1, False)], True)
    await broker.close()


async def test_every_transaction_that_a_recovery_ends_is_told_and_counted(broker: RecoveringBroker) -> None:
    told: list[object] = []
    broker.parts.recovery.phases.watch = told.append
    await ended_once(broker, True)
    broker.lose_marker()
    await broker.produce(producer=77)
    await broker.elect()
    fields = ((1, "u", 0, 3, 0, 0, ID, "commit"), (1, "u", 0, 3, 77, 0, "", "abort"))
    ends = [kind(*each) for each in fields for kind in (PendingTransactionDecided, PendingTransactionEnded)]  # type: ignore[arg-type]
    assert told == [*ends, PartitionRecovered(1, "u", 0, 3, 0)]
    leaders = broker.replicas.leaders
    assert (leaders.transactions_committed, leaders.transactions_aborted) == (1, 1)


async def test_a_marker_needs_no_more_replicas_than_the_leader(broker: RecoveringBroker) -> None:
    await broker.produce()
    log = broker.recoveries.replica(OWN).log
    assert log is not None
    log.config = dataclasses.replace(log.config, min_insync_replicas=2)
    broker.replica_ids = (1, 2, 3)
    await broker.elect()
    assert (broker.written(), broker.is_recovered) == ([Marker(0, 0, -1, False)], True)


async def test_transactions_are_left_open_where_a_config_says_so() -> None:
    broker = RecoveringBroker(kip704_recovery_transactions="leave")
    await broker.start()
    await broker.produce()
    told: list[object] = []
    broker.parts.recovery.phases.watch = told.append
    await broker.elect()
    assert (broker.written(), broker.open(), broker.is_recovered) == ([], [0], True)
    assert told == [PartitionRecovered(1, "u", 0, 3, 1)]
    await broker.close()


async def test_a_log_that_is_being_truncated_or_cannot_be_opened_is_awaited(broker: RecoveringBroker) -> None:
    await broker.produce()
    log = broker.recoveries.replica(OWN).log
    assert log is not None
    broker.recoveries.process.set_mode("manual")
    await broker.elect()
    log.begin_truncation()
    broker.recoveries.gate.release()
    await broker.advance(1)
    assert (broker.written(), broker.is_recovered) == ([], False)
    log.give_up_truncation()
    await broker.advance(RETRY_S)
    assert (broker.written(), broker.is_recovered) == ([Marker(0, 0, -1, False)], True)


async def test_a_log_whose_configs_cannot_be_read_is_opened_again(broker: RecoveringBroker) -> None:
    broker.config_errors = [ApiError(E.COORDINATOR_NOT_AVAILABLE)] * 2
    await broker.elect()
    assert not broker.is_recovered
    await broker.advance(2 * RETRY_S)
    assert broker.is_recovered


async def test_the_event_loop_runs_between_two_partitions_with_many_transactional_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = RecoveringBroker(partitions=2)
    await broker.start()
    broker.coordinator.partitions.count = 2
    for index in range(2):
        await broker.led(index, topic=TRANSACTION_TOPIC)
        state = broker.coordinator.partitions.get(index)
        for number in range(IDS_PER_ENTRY):
            state.replay(*record_of(f"{index}-{number}", StoredTransaction(number, 0, 1000, EMPTY, (), 0, -1)))
    monkeypatch.setattr(pace, "SLICE", 2)
    asked = asyncio.ensure_future(broker.coordinator.end_pending(OWN, {1000: 0}))
    turns = 0
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert (asked.result().partitions, turns) == ((0, 1), 2)
    await broker.close()
