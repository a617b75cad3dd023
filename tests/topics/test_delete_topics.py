"""DeleteTopics: every version's answer, the deletion requests written, waiting, rights and quota."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from klamm.configs.broker_config import BrokerConfig
from klamm.protocol import messages
from klamm.server.security.authorizer import Operation, Principal, Resource
from klamm.tests.harness.waits import eventually
from klamm.tests.services import Denying
from klamm.tests.topics.conftest import TopicBroker
from klamm.tests.topics.topic_creations import codes as create
from klamm.tests.topics.topic_trees import topic

ZERO = bytes(16)
NOBODY = b"nobody's topic id"[:16]
ALL_VERSIONS = range(7)
REQUEST = messages.DeleteTopicsRequest


async def delete(node: TopicBroker, *asked: str | bytes | tuple[str | None, bytes], version: int = 6, timeout_ms: int = 5000) -> Any:
    """Topics by name, by id, or as (name, id); before version 6 by name only."""
    if version < 6:
        return await node.request(REQUEST(topic_names=[str(one) for one in asked], timeout_ms=timeout_ms), version)
    pairs = [(a, ZERO) if isinstance(a, str) else (None, a) if isinstance(a, bytes) else a for a in asked]
    return await node.request(REQUEST(topics=[REQUEST.DeleteTopicState(*pair) for pair in pairs], timeout_ms=timeout_ms), version)


async def rows(node: TopicBroker, *asked: Any, **more: Any) -> list[tuple[str | None, bytes, int]]:
    response = await delete(node, *asked, **more)
    assert {row.error_message for row in response.responses} <= {None}
    return [(row.name, row.topic_id, row.error_code) for row in response.responses]


async def requested(node: TopicBroker) -> list[str]:
    return sorted(await node.session.children("/admin/delete_topics"))


async def id_of(node: TopicBroker, name: str) -> bytes:
    stored = await node.stored(name)
    assert stored is not None
    assert stored.topic_id is not None
    return stored.topic_id


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_by_name(node: TopicBroker, version: int) -> None:
    await create(node, topic("a"), topic("b"), topic("c"))
    assert await rows(node, "a", "nope", "b", version=version) == [("a", ZERO, 0), ("nope", ZERO, 3), ("b", ZERO, 0)]
    assert await requested(node) == ["a", "b"]
    assert await rows(node, "a", "c", version=version) == [("a", ZERO, 3), ("c", ZERO, 0)]


async def test_a_topic_that_is_back_before_all_are_gone_is_waited_for_again(node: TopicBroker) -> None:
    await create(node, topic("a"), topic("b"))
    node.propagates = False
    asked = asyncio.ensure_future(rows(node, "a", "b", timeout_ms=60_000))
    await eventually(lambda: len(node.services.purgatory) == 1, "the request waits")
    node.propagates = True
    node.forget(["b"])
    await node.propagate(["b"])
    node.forget(["a"])
    await asyncio.sleep(0)
    assert not asked.done(), "not before its time is over"
    node.forget(["b"])
    assert await asked == [("a", ZERO, 0), ("b", ZERO, 0)]


async def test_by_id(node: TopicBroker) -> None:
    await create(node, topic("a"), topic("b"))
    a, b = await id_of(node, "a"), await id_of(node, "b")
    assert await rows(node, a, NOBODY, "b", ZERO) == [("a", a, 0), (None, NOBODY, 100), ("b", ZERO, 0), (None, ZERO, 29)]
    assert await requested(node) == ["a", "b"]
    assert await rows(node, b) == [("b", b, 3)]


async def test_name_and_id_together_do_nothing(node: TopicBroker) -> None:
    await create(node, topic("a"), topic("b"))
    a = await id_of(node, "a")
    assert await rows(node, "b", ("a", a), a, ZERO) == [("b", ZERO, 42), ("a", a, 42), (None, a, 42), (None, ZERO, 42)]
    assert await requested(node) == []


async def test_the_same_topic_more_than_once(node: TopicBroker) -> None:
    await create(node, topic("a"), topic("b"))
    a = await id_of(node, "a")
    assert await rows(node, "a", "a", a, "b", timeout_ms=0) == [("a", ZERO, 7), ("a", ZERO, 0), ("a", a, 0), ("b", ZERO, 7)]
    assert await requested(node) == ["a", "b"]


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_not_controller(node: TopicBroker, version: int) -> None:
    node.controller.is_active = False
    assert await rows(node, "a", "a", version=version) == [("a", ZERO, 41), ("a", ZERO, 41)]
    if version >= 6:
        assert await rows(node, NOBODY, ("a", NOBODY), ZERO) == [(None, NOBODY, 41), ("a", NOBODY, 41), (None, ZERO, 41)]


@pytest.mark.parametrize(("version", "code"), [(0, 42), (1, 42), (2, 42), (3, 73), (4, 73), (5, 73), (6, 73)])
async def test_deletion_disabled(node: TopicBroker, version: int, code: int) -> None:
    await create(node, topic("a"))
    config = BrokerConfig({"zookeeper.connect": "unused", "broker.id": "0", "delete.topic.enable": "false"})
    node.services = replace(node.services, config=config)
    assert await rows(node, "a", "nope", version=version) == [("a", ZERO, code), ("nope", ZERO, code)]
    if version >= 6:
        assert await rows(node, NOBODY, ("a", NOBODY)) == [(None, NOBODY, code), ("a", NOBODY, code)]
    assert await requested(node) == []


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_late(node: TopicBroker, version: int) -> None:
    await create(node, topic("a"))
    node.propagates = False
    assert await rows(node, "a", "nope", version=version, timeout_ms=100) == [("a", ZERO, 7), ("nope", ZERO, 3)]
    assert await rows(node, "a", version=version, timeout_ms=-1) == [("a", ZERO, 7)], "a request that is there already is waited for"
    assert await requested(node) == ["a"]


async def test_a_topic_without_a_node(node: TopicBroker) -> None:
    """Removed by hand, but still in the metadata cache."""
    await create(node, topic("a"), topic("b"))
    await node.session.delete("/brokers/topics/a")
    assert await rows(node, "a", "b") == [("a", ZERO, 3), ("b", ZERO, 0)]
    assert await requested(node) == ["b"]


async def test_rights(node: TopicBroker) -> None:
    await create(node, topic("a"), topic("b"), topic("c"))
    ids = [await id_of(node, name) for name in "abc"]
    denying = Denying((Operation.DESCRIBE, "a"), (Operation.DELETE, "b"), (Operation.DELETE, "nope"))
    node.services = replace(node.services, authorizer=denying)
    assert await rows(node, *ids, "b", "nope") == [
        (None, ids[0], 29),
        ("b", ids[1], 29),
        ("c", ids[2], 0),
        ("b", ZERO, 29),
        ("nope", ZERO, 29),
    ]
    assert await rows(node, "a") == [("a", ZERO, 0)]


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_quota(node: TopicBroker, version: int) -> None:
    await create(node, topic("a", 2), topic("b", 3))
    counted: list[int] = []

    def quota(principal: Any, client_id: str, mutations: int, *, strict: bool) -> int:
        counted.append(mutations)
        return 300 if mutations > 2 else 0

    node.services = replace(node.services, mutation_quota=quota)
    response = await delete(node, "a", "b", "nope", version=version)
    assert [row.error_code for row in response.responses] == [0, 89 if version >= 5 else 0, 3]
    assert 0 < response.throttle_time_ms <= 300 if version >= 1 else response.throttle_time_ms == 0
    assert counted == [2, 3]
    assert await requested(node) == (["a"] if version >= 5 else ["a", "b"])


async def test_nothing_asked(node: TopicBroker) -> None:
    assert await rows(node) == []


async def test_a_topic_that_is_deleted_while_many_names_are_judged_is_unknown(node: TopicBroker) -> None:
    class OtherDeletes(Denying):
        """While one name is judged, another request deletes topic `a`."""

        def authorize(self, principal: Principal, operation: Operation, resource: Resource, host: str) -> bool:
            if resource.name == "nope-1500":
                node.metadata.topics.pop("a", None)
            return True

    await create(node, topic("a"), topic("b"))
    await node.session.delete("/brokers/topics/a")
    node.services = replace(node.services, authorizer=OtherDeletes())
    names = ["a", "b", *(f"nope-{number}" for number in range(2000))]
    codes = {name: code for name, _, code in await rows(node, *names)}
    assert (codes["a"], codes["b"]) == (3, 0)
    assert await requested(node) == ["b"]
