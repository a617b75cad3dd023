"""Section 4: errors and limits."""

from __future__ import annotations

from typing import Any

from klamm.conform.case import Section, expect
from klamm.conform.connection import expect_error
from klamm.conform.lab import Lab, batch, fetch_request
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode

SECTION = Section(4, "limits", "Errors and limits")
NONE, UNKNOWN_TOPIC = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
GUIDE = "Kafka protocol guide: error codes"
NAMES = "Apache Kafka: Topic.validate: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..'"


async def create(lab: Lab, name: str, partitions: int = 1, replicas: int = 1, validate_only: bool = False, **configs: str) -> Any:
    """The row of a topic in the response of CreateTopics."""
    pair = messages.CreateTopicsRequest.CreatableTopicConfig
    row = messages.CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas,
        configs=[pair(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    if name.startswith(lab.prefix) and not validate_only:
        lab.remember(name)
    request = messages.CreateTopicsRequest(topics=[row], timeout_ms=8000, validate_only=validate_only)
    return (await lab.ask_controller(request, at_least=1)).topics[0]


async def _is_refused(lab: Lab, error: ErrorCode, name: str | None = None, **more: Any) -> None:
    chosen = lab.name() if name is None else name
    expect_error((await create(lab, chosen, **more)).error_code, error)
    expect_error((await lab.metadata(lab.name())).topics[0].error_code, UNKNOWN_TOPIC, ErrorCode.INVALID_TOPIC_EXCEPTION)


@SECTION.must(1, "A topic name with a slash is INVALID_TOPIC_EXCEPTION.", NAMES)
async def slash(lab: Lab) -> None:
    await _is_refused(lab, ErrorCode.INVALID_TOPIC_EXCEPTION, f"{lab.name()}/x")


@SECTION.must(2, "An empty topic name is INVALID_TOPIC_EXCEPTION.", NAMES)
async def empty_name(lab: Lab) -> None:
    await _is_refused(lab, ErrorCode.INVALID_TOPIC_EXCEPTION, "")


@SECTION.must(3, "The topic names `.` and `..` are INVALID_TOPIC_EXCEPTION.", NAMES)
async def points(lab: Lab) -> None:
    await _is_refused(lab, ErrorCode.INVALID_TOPIC_EXCEPTION, ".")
    await _is_refused(lab, ErrorCode.INVALID_TOPIC_EXCEPTION, "..")


@SECTION.must(4, "A topic name of 250 characters is INVALID_TOPIC_EXCEPTION.", NAMES)
async def long_name(lab: Lab) -> None:
    await _is_refused(lab, ErrorCode.INVALID_TOPIC_EXCEPTION, lab.name().ljust(250, "x"))


@SECTION.must(5, "A topic name of 249 characters is allowed.", NAMES)
async def longest_name(lab: Lab) -> None:
    expect_error((await create(lab, lab.name().ljust(249, "x"))).error_code, NONE)


@SECTION.must(6, "Names that differ only in `.` and `_` are INVALID_TOPIC_EXCEPTION.", "Apache Kafka: Topic.hasCollision")
async def colliding_names(lab: Lab) -> None:
    name = lab.name()
    expect_error((await create(lab, f"{name}.a")).error_code, NONE)
    await lab.leader(f"{name}.a")
    expect_error((await create(lab, f"{name}_a")).error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)


@SECTION.must(7, "A topic without partitions is INVALID_PARTITIONS.", GUIDE)
async def no_partitions(lab: Lab) -> None:
    await _is_refused(lab, ErrorCode.INVALID_PARTITIONS, partitions=0)


@SECTION.must(8, "Replication factor 0 is INVALID_REPLICATION_FACTOR.", GUIDE)
async def no_replicas(lab: Lab) -> None:
    await _is_refused(lab, ErrorCode.INVALID_REPLICATION_FACTOR, replicas=0)


@SECTION.must(9, "More replicas than brokers are INVALID_REPLICATION_FACTOR.", GUIDE)
async def too_many_replicas(lab: Lab) -> None:
    await _is_refused(lab, ErrorCode.INVALID_REPLICATION_FACTOR, replicas=1000)


@SECTION.must(10, "An unknown topic config is INVALID_CONFIG.", GUIDE)
async def unknown_config(lab: Lab) -> None:
    await _is_refused(lab, ErrorCode.INVALID_CONFIG, no_such_config="1")


@SECTION.must(11, "A topic config with a value of a wrong type is INVALID_CONFIG.", GUIDE)
async def bad_config(lab: Lab) -> None:
    await _is_refused(lab, ErrorCode.INVALID_CONFIG, retention_ms="soon")


@SECTION.must(12, "A topic that exists is TOPIC_ALREADY_EXISTS.", GUIDE)
async def existing(lab: Lab) -> None:
    expect_error((await create(lab, await lab.topic())).error_code, ErrorCode.TOPIC_ALREADY_EXISTS)


@SECTION.must(13, "A topic that is twice in one CreateTopics is INVALID_REQUEST.", "Apache Kafka: CreateTopics")
async def twice(lab: Lab) -> None:
    row = messages.CreateTopicsRequest.CreatableTopic(name=lab.name(), num_partitions=1, replication_factor=1)
    response = await lab.ask_controller(messages.CreateTopicsRequest(topics=[row, row], timeout_ms=8000))
    for topic in response.topics:
        expect_error(topic.error_code, ErrorCode.INVALID_REQUEST)


@SECTION.must(14, "A bad topic in CreateTopics does not hinder a good one.", "KIP-4")
async def good_beside_bad(lab: Lab) -> None:
    row = messages.CreateTopicsRequest.CreatableTopic
    good, bad = lab.name(), lab.name()
    lab.remember(good)
    rows = [row(name=bad, num_partitions=0, replication_factor=1), row(name=good, num_partitions=1, replication_factor=1)]
    response = await lab.ask_controller(messages.CreateTopicsRequest(topics=rows, timeout_ms=8000))
    codes = {each.name: each.error_code for each in response.topics}
    expect(codes == {bad: ErrorCode.INVALID_PARTITIONS, good: NONE}, f"error codes {sorted(codes.values())}")


@SECTION.must(15, "DeleteTopics of an unknown topic is UNKNOWN_TOPIC_OR_PARTITION.", GUIDE)
async def delete_unknown(lab: Lab) -> None:
    expect_error((await lab.delete_topics(lab.name())).responses[0].error_code, UNKNOWN_TOPIC)


@SECTION.must(16, "Metadata of an unknown topic is UNKNOWN_TOPIC_OR_PARTITION.", GUIDE)
async def unknown_metadata(lab: Lab) -> None:
    lab.version("Metadata", 12, 4)
    expect_error((await lab.metadata(lab.name())).topics[0].error_code, UNKNOWN_TOPIC)


@SECTION.must(17, "Metadata of an invalid name is INVALID_TOPIC_EXCEPTION.", GUIDE)
async def invalid_metadata(lab: Lab) -> None:
    wanted = [messages.MetadataRequest.MetadataRequestTopic(name="a/b")]
    response = await lab.ask(messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 12, 4)
    expect_error(response.topics[0].error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)


@SECTION.must(18, "Produce to an unknown topic is UNKNOWN_TOPIC_OR_PARTITION.", GUIDE)
async def produce_unknown_topic(lab: Lab) -> None:
    response = await lab.ask(lab.produce_request(lab.name(), batch("a")), 12, 3)
    expect_error(response.responses[0].partition_responses[0].error_code, UNKNOWN_TOPIC)


@SECTION.must(19, "Produce to an unknown partition is UNKNOWN_TOPIC_OR_PARTITION.", GUIDE)
async def produce_unknown_partition(lab: Lab) -> None:
    connection = await lab.leader(topic := await lab.topic())
    response = await connection.ask(lab.produce_request(topic, batch("a"), partition=7), lab.version("Produce", 12, 3))
    expect_error(response.responses[0].partition_responses[0].error_code, UNKNOWN_TOPIC)


@SECTION.must(20, "Produce with acks other than -1, 0 and 1 is INVALID_REQUIRED_ACKS.", GUIDE)
async def bad_acks(lab: Lab) -> None:
    expect_error((await lab.produce(await lab.topic(), batch("a"), acks=2)).error_code, ErrorCode.INVALID_REQUIRED_ACKS)


@SECTION.must(21, "A batch above max.message.bytes is MESSAGE_TOO_LARGE, and is not appended.", GUIDE)
async def too_large(lab: Lab) -> None:
    topic = await lab.topic(max_message_bytes="1000")
    expect_error((await lab.produce(topic, batch("x" * 1000))).error_code, ErrorCode.MESSAGE_TOO_LARGE)
    answer = await lab.produce(topic, batch("x"))
    expect(answer.base_offset == 0, f"the next batch has offset {answer.base_offset}")


@SECTION.must(22, "A good partition beside a bad one in a Produce request is appended.", GUIDE)
async def good_partition(lab: Lab) -> None:
    connection = await lab.leader(topic := await lab.topic())
    part = messages.ProduceRequest.PartitionProduceData
    rows = [part(index=0, records=batch("a")), part(index=9, records=batch("a"))]
    data = [messages.ProduceRequest.TopicProduceData(name=topic, partition_data=rows)]
    response = await connection.ask(messages.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data), lab.version("Produce", 12, 3))
    codes = {each.index: each.error_code for each in response.responses[0].partition_responses}
    expect(codes == {0: NONE, 9: UNKNOWN_TOPIC}, f"error codes {codes}")


@SECTION.must(23, "Fetch of an unknown partition is UNKNOWN_TOPIC_OR_PARTITION.", GUIDE)
async def fetch_unknown(lab: Lab) -> None:
    connection = await lab.leader(topic := await lab.topic())
    response = await connection.ask(fetch_request(topic, partition=7), lab.version("Fetch", 12, 4))
    expect_error(response.responses[0].partitions[0].error_code, UNKNOWN_TOPIC)


@SECTION.must(24, "Fetch behind the end of the log is OFFSET_OUT_OF_RANGE.", GUIDE)
async def fetch_behind_end(lab: Lab) -> None:
    expect_error((await lab.fetch(await lab.topic(), 1)).error_code, ErrorCode.OFFSET_OUT_OF_RANGE)


@SECTION.must(25, "Fetch of a negative offset is OFFSET_OUT_OF_RANGE.", GUIDE)
async def fetch_negative(lab: Lab) -> None:
    expect_error((await lab.fetch(await lab.topic(), -5)).error_code, ErrorCode.OFFSET_OUT_OF_RANGE)


@SECTION.must(26, "ListOffsets of an unknown partition is UNKNOWN_TOPIC_OR_PARTITION.", GUIDE)
async def list_unknown(lab: Lab) -> None:
    part = messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=7, timestamp=-1)
    connection = await lab.leader(topic := await lab.topic())
    rows = [messages.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
    response = await connection.ask(messages.ListOffsetsRequest(replica_id=-1, topics=rows), lab.version("ListOffsets", 9, 1))
    expect_error(response.topics[0].partitions[0].error_code, UNKNOWN_TOPIC)


@SECTION.must(27, "An unknown key type of FindCoordinator is INVALID_REQUEST.", GUIDE)
async def bad_key_type(lab: Lab) -> None:
    response = await lab.ask(messages.FindCoordinatorRequest(key="x", key_type=99), 3, 1)
    expect_error(response.error_code, ErrorCode.INVALID_REQUEST)
