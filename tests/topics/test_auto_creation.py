"""Topics that Metadata creates on the way: any broker writes them itself and says "look again"."""

from dataclasses import replace
from typing import Any

import pytest

from klamm.configs.broker_config import BrokerConfig
from klamm.protocol import messages
from klamm.tests.topics.conftest import TopicBroker, register
from klamm.tests.topics.topic_creations import codes as create
from klamm.tests.topics.topic_trees import topic


async def ask(node: TopicBroker, *names: str, version: int = 12, **more: Any) -> dict[str, int]:
    request = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=name) for name in names], **more)
    response = await node.request(request, version)
    for row in response.topics:
        if row.error_code:
            assert (row.partitions, row.topic_id) == ([], bytes(16))
    return {row.name: row.error_code for row in response.topics}


@pytest.mark.parametrize("version", range(13))
async def test_created_and_seen_the_next_time(node: TopicBroker, version: int) -> None:
    node.controller.is_active = False
    assert await ask(node, "new", "a b", version=version) == {"new": 5, "a b": 17}
    stored = await node.stored("new")
    assert stored is not None
    assert [len(a.replicas) for a in stored.assignments.values()] == [3, 3]
    assert await node.config_of("new") == {}
    await node.admin_zk.settled()
    assert await ask(node, "new", version=version) == {"new": 0}


async def test_a_session_that_ends_meanwhile_is_a_reason_to_look_again(node: TopicBroker, caplog: pytest.LogCaptureFixture) -> None:
    """The topics that exist are shown all the same."""
    await create(node, topic("old"))

    node.admin_zk.lost = True
    assert await ask(node, "new", "old", "a b") == {"new": 5, "old": 0, "a b": 17}
    assert [record.exc_info for record in caplog.records] == [None]


async def test_not_where_the_request_forbids_it(node: TopicBroker) -> None:
    assert await ask(node, "new", version=4, allow_auto_topic_creation=False) == {"new": 3}
    assert await node.stored("new") is None


async def test_refusals(node: TopicBroker) -> None:
    assert await create(node, topic("a.b")) == [0]
    node.propagates = False
    assert await create(node, topic("ghost"), timeout_ms=0) == [7]
    node.controller.dying.add("dying")
    assert await ask(node, "a_b", "ghost", "dying", "fine") == {"a_b": 17, "ghost": 5, "dying": 5, "fine": 5}
    node.services = replace(node.services, topic_policy=lambda *_: "no")
    assert await ask(node, "unwelcome") == {"unwelcome": 44}
    await register(node, {0: None, 1: None})
    assert await ask(node, "too.many.replicas") == {"too.many.replicas": 38}


async def test_more_partitions_by_default_than_a_topic_can_have(node: TopicBroker) -> None:
    node.services = replace(node.services, config=BrokerConfig(dict(node.services.config.static) | {"num.partitions": str(2**31 - 1)}))
    assert await ask(node, "new") == {"new": 39}
    assert await node.stored("new") is None


async def test_a_quota_refuses_no_creation_on_the_way(node: TopicBroker) -> None:
    node.services = replace(node.services, mutation_quota=lambda principal, client_id, mutations, strict: 500)
    assert await ask(node, "new") == {"new": 5}
    assert await node.stored("new") is not None


@pytest.mark.parametrize(
    ("name", "partitions", "configs"),
    [
        ("__consumer_offsets", 50, {"compression.type": "producer", "cleanup.policy": "compact", "segment.bytes": "104857600"}),
        (
            "__transaction_state",
            50,
            {
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": "2",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
        ),
    ],
)
async def test_internal_topics_have_their_own_shape(node: TopicBroker, name: str, partitions: int, configs: dict[str, str]) -> None:
    assert await ask(node, name) == {name: 5}
    stored = await node.stored(name)
    assert stored is not None
    assert (len(stored.assignments), {len(a.replicas) for a in stored.assignments.values()}) == (partitions, {3})
    assert await node.config_of(name) == configs


async def test_ids_create_nothing(node: TopicBroker) -> None:
    wanted = messages.MetadataRequest.MetadataRequestTopic(name=None, topic_id=b"x" * 16)
    response = await node.request(messages.MetadataRequest(topics=[wanted]), 12)
    assert [(row.error_code, row.name, row.topic_id) for row in response.topics] == [(100, None, b"x" * 16)]
    assert await node.admin_zk.topics() == []
