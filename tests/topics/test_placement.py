"""Automatic placement: the tables of the specification, a naive second version, and what must hold for any cluster."""

import random
from collections import Counter

import pytest

from klamm.controller.decisions.placement import alternate_racks, growth_start, place_replicas
from klamm.protocol.errors import ApiError, ErrorCode

THREE: dict[int, str | None] = {0: None, 1: None, 2: None}
TWO_RACKS: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b"}


def placed(racks: dict[int, str | None], partitions: int, rf: int, start: int = 0, shift: int = 0, first: int = 0) -> list[list[int]]:
    return [list(replicas) for replicas in place_replicas(racks, partitions, rf, start, shift, first).values()]


@pytest.mark.parametrize(
    ("racks", "rf", "expected"),
    [
        (THREE, 1, [[0], [1], [2], [0], [1], [2]]),
        (THREE, 2, [[0, 1], [1, 2], [2, 0], [0, 2], [1, 0], [2, 1]]),
        (THREE, 3, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [1, 0, 2], [2, 1, 0]]),
        (TWO_RACKS, 2, [[0, 2], [2, 1], [1, 3], [3, 0]]),
        (TWO_RACKS, 3, [[0, 2, 1], [2, 1, 3], [1, 3, 0], [3, 0, 2]]),
    ],
)
def test_tables(racks: dict[int, str | None], rf: int, expected: list[list[int]]) -> None:
    assert placed(racks, len(expected), rf) == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ([0], [[101], [102], [0], [101], [102], [0]]),
        ([101, 102], [[102, 101], [0, 102], [101, 102], [102, 0], [0, 101], [101, 0]]),
        ([102, 101, 0], [[0, 101, 102], [101, 102, 0], [102, 101, 0], [0, 102, 101], [101, 0, 102], [102, 0, 101]]),
    ],
)
def test_growth_as_a_real_cluster_does_it(head: list[int], expected: list[list[int]]) -> None:
    brokers: dict[int, str | None] = {0: None, 101: None, 102: None}
    start = growth_start(list(brokers), head[0])
    assert placed(brokers, 6, len(head), start, start, first=1) == expected


@pytest.mark.parametrize(
    ("brokers", "head", "start"), [([0, 5, 9], 5, 1), ([0, 5, 9], 6, 2), ([0, 5, 9], 10, 0), ([9, 0], 0, 0), ([3, 1, 2], 3, 2)]
)
def test_growth_start(brokers: list[int], head: int, start: int) -> None:
    assert growth_start(brokers, head) == start


@pytest.mark.parametrize(
    ("racks", "ring"),
    [
        ({0: "a", 1: "a", 2: "b", 3: "b"}, [0, 2, 1, 3]),
        ({0: "a", 1: "a", 2: "b"}, [0, 2, 1]),
        ({5: "z", 1: "a", 0: "z", 2: "m"}, [1, 2, 0, 5]),
    ],
)
def test_ring_of_racks(racks: dict[int, str | None], ring: list[int]) -> None:
    assert alternate_racks(racks) == ring


@pytest.mark.parametrize(
    ("racks", "partitions", "rf", "code"),
    [
        (THREE, 0, 1, ErrorCode.INVALID_PARTITIONS),
        (THREE, -2, 1, ErrorCode.INVALID_PARTITIONS),
        (THREE, 0, 0, ErrorCode.INVALID_PARTITIONS),
        (THREE, 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (THREE, 1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (THREE, 1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({}, 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({0: "a", 1: None}, 1, 1, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({0: "a", 1: None}, 1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_refusals(racks: dict[int, str | None], partitions: int, rf: int, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        place_replicas(racks, partitions, rf, 0, 0)
    assert refused.value.code is code


def naive(racks: dict[int, str | None], partitions: int, rf: int, start: int, shift: int, first: int) -> list[list[int]]:
    """The same by walking: one step at a time around the ring, nothing computed ahead."""
    if None in racks.values():
        ring = sorted(racks)
    else:
        queues = {rack: sorted(b for b in racks if racks[b] == rack) for rack in sorted(set(map(str, racks.values())))}
        ring = []
        while any(queues.values()):
            for queue in queues.values():
                if queue:
                    ring.append(queue.pop(0))
    all_racks = set(racks.values())
    result = []
    for p in range(first, first + partitions):
        if p and p % len(ring) == 0:
            shift += 1
        leader = ring[(p + start) % len(ring)]
        others = ring[ring.index(leader) + 1 :] + ring[: ring.index(leader)]
        chosen = [leader]
        skip = shift if None in all_racks else shift * len(all_racks)
        position = skip % len(others) if others else 0
        while len(chosen) < rf:
            candidate = others[position % len(others)]
            position += 1
            racks_chosen = {racks[c] for c in chosen}
            rack_taken = None not in all_racks and racks[candidate] in racks_chosen and racks_chosen != all_racks
            if candidate not in chosen and not rack_taken:
                chosen.append(candidate)
        result.append(chosen)
    return result


@pytest.mark.parametrize("seed", range(60))
def test_against_the_naive_version(seed: int) -> None:
    dice = random.Random(seed)
    ids = dice.sample(range(50), dice.randint(1, 9))
    names = dice.sample("abcd", dice.randint(1, 4)) if seed % 3 else [None]
    racks = {broker: dice.choice(names) for broker in ids}
    n = len(ids)
    for rf in range(1, n + 1):
        start, shift, first = dice.randrange(n), dice.randrange(n), dice.choice([0, 0, 1, n, 2 * n + 1])
        got = place_replicas(racks, 3 * n + 2, rf, start, shift, first)
        assert [list(r) for r in got.values()] == naive(racks, 3 * n + 2, rf, start, shift, first)
        assert list(got) == list(range(first, first + 3 * n + 2))
        for replicas in got.values():
            assert len(replicas) == len(set(replicas)) == rf
            assert len({racks[r] for r in replicas}) == min(rf, len(set(racks.values())))


@pytest.mark.parametrize("racks", [dict.fromkeys(range(6)), {i: "abc"[i % 3] for i in range(6)}])
def test_replicas_and_leaders_are_level(racks: dict[int, str | None]) -> None:
    """Over whole turns of the ring every broker leads, and holds, the same number of partitions (equal racks)."""
    lists = placed(racks, 36, 3, start=4, shift=2)
    assert set(Counter(r[0] for r in lists).values()) == {6}
    assert set(Counter(b for r in lists for b in r).values()) == {18}
