from __future__ import annotations

from klamm.protocol.records.batch import BatchHeader, check_crcs, crc_is_right, each_header
from klamm.protocol.records.validation import AppendRules, assign
from klamm.tests.records.golden import batch


def test_a_batch_is_stored_with_the_leaders_offset_and_epoch_and_otherwise_as_received() -> None:
    received = batch("v2-none")
    assigned = assign(received, 9, 100, 3, AppendRules(), 0)
    assert assigned.data[12 + 4 :] == received[12 + 4 :]
    [(position, header)] = each_header(assigned.data)
    assert (position, header.base_offset, header.leader_epoch, header.next_offset) == (0, 100, 3, 107)
    assert assigned.headers == [header]
    assert crc_is_right(assigned.data, header)


def test_a_topic_with_log_append_time_gets_the_time_of_the_broker_and_a_new_crc() -> None:
    assigned = assign(batch("v2-none"), 9, 0, 0, AppendRules(log_append_time=True), 1234)
    [(_, header)] = each_header(assigned.data)
    assert header.is_log_append_time
    assert (header.max_timestamp, assigned.max_timestamp, assigned.log_append_time_ms) == (1234, 1234, 1234)
    check_crcs(assigned.data)


def test_a_cut_batch_at_the_end_is_not_listed() -> None:
    first = batch("v2-none-one")
    assert [position for position, _ in each_header(first + first[:-1])] == [0]
    assert [position for position, _ in each_header(first + first + first[:11])] == [0, len(first)]
    assert list(each_header(b"")) == []


def test_the_fields_of_a_header_are_in_the_order_of_the_wire() -> None:
    [(_, header)] = each_header(batch("v2-idempotent-sequence-wraps"))
    assert isinstance(header, BatchHeader)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 1, 0)
