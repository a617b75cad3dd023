"""Batches of the offsets topic are replayed, with the markers of transactions."""

from __future__ import annotations

from klamm.broker.groups import log_records
from klamm.broker.groups.groups import Groups
from klamm.broker.groups.log_replay import replay_batches
from klamm.broker.groups.rebalances import Limits
from klamm.broker.groups.requests import OffsetCommit
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import CONTROL, TRANSACTIONAL
from klamm.protocol.records.record import ControlType, Record, control_batch, encode_batch

T0 = TopicPartition("t", 0)


def commit(log_offset: int, offset: int, producer_id: int = -1) -> bytes:
    key, value = log_records.offset_record("g", T0, OffsetCommit(offset, -1, "", 1))
    attributes = 0 if producer_id < 0 else TRANSACTIONAL
    return encode_batch([Record(log_offset, 1, key, value)], producer_id=producer_id, producer_epoch=0, attributes=attributes)


def marker(log_offset: int, producer_id: int, kind: ControlType) -> bytes:
    return control_batch(kind, log_offset, 0, producer_id, 0, 0, 1)


def committed(groups: Groups) -> int | None:
    group = groups.get("g")
    kept = None if group is None else group.offsets.committed.get(T0)
    return None if kept is None else kept.commit.offset


def test_offsets_of_a_transaction_count_from_its_marker_and_the_next_offset_is_after_the_last_batch() -> None:
    groups = Groups(Limits(), 1, 0)
    assert replay_batches(groups, commit(0, 10) + commit(1, 20, producer_id=7)) == 2
    assert committed(groups) == 10
    assert replay_batches(groups, marker(2, 7, ControlType.COMMIT)) == 3
    assert committed(groups) == 20


def test_an_aborted_transaction_changes_nothing() -> None:
    groups = Groups(Limits(), 1, 0)
    replay_batches(groups, commit(0, 10) + commit(1, 20, producer_id=7) + marker(2, 7, ControlType.ABORT))
    assert committed(groups) == 10


def test_offsets_of_an_aborted_transaction_do_not_come_back_with_the_next_one_of_its_producer() -> None:
    groups = Groups(Limits(), 1, 0)
    replay_batches(groups, commit(0, 10) + commit(1, 20, producer_id=7) + marker(2, 7, ControlType.ABORT))
    group = groups.get("g")
    assert group is not None
    assert not group.offsets.is_unstable(T0), "OffsetFetch may answer again"
    replay_batches(groups, marker(3, 7, ControlType.COMMIT))
    assert committed(groups) == 10


def test_a_marker_of_one_producer_leaves_the_transactions_of_others_open() -> None:
    groups = Groups(Limits(), 1, 0)
    replay_batches(groups, commit(0, 20, producer_id=7) + marker(1, 8, ControlType.COMMIT))
    assert committed(groups) is None


def test_a_control_record_that_is_no_marker_leaves_the_transaction_open() -> None:
    groups = Groups(Limits(), 1, 0)
    later = encode_batch([Record(1, 1, b"\0\0\0\2", b"")], producer_id=7, producer_epoch=0, attributes=TRANSACTIONAL | CONTROL)
    assert replay_batches(groups, commit(0, 20, producer_id=7) + later) == 2
    assert committed(groups) is None
    replay_batches(groups, marker(2, 7, ControlType.COMMIT))
    assert committed(groups) == 20


def test_a_batch_of_a_producer_without_a_transaction_is_committed_at_once() -> None:
    groups = Groups(Limits(), 1, 0)
    key, value = log_records.offset_record("g", T0, OffsetCommit(20, -1, "", 1))
    replay_batches(groups, encode_batch([Record(0, 1, key, value)], producer_id=7, producer_epoch=0, base_sequence=0))
    assert committed(groups) == 20


def test_no_bytes_replay_nothing() -> None:
    assert replay_batches(Groups(Limits(), 1, 0), b"") == -1
