"""CreatePartitions: every version's answer, what gets into the topic node, waiting, rights and quota."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from klamm.controller.values import Assignment, StoredTopic
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.security.authorizer import Operation
from klamm.tests.services import Denying
from klamm.tests.topics.conftest import TopicBroker, register
from klamm.tests.topics.topic_creations import codes as create
from klamm.tests.topics.topic_trees import growth, manual, topic

ALL_VERSIONS = range(4)


async def grow(node: TopicBroker, *topics: Any, version: int = 3, timeout_ms: int = 5000, validate_only: bool = False) -> list[Any]:
    request = messages.CreatePartitionsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    rows: list[Any] = (await node.request(request, version)).results
    return rows


async def codes(node: TopicBroker, *topics: Any, **more: Any) -> dict[str, int]:
    return {row.name: row.error_code for row in await grow(node, *topics, **more)}


async def lists(node: TopicBroker, name: str) -> list[tuple[int, ...]]:
    stored = await node.stored(name)
    assert stored is not None
    return [stored.assignments[index].replicas for index in range(len(stored.assignments))]


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_grown(node: TopicBroker, version: int) -> None:
    assert await create(node, manual({0: [1, 2]}, name="placed"), manual({0: [0], 1: [1]}, name="manual")) == [0, 0]
    before = await node.stored("placed")
    assert before is not None
    rows = await grow(node, growth(3, name="placed"), growth(4, [[2], [0]], name="manual"), version=version)
    assert [(row.name, row.error_code, row.error_message) for row in rows] == [("placed", 0, None), ("manual", 0, None)]
    assert await lists(node, "placed") == [(1, 2), (2, 1), (0, 2)]
    assert await lists(node, "manual") == [(0,), (1,), (2,), (0,)]
    after = await node.stored("placed")
    assert after is not None
    assert after.topic_id == before.topic_id
    assert await codes(node, growth(3, name="placed"), growth(5, name="manual"), version=version) == {"placed": 37, "manual": 0}


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_not_controller(node: TopicBroker, version: int) -> None:
    node.controller.is_active = False
    rows = await grow(node, growth(2), growth(3), growth(3, name="u"), version=version)
    assert [(row.name, row.error_code, row.error_message) for row in rows] == [("t", 41, None), ("u", 41, None)]


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_refused(node: TopicBroker, version: int, validate_only: bool) -> None:
    names = "less", "same", "unknown", "count", "empty", "dup", "size", "dying", "moving", "wide"
    assert await create(node, *(manual({0: [0, 1], 1: [1, 2]}, name=name) for name in names)) == [0] * len(names)
    moving = await node.stored("moving")
    assert moving is not None
    entries = {**moving.assignments, 1: Assignment((0, 1, 2), (0,), (2,))}
    await node.admin_zk.write_topics([("moving", StoredTopic(moving.topic_id, entries), -1)])
    wide = await node.stored("wide")
    assert wide is not None
    await node.admin_zk.write_topics([("wide", StoredTopic(wide.topic_id, {0: Assignment((0, 1, 2, 3))}), -1)])
    node.controller.dying.add("dying")
    before = {name: await node.stored(name) for name in names}
    wanted = {
        "less": (growth(1, name="less"), 37),
        "same": (growth(2, [], name="same"), 37),
        "nope": (growth(3, name="nope"), 3),
        "unknown": (growth(3, [[0, 9]], name="unknown"), 39),
        "count": (growth(4, [[0, 1]], name="count"), 39),
        "empty": (growth(3, [], name="empty"), 39),
        "dup": (growth(3, [[1, 1]], name="dup"), 39),
        "size": (growth(3, [[1]], name="size"), 39),
        "dying": (growth(3, name="dying"), 17),
        "moving": (growth(3, name="moving"), 60),
        "wide": (growth(3, name="wide"), 38),
        "twice": (growth(3, name="twice"), 42),
    }
    rows = await grow(node, *(t for t, _ in wanted.values()), growth(4, name="twice"), version=version, validate_only=validate_only)
    assert {row.name: row.error_code for row in rows} == {name: code for name, (_, code) in wanted.items()}
    assert len(rows) == len(wanted)
    assert all(row.error_message for row in rows)
    assert {name: await node.stored(name) for name in names} == before


async def test_validate_only_writes_nothing(node: TopicBroker) -> None:
    await create(node, topic("t", 1, 1))
    assert await codes(node, growth(5), validate_only=True, timeout_ms=0) == {"t": 0}
    assert len(await lists(node, "t")) == 1


@pytest.mark.parametrize("timeout_ms", [0, -1])
@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_no_time(node: TopicBroker, version: int, timeout_ms: int) -> None:
    await create(node, topic("t", 1, 1))
    rows = await grow(node, growth(2), growth(2, name="nope"), version=version, timeout_ms=timeout_ms)
    assert (rows[0].error_code, rows[0].error_message) == (7, None)
    assert rows[1].error_code == 3
    assert len(await lists(node, "t")) == 2


async def test_old_partitions_are_waited_for_as_well(node: TopicBroker) -> None:
    assert await create(node, manual({0: [0], 1: [77]}, name="half"), topic("whole", 1, 1), timeout_ms=100) == [7, 0]
    assert await codes(node, growth(3, [[0]], name="half"), growth(2, name="whole"), timeout_ms=200) == {"half": 7, "whole": 0}
    assert len(await lists(node, "half")) == 3


async def test_requests_at_the_same_time_take_no_partitions_from_each_other(node: TopicBroker) -> None:
    await create(node, manual({0: [0]}, name="t"))
    counts = [9, 4, 6, 12, 5]
    answers = await asyncio.gather(*(codes(node, growth(count)) for count in counts))
    assert len(await lists(node, "t")) == 12
    found = {count: answer["t"] for count, answer in zip(counts, answers, strict=True)}
    assert found[12] == 0 and set(found.values()) <= {0, 37}, "done, or the topic has more already"


async def test_a_topic_that_changes_between_reading_and_writing_is_checked_again(node: TopicBroker) -> None:
    await create(node, *(manual({0: [0]}, name=name) for name in ("moving", "grown", "gone", "fine")))
    write = node.admin_zk.write_topics

    async def late(topics: Any) -> Any:
        node.admin_zk.write_topics = write  # type: ignore[method-assign]
        for name, assignments in (("moving", {0: Assignment((0, 1), (1,), ())}), ("grown", {n: Assignment((2,)) for n in range(3)})):
            stored = await node.stored(name)
            assert stored is not None
            await write([(name, StoredTopic(stored.topic_id, assignments), -1)])
        await node.session.delete("/brokers/topics/gone")
        return await write(topics)

    node.admin_zk.write_topics = late  # type: ignore[method-assign]
    found = await codes(node, growth(2, name="moving"), growth(4, name="grown"), growth(2, name="gone"), growth(2, name="fine"))
    assert found == {"moving": 60, "grown": 0, "gone": 3, "fine": 0}
    assert await lists(node, "moving") == [(0, 1)]
    assert (await lists(node, "grown"))[:3] == [(2,), (2,), (2,)] and len(await lists(node, "grown")) == 4


async def test_a_write_whose_response_was_lost_counts(node: TopicBroker) -> None:
    await create(node, manual({0: [0]}, name="t"))
    write = node.admin_zk.write_topics

    async def repeated(topics: Any) -> Any:
        await write(topics)
        return await write(topics)

    node.admin_zk.write_topics = repeated  # type: ignore[method-assign]
    assert await codes(node, growth(3)) == {"t": 0}
    assert len(await lists(node, "t")) == 3


async def test_a_topic_that_always_changes_is_given_up(node: TopicBroker) -> None:
    await create(node, manual({0: [0]}, name="t"))

    async def lost(topics: Any) -> Any:
        return [ErrorCode.INVALID_UPDATE_VERSION] * len(topics)

    node.admin_zk.write_topics = lost  # type: ignore[method-assign]
    assert await codes(node, growth(3)) == {"t": -1}


async def test_racks(node: TopicBroker) -> None:
    await register(node, {0: "a", 1: "b", 2: "b", 3: "a"})
    await create(node, manual({0: [0, 1]}, name="t"))
    assert await codes(node, growth(8)) == {"t": 0}
    assert {tuple(sorted("abba"[r] for r in replicas)) for replicas in await lists(node, "t")} == {("a", "b")}
    await register(node, {0: "a", 1: None})
    rows = await grow(node, growth(9), growth(10), growth(9, [[0, 1]], name="nope"))
    assert [(row.name, row.error_code, row.error_message) for row in rows] == [("t", -1, None), ("t", -1, None), ("nope", -1, None)]
    assert await grow(node) == []


async def test_rights(node: TopicBroker) -> None:
    await create(node, topic("t"), topic("secret"))
    node.services = replace(node.services, authorizer=Denying((Operation.ALTER, "secret")))
    rows = await grow(node, growth(2), growth(2, name="secret"), growth(2, name="secret2"))
    assert [(row.name, row.error_code) for row in rows] == [("t", 0), ("secret", 29), ("secret2", 3)]
    node.controller.dying.add("secret")
    assert await codes(node, growth(3, name="secret")) == {"secret": 29}


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_quota(node: TopicBroker, version: int) -> None:
    await create(node, topic("a", 1, 1), topic("b", 1, 1))
    counted: list[int] = []

    def quota(principal: Any, client_id: str, mutations: int, *, strict: bool) -> int:
        counted.append(mutations)
        return 300 if mutations > 2 else 0

    node.services = replace(node.services, mutation_quota=quota)
    request = messages.CreatePartitionsRequest(topics=[growth(3, name="a"), growth(4, name="b"), growth(1, name="b2")], timeout_ms=5000)
    response = await node.request(request, version)
    assert [row.error_code for row in response.results] == [0, 89 if version >= 3 else 0, 3]
    assert 0 < response.throttle_time_ms <= 300
    assert counted == [2, 3]
    assert len(await lists(node, "b")) == (1 if version >= 3 else 4)
    await node.request(request._replace(topics=[growth(9, name="a")], validate_only=True), version)
    assert counted == [2, 3]
