"""The judge of histories finds each fault, and finds none where there is none."""

from __future__ import annotations

import random

import pytest

from klamm.chaos.histories.history import FAULTS, Sent, Verdict, judge
from klamm.tests.histories.keyed import KeyedSent, judge_last_values


def sent(*, idempotent: bool = True, acknowledged: int = 6) -> Sent:
    """Six records to two partitions, alternating; their offsets are 0, 1, 2 in each."""
    return Sent("p", 2, idempotent, 6, {number: number // 2 for number in range(acknowledged)})


LOGS = {0: [(0, "p:0"), (1, "p:2"), (2, "p:4")], 1: [(0, "p:1"), (1, "p:3"), (2, "p:5")]}


def faults(verdict: Verdict) -> dict[str, int]:
    return {name: len(getattr(verdict, name)) for name in FAULTS if getattr(verdict, name)}


def test_all_found_in_order_is_no_fault() -> None:
    verdict = judge([sent()], LOGS, LOGS)
    assert faults(verdict) == {} and verdict.faults == {}
    assert (verdict.sent, verdict.acknowledged, verdict.found, verdict.unacknowledged_found) == (6, 6, 6, 0)


def test_an_acknowledged_record_that_is_not_found_is_lost() -> None:
    assert faults(judge([sent()], {0: LOGS[0], 1: LOGS[1][:2]})) == {"lost": 1}


def test_a_record_without_acknowledgement_may_be_found_or_not() -> None:
    found = judge([sent(acknowledged=5)], LOGS)
    missing = judge([sent(acknowledged=5)], {0: LOGS[0], 1: LOGS[1][:2]})
    assert faults(found) == faults(missing) == {}
    assert (found.unacknowledged_found, missing.unacknowledged_found) == (1, 0)


def test_a_record_elsewhere_than_acknowledged_has_moved() -> None:
    first = sent()
    first.offsets[4] = 7
    assert faults(judge([first], LOGS)) == {"moved": 1}


def test_an_acknowledgement_without_an_offset_is_enough() -> None:
    """Older clients, and duplicates that a broker has forgotten the offset of."""
    first = sent()
    first.offsets[4] = -1
    assert faults(judge([first], LOGS)) == {}


@pytest.mark.parametrize("idempotent", [True, False])
def test_duplicates_are_a_fault_of_idempotent_producers_only(*, idempotent: bool) -> None:
    logs = {0: [*LOGS[0], (3, "p:4")], 1: LOGS[1]}
    verdict = judge([sent(idempotent=idempotent)], logs)
    assert faults(verdict) == ({"duplicates": 1} if idempotent else {})
    assert verdict.allowed_duplicates == (0 if idempotent else 1)


@pytest.mark.parametrize("idempotent", [True, False])
def test_order_is_kept_by_idempotent_producers_only(*, idempotent: bool) -> None:
    logs = {0: [(0, "p:0"), (1, "p:4"), (2, "p:2")], 1: LOGS[1]}
    turned = sent(idempotent=idempotent)
    turned.offsets.update({2: 2, 4: 1})
    verdict = judge([turned], logs)
    assert faults(verdict) == ({"out_of_order": 1} if idempotent else {})
    assert verdict.allowed_overtaken == (0 if idempotent else 1)


def test_a_late_duplicate_is_not_out_of_order() -> None:
    logs = {0: [*LOGS[0], (3, "p:0")], 1: LOGS[1]}
    assert faults(judge([sent(idempotent=False)], logs)) == {}


@pytest.mark.parametrize(
    "log",
    [
        [*LOGS[0], (3, "q:0")],
        [*LOGS[0], (3, "p:99")],
        [(0, "p:0"), (1, "p:2"), (3, "p:4")],
        [*LOGS[0], (2, "p:4")],
    ],
    ids=["of nobody", "never sent", "behind a gap", "offset twice"],
)
def test_what_cannot_be_there_is_strange(log: list[tuple[int, str]]) -> None:
    found = faults(judge([sent(idempotent=False)], {0: log, 1: LOGS[1]}))
    assert found.get("strange") == 1


def test_a_record_in_the_wrong_partition_is_strange() -> None:
    assert "strange" in faults(judge([sent()], {0: LOGS[0], 1: [*LOGS[1], (3, "p:0")]}))


def read(*offsets: int, partition: int = 0) -> dict[int, list[tuple[int, str]]]:
    """What a reader got that read everything of the other partition."""
    return {**LOGS, partition: [LOGS[partition][offset] for offset in offsets]}


def test_what_a_reader_was_given_must_still_stand_there() -> None:
    assert faults(judge([sent()], LOGS, LOGS | {0: [(0, "p:0"), (1, "p:4"), (2, "p:4")]})) == {"changed": 1}
    assert faults(judge([sent()], LOGS, LOGS | {0: [*LOGS[0], (3, "p:0")]})) == {"changed": 1}


@pytest.mark.parametrize(
    ("offsets", "count"),
    [
        ((), 1), ((1, 2), 1), ((2,), 1), ((0, 2), 1), ((0, 1), 1), ((0,), 1),
        ((0, 0, 1, 2), 1), ((0, 1, 1, 2), 1), ((0, 1, 2, 2), 1), ((0, 1, 2, 0, 1, 2), 1), ((0, 2, 1, 2), 2), ((1, 0, 1, 2), 2),
    ],
    ids=[
        "nothing", "not the first", "only the last", "one left out", "not the last", "only the first",
        "first twice", "one twice", "last twice", "everything twice", "back in the middle", "back at the beginning",
    ],
)
@pytest.mark.parametrize("partition", [0, 1])
def test_a_reader_gets_each_record_once_and_in_order(offsets: tuple[int, ...], count: int, partition: int) -> None:
    assert faults(judge([sent()], LOGS, read(*offsets, partition=partition))) == {"misread": count}


def test_a_reader_need_not_get_what_was_deleted_and_may_have_got_it_before() -> None:
    logs = {0: LOGS[0][2:], 1: LOGS[1]}
    for offsets in ((2,), (0, 2), (1, 2), (0, 1, 2)):
        assert faults(judge([sent()], logs, read(*offsets), {0: 2})) == {}
    assert faults(judge([sent()], logs, read(), {0: 2})) == {"misread": 1}


@pytest.mark.parametrize("seed", range(20))
def test_one_random_loss_among_many_is_found(seed: int) -> None:
    chance = random.Random(seed)
    producers = [Sent(f"p{n}", 3, True) for n in range(3)]
    logs: dict[int, list[tuple[int, str]]] = {p: [] for p in range(3)}
    for _ in range(300):
        producer = chance.choice(producers)
        number, producer.count = producer.count, producer.count + 1
        log = logs[producer.partition(number)]
        producer.offsets[number] = len(log)
        log.append((len(log), producer.value(number)))
    assert judge(producers, logs, logs).faults == {}
    partition = chance.randrange(3)
    position = chance.randrange(len(logs[partition]) - 1)
    del logs[partition][position]
    assert set(judge(producers, logs).faults) == {"lost", "strange"}


def test_a_record_whose_deletion_was_asked_for_is_not_lost() -> None:
    assert faults(judge([sent()], {0: LOGS[0][1:], 1: LOGS[1]}, LOGS, {0: 1})) == {}
    assert faults(judge([sent()], LOGS, LOGS, {0: 1})) == {}, "the request had no effect"
    assert faults(judge([sent()], {0: LOGS[0][2:], 1: LOGS[1]}, LOGS, {0: 1})) == {"lost": 1, "changed": 1, "strange": 1}


@pytest.mark.parametrize("start", [1, 2])
def test_records_below_a_log_start_that_nobody_asked_for_are_lost(start: int) -> None:
    logs = {0: LOGS[0][start:], 1: LOGS[1]}
    assert faults(judge([sent()], logs)) == {"lost": start, "strange": 1}
    assert faults(judge([sent(acknowledged=0)], logs)) == {"strange": 1}, "of records without acknowledgement the log start tells"


def test_all_records_of_a_partition_lost() -> None:
    assert faults(judge([sent()], {0: [], 1: LOGS[1]}, LOGS)) == {"lost": 3, "changed": 3}
    assert faults(judge([sent()], {0: [], 1: LOGS[1]}, LOGS, {0: 2})) == {"lost": 1, "changed": 1}


def test_a_producer_with_a_new_epoch_may_double_its_own_records_only() -> None:
    old, new = sent(), Sent("q", 1, True, 1, {0: 3}, epochs=2)
    doubled = {0: [*LOGS[0], (3, "q:0"), (4, "q:0")], 1: LOGS[1]}
    assert faults(judge([old, new], doubled)) == {}
    assert judge([old, new], doubled).allowed_duplicates == 1
    assert faults(judge([old, new], {0: [*doubled[0], (5, "p:4")], 1: LOGS[1]})) == {"duplicates": 1}
    assert faults(judge([old, new], {0: [*doubled[0], (5, "p:0")], 1: LOGS[1]})) == {"duplicates": 1}


def keyed(count: int, *acknowledged: int) -> KeyedSent:
    """Records of two keys in turn: number 8 is the first tombstone, of key0."""
    return KeyedSent("k", 2, True, count, dict.fromkeys(acknowledged, 0), keys=2)


def test_a_key_ends_with_its_last_acknowledged_record_or_a_later_one() -> None:
    assert judge_last_values([keyed(4, 0, 1, 2, 3)], {"key0": "k:2", "key1": "k:3"}) == []
    assert judge_last_values([keyed(4, 0, 1)], {"key0": "k:2", "key1": "k:1"}) == []
    assert judge_last_values([keyed(4, 0, 1, 2, 3)], {"key0": "k:0", "key1": "k:3"}) == ["key0 is k:0, not one of ['k:2']"]
    assert judge_last_values([keyed(2, 0, 1)], {"key0": "k:0"}) == ["key1 is None, not one of ['k:1']"]
    assert judge_last_values([keyed(2)], {"key1": "k:1", "key9": "x"}) == ["key9 was never sent"]


def test_a_deleted_key_may_be_gone_and_may_not_have_an_earlier_value() -> None:
    told = range(10)
    assert judge_last_values([keyed(10, *told)], {}) == judge_last_values([keyed(10, *told)], {"key0": None, "key1": None}) == []
    assert judge_last_values([keyed(10, *told)], {"key0": "k:6"}) == ["key0 is k:6, not one of ['None']"]
