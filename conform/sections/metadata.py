"""Section 5: metadata and leaders."""

from __future__ import annotations

from typing import Any

from klamm.conform.case import Section, expect
from klamm.conform.connection import expect_error
from klamm.conform.lab import Lab, batch
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID

SECTION = Section(5, "metadata", "Metadata and leaders")
NONE = ErrorCode.NONE
GUIDE = "Kafka protocol guide: Metadata"
NOT_ASKED = -(2**31)


def _wanted(name: str | None, topic_id: bytes = ZERO_UUID) -> Any:
    return messages.MetadataRequest.MetadataRequestTopic(name=name, topic_id=topic_id)


@SECTION.must(1, "Every leader is among the brokers of the same response.", GUIDE)
async def leaders_are_brokers(lab: Lab) -> None:
    await lab.topic(3)
    response = await lab.ask(messages.MetadataRequest(topics=None), 12, 1)
    brokers = {each.node_id for each in response.brokers} | {-1}
    bad = {part.leader_id for topic in response.topics for part in topic.partitions} - brokers
    expect(not bad, f"leaders {sorted(bad)} are not among brokers {sorted(brokers - {-1})}")


@SECTION.must(2, "The controller is among the brokers.", GUIDE)
async def controller_is_broker(lab: Lab) -> None:
    response = await lab.metadata()
    expect(response.controller_id in {each.node_id for each in response.brokers}, f"controller {response.controller_id}")


@SECTION.must(3, "Each broker is listed once, with an address.", GUIDE)
async def brokers_once(lab: Lab) -> None:
    brokers = (await lab.metadata()).brokers
    expect(len({each.node_id for each in brokers}) == len(brokers) > 0, f"{len(brokers)} brokers")
    expect(all(each.host and 0 < each.port < 65536 for each in brokers), "a broker without address")


@SECTION.must(4, "A cluster id is there, and does not change.", "KIP-78")
async def cluster_id(lab: Lab) -> None:
    ids = {(await lab.ask(messages.MetadataRequest(topics=[]), 12, 2)).cluster_id for _ in range(3)}
    expect(len(ids) == 1 and all(ids), f"cluster ids {ids}")


@SECTION.must(5, "Null in place of topics asks for all topics.", GUIDE)
async def all_topics(lab: Lab) -> None:
    topic = await lab.topic()
    names = [each.name for each in (await lab.ask(messages.MetadataRequest(topics=None), 12, 1)).topics]
    expect(topic in names, "a topic is missing")
    expect(len(names) == len(set(names)), "a topic is listed twice")


@SECTION.must(6, "An empty array of topics asks for no topics since version 1.", GUIDE)
async def no_topics(lab: Lab) -> None:
    await lab.topic()
    topics = (await lab.ask(messages.MetadataRequest(topics=[]), 12, 1)).topics
    expect(not topics, f"{len(topics)} topics")


@SECTION.must(7, "An empty array of topics asks for all topics in version 0.", GUIDE)
async def all_in_version_0(lab: Lab) -> None:
    topic = await lab.topic()
    response = await lab.ask(messages.MetadataRequest(topics=[]), 0)
    expect(topic in {each.name for each in response.topics}, "a topic is missing")


@SECTION.must(8, "Metadata without allow_auto_topic_creation creates no topic.", "KIP-4, Metadata 4")
async def creates_nothing(lab: Lab) -> None:
    name = lab.name()
    request = messages.MetadataRequest(topics=[_wanted(name)], allow_auto_topic_creation=False)
    await lab.ask(request, 12, 4)
    response = await lab.ask(messages.MetadataRequest(topics=None), 12, 4)
    expect(name not in {each.name for each in response.topics}, "the topic exists")


@SECTION.must(9, "The partitions of a topic are 0 to n - 1, each once.", GUIDE)
async def indexes(lab: Lab) -> None:
    topic = await lab.topic(5)
    found = sorted(each.partition_index for each in (await lab.metadata(topic)).topics[0].partitions)
    expect(found == [0, 1, 2, 3, 4], f"partitions {found}")


@SECTION.must(10, "The leader is one of the replicas, and so is each of the ISR.", GUIDE)
async def replicas(lab: Lab) -> None:
    topic = await lab.topic(3)
    for each in (await lab.metadata(topic)).topics[0].partitions:
        nodes = each.replica_nodes
        expect(each.leader_id in nodes, f"leader {each.leader_id} of replicas {list(nodes)}")
        expect(set(each.isr_nodes) <= set(nodes) and len(set(nodes)) == len(nodes), f"ISR {list(each.isr_nodes)} of {list(nodes)}")


@SECTION.must(11, "The leader epoch is not negative.", "KIP-320, Metadata 7")
async def leader_epoch(lab: Lab) -> None:
    lab.version("Metadata", 12, 7)
    epoch = (await lab.metadata(await lab.topic())).topics[0].partitions[0].leader_epoch
    expect(epoch >= 0, f"leader epoch {epoch}")


@SECTION.must(12, "A topic has an id that is not zero and does not change.", "KIP-516, Metadata 10")
async def topic_ids(lab: Lab) -> None:
    topic = await lab.topic()
    first, second = await lab.topic_id(topic), await lab.topic_id(topic)
    expect(first == second != ZERO_UUID, f"{first.hex()}, then {second.hex()}")


@SECTION.must(13, "Metadata of a topic id has the name of the topic.", "KIP-516, Metadata 12")
async def by_id(lab: Lab) -> None:
    topic = await lab.topic()
    request = messages.MetadataRequest(topics=[_wanted(None, await lab.topic_id(topic))], allow_auto_topic_creation=False)
    response = await lab.ask(request, 12, 12)
    expect_error(response.topics[0].error_code, NONE)
    expect(response.topics[0].name == topic, f"name {response.topics[0].name}")


