"""Batches of the metadata log in memory: dense, whole, encoded once, and each waiter is called once."""

from __future__ import annotations

import pytest

from klamm.controller.metadata_log.batches import MOST_BYTES, MOST_RECORDS, LogBatches, Values
from klamm.protocol import messages
from klamm.protocol.records.batch import each_header
from klamm.protocol.records.metadata_records import decode_records, encode_records, encode_value


def fence(broker_id: int) -> messages.FenceBrokerRecord:
    return messages.FenceBrokerRecord(id=broker_id, epoch=1)


def values(*broker_ids: int) -> list[bytes]:
    return [encode_value(fence(b)) for b in broker_ids]


def ids(data: bytes) -> list[tuple[int, int]]:
    return [(offset, record.id) for offset, record in decode_records(data) if isinstance(record, messages.FenceBrokerRecord)]


@pytest.fixture
def log() -> LogBatches:
    log = LogBatches(7)
    log.append(values(0, 1), 100)
    log.append(values(2), 200)
    log.append(values(3, 4, 5), 300)
    return log


def test_batches_are_those_of_the_codec(log: LogBatches) -> None:
    assert log.read(2, 1) == encode_records([fence(2)], 2, 7, 200)


def test_offsets_are_dense_and_every_batch_has_the_controller_epoch(log: LogBatches) -> None:
    data = log.read(0, 1 << 20)
    assert ids(data) == [(i, i) for i in range(6)]
    assert [(h.base_offset, h.leader_epoch, h.max_timestamp) for _, h in each_header(data)] == [(0, 7, 100), (2, 7, 200), (3, 7, 300)]
    assert log.next_offset == 6


def test_a_read_begins_with_the_batch_that_holds_the_offset(log: LogBatches) -> None:
    assert ids(log.read(4, 1 << 20)) == [(3, 3), (4, 4), (5, 5)]
    assert ids(log.read(1, 0)) == [(0, 0), (1, 1)]
    assert log.read(6, 1 << 20) == b""


def test_at_least_one_batch_is_read_and_no_more_than_fit(log: LogBatches) -> None:
    first, second = len(log.read(0, 0)), len(log.read(2, 0))
    for limit in (-1, 0, 1, first, first + second - 1):
        assert ids(log.read(0, limit)) == [(0, 0), (1, 1)]
    assert ids(log.read(0, first + second)) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("offset", [-1, 7])
def test_an_offset_outside_of_the_log_is_refused(log: LogBatches, offset: int) -> None:
    with pytest.raises(ValueError, match="is not in the log"):
        log.read(offset, 1)


def test_an_empty_log_has_nothing_to_read() -> None:
    assert LogBatches(1).read(0, 1 << 20) == b""


def test_what_is_dropped_is_gone_and_what_stays_keeps_its_offsets(log: LogBatches) -> None:
    size = log.size
    log.drop_before(2)
    assert (log.start_offset, log.next_offset) == (2, 6)
    assert log.size < size
    assert ids(log.read(2, 1 << 20))[0] == (2, 2)
    with pytest.raises(ValueError, match="is not in the log"):
        log.read(1, 1)


def test_readers_of_the_same_offset_share_the_bytes(log: LogBatches) -> None:
    assert log.read(0, 1 << 20) is log.read(0, 1 << 20)
    assert log.read(2, 1) is log.read(2, 2)


def test_what_was_read_before_is_not_what_is_read_after_an_append(log: LogBatches) -> None:
    log.read(0, 1 << 20)
    log.append(values(6), 400)
    assert ids(log.read(0, 1 << 20))[-1] == (6, 6)


def test_records_are_made_when_they_are_read_and_only_once() -> None:
    made: list[int] = []

    class Part(Values):
        def entries(self) -> list[bytes]:
            made.append(1)
            return values(9)

    log = LogBatches(1)
    log.append_part(Part(()), 1, 100, 0)
    assert made == []
    for limit in (1, 2, 3):
        assert ids(log.read(0, limit)) == [(0, 9)]
    assert made == [1]


def test_a_long_append_becomes_batches_of_bounded_size() -> None:
    log = LogBatches(1)
    log.append(values(*range(2 * MOST_RECORDS + 1)), 0)
    counts = [header.record_count for _, header in each_header(log.read(0, 1 << 30))]
    assert counts == [MOST_RECORDS, MOST_RECORDS, 1]
    large = [encode_value(messages.ConfigRecord(resource_name="t", name=str(i), value="x" * 30_000)) for i in range(100)]
    log = LogBatches(1)
    log.append(large, 0)
    sizes = [header.size for _, header in each_header(log.read(0, 1 << 30))]
    assert len(sizes) > 2 and max(sizes) <= MOST_BYTES
    assert ids(log.read(0, 1 << 30)) == [] and [offset for offset, _ in decode_records(log.read(0, 1 << 30))] == list(range(100))


def test_who_waits_is_called_once_and_who_left_is_not(log: LogBatches) -> None:
    called: list[str] = []
    log.on_append(lambda: called.append("a"))
    remove = log.on_append(lambda: called.append("b"))
    log.on_append(lambda: called.append("c"))
    remove()
    log.append(values(6), 0)
    assert called == [], "the append may have more batches"
    log.appended()
    log.appended()
    assert called == ["a", "c"]
    remove()


def test_who_waits_again_while_it_is_called_waits_for_the_next_append(log: LogBatches) -> None:
    called: list[int] = []

    def again() -> None:
        called.append(log.next_offset)
        log.on_append(again)

    log.on_append(again)
    for n in (6, 7):
        log.append(values(n), 0)
        log.appended()
    assert called == [7, 8]
