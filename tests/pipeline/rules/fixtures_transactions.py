"""Tiny journals of the rules `T`."""

from __future__ import annotations

from typing import Any

from klamm.protocol.apis import ApiKey
from klamm.tests.pipeline.rule_journals.transaction_journals import TRANSACTIONS, TransactionJournal, batches, marker_batch
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent
from klamm.tests.pipeline.rules.fixtures_wire import METADATA

INVALID_TXN_STATE, CONCURRENT, FENCED = 48, 51, 90


def two_brokers(run: Run) -> tuple[TransactionJournal, TransactionJournal]:
    """Broker 1 coordinates and leads t-0, broker 2 leads t-1 and t-2."""
    first, second = TransactionJournal(run), TransactionJournal(run, 2)
    for each in (first, second):
        each.told(1, topic=TRANSACTIONS)
        for partition, leader in ((0, 1), (1, 2), (2, 2)):
            each.told(leader, partition)
    return first, second


def committed(first: TransactionJournal, second: TransactionJournal, epoch: int = 0) -> None:
    """A transaction of t-1, committed and marked."""
    first.add(epoch, 1)
    first.end(epoch)
    second.marker(epoch, 1)


# --- T-01


@good("T-01")
def markers_have_the_outcome_of_their_transactions(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    committed(first, second)
    first.add(0, 1, 2)
    first.add_offsets(0)
    first.end(0, False, CONCURRENT)
    first.end(0, False)
    second.marker(0, 1, 2, is_commit=False)
    second.marker(0, 3, is_commit=False, topic="__consumer_offsets")


@good("T-01")
def partitions_are_added_in_the_form_of_brokers(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    first.add_as_broker(0, 1)
    first.end(0)
    second.marker(0, 1)


@bad("T-01")
def a_verification_adds_nothing(run: Run) -> tuple[int, int]:
    first, second = two_brokers(run)
    first.init(0)
    first.add_as_broker(0, 1, verify_only=True)
    first.end(0, error=None)
    return 2, second.marker(0, 1)


@good("T-01")
def a_transaction_without_a_response_to_its_end_may_be_committed(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.end(0, error=None)
    second.marker(0, 1)


@good("T-01")
def who_is_fenced_has_the_transaction_aborted_with_the_next_epoch(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.init(0, error=CONCURRENT)
    second.marker(1, 1, is_commit=False)


@good("T-01", also=["T-02"])
def an_administrator_ends_a_hanging_transaction(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    committed(first, second)
    second.marker(0, 2, is_commit=False, coordinator=9, client_id="admin")


@bad("T-01")
def a_commit_marker_for_a_transaction_that_was_aborted(run: Run) -> tuple[int, int]:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.end(0, False)
    return 2, second.marker(0, 1)


@bad("T-01")
def a_marker_for_a_transaction_that_has_not_ended(run: Run) -> tuple[int, int]:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    return 2, second.marker(0, 1, is_commit=False)


@bad("T-01")
def an_end_that_was_refused_is_none(run: Run) -> tuple[int, int]:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.end(0, error=INVALID_TXN_STATE)
    return 2, second.marker(0, 1)


@bad("T-01")
def a_fence_does_not_commit(run: Run) -> tuple[int, int]:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    return 2, second.marker(1, 1)


@bad("T-01")
def a_marker_for_a_partition_that_was_not_added(run: Run) -> tuple[int, int]:
    first, second = two_brokers(run)
    first.init(0)
    committed(first, second)
    return 2, second.marker(0, 2)


@bad("T-01")
def a_marker_for_offsets_that_were_not_added(run: Run) -> tuple[int, int]:
    first, second = two_brokers(run)
    first.init(0)
    committed(first, second)
    return 2, second.marker(0, 3, topic="__consumer_offsets")


@good("T-01", also=["W-13"])
def who_is_too_slow_has_the_second_transaction_aborted_with_the_next_epoch(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.end(0)
    first.marker(0, 1, is_sent=True)
    second.marker(0, 1)
    first.add(0, 1)
    first.marker(1, 1, is_commit=False, is_sent=True)
    second.marker(1, 1, is_commit=False)
    first.init(2)


@good("T-01")
def another_coordinator_aborts_what_this_one_began(run: Run) -> None:
    first, second = two_brokers(run)
    second.marker(1, 1, is_commit=False, is_sent=True)
    first.init(0)
    first.add(0, 1)


@good("T-01")
def the_epoch_of_a_fence_is_given_after_it(run: Run) -> None:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.marker(1, 1, is_commit=False, is_sent=True)
    first.init(1)


@bad("T-01")
def a_coordinator_aborts_with_the_next_epoch_before_the_epoch_begins(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    seq = first.marker(3, 1, is_commit=False, is_sent=True)
    first.init(2)
    first.add(2, 1)
    return seq


@bad("T-01")
def a_marker_is_sent_before_the_transaction_ends(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    seq = first.marker(0, 1, is_sent=True)
    first.end(0)
    return seq


@bad("T-01")
def a_leader_gets_a_marker_before_it_coordinates_the_transaction(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    seq = first.marker(0, 0, coordinator=2)
    first.add(0, 0)
    first.end(0)
    return seq


@bad("T-01")
def a_partition_is_marked_before_it_is_added(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.end(0)
    seq = first.marker(0, 1, 2, is_sent=True)
    first.add(0, 2)
    return seq


@bad("T-01")
def an_epoch_that_a_producer_has_got_is_not_that_of_a_fence(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.end(0)
    first.marker(0, 1, is_sent=True)
    first.init(1)
    return first.marker(1, 1, is_commit=False, is_sent=True)


def from_the_beginning(run: Run) -> tuple[TransactionJournal, TransactionJournal]:
    """Broker 1 coordinates, and its transaction topic is new."""
    first, second = TransactionJournal(run), TransactionJournal(run, 2)
    first.told_to_coordinate(0, is_new=True)
    first.told(1, topic=TRANSACTIONS)
    return first, second


@bad("T-01")
def a_marker_for_a_producer_id_that_nobody_was_given(run: Run) -> list[tuple[int, int]]:
    first, second = from_the_beginning(run)
    early = second.marker(0, 1, producer=9)
    first.init(0)
    committed(first, second)
    return [(2, early), (2, second.marker(0, 1, producer=8))]


@silent("T-01")
def a_producer_of_a_former_run_is_not_known(run: Run) -> None:
    first, second = TransactionJournal(run), TransactionJournal(run, 2)
    first.told_to_coordinate(3)
    second.marker(0, 1, producer=9)


@silent("T-01")
def an_id_that_was_given_without_a_response_is_not_known(run: Run) -> None:
    first, second = from_the_beginning(run)
    first.ask_init()
    second.marker(0, 1, producer=9)


@silent("T-01", also=["C-02"])
def an_id_is_not_known_if_a_leader_of_the_transaction_topic_has_no_journal(run: Run) -> None:
    first, second = from_the_beginning(run)
    first.told(3, 1, topic=TRANSACTIONS)
    second.marker(0, 1, producer=9)


@silent("T-01")
def an_administrator_marks_what_nobody_began(run: Run) -> None:
    _, second = from_the_beginning(run)
    second.marker(0, 1, producer=9, client_id="admin-txn-marker-sender")


@silent("T-01")
def a_coordinator_without_a_journal_says_nothing(run: Run) -> None:
    second = TransactionJournal(run, 2)
    second.told(1, topic=TRANSACTIONS)
    second.init(0)
    second.marker(0, 1)


# --- T-02


@good("T-02")
def each_partition_has_a_marker_for_each_transaction(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    for _ in range(2):
        committed(first, second)
    first.add(0, 1, 2)
    first.end(0, False)
    second.marker(0, 1, 2, is_commit=False, error=6)
    second.marker(0, 1, 2, is_commit=False)
    first.init(1)


@good("T-02")
def a_broker_of_klamm_writes_its_own_markers_without_a_request(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 0, 1)
    first.end(0)
    second.marker(0, 1)
    first.init(1)


@good("T-02")
def a_transaction_that_was_fenced_is_not_ended_by_the_next_producer(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    second.marker(1, 1, is_commit=False)
    first.add(2, 2)
    first.end(2)
    second.marker(2, 2)
    first.init(3)


@bad("T-02")
def a_partition_gets_no_marker_although_the_id_is_used_again(run: Run) -> int:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1, 2)
    asked = first.end(0) - 1
    second.marker(0, 1)
    first.init(1)
    return asked


@bad("T-02")
def the_second_of_two_transactions_is_not_marked(run: Run) -> int:
    first, second = two_brokers(run)
    first.init(0)
    committed(first, second)
    first.add(0, 1)
    asked = first.end(0) - 1
    first.init(1)
    return asked


@bad("T-02")
def a_marker_that_the_leader_refused_does_not_count(run: Run) -> int:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    asked = first.end(0) - 1
    second.marker(0, 1, error=6)
    first.init(1)
    return asked


@bad("T-02")
def a_broker_of_apache_kafka_sends_its_own_markers_too(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 0)
    first.end(0)
    first.marker(0, 0)
    first.add(0, 0)
    asked = first.end(0) - 1
    first.init(1)
    return asked


@good("T-02", also=["W-13"])
def a_coordinator_sends_the_markers_of_each_transaction(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    for _ in range(2):
        first.add(0, 1)
        first.end(0)
        first.marker(0, 1, is_sent=True, error=6)
        first.marker(0, 1, is_sent=True)
        second.marker(0, 1)
    first.add(0, 1)
    first.end(0)


@good("T-02")
def a_marker_may_leave_before_the_response_to_its_end(run: Run) -> None:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    asked = first.ask_end(0)
    first.marker(0, 1, is_sent=True)
    first.answer_end(asked)
    first.add(0, 1)


@bad("T-02", also=["T-01"])
def a_marker_before_its_end_is_none(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.marker(0, 1, is_sent=True)
    asked = first.end(0) - 1
    first.add(0, 1)
    return asked


@bad("T-02", also=["W-13"])
def one_marker_is_lost_and_the_last_transaction_of_the_epoch_ended_alike(run: Run) -> int:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    asked = first.end(0) - 1
    first.add(0, 1)
    first.end(0)
    first.marker(0, 1, is_sent=True)
    second.marker(0, 1)
    return asked


@bad("T-02")
def a_marker_that_is_sent_and_refused_does_not_count(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    asked = first.end(0) - 1
    first.marker(0, 1, is_sent=True, error=6)
    first.add(0, 1)
    return asked


@bad("T-02")
def a_marker_without_a_response_is_not_written(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    asked = first.end(0) - 1
    first.marker(0, 1, is_sent=True, error=None)
    first.add(0, 1)
    return asked


@bad("T-02")
def a_marker_for_another_partition_is_none(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1, 2)
    asked = first.end(0) - 1
    first.marker(0, 2, is_sent=True)
    first.add(0, 1)
    return asked


@bad("T-02")
def a_broker_of_apache_kafka_loses_a_marker_to_itself(run: Run) -> int:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 0)
    asked = first.end(0) - 1
    first.add(0, 0)
    first.end(0)
    first.marker(0, 0)
    return asked


def moved(run: Run) -> tuple[TransactionJournal, TransactionJournal]:
    """Broker 1 is one of Apache Kafka and coordinates, and broker 2 gets t-0 from it. A transaction before and one after."""
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 0)
    first.end(0)
    first.marker(0, 0)
    second.told(2, epoch=1)
    first.add(0, 0)
    first.end(0)
    return first, second


@good("T-02")
def a_partition_that_moves_gets_its_next_marker_elsewhere(run: Run) -> None:
    first, second = moved(run)
    second.marker(0, 0)
    first.init(1)


@bad("T-02")
def a_partition_that_moves_gets_no_marker_elsewhere(run: Run) -> int:
    first, _ = moved(run)
    return first.init(1) - 3


@good("T-02", also=["W-13"])
def another_coordinator_between_may_have_written_the_markers(run: Run) -> None:
    first, second = two_brokers(run)
    first.told_to_coordinate(0)
    first.init(0)
    first.add(0, 1)
    first.end(0)
    first.marker(0, 1, is_sent=True)
    second.marker(0, 1)
    first.add(0, 1)
    first.end(0)
    first.told_to_coordinate(1, leader=2)
    first.told_to_coordinate(2)
    first.add(0, 1)


@silent("T-02")
def a_leader_whose_journal_begins_in_the_middle_does_not_show_older_markers(run: Run) -> None:
    first, second = TransactionJournal(run), run.journal(2)
    second.skip(10)
    second.request(1, ApiKey.METADATA, 12, METADATA)
    for partition, leader in ((0, 1), (1, 2)):
        first.told(leader, partition)
    first.told(1, topic=TRANSACTIONS)
    first.init(0)
    first.add(0, 1)
    first.end(0)
    first.add(0, 0)
    TransactionJournal(run, 2).marker(0, 1)
    first.end(0)


@silent("T-02")
def a_leader_without_a_journal_is_not_judged(run: Run) -> None:
    first = TransactionJournal(run)
    first.told(1, topic=TRANSACTIONS)
    first.told(2, 1)
    first.init(0)
    first.add(0, 1)
    first.end(0)
    first.init(1)


@silent("T-02")
def a_transaction_may_be_ending_still(run: Run) -> None:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.end(0)
    first.init(1, error=CONCURRENT)


@silent("T-02")
def of_a_deleted_topic_nothing_is_needed(run: Run) -> None:
    first, _ = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    first.end(0)
    first.marker(0, 1, is_sent=True, error=3)
    first.told(-2, 1, epoch=1)
    first.init(1)


# --- T-03


@good("T-03")
def epochs_grow_and_a_request_is_repeated(run: Run) -> None:
    first = TransactionJournal(run)
    first.init(0)
    first.init(2)
    first.init(3, asks=(7, 2))
    first.init(3, asks=(7, 2))
    first.init(0, producer=9)
    first.init(1, producer=9)
    first.init(0, producer=11, transactional_id="other")
    first.init(2, producer=9)


@good("T-03")
def responses_of_requests_that_were_open_together_have_no_order(run: Run) -> None:
    first = TransactionJournal(run)
    one, other = first.ask_init(conn=1), first.ask_init(conn=2)
    first.answer_init(other, 1, conn=2)
    first.answer_init(one, 0, conn=1)


@bad("T-03")
def an_epoch_goes_back(run: Run) -> int:
    first = TransactionJournal(run)
    first.init(3)
    return first.init(2)


@bad("T-03")
def an_epoch_is_given_twice(run: Run) -> int:
    first = TransactionJournal(run)
    first.init(3)
    return first.init(3)


@bad("T-03")
def a_producer_id_that_was_replaced_comes_back(run: Run) -> int:
    first = TransactionJournal(run)
    first.init(3)
    first.init(0, producer=9)
    return first.init(4)


@silent("T-03")
def nobody_got_an_epoch(run: Run) -> None:
    TransactionJournal(run).init(0, error=CONCURRENT)


# --- T-04


@good("T-04")
def the_last_producer_has_transactions_and_the_one_before_is_fenced(run: Run) -> None:
    first = TransactionJournal(run)
    first.init(0)
    first.add(0, 1)
    first.init(1)
    first.add(0, 1, error=FENCED)
    first.add(1, 1)
    first.end(1)


@good("T-04", also=["T-02"])
def another_coordinator_gave_the_epoch_meanwhile(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    second.init(0, producer=9)
    first.add(0, 1, producer=9)


@bad("T-04")
def a_producer_that_was_replaced_adds_a_partition(run: Run) -> int:
    first = TransactionJournal(run)
    first.init(0)
    first.init(1)
    return first.add(0, 1)


@bad("T-04")
def a_producer_that_was_replaced_adds_a_partition_in_the_form_of_brokers(run: Run) -> int:
    first = TransactionJournal(run)
    first.init(0)
    first.init(1)
    return first.add_as_broker(0, 1)


@bad("T-04")
def a_producer_that_was_replaced_ends_a_transaction(run: Run) -> int:
    first = TransactionJournal(run)
    first.init(0)
    first.add(0, 1)
    first.init(2)
    return first.end(0)


@bad("T-04")
def a_producer_id_that_was_replaced_adds_offsets(run: Run) -> int:
    first = TransactionJournal(run)
    first.init(5)
    first.init(6, producer=9)
    return first.add_offsets(6)


@silent("T-04")
def what_a_coordinator_did_before_the_journal_is_not_known(run: Run) -> None:
    TransactionJournal(run).add(3, 1)


# --- T-05


def produced(run: Run, is_commit: bool = True) -> tuple[TransactionJournal, TransactionJournal]:
    """Records of t-1 at offsets 4 and 5, and the marker behind them."""
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    second.produce(0, 4, partition=1)
    first.end(0, is_commit)
    second.marker(0, 1, is_commit=is_commit)
    return first, second


@good("T-05")
def a_committed_transaction_is_read(run: Run) -> None:
    _, second = produced(run)
    second.read(4, 7, partition=1)
    second.read(4, 7, ((7, 6), (8, 0)), partition=1)
    second.read(6, 7, partition=1, records=marker_batch(6))
    second.read(2, 4, partition=1)
    second.read(9, 4, partition=1, isolation=0)
    second.produce(-1, 20, partition=1, producer=-1)  # records of no producer in a request of a transactional id


@good("T-05")
def an_aborted_transaction_is_named(run: Run) -> None:
    _, second = produced(run, is_commit=False)
    second.read(4, 7, ((7, 4),), partition=1)
    second.read(4, 7, ((7, 2),), partition=1, version=13)


@good("T-05")
def a_fetch_that_was_open_when_the_marker_came_may_say_either(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    second.produce(0, 4, partition=1)
    first.end(0, False)
    asked = second.ask_read(partition=1)
    second.marker(0, 1, is_commit=False)
    second.answer_read(asked, 4, 7, partition=1)


@good("T-05")
def a_broker_of_klamm_does_not_show_the_markers_of_its_own_coordinator(run: Run) -> None:
    first, second = two_brokers(run)
    first.init(0)
    committed(first, second)
    first.add(0, 0)
    first.produce(0, 4)
    first.end(0)
    first.read(4, 7)
    first.marker(0, 0, coordinator=2)


@good("T-05")
def records_belong_to_the_next_marker_of_their_producer(run: Run) -> None:
    first, second = produced(run, is_commit=False)
    first.add(0, 1)
    second.produce(0, 7, partition=1)
    second.marker(0, 1, is_commit=False, producer=8)
    first.end(0)
    second.marker(0, 1)
    second.read(7, 10, ((7, 8),), partition=1)


@bad("T-05")
def a_marker_in_another_partition_ends_nothing(run: Run) -> tuple[int, int]:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1, 2)
    second.produce(0, 4, partition=1)
    first.end(0)
    second.marker(0, 2)
    seq = second.read(4, 6, partition=1)
    second.marker(0, 1)
    return 2, seq


@bad("T-05")
def records_behind_the_last_stable_offset_are_read(run: Run) -> tuple[int, int]:
    _, second = produced(run)
    return 2, second.read(7, 7, partition=1)


@bad("T-05")
def an_open_transaction_is_read(run: Run) -> tuple[int, int]:
    first, second = two_brokers(run)
    first.init(0)
    first.add(0, 1)
    second.produce(0, 4, partition=1)
    seq = second.read(4, 6, partition=1)
    first.end(0)
    second.marker(0, 1)
    return 2, seq


@bad("T-05")
def an_aborted_transaction_is_not_named(run: Run) -> tuple[int, int]:
    _, second = produced(run, is_commit=False)
    return 2, second.read(4, 7, ((8, 4), (7, 5)), partition=1)


@bad("T-05")
def an_aborted_transaction_behind_another_batch_is_not_named(run: Run) -> list[tuple[int, int]]:
    """As the last batch, and in the middle."""
    _, second = produced(run, is_commit=False)
    return [
        (2, second.read(0, 7, partition=1, records=batches(2, 4))),
        (2, second.read(0, 7, partition=1, records=batches(2, 4) + marker_batch(6, is_commit=False))),
        (2, second.read(0, 7, ((7, 2),), partition=1, records=batches(2) + marker_batch(3, is_commit=False) + batches(4))),
    ]


@bad("T-05")
def a_batch_behind_the_first_is_behind_the_last_stable_offset(run: Run) -> tuple[int, int]:
    _, second = produced(run)
    return 2, second.read(0, 7, partition=1, records=batches(4, 7))


@good("T-05")
def an_aborted_transaction_behind_another_batch_is_named(run: Run) -> None:
    _, second = produced(run, is_commit=False)
    second.read(0, 7, ((7, 4),), partition=1, records=batches(2, 4))
    second.read(0, 7, partition=1, records=batches(2, 4)[:-1])  # a consumer reads whole batches only


@good("T-05")
def a_transaction_behind_the_marker_of_an_aborted_one_is_committed(run: Run) -> None:
    _, second = produced(run)
    second.read(0, 7, ((7, 2),), partition=1, records=batches(2) + marker_batch(3, is_commit=False) + batches(4))


@good("T-05")
def an_answer_has_the_marker_that_came_meanwhile(run: Run) -> None:
    """Only the answer says how the transaction ended."""
    _, second = two_brokers(run)
    second.marker(0, 1, producer=8)
    second.read(0, 7, ((7, 2),), partition=1, records=batches(2) + marker_batch(3, is_commit=False) + batches(4) + marker_batch(5))


@bad("T-05")
def an_answer_has_the_marker_and_does_not_name_the_transaction(run: Run) -> tuple[int, int]:
    _, second = two_brokers(run)
    second.marker(0, 1, producer=8)
    return 2, second.read(0, 7, ((8, 0),), partition=1, records=batches(2) + marker_batch(3, is_commit=False))


@bad("T-05")
def a_transaction_before_the_marker_of_an_aborted_one_is_committed(run: Run) -> tuple[int, int]:
    _, second = produced(run)
    return 2, second.read(0, 7, ((7, 2),), partition=1, records=batches(2, 4) + marker_batch(6))


@bad("T-05")
def a_committed_transaction_is_named_as_aborted(run: Run) -> tuple[int, int]:
    _, second = produced(run)
    return 2, second.read(4, 7, ((7, 4),), partition=1, version=13)


@silent("T-05")
def nothing_is_read(run: Run) -> None:
    _, second = produced(run)
    second.read(0, 7, partition=1, records=b"")


# --- T-06


def phase(journal: Any, name: str, **fields: object) -> int:
    """The row of a phase of t-0 in leader epoch 5."""
    about = {"broker_id": 1, "topic": "t", "partition": 0, "leader_epoch": 5}
    return int(journal.event("coordinator_phase", input={"name": name, **about, **fields}))


def ended_in_recovery(journal: Any, producer: int, outcome: str, epoch: int = 0) -> tuple[int, int]:
    fields = {"producer_id": producer, "producer_epoch": epoch, "transactional_id": "tx", "outcome": outcome}
    return phase(journal, "PendingTransactionDecided", **fields), phase(journal, "PendingTransactionEnded", **fields)


@good("T-06")
def a_recovery_ends_what_is_open(run: Run) -> None:
    journal = run.journal()
    for epoch, outcome in ((0, "commit"), (1, "abort")):
        phase(journal, "TransactionEndPrepared", producer_id=7, producer_epoch=epoch, transactional_id="tx", outcome=outcome)
    ended_in_recovery(journal, 7, "commit")
    ended_in_recovery(journal, 8, "abort")
    phase(journal, "PartitionRecovered", open_transactions=0)


@good("T-06")
def a_recovery_that_ends_in_the_middle_begins_again(run: Run) -> None:
    journal = run.journal()
    phase(journal, "PendingTransactionDecided", producer_id=7, producer_epoch=0, transactional_id="", outcome="abort")
    phase(journal, "PartitionRecovered", leader_epoch=6, open_transactions=0)


@good("T-06")
def a_transaction_whose_coordinator_has_no_journal_may_be_committed(run: Run) -> None:
    ended_in_recovery(run.journal(), 7, "commit")


@good("T-06")
def of_an_epoch_that_began_before_the_journal_a_transaction_may_be_committed(run: Run) -> None:
    """The one that was aborted may have had other partitions."""
    journal = run.journal()
    phase(journal, "TransactionEndPrepared", producer_id=7, producer_epoch=0, transactional_id="tx", outcome="abort")
    ended_in_recovery(journal, 7, "commit")
    phase(journal, "PartitionRecovered", open_transactions=0)


@bad("T-06")
def a_transaction_is_left_open(run: Run) -> int:
    return phase(run.journal(), "PartitionRecovered", open_transactions=1)


@bad("T-06")
def a_transaction_whose_end_was_decided_is_left_open(run: Run) -> list[int]:
    journal = run.journal()
    at = phase(journal, "PendingTransactionDecided", producer_id=7, producer_epoch=0, transactional_id="tx", outcome="commit")
    return [at, phase(journal, "PartitionRecovered", open_transactions=1)]


@bad("T-06")
def a_transaction_gets_no_marker(run: Run) -> int:
    journal = run.journal()
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional_id": "tx"}
    at = phase(journal, "PendingTransactionDecided", outcome="commit", **fields)
    phase(journal, "PendingTransactionEnded", outcome="abort", **fields)
    phase(journal, "PartitionRecovered", open_transactions=0)
    return at


@bad("T-06")
def an_aborted_transaction_is_committed(run: Run) -> int:
    journal = run.journal()
    phase(journal, "ProducerEpochStored", producer_id=7, producer_epoch=0, transactional_id="tx")
    phase(journal, "TransactionEndPrepared", producer_id=7, producer_epoch=1, transactional_id="tx", outcome="abort")
    _, at = ended_in_recovery(journal, 7, "commit")
    return at


@silent("T-06")
def nobody_recovers(run: Run) -> None:
    phase(run.journal(), "TransactionBegun", producer_id=7, producer_epoch=0, transactional_id="tx")
