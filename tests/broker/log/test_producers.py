"""What a log remembers of producers: sequences, epochs, expiry, transactions. The codes are those of the stories (`idempotence.txt`)."""

from __future__ import annotations

import random

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import AppendResult, Log
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.producers import ProducerStates
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import read_header
from klamm.protocol.records.validation import Origin
from klamm.tests.broker.log.batches import batch, marker

LAST = 2**31 - 1
TRANSACTIONAL = 0x10


def make(config: LogConfig | None = None) -> Log:
    return Log("t", 0, bytes(16), config or LogConfig(), LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0))


def send(
    log: Log, sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0, timestamp: int = 7, open_: bool = False
) -> AppendResult:
    data = batch(
        count, producer=producer, epoch=epoch, sequence=sequence, timestamp=timestamp, attributes=TRANSACTIONAL if open_ else 0
    )
    return log.append_as_leader(data, 0, 9, Origin.CLIENT, 0)


def end(log: Log, *, commit: bool, producer: int = 1, epoch: int = 0, coordinator_epoch: int = 0) -> AppendResult:
    data = marker(producer, epoch, commit=commit, coordinator_epoch=coordinator_epoch)
    return log.append_as_leader(data, 0, 9, Origin.COORDINATOR, 0)


def refusal(log: Log, sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0) -> ErrorCode:
    before = log.next_offset
    with pytest.raises(ApiError) as refused:
        send(log, sequence, count, producer=producer, epoch=epoch)
    assert log.next_offset == before
    return refused.value.code


# --- sequences


def test_sequences_go_on_and_a_gap_is_out_of_order() -> None:
    log = make()
    assert send(log, 0, 2).base_offset == 0
    assert send(log, 2).base_offset == 2
    assert refusal(log, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 3).base_offset == 3


def test_a_batch_that_comes_again_gets_the_offsets_of_the_first_and_is_not_written() -> None:
    log = make()
    send(log, 0, 3, timestamp=11)
    again = send(log, 0, 3, timestamp=99)
    assert again == AppendResult(0, 2, 11, 0, True)
    assert log.next_offset == 3


def test_the_last_five_batches_are_remembered() -> None:
    log = make()
    for sequence in range(6):
        send(log, sequence)
    log.set_high_watermark(6)
    for sequence in range(1, 6):
        assert send(log, sequence).is_duplicate
    assert refusal(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("sequence", "count"), [(0, 2), (1, 1), (1, 2), (2, 2), (0, 4)])
