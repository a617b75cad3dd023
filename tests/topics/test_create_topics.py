"""CreateTopics: every version's answer, what gets into ZooKeeper, waiting, rights, policy and quota."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import Assignment
from klamm.server.security.authorizer import Operation
from klamm.tests.harness.waits import eventually
from klamm.tests.services import Denying
from klamm.tests.topics.conftest import TopicBroker, register
from klamm.tests.topics.topic_creations import REQUEST, codes, create
from klamm.tests.topics.topic_trees import manual, topic

ZERO = bytes(16)
ALL_VERSIONS = range(8)
FRUITLESS = {"num_partitions": -1, "replication_factor": -1, "configs": [], "topic_config_error_code": 0}


def shown(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FRUITLESS}


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_created(node: TopicBroker, version: int) -> None:
    wanted = topic("auto", 3, 2, configs={"retention.ms": "5"}), manual({1: [2, 0], 0: [0, 2]}, name="manual"), topic("default", -1, -1)
    rows = await create(node, *wanted, version=version)
    assert [(row.name, row.error_code) for row in rows] == [("auto", 0), ("manual", 0), ("default", 0)]
    assert {row.error_message for row in rows} == ({None} if version >= 1 else {""})
    for row, partitions, factor in zip(rows, (3, 2, 2), (2, 2, 3), strict=True):
        stored = await node.stored(row.name)
        assert stored is not None
        assert len(stored.assignments) == partitions
        assert {len(set(a.replicas)) for a in stored.assignments.values()} == {factor}
        assert row.topic_id == (stored.topic_id if version >= 7 else ZERO)
        assert stored.topic_id not in (None, ZERO)
        assert (row.num_partitions, row.replication_factor) == ((partitions, factor) if version >= 5 else (-1, -1))
        assert len(row.configs) == (36 if version >= 5 else 0)
    assert await node.config_of("auto") == {"retention.ms": "5"}
    assert await node.config_of("default") == {}
    manual_topic = await node.stored("manual")
    assert manual_topic is not None
    assert manual_topic.assignments == {0: Assignment((0, 2)), 1: Assignment((2, 0))}
    if version >= 5:
        configs = {row.name: row for row in rows[0].configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
    assert await codes(node, *wanted, version=version) == [36, 36, 36]


async def test_an_older_inter_broker_protocol_knows_no_topic_ids(node: TopicBroker) -> None:
    config = BrokerConfig(dict(node.services.config.static) | {"inter.broker.protocol.version": "2.7"})
    node.services = replace(node.services, config=config)
    (row,) = await create(node, topic("t", 1, 1))
    assert (row.error_code, row.topic_id) == (0, ZERO)
    stored = await node.stored("t")
    assert stored is not None and stored.topic_id is None


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_not_controller(node: TopicBroker, version: int) -> None:
    node.controller.is_active = False
    rows = await create(node, topic("a"), topic("a"), topic("a b"), version=version)
    assert [(row.name, row.error_code, row.error_message, row.topic_id) for row in rows] == [
        ("a", 41, "", ZERO),
        ("a", 41, "", ZERO),
        ("a b", 41, "", ZERO),
    ]
    assert [shown(row) for row in rows] == [FRUITLESS] * 3
    assert await node.stored("a") is None


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_refused(node: TopicBroker, version: int) -> None:
    assert await codes(node, topic("there"), topic("x_y")) == [0, 0]
    wanted = {
        "__cluster_metadata": (topic("__cluster_metadata"), 42),
        "there": (topic("there", 0), 36),
        "null": (topic("null", 0, configs={"retention.ms": None}), 40),
        "both": (topic("both", 1, -1, assign={0: [0]}), 42),
        "partitions": (topic("partitions", 0, 9), 37),
        "factor": (topic("factor", 1, 4), 38),
        "no good": (topic("no good"), 17),
        "x.y": (topic("x.y"), 17),
        "assignment": (manual({0: [0, 0]}, name="assignment", configs={"no": "1"}), 39),
        "unknown": (topic("unknown", configs={"no": "1"}), 40),
        "value": (topic("value", configs={"retention.ms": "x"}), 40),
    }
    rows = await create(node, *(t for t, _ in wanted.values()), topic("twice"), topic("twice"), version=version)
    assert [(row.name, row.error_code) for row in rows] == [(n, c) for n, (_, c) in wanted.items()] + [("twice", 42), ("twice", 42)]
    assert [shown(row) for row in rows] == [FRUITLESS] * len(rows)
    assert {row.topic_id for row in rows} == {ZERO}
    assert all(row.error_message for row in rows) == (version >= 1)
    assert sorted(await node.admin_zk.topics()) == ["there", "x_y"]


@pytest.mark.parametrize("version", ALL_VERSIONS[1:])
async def test_validate_only(node: TopicBroker, version: int) -> None:
    rows = await create(
        node, topic("a", 3, 2), topic("b", 0), topic("x.y"), topic("x_y"), version=version, validate_only=True, timeout_ms=0
    )
    assert [row.error_code for row in rows] == [0, 37, 0, 0]
    assert {row.topic_id for row in rows} == {ZERO}
    assert rows[0].error_message is None
    if version >= 5:
        assert (rows[0].num_partitions, rows[0].replication_factor, len(rows[0].configs)) == (3, 2, 36)
    assert await node.admin_zk.topics() == []
    assert await node.config_of("a") is None


async def test_topics_of_one_request_show_their_own_configs(node: TopicBroker) -> None:
    rows = await create(node, *(topic(name, configs={"retention.ms": value}) for name, value in (("a", "5"), ("b", "6"), ("c", "5"))))
    shown = [next(config.value for config in row.configs if config.name == "retention.ms") for row in rows]
    assert shown == ["5", "6", "5"]


async def test_a_topic_nobody_sees_exists(node: TopicBroker) -> None:
    """In ZooKeeper, but not in the metadata cache: found out by the write, or by the names where another error would win."""
    node.propagates = False
    assert await codes(node, topic("ghost"), timeout_ms=0) == [7]
    before = await node.stored("ghost"), await node.config_of("ghost")
    (row,) = await create(node, topic("ghost", configs={"retention.ms": "1"}))
    assert (row.error_code, row.topic_id) == (36, ZERO), "no id of a topic that was not made"
    assert await codes(node, topic("ghost"), validate_only=True) == [36]
    assert await codes(node, topic("ghost", configs={"no": "1"})) == [36]
    assert await codes(node, manual({0: [0, 0]}, name="ghost")) == [36]
    assert await codes(node, topic("ghost", 0)) == [37]
    node.controller.dying.add("dead.yet")
    assert await codes(node, topic("dead.yet")) == [36]
    assert (await node.stored("ghost"), await node.config_of("ghost")) == before


async def test_names_are_read_only_when_they_matter(node: TopicBroker) -> None:
    calls = node.admin_zk.calls
    assert await codes(node, *(topic(f"t{i}") for i in range(50))) == [0] * 50
    assert calls.count("create_topics") == 1
    assert "topics" not in calls
    assert await codes(node, topic("u"), topic("with.dot"), topic("with.dots")) == [0, 0, 0]
    assert calls.count("topics") == 1


@pytest.mark.parametrize("timeout_ms", [0, -1])
@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_no_time(node: TopicBroker, version: int, timeout_ms: int) -> None:
    rows = await create(node, topic("a"), topic("b", 0), version=version, timeout_ms=timeout_ms)
    assert [row.error_code for row in rows] == [7, 37]
    stored = await node.stored("a")
    assert stored is not None
    assert rows[0].topic_id == (stored.topic_id if version >= 7 else ZERO)
    assert rows[0].error_message == (None if version >= 1 else "")
    assert shown(rows[0]) == FRUITLESS


async def test_late(node: TopicBroker) -> None:
    """A partition without a live replica is not there in time; the others of the request are told all the same."""
    rows = await create(node, topic("fine"), manual({0: [0], 1: [77]}, name="half"), manual({0: []}, name="empty"), timeout_ms=200)
    assert [row.error_code for row in rows] == [0, 7, 7]
    for row in rows[1:]:
        stored = await node.stored(row.name)
        assert stored is not None
        assert row.topic_id == stored.topic_id
        assert (row.error_message, shown(row)) == (None, FRUITLESS)


async def test_a_topic_that_goes_before_all_are_there_is_waited_for_again(node: TopicBroker) -> None:
    node.propagates = False
    asked = asyncio.ensure_future(codes(node, topic("first"), topic("second"), timeout_ms=60_000))
    await eventually(lambda: len(node.services.purgatory) == 1, "the request waits")
    node.propagates = True
    await node.propagate(["second"])
    await node.propagate(["first"])
    assert await asked == [0, 0]
    node.propagates = False
    asked = asyncio.ensure_future(codes(node, topic("third"), topic("fourth"), timeout_ms=60_000))
    await eventually(lambda: len(node.services.purgatory) == 1, "the request waits")
    node.propagates = True
    await node.propagate(["fourth"])
    node.forget(["fourth"])
    await node.propagate(["third"])
    await asyncio.sleep(0)
    assert not asked.done(), "not before its time is over"
    await node.propagate(["fourth"])
    assert await asked == [0, 0]


async def test_dead_replicas_beside_a_live_one(node: TopicBroker) -> None:
    (row,) = await create(node, manual({0: [77, -5, 1]}))
    assert (row.error_code, row.replication_factor) == (0, 3)


async def test_racks(node: TopicBroker) -> None:
    await register(node, {0: "a", 1: "b", 2: "b", 3: "a"})
    assert await codes(node, topic("spread", 8, 2)) == [0]
    stored = await node.stored("spread")
    assert stored is not None
    assert {tuple(sorted("abba"[r] for r in a.replicas)) for a in stored.assignments.values()} == {("a", "b")}
    await register(node, {0: "a", 1: None})
    rows = await create(node, topic("some"), manual({0: [0]}, name="manual"), topic("many", 1, 9), topic("no good"))
    assert [(row.error_code, bool(row.error_message)) for row in rows] == [(-1, False), (0, False), (38, True), (-1, False)]


async def test_rights(node: TopicBroker) -> None:
    denying = Denying((Operation.CREATE, "kafka-cluster"), (Operation.CREATE, "secret"), (Operation.DESCRIBE_CONFIGS, "dim"))
    node.services = replace(node.services, authorizer=denying)
    rows = await create(node, topic("a"), topic("secret"), topic("dim", configs={"retention.ms": "1"}))
    assert [(row.error_code, row.topic_config_error_code) for row in rows] == [(0, 0), (29, 0), (0, 29)]
    assert [len(row.configs) for row in rows] == [36, 0, 0]
    assert [row.num_partitions for row in rows] == [1, -1, -1]
    assert [row.topic_id == ZERO for row in rows] == [False, True, True]
    assert await node.stored("dim") is not None
    node.services = replace(node.services, authorizer=Denying((Operation.CREATE, "secret")))
    assert await codes(node, topic("secret")) == [0], "the right to create in the cluster is enough"
    node.services = replace(node.services, authorizer=Denying((Operation.DESCRIBE_CONFIGS, None)))
    rows = await create(node, topic("secret"), topic("b"), topic("b"), topic("__cluster_metadata"), topic("late"), timeout_ms=0)
    assert [(row.error_code, row.topic_config_error_code) for row in rows] == [(36, 0), (42, 29), (42, 29), (42, 0), (7, 0)]
    assert {row.topic_id for row in rows} == {ZERO}


async def test_policy(node: TopicBroker) -> None:
    judged: list[Any] = []

    def policy(
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        assignments: Mapping[int, Sequence[int]] | None,
        configs: Mapping[str, str | None],
    ) -> str | None:
        judged.append((name, partitions, replication_factor, assignments, configs))
        return "too few replicas" if replication_factor == 1 else None

    node.services = replace(node.services, topic_policy=policy)
    rows = await create(node, topic("a", 2, 1), topic("b", 2, 2), manual({0: [1]}, name="c", configs={"retention.ms": "1"}))
    assert [(row.error_code, row.error_message) for row in rows] == [(44, "too few replicas"), (0, None), (0, None)]
    assert ("b", 2, 2, None, {}) in judged
    assert ("c", None, None, {0: (1,)}, {"retention.ms": "1"}) in judged
    assert await node.stored("a") is None


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_quota(node: TopicBroker, version: int) -> None:
    """Refuses from version 6 on; before, the topic is created and the caller throttled. Nothing counts that is not written."""
    counted: list[int] = []

    def quota(principal: Any, client_id: str, mutations: int, *, strict: bool) -> int:
        counted.append(mutations)
        return 700 if mutations > 2 else 0

    node.services = replace(node.services, mutation_quota=quota)
    response = await node.request(REQUEST(topics=[topic("a", 2), topic("b", 3), topic("c", 0), manual({0: [0]}, name="d")]), version)
    assert [row.error_code for row in response.topics] == [0, 89 if version >= 6 else 0, 37, 0]
    assert 0 < response.throttle_time_ms <= 700 if version >= 2 else response.throttle_time_ms == 0
    assert counted == [2, 3, 1]
    assert (await node.stored("b") is None) == (version >= 6)
    if version >= 6:
        assert response.topics[1].error_message is None
        assert shown(response.topics[1]) == FRUITLESS
    if version >= 1:
        await node.request(REQUEST(topics=[topic("e", 3)], validate_only=True), version)
        assert counted == [2, 3, 1]


async def test_nothing_asked(node: TopicBroker) -> None:
    assert await create(node) == []


async def test_many_topics_in_one_request(node: TopicBroker) -> None:
    rows = await create(node, *(topic(f"t-{i}", 10, 3) for i in range(300)), timeout_ms=20_000)
    assert {row.error_code for row in rows} == {0}
    assert len(await node.admin_zk.topics()) == 300
    assert len({row.topic_id for row in rows}) == 300
