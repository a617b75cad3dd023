"""AlterPartition: the table of controller 14 row by row, in all versions, alone and joined with other requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import permutations, product
from typing import Any

import pytest

from klamm.controller.partitions.alter_partition import judge
from klamm.controller.values import LeaderAndIsr, Proposal
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.stage import Stage

VERSIONS = range(4)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Brokers 1 to 4; topic `t`: partitions 0 on [1,2,3] and 1 on [1,2], topic `u` on [2,1], all in sync."""
    one = Stage()
    await one.open(1, 2, 3, 4)
    await one.create("t", (1, 2, 3), (1, 2))
    await one.create("u", (2, 1))
    yield one
    await one.close()


def part(index: int, isr: Sequence[int], *, version: int, leader_epoch: int = 0, partition_epoch: int = 0, recovery: int = 0) -> Any:
    request = messages.AlterPartitionRequest
    fields: dict[str, Any] = {"partition_index": index, "leader_epoch": leader_epoch, "partition_epoch": partition_epoch}
    if version >= 1:
        fields["leader_recovery_state"] = recovery
    if version >= 3:  # the epochs within are nobody's business in ZooKeeper mode
        fields["new_isr_with_epochs"] = [request.BrokerState(broker_id=b, broker_epoch=-1) for b in isr]
    else:
        fields["new_isr"] = list(isr)
    return request.PartitionData(**fields)


def ask(stage: Stage, sender: int, version: int, *topics: tuple[str, Sequence[Any]], epoch: int | None = None) -> asyncio.Future[Any]:
    """Send a request, through the codec both ways."""
    request = messages.AlterPartitionRequest
    data = []
    for name, parts in topics:
        known = stage.world.topics.get(name)
        topic_id = b"\x66" * 16 if known is None or known.topic_id is None else known.topic_id
        data.append(request.TopicData(partitions=parts, **({"topic_name": name} if version < 2 else {"topic_id": topic_id})))
    broker_epoch = stage.world.brokers[sender].epoch if epoch is None else epoch
    body = messages.encode(request(broker_id=sender, broker_epoch=broker_epoch, topics=data), version)
    decoded, _ = messages.decode("AlterPartitionRequest", version, body)

    async def answer() -> Any:
        response = await stage.controller.alter_partition(decoded, version)
        return messages.decode("AlterPartitionResponse", version, messages.encode(response, version))[0]

    return asyncio.ensure_future(answer())


def rows(response: Any) -> list[tuple[Any, ...]]:
    """(index, error, leader, leader epoch, isr, recovery, partition epoch) of each partition."""
    assert response.error_code == 0
    return [tuple(tuple(x) if isinstance(x, list) else x for x in p) for t in response.topics for p in t.partitions]


def failed(index: int, error: ErrorCode) -> tuple[Any, ...]:
    return index, int(error), 0, 0, (), 0, 0


async def one_row(stage: Stage, sender: int, version: int, topic: str, item: Any) -> tuple[Any, ...]:
    [row] = rows(await ask(stage, sender, version, (topic, [item])))
    return row


# --- the table, exhaustively ---