def test_a_part_of_a_batch_is_no_duplicate(sequence: int, count: int) -> None:
    log = make()
    send(log, 0, 3)
    assert refusal(log, sequence, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_is_not_known_may_begin_with_any_sequence() -> None:
    log = make()
    send(log, 7)
    send(log, 8)
    assert refusal(log, 10) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_go_round() -> None:
    log = make()
    send(log, LAST - 1, 3)
    send(log, 1)
    assert send(log, LAST - 1, 3).base_offset == 0
    send(log, LAST, producer=2)
    assert send(log, 0, producer=2).base_offset == 5


def test_a_new_epoch_begins_with_sequence_0_and_an_older_one_is_refused() -> None:
    log = make()
    send(log, 0, 2)
    assert refusal(log, 2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(log, 0, epoch=1).is_duplicate
    assert send(log, 0, epoch=1).is_duplicate
    assert refusal(log, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_is_forgotten_when_it_was_idle_so_long() -> None:
    log = make()
    send(log, 0, timestamp=1_000)
    send(log, 0, producer=2, timestamp=1_001)
    log.expire_producers(2_000, 1_000)
    assert [entry.producer_id for entry in log.active_producers()] == [2]
    assert send(log, 5).base_offset == 2


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    log = make()
    send(log, 0, timestamp=1, open_=True)
    log.expire_producers(10**9, 1)
    assert len(log.active_producers()) == 1


@pytest.mark.parametrize("goes_on", ["is silent", "sends again"])
def test_a_transaction_whose_marker_is_not_replicated_holds_the_last_stable_offset_when_its_producer_is_forgotten(goes_on: str) -> None:
    log = make()
    send(log, 0, timestamp=1, open_=True)
    end(log, commit=False)
    log.set_high_watermark(1)
    log.expire_producers(10**13, 1)
    assert log.active_producers() == ()
    if goes_on == "sends again":
        send(log, 0, producer=2)
    assert log.last_stable_offset == 0
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    log.expire_producers(10**13, 1)
    assert log._producers is None


def test_a_follower_takes_what_its_leader_took_and_knows_the_producers_when_it_leads() -> None:
    leader, follower = make(), make()
    for sequence in range(3):
        send(leader, sequence)
    data = leader.read(0, 10_000, 100, True)
    assert isinstance(data, bytes)
    follower.append_as_follower(data, 3)
    assert follower.active_producers() == leader.active_producers()
    assert send(follower, 2).is_duplicate
    follower.append_as_follower(batch(producer=1, epoch=0, sequence=50, base_offset=3, leader_epoch=0), 3)
    assert follower.next_offset == 4


def test_after_a_truncation_above_the_high_watermark_the_states_are_those_of_then() -> None:
    chance = random.Random(3)
    for _ in range(200):
        log = make()
        snapshots = []
        sequence = 0
        for number in range(chance.randint(1, 20)):
            snapshots.append((log.next_offset, log.active_producers()))
            count = chance.randint(1, 3)
            send(log, sequence, count, timestamp=number)
            sequence += count
            if chance.random() < 0.3:
                log.set_high_watermark(chance.choice([offset for offset, _ in snapshots if offset >= log.high_watermark]))
        offset, producers = chance.choice([one for one in snapshots if one[0] >= log.high_watermark])
        assert log.truncate_to(offset) is None
        assert log.active_producers() == producers


def test_states_are_the_same_after_they_were_written_and_read() -> None:
    log = make()
    for producer in range(3):
        send(log, 0, 2, producer=producer, open_=producer == 1)
        send(log, 2, producer=producer, open_=producer == 1)
    again = ProducerStates(log.active_producers())
    assert sorted(again.entries()) == sorted(log.active_producers())
    assert again.first_unstable_offset == 3
    assert again.duplicate_of(read_header(batch(2, producer=2, epoch=0, sequence=0))) is not None


# --- transactions


def test_the_last_stable_offset_is_the_start_of_the_oldest_open_transaction() -> None:
    log = make()
    send(log, 0, producer=1)
    send(log, 0, producer=2, open_=True)
    send(log, 0, producer=3, open_=True)
    log.set_high_watermark(3)
    assert log.last_stable_offset == 1
    assert log.has_open_transaction(2, 0)
    end(log, commit=True, producer=2)
    assert log.last_stable_offset == 1, "the marker is not replicated yet"
    log.set_high_watermark(4)
    assert log.last_stable_offset == 2
    end(log, commit=True, producer=3)
    log.set_high_watermark(5)
    assert log.last_stable_offset == 5
    assert not log.has_open_transaction(2, 0)


def test_aborted_transactions_are_those_that_a_reader_of_these_offsets_needs() -> None:
    log = make()
    send(log, 0, producer=1, open_=True)  # 0
    send(log, 0, producer=2, open_=True)  # 1
    end(log, commit=False, producer=1)  # 2
    send(log, 0, producer=3)  # 3
    end(log, commit=False, producer=2)  # 4
    send(log, 1, producer=1, open_=True)  # 5
    end(log, commit=True, producer=1)  # 6
    log.set_high_watermark(7)

    def aborted(offset: int, end_offset: int) -> list[tuple[int, int]]:
        return [(entry.producer_id, entry.first_offset) for entry in log.aborted_transactions(offset, end_offset)]

    assert aborted(0, 7) == [(1, 0), (2, 1)]
    assert aborted(3, 7) == [(2, 1)]
    assert aborted(0, 1) == [(1, 0)]
    assert aborted(5, 7) == []
    assert [entry.last_stable_offset for entry in log.aborted_transactions(0, 7)] == [1, 5]


def test_a_reader_is_told_of_aborted_transactions_that_begin_before_the_next_segment() -> None:
    log = make(LogConfig(segment_bytes=200))
    send(log, 0, producer=1, open_=True)  # 0
    send(log, 0, producer=2, open_=True)  # 1
    end(log, commit=False, producer=2)  # 2
    send(log, 0, producer=3, open_=True)  # 3
    end(log, commit=False, producer=3)  # 4
    end(log, commit=False, producer=1)  # 5
    log.set_high_watermark(6)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2, bases
    for offset in range(6):
        data = log.read(offset, 1 << 20, 6, True)
        assert isinstance(data, bytes)
        following = next((base for base in bases if base > offset), 6)
        told = [(entry.producer_id, entry.first_offset) for entry in log.aborted_in(offset, data)]
        needed = [(entry.producer_id, entry.first_offset) for entry in log.aborted_transactions(offset, following)]
        assert (told, offset) == (needed, offset)
    assert log.aborted_in(0, log.read(0, 1 << 20, 1, True)) == log.aborted_transactions(0, bases[1])  # type: ignore[arg-type]


def test_a_record_outside_of_the_open_transaction_is_refused() -> None:
    log = make()
    send(log, 0, open_=True)
    assert refusal(log, 1) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_older_coordinator_or_producer_is_refused() -> None:
    log = make()
    send(log, 0, epoch=3, open_=True)
    end(log, commit=False, epoch=3, coordinator_epoch=5)
    for epoch, coordinator_epoch, code in ((3, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED), (2, 6, ErrorCode.INVALID_PRODUCER_EPOCH)):
        with pytest.raises(ApiError) as refused:
            end(log, commit=True, epoch=epoch, coordinator_epoch=coordinator_epoch)
        assert refused.value.code is code
    assert log.active_producers()[0].coordinator_epoch == 5


def test_a_marker_with_a_new_epoch_makes_the_producer_begin_again() -> None:
    log = make()
    send(log, 0, 3, open_=True)
    end(log, commit=False, epoch=1)
    assert refusal(log, 3, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 3, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1).base_offset == 4


def test_a_truncation_that_removes_a_marker_opens_its_transaction_again() -> None:
    log = make()
    send(log, 0, open_=True)
    log.set_high_watermark(1)
    end(log, commit=False)
    assert log.aborted_transactions(0, 2)
    assert log.truncate_to(1) is None
    assert (log.last_stable_offset, log.aborted_transactions(0, 1)) == (0, [])
    end(log, commit=True)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 2


def test_a_marker_at_the_high_watermark_is_not_replicated_and_its_transaction_not_stable() -> None:
    log = make()
    send(log, 0, open_=True)
    end(log, commit=True)
    log.set_high_watermark(1)
    assert log.last_stable_offset == 0, "a fail-over can still lose the commit"
    log.set_high_watermark(2)
    assert log.last_stable_offset == 2


def test_a_transaction_that_begins_where_the_log_is_cut_is_open_no_more() -> None:
    log = make()
    send(log, 0, open_=True)
    end(log, commit=True)
    log.set_high_watermark(2)
    send(log, 1, open_=True)
    assert log.truncate_to(2) is None
    assert not log.has_open_transaction(1, 0)
    send(log, 0, producer=2)
    log.set_high_watermark(3)
    assert log.last_stable_offset == 3


def test_records_that_are_deleted_are_not_waited_for_by_readers_of_committed_records() -> None:
    log = make()
    send(log, 0, open_=True)
    send(log, 0, 4, producer=2)
    log.set_high_watermark(5)
    assert log.last_stable_offset == 0
    log.set_log_start_offset(3)
    assert (log.log_start_offset, log.last_stable_offset) == (3, 3)
    end(log, commit=False)
    log.set_high_watermark(6)
    assert log.last_stable_offset == 6


def test_a_truncation_of_a_log_in_memory_forgets_no_producer_whose_records_were_deleted_before() -> None:
    config = LogConfig(segment_bytes=100)
    log = Log("t", 0, bytes(16), config, LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0))
    for sequence in range(3):
        send(log, sequence)
    send(log, 0, producer=2, open_=True)
    log.set_high_watermark(4)
    log.set_log_start_offset(4)
    assert log.segments[0].base_offset > 2, "the records of producer 1 are gone"
    end(log, commit=True, producer=2)
    assert log.truncate_to(4) is None
    assert refusal(log, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 2).is_duplicate
    assert log.has_open_transaction(2, 0)
    assert log.last_stable_offset == 4, "it began with a record that is deleted"


def test_a_read_in_memory_names_the_aborted_transactions_up_to_the_next_index_entry_as_a_read_of_a_file_does() -> None:
    log = Log("t", 0, bytes(16), LogConfig(index_interval_bytes=500), LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0))
    for producer in range(200):
        log.append_as_leader(batch(producer=producer, epoch=0, sequence=0, attributes=0x10), 0, 9, Origin.CLIENT, 0)
        log.append_as_leader(marker(producer, 0, commit=False), 0, 9, Origin.COORDINATOR, 0)
    data = log.read(100, 400, log.log_end_offset, True)
    assert isinstance(data, bytes)
    aborted = log.aborted_in(100, data)
    assert aborted[0].first_offset == 100
    assert len(aborted) < 8
