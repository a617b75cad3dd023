"""Reads and writes of states by the thousand are byte for byte, and state for state, what single ones are."""

from __future__ import annotations

import random

import pytest

from klamm.controller.values import LeaderAndIsr, StateWrite
from klamm.protocol.nouns import TopicPartition
from klamm.tests.zk.labs import RealLab
from klamm.zk.layout import paths
from klamm.zk.layout.topics import TopicNodes, encode_state
from klamm.zk.session.batches import BATCH_BYTES, BATCH_OPERATIONS, spans
from klamm.zk.session.requests import ERROR, Operations, ZkError
from klamm.zk.store.state_requests import ReadStates, _begin, updates


@pytest.mark.parametrize("prefix", ["", "/kafka/ä"])
def test_updates_are_those_of_single_operations(prefix: str) -> None:
    rng = random.Random(5)
    states = [
        LeaderAndIsr(leader, 3, (leader, 7)[:count], recovery, 4, 2) for leader in (1, 300) for count in (1, 2) for recovery in (0, 1)
    ]
    writes = [
        StateWrite(rng.choice(("a", "b" * 249)), rng.choice((0, 9, 10, 99, 100, 12345)), rng.choice(states), rng.choice((0, 4, 70000)))
        for _ in range(500)
    ]
    ops = Operations(prefix)
    assert updates(prefix, TopicNodes(), writes) == [ops.set_data(paths.state_path(t, i), encode_state(s), v) for t, i, s, v in writes]


def test_spans_fit_into_requests() -> None:
    rng = random.Random(6)
    for count in (0, 1, BATCH_OPERATIONS, BATCH_OPERATIONS + 1, 5000):
        operations = [bytes(rng.randrange(10, 4000)) for _ in range(count)]
        cut = list(spans(map(len, operations)))
        assert [i for start, end in cut for i in range(start, end)] == list(range(count))
        assert all(end - start <= BATCH_OPERATIONS and sum(map(len, operations[start:end])) <= BATCH_BYTES for start, end in cut)
    huge = [bytes(BATCH_BYTES + 1)] * 2
    assert list(spans(map(len, huge))) == [(0, 1), (1, 2)], "what fits nowhere goes alone and is refused there"


async def test_states_of_all_kinds_are_read_in_one_go(real: RealLab) -> None:
    """Present, missing, without data, no JSON, of another length: in any order."""
    store, _, session = await real.seat()
    rng = random.Random(7)
    written: dict[tuple[str, int], bytes | None] = {}
    for topic in ("t", "another-topic"):
        await session.create(paths.partitions_path(topic), None, makepath=True)
        for index in range(150):
            if rng.random() < 0.2:
                continue
            leader = rng.choice((1, 1, 1, 22, 333))
            state = LeaderAndIsr(leader, rng.choice((0, 0, 10)), (leader, 5), 0, 0, 1)
            written[topic, index] = rng.choice((encode_state(state), encode_state(state), None, b"", b"no json"))
    ops = session.ops
    await session.multi([ops.create(paths.partition_path(*key), None) for key in written])
    await session.multi([ops.create(paths.state_path(*key), data) for key, data in written.items()])
    raised = [key for key in written if rng.random() < 0.3]
    await session.multi([ops.set_data(paths.state_path(*key), written[key] or b"x", 0) for key in raised])
    for key in raised:
        written[key] = written[key] or b"x"
    asked = [TopicPartition(topic, index) for topic in ("t", "unknown", "another-topic") for index in range(155)]
    rng.shuffle(asked)
    expected = [TopicNodes().decode_state(written.get(key), int(key in raised)) for key in asked]
    assert sum(state is not None for state in expected) > 50
    for _ in range(2):  # once with bytes never seen, once with known ones
        assert await store.read_states(asked) == expected
    assert await store.read_states([]) == []


def test_another_error_than_a_missing_node_is_the_answer() -> None:
    refused = ReadStates("", TopicNodes(), [TopicPartition("t", 0)]).deserialize(_begin(ERROR, 0, -102, -102), 0)
    assert isinstance(refused, ZkError) and refused.code == -102