@SECTION.must(14, "Metadata of an unknown topic id is UNKNOWN_TOPIC_ID.", "KIP-516")
async def unknown_id(lab: Lab) -> None:
    request = messages.MetadataRequest(topics=[_wanted(None, b"\x07" * 16)], allow_auto_topic_creation=False)
    expect_error((await lab.ask(request, 12, 12)).topics[0].error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@SECTION.must(15, "A topic that is created again has another id.", "KIP-516")
async def recreated(lab: Lab) -> None:
    topic = await lab.topic()
    first = await lab.topic_id(topic)
    await lab.delete_topics(topic)
    row = messages.CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    await lab.until_error(
        lambda: lab.ask_controller(messages.CreateTopicsRequest(topics=[row], timeout_ms=8000)), lambda response: response.topics[0]
    )
    await lab.until(lambda: lab.topic_id(topic), lambda found: found not in (first, ZERO_UUID))


@SECTION.must(16, "The topic of committed offsets is internal.", GUIDE)
async def internal(lab: Lab) -> None:
    await lab.coordinator(lab.group())
    response = await lab.metadata("__consumer_offsets")
    expect(response.topics[0].is_internal, "it is not internal")


@SECTION.must(17, "DescribeCluster names the brokers and the cluster id of Metadata.", "KIP-700")
async def describe_cluster(lab: Lab) -> None:
    described, metadata = await lab.ask(messages.DescribeClusterRequest()), await lab.metadata()
    rows = [sorted((each[0], each.host, each.port) for each in of.brokers) for of in (described, metadata)]
    expect(rows[0] == rows[1], f"{rows[0]} and {rows[1]}")
    expect(described.cluster_id == metadata.cluster_id, f"{described.cluster_id} and {metadata.cluster_id}")


@SECTION.must(18, "Authorized operations that are not asked for are -2147483648.", "KIP-430")
async def operations(lab: Lab) -> None:
    lab.version("Metadata", 12, 8)
    found = (await lab.metadata(await lab.topic())).topics[0].topic_authorized_operations
    expect(found == NOT_ASKED, f"operations {found}")


@SECTION.must(19, "Authorized operations that are asked for are there.", "KIP-430")
async def asked_operations(lab: Lab) -> None:
    request = messages.MetadataRequest(topics=[_wanted(await lab.topic())], include_topic_authorized_operations=True)
    found = (await lab.ask(request, 12, 8)).topics[0].topic_authorized_operations
    expect(found != NOT_ASKED and found > 0, f"operations {found}")


@SECTION.must(20, "A topic that is asked for twice is described once.", "Apache Kafka: KafkaApis.handleTopicMetadataRequest")
async def asked_twice(lab: Lab) -> None:
    topic = await lab.topic()
    found = len((await lab.metadata(topic, topic)).topics)
    expect(found == 1, f"{found} topics")


@SECTION.must(21, "Each broker names the same brokers and the same cluster.", GUIDE)
async def all_agree(lab: Lab) -> None:
    first = await lab.metadata()
    request, version = messages.MetadataRequest(topics=[]), lab.version("Metadata", 12, 2)
    for broker in first.brokers:
        other = await (await lab.connect((broker.host, broker.port))).ask(request, version)
        same = {each.node_id for each in other.brokers} == {each.node_id for each in first.brokers}
        expect(same and other.cluster_id == first.cluster_id, f"broker {broker.node_id} disagrees")


@SECTION.must(22, "All versions of Metadata name the same leaders.", GUIDE)
async def all_versions(lab: Lab) -> None:
    topic = await lab.topic(2)
    seen = set()
    for version in range(max(lab.versions[3][0], 0), lab.version("Metadata") + 1):
        response = await (await lab.connect()).ask(messages.MetadataRequest(topics=[_wanted(topic)]), version)
        seen.add(tuple(sorted((each.partition_index, each.leader_id) for each in response.topics[0].partitions)))
    expect(len(seen) == 1, f"leaders {seen}")


@SECTION.must(23, "OffsetForLeaderEpoch of the current epoch has the end of the log.", "KIP-101, KIP-279")
async def epoch_end(lab: Lab) -> None:
    topic = await lab.topic()
    lab.version("Metadata", 12, 7)
    await lab.produce(topic, batch("a", "b"))
    epoch = (await lab.metadata(topic)).topics[0].partitions[0].leader_epoch
    part = messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=epoch)
    rows = [messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[part])]
    request = messages.OffsetForLeaderEpochRequest(replica_id=-1, topics=rows)
    answer = (await (await lab.leader(topic)).ask(request, lab.version("OffsetForLeaderEpoch", 4, 2))).topics[0].partitions[0]
    expect_error(answer.error_code, NONE)
    expect((answer.leader_epoch, answer.end_offset) == (epoch, 2), f"epoch {answer.leader_epoch}, end {answer.end_offset}")


@SECTION.must(24, "OffsetForLeaderEpoch with a newer current epoch is UNKNOWN_LEADER_EPOCH.", "KIP-320")
async def newer_epoch(lab: Lab) -> None:
    topic = await lab.topic()
    part = messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, current_leader_epoch=99, leader_epoch=0)
    rows = [messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[part])]
    request = messages.OffsetForLeaderEpochRequest(replica_id=-1, topics=rows)
    answer = (await (await lab.leader(topic)).ask(request, lab.version("OffsetForLeaderEpoch", 4, 2))).topics[0].partitions[0]
    expect_error(answer.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH)
