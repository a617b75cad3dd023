"""Records about partitions are put together from parts; the codec, whose bytes are Kafka's, judges them."""

from __future__ import annotations

import random

import pytest

from klamm.controller.metadata_log.batches import Entry, encode_entries
from klamm.controller.metadata_log.partition_records import Partitions, StateWrites, change_record, partition_record
from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.protocol import messages
from klamm.protocol.nouns import Ints
from klamm.protocol.records.metadata_records import MetadataRecord, batch, decode_records, encode_value, encode_values

TOPIC_ID = bytes(range(16))
NUMBERS = (0, 1, -1, 127, 128, 2**31 - 1, -(2**31))


def value_of(entry: Entry) -> bytes:
    """The value of a record that is alone in its batch."""
    data = batch(encode_entries([entry]), 1, 0, 1, 0)
    ((_, record),) = decode_records(data)
    assert data == encode_values([encode_value(record)], 0, 1, 0), "the bytes are those of the codec"
    return encode_value(record)


def ints(rng: random.Random) -> Ints:
    return tuple(rng.choice(NUMBERS) for _ in range(rng.choice((0, 1, 3, 3, 3, 125, 126, 127, 128, 300))))


@pytest.mark.requirement("R704-17")
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_partition_is_as_the_codec_writes_it(first: int) -> None:
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        quiet = rng.random() < 0.5
        assignment = Assignment(ints(rng), () if quiet else ints(rng), () if quiet else ints(rng))
        state = LeaderAndIsr(rng.choice(NUMBERS), rng.choice(NUMBERS), ints(rng), rng.randrange(2), rng.choice(NUMBERS))
        index = rng.choice(NUMBERS)
        record = messages.PartitionRecord(
            partition_id=index, topic_id=TOPIC_ID, replicas=assignment.replicas, isr=state.isr, removing_replicas=assignment.removing,
            adding_replicas=assignment.adding, leader=state.leader, leader_recovery_state=state.recovery, leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch, directories=[],
        )
        assert value_of((index, TOPIC_ID, partition_record(assignment, state))) == encode_value(record)


@pytest.mark.requirement("R704-17")
@pytest.mark.parametrize("first", range(0, 100, 50))
def test_a_change_is_as_the_codec_writes_it(first: int) -> None:
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        before = LeaderAndIsr(1, 4, ints(rng), rng.randrange(2), 8)
        isr = rng.choice((before.isr, ints(rng)))
        elected = rng.random() < 0.5
        after = LeaderAndIsr(rng.choice((1, -1, 7)) if elected else 1, 4 + elected, isr, rng.randrange(2), 9)
        record = messages.PartitionChangeRecord(
            partition_id=3, topic_id=TOPIC_ID, isr=None if isr == before.isr else isr, leader=after.leader if elected else -2,
            leader_recovery_state=-1 if after.recovery == before.recovery else after.recovery,
        )
        change = change_record(before, after)
        assert change is not None
        assert value_of((3, TOPIC_ID, change)) == encode_value(record)


def decoded(entries: list[Entry]) -> list[MetadataRecord]:
    return [record for _, record in decode_records(batch(encode_entries(entries), len(entries), 0, 1, 0))]


def test_partitions_that_share_states_and_assignments_differ_in_topic_and_index_only() -> None:
    shared, own = LeaderAndIsr(1, 2, (1, 2), 0, 3), LeaderAndIsr(2, 2, (2,), 1, 3)
    two = Assignment((1, 2))
    part = Partitions([(b"a" * 16, {0: two, 1: two, 2: two}, {0: shared, 1: shared}), (b"b" * 16, {0: two}, {0: own})])
    found = decoded(list(part.entries()))
    assert part.count == 4
    keys = [(r.topic_id[:1], r.partition_id, r.leader, r.leader_recovery_state) for r in found if isinstance(r, messages.PartitionRecord)]
    assert keys == [(b"a", 0, 1, 0), (b"a", 1, 1, 0), (b"a", 2, -1, 0), (b"b", 0, 2, 1)]


def test_a_whole_partition_among_changes_has_the_assignment_of_its_write() -> None:
    before, after = LeaderAndIsr(1, 2, (1, 2), 0, 3), LeaderAndIsr(2, 7, (2,), 0, 4)
    change = LeaderAndIsr(2, 3, (2,), 0, 4)
    assignments = {0: Assignment((1, 2)), 1: Assignment((2, 1)), 2: Assignment((1, 2))}
    out = StateWrites([(TOPIC_ID, assignments, 2), (TOPIC_ID, assignments, 1)], [0, 1, 2], [before] * 3, [after, after, change])
    first, second, third = decoded(list(out.entries()))
    assert isinstance(first, messages.PartitionRecord) and isinstance(second, messages.PartitionRecord)
    assert [tuple(first.replicas), tuple(second.replicas)] == [(1, 2), (2, 1)]
    assert third == messages.PartitionChangeRecord(partition_id=2, topic_id=TOPIC_ID, isr=(2,), leader=2)
