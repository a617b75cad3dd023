"""A broker that stands for Kafka 4: what it lists, what it adds to 3.9, and what it refuses. All as a broker of 4.4.0 responded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest

import klamm
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.releases import kafka4_releases
from klamm.configs.releases.kafka_releases import versions_in
from klamm.protocol import messages
from klamm.protocol.apis import APIS, BROKER_SOFTWARE, ApiKey, Draft
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.record import Record, encode_batch
from klamm.server.apis.handlers import HANDLERS, handlers_of
from klamm.testing import BlockingCluster
from klamm.tests.harness.client import Client, ConnectionClosed

OF_4_4_0 = (
    "0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-5 19:2-7 20:1-6 21:0-2 22:0-5 "
    "23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-6 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 "
    "42:0-3 43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 "
    "74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 83:0-0 84:0-0 85:0-1 86:0-0 87:0-1 88:0-1 89:0-1 90:0-1 91:0-0 92:0-0 93:0-0 "
    "94:0-0"
)
"""What a broker of 4.4.0 lists with default configs."""

METADATA_VERSION = "metadata.version"


@pytest.fixture(scope="module")
def cluster(zookeeper: str) -> Iterator[BlockingCluster]:
    config = {"offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1}
    with klamm.Cluster(1, as_version="4.4", topics="orders:3", config=config, zookeeper=f"{zookeeper}/kafka-4-{uuid4()}") as made:
        yield made


@pytest.fixture
async def client(cluster: BlockingCluster) -> AsyncIterator[Client]:
    made = Client("127.0.0.1", cluster.addresses[0][2])
    yield made
    await made.close()


async def api_versions(client: Client, version: int = 4, software: str = "apache-kafka-java") -> messages.ApiVersionsResponse:
    response: messages.ApiVersionsResponse = await client.ask(messages.ApiVersionsRequest(software, "4.4.0"), version)
    return response


def text_of(ranges: dict[int, tuple[int, int]]) -> str:
    return " ".join(f"{key}:{low}-{high}" for key, (low, high) in sorted(ranges.items()))


def test_the_table_of_4_4_is_what_its_broker_lists_and_klamm_reads_all_of_it() -> None:
    assert text_of(versions_in("4.4")) == OF_4_4_0
    for release in kafka4_releases.RELEASES:
        for key, (low, high) in versions_in(release).items():
            assert key in APIS and low <= high <= APIS[key].last_version, (release, key)


@pytest.mark.parametrize("version", [0, 3, 4, 5])
async def test_a_client_sees_the_list_of_4_4_0(client: Client, version: int) -> None:
    response = await api_versions(client, version)
    assert text_of({row.api_key: (row.min_version, row.max_version) for row in response.api_keys}) == OF_4_4_0


async def test_brokers_of_klamm_see_what_they_send_each_other_and_kafka_4_does_not_have(client: Client) -> None:
    seen = {row.api_key for row in (await api_versions(client, 4, BROKER_SOFTWARE)).api_keys}
    assert {4, 5, 6, 7, 56, 67} <= seen


async def test_features_are_listed_with_their_levels_and_an_epoch(client: Client) -> None:
    newest = await api_versions(client)
    assert newest.finalized_features_epoch >= 0
    assert {row.name: row.max_version_level for row in newest.finalized_features}[METADATA_VERSION] == 33
    assert [(row.name, row.min_version, row.max_version) for row in newest.supported_features if row.name == METADATA_VERSION] == [
        (METADATA_VERSION, 7, 33)
    ]
    old = await api_versions(client, 3)
    assert [row.name for row in old.supported_features] == [METADATA_VERSION], "before version 4 none with level 0"


@pytest.mark.parametrize(("key", "version"), [(0, 2), (1, 3), (3, 14), (58, 0), (72, 0), (100, 0), (1790, 0)])
async def test_what_4_4_0_does_not_take_closes_the_connection(client: Client, key: int, version: int) -> None:
    with pytest.raises(ConnectionClosed):
        await client.frame(key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(40))


async def test_an_unknown_version_of_api_versions_gets_the_range(client: Client) -> None:
    response = await client.frame(bytes.fromhex("0012000900000001000170000278023100"))
    assert response.hex() == "00000001002300000001001200000005"


async def described(client: Client, names: tuple[str, ...] = (), limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    kind = messages.DescribeTopicPartitionsRequest
    topics = [kind.TopicRequest(name) for name in names]
    return await client.ask(kind(topics, limit, None if cursor is None else kind.Cursor(*cursor)), 0)


async def test_topic_partitions_come_in_pages_without_gap_or_repeat(client: Client) -> None:
    pages, cursor = [], None
    while True:
        page = await described(client, ("orders", "bad name", "nope"), 2, cursor)
        pages.append([(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in page.topics])
        if page.next_cursor is None:
            break
        cursor = page.next_cursor.topic_name, page.next_cursor.partition_index
    assert pages == [
        [("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION, []), ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []), ("orders", 0, [0, 1])],
        [("orders", 0, [2])],
    ]


@pytest.mark.parametrize("cursor", [("orders", -1), ("a", 0), ("z", 0)])
async def test_a_cursor_that_does_not_fit_the_topics_refuses_each_of_them(client: Client, cursor: tuple[str, int]) -> None:
    page = await described(client, ("orders",), 2, cursor)
    assert [(t.name, t.error_code) for t in page.topics] == [("orders", ErrorCode.INVALID_REQUEST)] and page.next_cursor is None


async def test_config_resources_are_listed_by_type(client: Client) -> None:
    async def listed(version: int, *types: int) -> tuple[int, list[tuple[str, int]]]:
        response = await client.ask(messages.ListConfigResourcesRequest(list(types)), version)
        return response.error_code, [(row.resource_name, row.resource_type) for row in response.config_resources]

    assert await listed(0) == (0, [])
    assert await listed(1) == (0, [("1", 8), ("1", 4), ("orders", 2)])
    assert await listed(1, 2, 4) == (0, [("1", 4), ("orders", 2)])
    assert await listed(1, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_the_quorum_is_the_active_controller_and_the_live_brokers(client: Client) -> None:
    kind = messages.DescribeQuorumRequest
    topics = [kind.TopicData(name, [kind.PartitionData(0)]) for name in ("__cluster_metadata", "orders")]
    response = await client.ask(kind(topics), 2)
    quorum, other = (topic.partitions[0] for topic in response.topics)
    assert (quorum.leader_id, quorum.leader_epoch, [each.replica_id for each in quorum.current_voters]) == (1, 1, [1])
    assert (other.error_code, other.error_message) == (3, "This server does not host this topic-partition.")
    assert [(node.node_id, [each.port for each in node.listeners]) for node in response.nodes] == [(1, [client.port])]


async def test_metadata_13_has_an_error_code_for_all(client: Client) -> None:
    response = await client.ask(messages.MetadataRequest(topics=None), 13)
    assert response.error_code == 0 and [topic.name for topic in response.topics] == ["orders"]


async def updated(client: Client, *updates: tuple[str, int, int], version: int = 2) -> tuple[int, str | None]:
    kind = messages.UpdateFeaturesRequest
    rows = [kind.FeatureUpdateKey(name, level, upgrade_type=how) for name, level, how in updates]
    response = await client.ask(kind(60_000, rows), version)
    return response.error_code, response.error_message


@pytest.mark.parametrize(
    ("name", "level", "how", "reason"),
    [
        ("foo", 1, 1, "Invalid update version 1 for feature foo. Local controller 1 does not support this feature."),
        (METADATA_VERSION, 34, 1, "Invalid update version 34 for feature metadata.version. Local controller 1 only supports versions 7-33"),
        (
            METADATA_VERSION, 30, 1,
            "Invalid update version 30 for feature metadata.version. Can't downgrade the version of this feature without setting the "
            "upgrade type to either safe or unsafe downgrade.",
        ),
        (
            METADATA_VERSION, 30, 2,
            "Unsupported metadata.version downgrade from 33 to 30. Refusing to perform the requested downgrade because it might delete "
            "metadata information.",
        ),
        (
            METADATA_VERSION, 33, 9,
            "Invalid update version 33 for feature metadata.version. The controller does not support the given upgrade type.",
        ),
    ],
)
async def test_an_update_of_a_feature_is_refused_in_the_words_of_kafka_4(
    client: Client, name: str, level: int, how: int, reason: str
) -> None:
    start = "The update failed for all features since the following feature had an error: "
    assert await updated(client, (name, level, how)) == (ErrorCode.INVALID_UPDATE_VERSION, start + reason)


REFUSED: dict[ApiKey, dict[str, Any]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {"group_id": "g", "member_id": "m"},
    ApiKey.SHARE_GROUP_HEARTBEAT: {"group_id": "g", "member_id": "m"},
    ApiKey.SHARE_FETCH: {"group_id": "g", "member_id": "m"},
    ApiKey.STREAMS_GROUP_HEARTBEAT: {"group_id": "g", "member_id": "m", "process_id": "p"},
    ApiKey.ADD_RAFT_VOTER: {"cluster_id": None},
}


@pytest.mark.parametrize("key", REFUSED, ids=lambda key: APIS[key].name)
async def test_what_klamm_does_not_have_of_kafka_4_is_refused_as_without_its_feature(client: Client, key: ApiKey) -> None:
    request = getattr(messages, f"{APIS[key].name}Request")(**REFUSED[key])
    assert (await client.ask(request, APIS[key].last_version)).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_each_api_of_kafka_4_has_a_handler_and_its_refusal_can_be_encoded_in_each_version() -> None:
    handlers = handlers_of(BrokerConfig({"zookeeper.connect": "z:1", "klamm.as.version": "4.4"}))
    listed = {row.key: row for row in APIS.values() if row.draft is Draft.KAFKA_4 and row.key in versions_in("4.4")}
    assert listed.keys() <= handlers.keys() and not listed.keys() & HANDLERS.keys()
    for key, row in listed.items():
        for version in range(row.min_version, row.last_version + 1):
            request = getattr(messages, f"{row.name}Request")()
            assert messages.encode(handlers[key].refuse(request, version, ErrorCode.UNSUPPORTED_VERSION, None), version)


async def test_topics_with_ids_in_place_of_names_take_records_and_offsets(client: Client) -> None:
    (topic,) = (await client.ask(messages.MetadataRequest(topics=None), 13)).topics
    commit, fetch, produce = messages.OffsetCommitRequest, messages.OffsetFetchRequest, messages.ProduceRequest
    ids = [b"\1" * 16, topic.topic_id]
    parts = [produce.PartitionProduceData(9, b"")]
    data = [produce.TopicProduceData("", each, parts) for each in ids]
    produced = await client.ask(produce(acks=1, timeout_ms=1000, topic_data=data), 13)
    assert {t.topic_id: [row.error_code for row in t.partition_responses] for t in produced.responses} == {
        ids[0]: [ErrorCode.UNKNOWN_TOPIC_ID], ids[1]: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    }
    assert (await client.ask(messages.FindCoordinatorRequest(coordinator_keys=["g"]), 6)).coordinators[0].error_code in (0, 15)
    offsets = [commit.OffsetCommitRequestPartition(0, 7)]
    wanted = commit("g", topics=[commit.OffsetCommitRequestTopic("", each, offsets) for each in ids])
    while (done := await client.ask(wanted, 10)).topics[-1].partitions[0].error_code in (14, 15, 16):
        pass
    assert {t.topic_id: t.partitions[0].error_code for t in done.topics} == {ids[0]: ErrorCode.UNKNOWN_TOPIC_ID, ids[1]: 0}
    topics = [fetch.OffsetFetchRequestTopics("", each, (0,)) for each in ids]
    (group,) = (await client.ask(fetch(groups=[fetch.OffsetFetchRequestGroup("g", topics=topics)]), 10)).groups
    assert {t.topic_id: (row.error_code, row.committed_offset) for t in group.topics for row in t.partitions} == {
        ids[0]: (ErrorCode.UNKNOWN_TOPIC_ID, -1), ids[1]: (0, 7)
    }


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE), ("right", 1, ErrorCode.NONE), ("right", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED), ("right", -1, ErrorCode.INVALID_REQUEST), (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_wants_another_broker_or_cluster_must_bootstrap_again(
    client: Client, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    if cluster_id == "right":
        cluster_id = (await client.ask(messages.MetadataRequest(topics=[]), 13)).cluster_id
    response = await client.ask(messages.ApiVersionsRequest("kcat", "1", cluster_id, node_id), 5)
    assert (response.error_code, bool(response.api_keys)) == (code, code is ErrorCode.NONE)


async def test_a_fault_tells_a_client_to_bootstrap_again(cluster: BlockingCluster, client: Client) -> None:
    with cluster.fault(api="Metadata", error="REBOOTSTRAP_REQUIRED"):
        response = await client.ask(messages.MetadataRequest(topics=None), 13)
        assert (response.error_code, response.topics) == (ErrorCode.REBOOTSTRAP_REQUIRED, [])
    assert (await client.ask(messages.MetadataRequest(topics=None), 13)).error_code == 0


async def test_the_id_of_a_topic_that_was_made_again_is_never_answered_with_its_successor(cluster: BlockingCluster, client: Client) -> None:
    async def topic_id() -> bytes:
        named = [messages.MetadataRequest.MetadataRequestTopic(name="again")]
        (topic,) = (await client.ask(messages.MetadataRequest(topics=named), 13)).topics
        return topic.topic_id

    async def produced(id_: bytes) -> int:
        batch = encode_batch([Record(0, 0, None, b"value", ())])
        data = [produce.TopicProduceData(topic_id=id_, partition_data=[produce.PartitionProduceData(0, batch)])]
        return (await client.ask(produce(acks=1, timeout_ms=1000, topic_data=data), 13)).responses[0].partition_responses[0].error_code

    async def fetched(id_: bytes, version: int, session_id: int = 0, epoch: int = -1) -> tuple[int, list[tuple[bytes, int, bool]]]:
        topics = [fetch.FetchTopic(topic_id=id_, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1 << 20)])]
        request = fetch(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=topics if epoch <= 0 else [])
        response = await client.ask(request, version)
        sessions.append(response.session_id)
        rows = [(topic.topic_id, row.error_code, bool(row.records)) for topic in response.responses for row in topic.partitions]
        return response.error_code, rows

    async def committed(id_: bytes) -> int:
        offsets = [commit.OffsetCommitRequestPartition(0, 7)]
        wanted = commit("again", topics=[commit.OffsetCommitRequestTopic(topic_id=id_, partitions=offsets)])
        while (code := (await client.ask(wanted, 10)).topics[0].partitions[0].error_code) in (14, 15, 16):
            await client.ask(messages.FindCoordinatorRequest(coordinator_keys=["again"]), 6)
        return code

    commit, fetch, produce = messages.OffsetCommitRequest, messages.FetchRequest, messages.ProduceRequest
    sessions: list[int] = []
    await asyncio.to_thread(cluster.create_topic, "again")
    old = await topic_id()
    assert (await produced(old), await committed(old)) == (0, 0)
    assert await fetched(old, 17, epoch=0) == (0, [(old, 0, True)])
    session = sessions[-1]
    await asyncio.to_thread(cluster.delete_topic, "again")
    await asyncio.to_thread(cluster.create_topic, "again")
    new = await topic_id()
    assert new != old and await produced(new) == 0
    assert (await produced(old), await committed(old)) == (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID)
    for version in (13, 17, 18):
        assert await fetched(old, version) == (0, [(old, ErrorCode.UNKNOWN_TOPIC_ID, False)])
        assert await fetched(new, version) == (0, [(new, 0, True)])
    assert await fetched(old, 17, session, 1) == (0, [(old, ErrorCode.INCONSISTENT_TOPIC_ID, False)]), "in a session from before"


async def test_a_client_must_bootstrap_again_when_the_brokers_show_another_cluster_id(cluster: BlockingCluster, client: Client) -> None:
    async def code(cluster_id: str) -> int:
        return (await client.ask(messages.ApiVersionsRequest("kcat", "1", cluster_id, 1), 5)).error_code

    async def shown() -> tuple[str, str]:
        described = await client.ask(messages.DescribeClusterRequest(), 2)
        return described.cluster_id, (await client.ask(messages.MetadataRequest(topics=None), 13)).cluster_id

    real, _ = await shown()
    await asyncio.to_thread(cluster.show_cluster_id, "another")
    assert await shown() == ("another", "another")
    assert (await code(real), await code("another")) == (ErrorCode.REBOOTSTRAP_REQUIRED, 0)
    await asyncio.to_thread(cluster.show_cluster_id, None)
    assert await shown() == (real, real) and await code(real) == 0
