"""Metadata and DescribeCluster answers: recorded ones given back, who may see what, and what is kept between answers."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from klamm.broker import metadata_responses
from klamm.broker.metadata_cache import MetadataCache
from klamm.protocol import messages
from klamm.protocol.json_form import from_json, to_json
from klamm.server.apis import describe_cluster, metadata
from klamm.server.requests.services import Services
from klamm.server.security.authorizer import AllowAll, Authorizer, Operation, ResourceType
from klamm.tests.broker.story_broker import sorted_lists
from klamm.tests.broker.update_metadata import broker, partition, topic, update
from klamm.tests.services import Denying, broker_config, make_context, make_services

GOLDEN = Path(__file__).parent.parent / "golden"
NO_LEADER_CODES = (5, 72)


def node(*topics: Any, authorizer: Authorizer | None = None, auto_create: bool = False, **more: Any) -> Services:
    cache = MetadataCache(1)
    cache.update(update(*topics, **more))
    return make_services(metadata=cache, config=broker_config(auto_create_topics_enable=auto_create), authorizer=authorizer)


def ask(where: Services, version: int, names: list[str] | None = None, listener: str = "PLAINTEXT", **more: Any) -> Any:
    """A decoded Metadata answer. Names None: all topics."""
    topic_type = messages.MetadataRequest.MetadataRequestTopic
    topics = more.pop("topics", None)
    if topics is None:
        topics = ([] if version == 0 else None) if names is None else [topic_type(name=name) for name in names]
    body = metadata.handle(make_context(where, 3, version, listener=listener), messages.MetadataRequest(topics=topics, **more))
    if not isinstance(body, bytes):
        body = messages.encode(body, version)
    answer, end = messages.decode("MetadataResponse", version, body)
    assert end == len(body)
    return answer


def codes(answer: Any) -> dict[str, int]:
    return {row.name: row.error_code for row in answer.topics}


# recorded answers


def recorded() -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """(version, request, answer) of every Metadata that a real cluster answered to a client."""
    for name in ("live.jsonl.gz", "responses.jsonl.gz"):
        with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as file:
            for line in file:
                frame = json.loads(line)
                if frame["api_key"] == 3 and frame["decoded"]:
                    yield frame["api_version"], from_json("MetadataRequest", frame["api_version"], frame["request"]), frame["decoded"]


def told_by(answer: dict[str, Any], version: int) -> Any:
    """The UpdateMetadata request that makes a broker give this answer."""
    response = from_json("MetadataResponse", version, answer)
    topics = []
    for row in response.topics:
        if row.error_code == 0:
            states = [
                partition(
                    p.partition_index,
                    p.leader_id,
                    p.isr_nodes,
                    p.replica_nodes,
                    leader_epoch=p.leader_epoch,
                    offline_replicas=p.offline_replicas,
                )
                for p in row.partitions
            ]
            topics.append(topic(row.name, row.topic_id, *states))
    brokers = [broker(b.node_id, host=b.host, port=b.port, rack=b.rack) for b in response.brokers]
    return update(*topics, brokers=brokers, controller_id=response.controller_id)


def test_recorded_answers() -> None:
    tried = 0
    for version, request, answer in recorded():
        where = make_services(cluster_id=answer.get("clusterId", "cluster"))
        where.metadata.update(told_by(answer, version))
        # topics that were being created when this was recorded
        if any(row["errorCode"] == 5 for row in answer["topics"]):
            continue
        body = metadata.handle(make_context(where, 3, version), request)
        assert isinstance(body, bytes)
        got = to_json(messages.decode("MetadataResponse", version, body)[0], version)
        assert sorted_lists(got) == sorted_lists(answer)
        tried += 1
    assert tried > 50


# partitions


@pytest.mark.parametrize("version", range(13))
@pytest.mark.parametrize(
    ("state", "code", "leader"),
    [
        (partition(0, 1, (1,), (1,)), 0, 1),
        (partition(0, 1, (1, 3), (1, 3)), 9, 1),
        (partition(0, 1, (1,), (1, 9)), 9, 1),
        (partition(0, -1, (9,), (9, 1)), 5, -1),
        (partition(0, 9, (9,), (9,)), 5, -1),
        (partition(0, 3, (3, 1), (3, 1)), 72, -1),
    ],
)
def test_partition_codes(version: int, state: Any, code: int, leader: int) -> None:
    where = node(topic("t", 1, state), brokers=[broker(1), broker(3, "OTHER")])
    (row,) = ask(where, version, ["t"]).topics
    (got,) = row.partitions
    if version < 6 and code == 72:
        code = 5
    if version > 0 and code == 9:
        code = 0
    assert (row.error_code, got.error_code, got.leader_id) == (0, code, leader)
    if version == 0:
        assert (got.replica_nodes, got.isr_nodes) == (tuple(r for r in state.replicas if r == 1), tuple(r for r in state.isr if r == 1))
    else:
        assert (got.replica_nodes, got.isr_nodes) == (state.replicas, state.isr)


def test_the_listener_decides_which_brokers_and_addresses() -> None:
    live = [broker(1, "A", "B"), broker(2, "B", rack="r"), broker(3, "A")]
    where = node(topic("t", 1, partition(0, 2)), brokers=live)
    for listener, ids, code in (("A", [1, 3], 72), ("B", [1, 2], 0), ("C", [], 72)):
        answer = ask(where, 12, ["t"], listener)
        assert [b.node_id for b in answer.brokers] == ids
        assert answer.topics[0].partitions[0].error_code == code
        described = describe_cluster.handle(make_context(where, 60, 1, listener=listener), messages.DescribeClusterRequest())
        assert [(b.broker_id, b.host, b.port, b.rack) for b in described.brokers] == [
            (b.node_id, b.host, b.port, b.rack) for b in answer.brokers
        ]


# topics


def test_names_and_codes() -> None:
    where = node(topic("t", 1, partition()), topic("__consumer_offsets", 2, partition()))
    answer = ask(where, 12, ["no", "t", "t", "a/b", "", "__transaction_state", "__consumer_offsets", "__share_group_state"])
    codes_of_own = {"__transaction_state": 3, "__consumer_offsets": 0, "__share_group_state": 3}
    assert codes(answer) == {"no": 3, "t": 0, "a/b": 17, "": 17} | codes_of_own
    assert len(answer.topics) == 7
    assert {row.name for row in answer.topics if row.is_internal} == set(codes_of_own)


@pytest.mark.parametrize("version", [1, 4, 12])
def test_an_empty_list_means_no_topics_from_version_1_on(version: int) -> None:
    where = node(topic("t", 1, partition()))
    assert ask(where, version, []).topics == []
    assert [row.name for row in ask(where, version).topics] == ["t"]


def test_whether_a_name_is_internal_is_not_disclosed() -> None:
    where = node(topic("__consumer_offsets", 2, partition()), authorizer=Denying((Operation.DESCRIBE, "__consumer_offsets")))
    answer = ask(where, 12, ["__consumer_offsets"])
    assert [(row.name, row.error_code, row.is_internal) for row in answer.topics] == [("__consumer_offsets", 29, False)]


@pytest.mark.parametrize(
    ("enabled", "allowed", "created"), [(False, True, False), (True, False, False), (True, True, True), (False, False, False)]
)
def test_when_topics_are_created(monkeypatch: pytest.MonkeyPatch, enabled: bool, allowed: bool, created: bool) -> None:
    asked: list[str] = []
    monkeypatch.setattr(metadata, "auto_create", lambda ctx, names: asked.extend(names))
    where = node(topic("t", 1, partition()), auto_create=enabled)
    topics = [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "new")]
    answer = metadata.handle(make_context(where, 3, 12), messages.MetadataRequest(topics=topics, allow_auto_topic_creation=allowed))
    assert isinstance(answer, bytes) is not created
    if created:
        assert asyncio.iscoroutine(answer)
        with pytest.raises(TypeError):
            answer.send(None)
    assert asked == (["new"] if created else [])


# authorisation


@pytest.mark.parametrize("version", range(13))
def test_undescribed_topics_are_not_listed_but_refused_by_name(version: int) -> None:
    where = node(
        topic("t", 1, partition()),
        topic("secret", 2, partition()),
        authorizer=Denying((Operation.DESCRIBE, "secret"), (Operation.DESCRIBE, "none")),
    )
    assert codes(ask(where, version)) == {"t": 0}
    answer = ask(where, version, ["secret", "t", "none", "no"])
    assert codes(answer) == {"t": 0, "no": 3, "secret": 29, "none": 29}
    assert all(row.topic_id == bytes(16) and not row.partitions for row in answer.topics if row.error_code)


def test_undescribed_topics_by_id_keep_their_id_and_lose_their_name() -> None:
    where = node(topic("secret", 2, partition()), authorizer=Denying((Operation.DESCRIBE, "secret")))
    wanted = messages.MetadataRequest.MetadataRequestTopic(name=None, topic_id=(2).to_bytes(16, "big"))
    (row,) = ask(where, 12, topics=[wanted]).topics
    assert (row.error_code, row.name, row.topic_id) == (29, None, wanted.topic_id)


def test_creation_needs_a_right() -> None:
    denied = Denying((Operation.CREATE, "kafka-cluster"), (Operation.CREATE, None))
    where = node(auto_create=True, authorizer=denied)
    assert codes(ask(where, 12, ["new", "__transaction_state"])) == {"new": 29, "__transaction_state": 29}


TOPIC_BITS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_BITS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
OMITTED = -2147483648


@pytest.mark.parametrize("version", range(8, 13))
@pytest.mark.parametrize("authorizer", [AllowAll(), Denying()])
def test_authorised_operations(version: int, authorizer: Any) -> None:
    where = node(topic("t", 1, partition()), authorizer=authorizer)
    cluster: dict[str, Any] = {"include_cluster_authorized_operations": True} if version <= 10 else {}
    for names in (["t", "no"], None):
        answer = ask(where, version, names, include_topic_authorized_operations=True, **cluster)
        assert {row.topic_authorized_operations for row in answer.topics} == {TOPIC_BITS}
        assert answer.cluster_authorized_operations == (CLUSTER_BITS if version <= 10 else OMITTED)
        answer = ask(where, version, names)
        assert {row.topic_authorized_operations for row in answer.topics} == {OMITTED}
        assert answer.cluster_authorized_operations == OMITTED


def test_denied_operations_lack_their_bits() -> None:
    denying = Denying((Operation.WRITE, "t"), (Operation.ALTER, "kafka-cluster"))
    answer = ask(
        node(topic("t", 1, partition()), authorizer=denying),
        8,
        ["t"],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert answer.topics[0].topic_authorized_operations == TOPIC_BITS & ~(1 << 4)
    assert answer.cluster_authorized_operations == CLUSTER_BITS & ~(1 << 7)
    blind = node(authorizer=Denying((Operation.DESCRIBE, "kafka-cluster")))
    assert ask(blind, 9, [], include_cluster_authorized_operations=True).cluster_authorized_operations == 0


@pytest.mark.parametrize("version", [0, 1])
def test_described_cluster(version: int) -> None:
    def describe(where: Services, **more: Any) -> Any:
        answer = describe_cluster.handle(make_context(where, 60, version), messages.DescribeClusterRequest(**more))
        return messages.decode("DescribeClusterResponse", version, messages.encode(answer, version))[0]

    answer = describe(node())
    assert (answer.error_code, answer.cluster_id, answer.controller_id, len(answer.brokers)) == (0, "cluster", 1, 2)
    assert answer.cluster_authorized_operations == OMITTED
    assert describe(node(), include_cluster_authorized_operations=True).cluster_authorized_operations == CLUSTER_BITS
    blind = node(authorizer=Denying((Operation.DESCRIBE, "kafka-cluster")))
    assert describe(blind, include_cluster_authorized_operations=True).cluster_authorized_operations == 0
    assert describe(node(brokers=[broker(2)])).controller_id == -1
    if version:
        for kind, code in ((2, 114), (0, 115), (3, 115), (-1, 115)):
            answer = describe(node(), endpoint_type=kind)
            assert (answer.error_code, answer.brokers, answer.cluster_id, answer.controller_id) == (code, [], "", -1)
            assert answer.error_message


# what is kept


def test_the_whole_answer_is_kept_until_something_changes() -> None:
    where = node(topic("t", 1, partition()))
    cache = where.metadata
    first = metadata_responses.all_topics_body(cache, 12, "PLAINTEXT", "c")
    assert metadata_responses.all_topics_body(cache, 12, "PLAINTEXT", "c") is first
    assert metadata_responses.all_topics_body(cache, 12, "OTHER", "c") != first
    cache.update(update())
    assert metadata_responses.all_topics_body(cache, 12, "PLAINTEXT", "c") is first
    cache.update(update(topic("t", 1, partition(leader_epoch=1))))
    assert metadata_responses.all_topics_body(cache, 12, "PLAINTEXT", "c") != first


def test_a_topic_is_kept_until_it_or_the_brokers_change() -> None:
    cache = node(topic("t", 1, partition(0, 2)), topic("u", 2, partition())).metadata

    def encoded() -> bytes:
        return metadata_responses.topic_bytes(cache, cache.topics["t"], 12, "PLAINTEXT")

    first = encoded()
    cache.update(update(topic("u", 2, partition(leader_epoch=5))))
    assert encoded() is first
    cache.update(update(brokers=[broker(1)]))
    without = encoded()
    assert without != first
    cache.update(update())
    assert encoded() == first


def test_kept_answers_are_not_given_to_others() -> None:
    """What one principal may not see does not come out of what was kept for another."""
    where = node(topic("t", 1, partition()), topic("secret", 2, partition()))
    assert codes(ask(where, 12)) == {"t": 0, "secret": 0}
    ctx = make_context(where, 3, 12)
    metadata.handle(ctx, messages.MetadataRequest(topics=None))
    assert ctx.cacheable
    where = replace(where, authorizer=Denying((Operation.DESCRIBE, "secret")))
    assert codes(ask(where, 12)) == {"t": 0}
    ctx = make_context(where, 3, 12)
    metadata.handle(ctx, messages.MetadataRequest(topics=None))
    assert not ctx.cacheable
    assert ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, "t")