def naive_judge(info: LeaderAndIsr, a: Proposal, alive: frozenset[int], version: int) -> ErrorCode | None:
    """The table of controller 14 as a list; the rows of Klamm come last, so that errors of Apache Kafka are the same."""
    same = (a.leader, a.leader_epoch, a.isr, a.recovery) == (info.leader, info.leader_epoch, info.isr, info.recovery)
    table: list[tuple[bool, ErrorCode | None]] = [
        (a.partition_epoch > info.partition_epoch or a.leader_epoch > info.leader_epoch, ErrorCode.NOT_CONTROLLER),
        (a.leader_epoch < info.leader_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        (same and a.partition_epoch <= info.partition_epoch, ErrorCode.NONE),
        (a.partition_epoch < info.partition_epoch, ErrorCode.INVALID_UPDATE_VERSION),
        (a.recovery == 1 and len(a.isr) > 1, ErrorCode.INVALID_REQUEST),
        (info.recovery == 0 and a.recovery == 1, ErrorCode.INVALID_REQUEST),
        (not set(a.isr) <= alive, ErrorCode.INELIGIBLE_REPLICA if version > 1 else ErrorCode.OPERATION_NOT_ATTEMPTED),
        (not a.isr or a.leader != info.leader, ErrorCode.INVALID_REQUEST),
        (True, None),
    ]
    return next(result for condition, result in table if condition)


def test_the_table_exhaustively() -> None:
    isrs = [p for n in range(4) for p in permutations((1, 2, 9), n)]
    seen = set()
    for recovery, isr in ((0, (1, 2)), (0, (2, 1)), (0, (1,)), (1, (1,))):
        info = LeaderAndIsr(1, 5, isr, recovery, 7, 3)
        for leader, leader_epoch, partition_epoch, new, mark in product((1, 2), (4, 5, 6), (6, 7, 8), isrs, (0, 1)):
            for alive in ({1, 2, 9}, {1, 2}, {1}, {2, 9}):
                for version in VERSIONS:
                    a = Proposal(leader, leader_epoch, new, mark, partition_epoch, version)
                    expected = naive_judge(info, a, frozenset(alive), version)
                    seen.add(expected)
                    assert judge(info, a, frozenset(alive)) is expected, (info, a, alive)
    assert len(seen) == 8, "every row was met"


# --- one row after another, through the queue ---


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_1_no_leadership(stage: Stage, version: int) -> None:
    await stage.create("new", (8,))
    assert stage.state("new") is None
    assert await one_row(stage, 1, version, "new", part(0, [1], version=version)) == failed(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await one_row(stage, 1, version, "t", part(7, [1], version=version)) == failed(7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(1, 0), (0, 1), (-1, 1)])
async def test_row_2_from_the_future(stage: Stage, version: int, leader_epoch: int, partition_epoch: int) -> None:
    # the sender is not the leader either, and its list cannot be: the earlier row wins
    item = part(0, [9], version=version, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    assert await one_row(stage, 2, version, "t", item) == failed(0, ErrorCode.NOT_CONTROLLER)


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_3_fenced(stage: Stage, version: int) -> None:
    item = part(0, [9], version=version, leader_epoch=-1)
    assert await one_row(stage, 2, version, "t", item) == failed(0, ErrorCode.FENCED_LEADER_EPOCH)


@pytest.mark.parametrize("version", VERSIONS)
async def test_only_the_leader_may_ask(stage: Stage, version: int) -> None:
    item = part(0, [1, 2, 3], version=version)  # nothing would change: still refused
    assert await one_row(stage, 2, version, "t", item) == failed(0, ErrorCode.INVALID_REQUEST)
    assert stage.state("t") == "1 e0 [1, 2, 3] v0"


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_4_nothing_to_do(stage: Stage, version: int) -> None:
    for item in (part(0, [1, 2, 3], version=version), part(0, [1, 2, 3], version=version, partition_epoch=-1)):
        mark = stage.mark()
        assert await one_row(stage, 1, version, "t", item) == (0, 0, 1, 0, (1, 2, 3), 0, 0)
        assert stage.writes(mark) == []
        assert stage.frames(mark, "UMR 1") == ["UMR 1: t-0 1 e0 [1, 2, 3] v0"], "told all the same"


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_4_the_order_of_the_list_matters(stage: Stage, version: int) -> None:
    assert await one_row(stage, 1, version, "t", part(0, [1, 3, 2], version=version)) == (0, 0, 1, 0, (1, 3, 2), 0, 1)
    assert stage.state("t") == "1 e0 [1, 3, 2] v1"


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_5_from_the_past(stage: Stage, version: int) -> None:
    await one_row(stage, 1, version, "t", part(0, [1, 2], version=version))
    item = part(0, [9, 8], version=version, recovery=min(version, 1))
    assert await one_row(stage, 1, version, "t", item) == failed(0, ErrorCode.INVALID_UPDATE_VERSION)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_broker_without_a_replica_does_not_join_and_one_that_joined_may_stay(stage: Stage, version: int) -> None:
    refused = ErrorCode.INELIGIBLE_REPLICA if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED
    response = await ask(stage, 1, version, ("t", [part(1, [1, 2, 4], version=version), part(0, [1, 3], version=version)]))
    assert [(index, error) for index, error, *_ in rows(response)] == [(1, refused), (0, 0)]
    assert stage.state("t", 1) == "1 e0 [1, 2] v0"
    stage.somebody_writes("t", 1, isr=(1, 2, 4))
    stage.world.notify_isr_change([TopicPartition("t", 1)])
    await stage.settle()
    await ask(stage, 1, version, ("t", [part(1, [1, 4], version=version, partition_epoch=1)]))
    assert stage.state("t", 1) == "1 e0 [1, 4] v2"


@pytest.mark.requirement("R704-6")
@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_rows_6_and_7_recovering(stage: Stage, version: int) -> None:
    for isr in ([1, 9], [1]):
        item = part(0, isr, version=version, recovery=1)
        assert await one_row(stage, 1, version, "t", item) == failed(0, ErrorCode.INVALID_REQUEST)
    assert stage.state("t") == "1 e0 [1, 2, 3] v0"


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_8_who_is_not_alive(stage: Stage, version: int) -> None:
    await one_row(stage, 1, version, "t", part(0, [1], version=version))
    await stage.controller.controlled_shutdown(3, -1)
    assert 3 in stage.cluster.brokers and 3 not in stage.cluster.alive
    state = stage.state("t")
    epochs = stage.world.states[TopicPartition("t", 0)]
    expected = ErrorCode.INELIGIBLE_REPLICA if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED
    for isr in ([1, 3], [1, 9], [1, 2, 3]):
        item = part(0, isr, version=version, leader_epoch=epochs.leader_epoch, partition_epoch=epochs.partition_epoch)
        assert await one_row(stage, 1, version, "t", item) == failed(0, expected)
    assert stage.state("t") == state


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_9_written(stage: Stage, version: int) -> None:
    before = stage.world.states[TopicPartition("t", 0)]
    mark = stage.mark()
    assert await one_row(stage, 1, version, "t", part(0, [1, 3], version=version)) == (0, 0, 1, 0, (1, 3), 0, 1)
    told = [f"UMR {b}: t-0 1 e0 [1, 3] v1" for b in (1, 2, 3, 4)]
    assert stage.since(mark) == ["WROTE t-0 1 e0 [1, 3] v1", *told], "told before the answer, and no LeaderAndIsr"
    assert await one_row(stage, 1, version, "t", part(0, [1, 3, 2], version=version, partition_epoch=1)) == (0, 0, 1, 0, (1, 3, 2), 0, 2)
    assert stage.state("t") == "1 e0 [1, 3, 2] v2"
    assert before.controller_epoch == stage.cluster.epoch


async def test_row_9_with_the_controllers_own_epoch(stage: Stage) -> None:
    await stage.fail_over()
    await one_row(stage, 1, 3, "t", part(0, [1, 3], version=3))
    assert stage.world.states[TopicPartition("t", 0)].controller_epoch == stage.cluster.epoch == 2
    assert stage.partition("t").info == stage.world.states[TopicPartition("t", 0)]


@pytest.mark.requirement("R704-5", "R704-7", "R704-8", "R704-9", "R704-18")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isr", [[1], [1, 2]])
async def test_recovery_ends_alone_or_with_an_expansion(stage: Stage, version: int, isr: list[int]) -> None:
    stage.somebody_writes("t", isr=(1,), recovery=1)
    await stage.fail_over()
    assert stage.state("t") == "1 e0 [1] v1 recovering"
    if version >= 1:
        item = part(0, [1, 2], version=version, partition_epoch=1, recovery=1)
        assert await one_row(stage, 1, version, "t", item) == failed(0, ErrorCode.INVALID_REQUEST), "still recovering: no growth"
        item = part(0, [1], version=version, partition_epoch=1, recovery=1)
        assert await one_row(stage, 1, version, "t", item) == (0, 0, 1, 0, (1,), 1, 1), "nothing to do, the mark is shown"
    assert await one_row(stage, 1, version, "t", part(0, isr, version=version, partition_epoch=1)) == (0, 0, 1, 0, tuple(isr), 0, 2)
    assert stage.state("t") == f"1 e0 {isr} v2"


async def test_an_empty_list_is_refused(stage: Stage) -> None:
    assert await one_row(stage, 1, 3, "t", part(0, [], version=3)) == failed(0, ErrorCode.INVALID_REQUEST)
    assert stage.state("t") == "1 e0 [1, 2, 3] v0"


# --- what a request names ---


@pytest.mark.parametrize("version", VERSIONS)
async def test_unknown_topics_and_the_shape_of_the_answer(stage: Stage, version: int) -> None:
    mark = stage.mark()
    response = await ask(
        stage, 1, version,
        ("gone", [part(0, [1], version=version), part(4, [1], version=version)]),
        ("t", [part(1, [1], version=version), part(0, [2], version=version, leader_epoch=9)]),
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 2 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rows(response) == [
        failed(0, unknown), failed(4, unknown), (1, 0, 1, 0, (1,), 0, 1), failed(0, ErrorCode.NOT_CONTROLLER)
    ]
    known = stage.world.topics["t"].topic_id
    if version < 2:
        assert [(t.topic_name, t.topic_id) for t in response.topics] == [("gone", bytes(16)), ("t", bytes(16))]
    else:
        assert [(t.topic_name, t.topic_id) for t in response.topics] == [("", b"\x66" * 16), ("", known)]
    assert stage.frames(mark) == [f"UMR {b}: t-0 1 e0 [1, 2, 3] v0 t-1 1 e0 [1] v1" for b in (1, 2, 3, 4)], "the refused one too"


async def test_told_even_when_nothing_known_was_named(stage: Stage) -> None:
    mark = stage.mark()
    assert rows(await ask(stage, 1, 2, ("gone", [part(0, [1], version=2)]))) == [failed(0, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert stage.since(mark) == [f"UMR {b}:" for b in (1, 2, 3, 4)]
    mark = stage.mark()
    assert rows(await ask(stage, 1, 2)) == []
    assert stage.since(mark) == [f"UMR {b}:" for b in (1, 2, 3, 4)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("sender", "difference"), [(1, -1), (1, 1), (7, 0)])
async def test_stale_senders(stage: Stage, version: int, sender: int, difference: int) -> None:
    mark = stage.mark()
    epoch = stage.world.brokers[sender].epoch + difference if sender in stage.world.brokers else 5
    response = await ask(stage, sender, version, ("t", [part(0, [1], version=version)]), epoch=epoch)
    assert (response.error_code, response.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
    assert stage.since(mark) == [], "nothing written, nobody told"


@pytest.mark.requirement("R704-6")
@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_a_recovery_state_that_does_not_exist(stage: Stage, version: int) -> None:
    mark = stage.mark()
    parts = [part(1, [1], version=version), part(0, [1], version=version, recovery=2)]
    response = await ask(stage, 1, version, ("t", parts))
    assert (response.error_code, response.topics) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    assert stage.since(mark) == []
    response = await ask(stage, 1, version, ("t", parts), epoch=3)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH, "the sender is looked at first"


# --- what the write may meet ---


async def test_a_lost_version(stage: Stage) -> None:
    stage.store.before_write = [lambda _: stage.somebody_writes("t", isr=(1, 2))]
    mark = stage.mark()
    both = [part(0, [1], version=3), part(1, [1], version=3)]
    response = await ask(stage, 1, 3, ("t", both))
    assert rows(response) == [failed(0, ErrorCode.INVALID_UPDATE_VERSION), (1, 0, 1, 0, (1,), 0, 1)], "each on its own"
    assert stage.state("t") == "1 e0 [1, 2] v1", "the cache was read again"
    assert stage.frames(mark, "UMR 2") == ["UMR 2: t-0 1 e0 [1, 2] v1 t-1 1 e0 [1] v1"]
    assert await one_row(stage, 1, 3, "t", part(0, [1], version=3, partition_epoch=1)) == (0, 0, 1, 0, (1,), 0, 2)


async def test_a_lost_node(stage: Stage) -> None:
    del stage.world.states[TopicPartition("t", 0)]
    response = await ask(stage, 1, 3, ("t", [part(0, [1], version=3), part(1, [1], version=3)]))
    assert rows(response) == [failed(0, ErrorCode.UNKNOWN_SERVER_ERROR), (1, 0, 1, 0, (1,), 0, 1)]


async def test_a_lost_epoch(stage: Stage) -> None:
    stage.store.before_write = [stage.lose_epoch]
    answers = [ask(stage, 1, 3, ("t", [part(0, [1], version=3)])), ask(stage, 2, 3, ("u", [part(0, [2], version=3)]))]
    for answer in answers:
        with pytest.raises(ApiError) as e:
            await answer
        assert e.value.code is ErrorCode.NOT_CONTROLLER
    assert not stage.controller.is_active and stage.controller.term is None, "it resigned"


async def test_not_active(stage: Stage) -> None:
    stage.world.steal(77)
    await stage.settle()
    with pytest.raises(ApiError) as e:
        await ask(stage, 1, 3, ("t", [part(0, [1], version=3)]))
    assert e.value.code is ErrorCode.NOT_CONTROLLER


# --- joined requests ---


def count_commits(stage: Stage) -> list[int]:
    """Sizes of the commits that follow."""
    sizes: list[int] = []
    original: Callable[[Any], Any] = stage.store.write_states

    async def write_states(writes: Any) -> Any:
        sizes.append(len(writes))
        return await original(writes)

    stage.store.write_states = write_states  # type: ignore[method-assign]
    return sizes


async def test_different_partitions_go_together(stage: Stage) -> None:
    sizes = count_commits(stage)
    mark = stage.mark()
    answers = [
        ask(stage, 1, 3, ("t", [part(0, [1], version=3)])),
        ask(stage, 2, 1, ("u", [part(0, [2], version=1)])),
        ask(stage, 1, 2, ("t", [part(1, [1], version=2)]), epoch=1),
        ask(stage, 1, 2, ("t", [part(1, [1], version=2)])),
    ]
    first, second, stale, third = await asyncio.gather(*answers)
    assert rows(first) == [(0, 0, 1, 0, (1,), 0, 1)]
    assert rows(second) == [(0, 0, 2, 0, (2,), 0, 1)]
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert rows(third) == [(1, 0, 1, 0, (1,), 0, 1)]
    assert sizes == [3]
    assert stage.frames(mark) == [f"UMR {b}: t-0 1 e0 [1] v1 t-1 1 e0 [1] v1 u-0 2 e0 [2] v1" for b in (1, 2, 3, 4)]


async def test_the_same_partition_twice(stage: Stage) -> None:
    """The second request meets the first one's outcome, as if it had come alone."""
    sizes = count_commits(stage)
    mark = stage.mark()
    answers = [
        ask(stage, 1, 3, ("t", [part(0, [1, 2], version=3)])),
        ask(stage, 1, 3, ("t", [part(0, [1, 2, 3], version=3), part(1, [1], version=3)])),  # decided on the old state
        ask(stage, 1, 3, ("t", [part(0, [1, 2], version=3)])),  # the first one again: its answer got lost
        ask(stage, 1, 3, ("t", [part(0, [1], version=3, partition_epoch=1)])),  # decided on the new one
        ask(stage, 1, 3, ("t", [part(0, [1, 3], version=3, partition_epoch=2)])),
    ]
    results = [rows(r) for r in await asyncio.gather(*answers)]
    assert results == [
        [(0, 0, 1, 0, (1, 2), 0, 1)],
        [failed(0, ErrorCode.INVALID_UPDATE_VERSION), (1, 0, 1, 0, (1,), 0, 1)],
        [(0, 0, 1, 0, (1, 2), 0, 1)],
        [(0, 0, 1, 0, (1,), 0, 2)],
        [(0, 0, 1, 0, (1, 3), 0, 3)],
    ]
    assert [w for w in stage.writes(mark) if " t-0" in w] == [
        "WROTE t-0 1 e0 [1, 2] v1", "WROTE t-0 1 e0 [1] v2", "WROTE t-0 1 e0 [1, 3] v3"
    ]
    assert sum(sizes) == 4
    shown = [text.split("t-0 ")[1].split(" t-1")[0] for text in stage.frames(mark, "UMR 2") if "t-0" in text]
    assert shown == ["1 e0 [1, 2] v1", "1 e0 [1] v2", "1 e0 [1, 3] v3"], "every state is told, in order"


async def test_joined_ones_are_like_single_ones(stage: Stage) -> None:
    """Random requests, joined on one stage and one by one on another: the same answers, the same writes."""
    other = Stage()
    await other.open(1, 2, 3, 4)
    await other.create("t", (1, 2, 3), (1, 2))
    await other.create("u", (2, 1))
    rng = random.Random(5)
    try:
        for _ in range(40):
            batch = []
            for _ in range(rng.randint(1, 6)):
                name, index = rng.choice([("t", 0), ("t", 1), ("u", 0)])
                state = stage.world.states[TopicPartition(name, index)]
                isr = [state.leader, *rng.sample([b for b in (1, 2, 3) if b != state.leader], rng.randint(0, 2))]
                epoch = state.partition_epoch + rng.choice([0, 0, 0, 1, 1, 2])
                batch.append((state.leader, (name, [part(index, isr, version=3, partition_epoch=epoch)])))
            joined = await asyncio.gather(*[ask(stage, sender, 3, topic) for sender, topic in batch])
            single = [await ask(other, sender, 3, topic) for sender, topic in batch]
            assert joined == single
            assert stage.world.states == other.world.states
        # what a commit writes stands in the order of its partitions' first naming; per partition the order is the same
        for key in stage.world.states:
            assert [s for k, s in stage.world.history if k == key] == [s for k, s in other.world.history if k == key]
    finally:
        await other.close()
