"""Section 12: administration of topics, configs, records, log dirs, reassignments and users."""

from __future__ import annotations

from typing import Any

from klamm.conform.case import Absent, Section, expect
from klamm.conform.connection import expect_error
from klamm.conform.lab import Lab, batch
from klamm.conform.sections.limits import create
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode

SECTION = Section(12, "admin", "Administration")
NONE = ErrorCode.NONE
TOPIC = 2
"""The type of a config resource."""
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, DEFAULT = 1, 5
"""Sources of a config."""
SCRAM_SHA_256 = 1


async def _configs(lab: Lab, topic: str, *keys: str) -> dict[str, Any]:
    """Name → config of a topic."""
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=list(keys) or None
    )
    response = await lab.ask(messages.DescribeConfigsRequest(resources=[resource]), at_least=1)
    expect_error(response.results[0].error_code, NONE, what="DescribeConfigs")
    return {each.name: each for each in response.results[0].configs}


async def _alter(lab: Lab, topic: str, key: str, operation: int, value: str | None, validate_only: bool = False) -> int:
    """The error code of IncrementalAlterConfigs."""
    rows = messages.IncrementalAlterConfigsRequest
    config = rows.AlterableConfig(name=key, config_operation=operation, value=value)
    resource = rows.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])
    response = await lab.ask_controller(rows(resources=[resource], validate_only=validate_only))
    code: int = response.responses[0].error_code
    return code


async def _value_is(lab: Lab, topic: str, key: str, value: str) -> None:
    await lab.until(lambda: _configs(lab, topic, key), lambda found: found[key].value == value)


@SECTION.must(1, "The response of CreateTopics has the id, the partitions and the replication factor of the topic.", "KIP-525")
async def created(lab: Lab) -> None:
    lab.version("CreateTopics", 7, 7)
    answer = await create(lab, lab.name(), partitions=3)
    expect_error(answer.error_code, NONE)
    expect((answer.num_partitions, answer.replication_factor) == (3, 1), f"{answer.num_partitions} partitions")
    expect(any(answer.topic_id), "no topic id")
    expect(answer.configs, "no configs")


@SECTION.must(2, "CreateTopics with validate_only creates nothing.", "KIP-4")
async def validates(lab: Lab) -> None:
    name = lab.name()
    expect_error((await create(lab, name, validate_only=True)).error_code, NONE)
    names = {each.name for each in (await lab.ask(messages.MetadataRequest(topics=None), 12, 1)).topics}
    expect(name not in names, "the topic exists")


@SECTION.must(3, "Partitions and replicas of -1 are the defaults of the broker.", "KIP-464, CreateTopics 4")
async def defaults(lab: Lab) -> None:
    lab.version("CreateTopics", 7, 5)
    answer = await create(lab, lab.name(), partitions=-1, replicas=-1)
    expect_error(answer.error_code, NONE)
    expect(answer.num_partitions > 0 and answer.replication_factor > 0, f"{answer.num_partitions} partitions")


@SECTION.must(4, "CreateTopics with an assignment uses it.", "KIP-4")
async def assigned(lab: Lab) -> None:
    name, broker = lab.name(), (await lab.metadata()).brokers[0].node_id
    lab.remember(name)
    rows = messages.CreateTopicsRequest
    parts = [rows.CreatableReplicaAssignment(partition_index=number, broker_ids=(broker,)) for number in range(2)]
    row = rows.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=parts)
    expect_error((await lab.ask_controller(rows(topics=[row], timeout_ms=8000))).topics[0].error_code, NONE)
    await lab.leader(name, 1)
    found = {tuple(each.replica_nodes) for each in (await lab.metadata(name)).topics[0].partitions}
    expect(found == {(broker,)}, f"replicas {found}")


@SECTION.must(5, "An assignment beside a number of partitions is INVALID_REQUEST.", "KIP-4")
async def both(lab: Lab) -> None:
    rows = messages.CreateTopicsRequest
    parts = [rows.CreatableReplicaAssignment(partition_index=0, broker_ids=(0,))]
    row = rows.CreatableTopic(name=lab.name(), num_partitions=1, replication_factor=1, assignments=parts)
    response = await lab.ask_controller(rows(topics=[row], timeout_ms=8000))
    expect_error(response.topics[0].error_code, ErrorCode.INVALID_REQUEST)


async def _grow(lab: Lab, topic: str, count: int) -> int:
    row = messages.CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    response = await lab.ask_controller(messages.CreatePartitionsRequest(topics=[row], timeout_ms=8000))
    code: int = response.results[0].error_code
    return code


@SECTION.must(6, "CreatePartitions adds partitions with leaders.", "KIP-195")
async def grows(lab: Lab) -> None:
    topic = await lab.topic()
    expect_error(await _grow(lab, topic, 3), NONE)
    await lab.leader(topic, 2)


@SECTION.must(7, "CreatePartitions with fewer or as many partitions is INVALID_PARTITIONS.", "KIP-195")
async def shrinks(lab: Lab) -> None:
    topic = await lab.topic(2)
    expect_error(await _grow(lab, topic, 1), ErrorCode.INVALID_PARTITIONS)
    expect_error(await _grow(lab, topic, 2), ErrorCode.INVALID_PARTITIONS)


@SECTION.must(8, "CreatePartitions of an unknown topic is UNKNOWN_TOPIC_OR_PARTITION.", "KIP-195")
async def grows_unknown(lab: Lab) -> None:
    expect_error(await _grow(lab, lab.name(), 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@SECTION.must(9, "A config that a topic was created with is described with its source.", "KIP-226")
async def described(lab: Lab) -> None:
    found = (await _configs(lab, await lab.topic(retention_ms="12345")))["retention.ms"]
    expect((found.value, found.config_source) == ("12345", OF_TOPIC), f"{found.value}, source {found.config_source}")


@SECTION.must(10, "DescribeConfigs with names has only these configs.", "KIP-133")
async def some_configs(lab: Lab) -> None:
    found = set(await _configs(lab, await lab.topic(), "retention.ms", "cleanup.policy"))
    expect(found == {"retention.ms", "cleanup.policy"}, f"{sorted(found)}")


@SECTION.must(11, "DescribeConfigs of an unknown topic is UNKNOWN_TOPIC_OR_PARTITION.", "KIP-133")
async def unknown_configs(lab: Lab) -> None:
    row = messages.DescribeConfigsRequest.DescribeConfigsResource
    resource = row(resource_type=TOPIC, resource_name=lab.name(), configuration_keys=None)
    response = await lab.ask(messages.DescribeConfigsRequest(resources=[resource]), at_least=1)
    expect_error(response.results[0].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@SECTION.must(12, "IncrementalAlterConfigs sets a config and deletes it again.", "KIP-339")
async def sets(lab: Lab) -> None:
    topic = await lab.topic()
    before = (await _configs(lab, topic, "retention.ms"))["retention.ms"].value
    expect_error(await _alter(lab, topic, "retention.ms", SET, "12345"), NONE)
    await _value_is(lab, topic, "retention.ms", "12345")
    expect_error(await _alter(lab, topic, "retention.ms", DELETE, None), NONE)
    await _value_is(lab, topic, "retention.ms", before)


@SECTION.must(13, "IncrementalAlterConfigs appends to a list and subtracts from it.", "KIP-339")
async def appends(lab: Lab) -> None:
    topic = await lab.topic(cleanup_policy="delete")
    expect_error(await _alter(lab, topic, "cleanup.policy", APPEND, "compact"), NONE)
    await _value_is(lab, topic, "cleanup.policy", "delete,compact")
    expect_error(await _alter(lab, topic, "cleanup.policy", SUBTRACT, "delete"), NONE)
    await _value_is(lab, topic, "cleanup.policy", "compact")


@SECTION.must(14, "IncrementalAlterConfigs with an invalid value is INVALID_CONFIG, and changes nothing.", "KIP-339")
async def invalid(lab: Lab) -> None:
    topic = await lab.topic(retention_ms="12345")
    expect_error(await _alter(lab, topic, "retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG)
    await _value_is(lab, topic, "retention.ms", "12345")


@SECTION.must(15, "Appending to a config that is not a list is INVALID_CONFIG or INVALID_REQUEST.", "KIP-339")
async def appends_to_number(lab: Lab) -> None:
    code = await _alter(lab, await lab.topic(), "retention.ms", APPEND, "1")
    expect_error(code, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)


@SECTION.must(16, "IncrementalAlterConfigs with validate_only changes nothing.", "KIP-339")
async def validates_configs(lab: Lab) -> None:
    topic = await lab.topic(retention_ms="12345")
    expect_error(await _alter(lab, topic, "retention.ms", SET, "6789", validate_only=True), NONE)
    await _value_is(lab, topic, "retention.ms", "12345")


@SECTION.must(17, "AlterConfigs replaces all configs of a topic.", "KIP-133")
async def replaces(lab: Lab) -> None:
    topic = await lab.topic(retention_ms="12345", max_message_bytes="2000")
    rows = messages.AlterConfigsRequest
    resource = rows.AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=[rows.AlterableConfig(name="max.message.bytes", value="3000")]
    )
    response = await lab.ask_controller(rows(resources=[resource]))
    expect_error(response.responses[0].error_code, NONE)
    await _value_is(lab, topic, "max.message.bytes", "3000")
    expect((await _configs(lab, topic))["retention.ms"].value != "12345", "a config that is not in the request stays")


@SECTION.must(18, "DeleteTopics by id deletes the topic.", "KIP-516, DeleteTopics 6")
async def deletes_by_id(lab: Lab) -> None:
    version = lab.version("DeleteTopics", 6, 6)
    topic = await lab.topic()
    state = messages.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=await lab.topic_id(topic))
    response = await (await lab.controller()).ask(messages.DeleteTopicsRequest(topics=[state], timeout_ms=8000), version)
    expect_error(response.responses[0].error_code, NONE)
    expect(response.responses[0].name == topic, f"name {response.responses[0].name}")
    await lab.until(
        lambda: lab.metadata(topic), lambda found: found.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


@SECTION.must(19, "DeleteTopics of an unknown id is UNKNOWN_TOPIC_ID.", "KIP-516, DeleteTopics 6")
async def deletes_unknown_id(lab: Lab) -> None:
    state = messages.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=b"\x07" * 16)
    response = await lab.ask_controller(messages.DeleteTopicsRequest(topics=[state], timeout_ms=8000), at_least=6)
    expect_error(response.responses[0].error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@SECTION.must(20, "DescribeLogDirs has the size of a replica.", "KIP-113")
async def log_dirs(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.produce(topic, batch("x" * 100))
    rows = [messages.DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=(0,))]
    response = await (await lab.leader(topic)).ask(messages.DescribeLogDirsRequest(topics=rows), lab.version("DescribeLogDirs", at_least=1))
    sizes = [part.partition_size for each in response.results for one in each.topics for part in one.partitions if one.name == topic]
    expect(len(sizes) == 1 and sizes[0] > 100, f"sizes {sizes}")


@SECTION.must(21, "ListPartitionReassignments without a reassignment has no topics.", "KIP-455")
async def no_reassignments(lab: Lab) -> None:
    rows = [messages.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name=await lab.topic(), partition_indexes=(0,))]
    response = await lab.ask_controller(messages.ListPartitionReassignmentsRequest(timeout_ms=5000, topics=rows))
    expect_error(response.error_code, NONE)
    expect(not response.topics, f"{len(response.topics)} topics")


async def _reassign(lab: Lab, topic: str, replicas: tuple[int, ...] | None, partition: int = 0) -> int:
    rows = messages.AlterPartitionReassignmentsRequest
    part = rows.ReassignablePartition(partition_index=partition, replicas=replicas)
    response = await lab.ask_controller(rows(timeout_ms=5000, topics=[rows.ReassignableTopic(name=topic, partitions=[part])]))
    code: int = response.responses[0].partitions[0].error_code
    return code


@SECTION.must(22, "Cancelling a reassignment that does not exist is NO_REASSIGNMENT_IN_PROGRESS.", "KIP-455")
async def cancels(lab: Lab) -> None:
    expect_error(await _reassign(lab, await lab.topic(), None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


@SECTION.must(23, "Reassigning an unknown topic is UNKNOWN_TOPIC_OR_PARTITION.", "KIP-455")
async def reassigns_unknown(lab: Lab) -> None:
    broker = (await lab.metadata()).brokers[0].node_id
    expect_error(await _reassign(lab, lab.name(), (broker,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@SECTION.must(24, "Reassigning to a broker that does not exist is INVALID_REPLICA_ASSIGNMENT.", "KIP-455")
async def reassigns_nowhere(lab: Lab) -> None:
    expect_error(await _reassign(lab, await lab.topic(), (12345,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT)


@SECTION.must(25, "ElectLeaders of a partition whose preferred leader leads is ELECTION_NOT_NEEDED.", "KIP-460")
async def elects(lab: Lab) -> None:
    rows = [messages.ElectLeadersRequest.TopicPartitions(topic=await lab.topic(), partitions=(0,))]
    response = await lab.ask_controller(messages.ElectLeadersRequest(election_type=0, topic_partitions=rows, timeout_ms=5000))
    expect_error(response.replica_election_results[0].partition_result[0].error_code, ErrorCode.ELECTION_NOT_NEEDED)


@SECTION.must(26, "ElectLeaders of an unknown partition is UNKNOWN_TOPIC_OR_PARTITION.", "KIP-460")
async def elects_unknown(lab: Lab) -> None:
    rows = [messages.ElectLeadersRequest.TopicPartitions(topic=lab.name(), partitions=(0,))]
    response = await lab.ask_controller(messages.ElectLeadersRequest(election_type=0, topic_partitions=rows, timeout_ms=5000))
    expect_error(response.replica_election_results[0].partition_result[0].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def _users(lab: Lab, name: str) -> Any:
    rows = messages.DescribeUserScramCredentialsRequest
    return (await lab.ask_controller(rows(users=[rows.UserName(name=name)]))).results[0]


@SECTION.must(27, "A SCRAM user that is made is described without its password, and one that is deleted is not.", "KIP-554")
async def scram_user(lab: Lab) -> None:
    rows, name = messages.AlterUserScramCredentialsRequest, lab.name("user")
    made = rows.ScramCredentialUpsertion(name=name, mechanism=SCRAM_SHA_256, iterations=4096, salt=b"salt" * 4, salted_password=b"p" * 32)
    gone = rows.ScramCredentialDeletion(name=name, mechanism=SCRAM_SHA_256)
    lab.undo(rows(deletions=[gone]))
    response = await lab.ask_controller(rows(upsertions=[made]))
    expect_error(response.results[0].error_code, NONE)
    found = await lab.until(lambda: _users(lab, name), lambda user: user.error_code == NONE)
    expect([(each.mechanism, each.iterations) for each in found.credential_infos] == [(SCRAM_SHA_256, 4096)], "other credentials")
    expect_error((await lab.ask_controller(rows(deletions=[gone]))).results[0].error_code, NONE)
    await lab.until(lambda: _users(lab, name), lambda user: user.error_code == ErrorCode.RESOURCE_NOT_FOUND)


@SECTION.must(28, "SCRAM credentials with too few iterations are UNACCEPTABLE_CREDENTIAL.", "KIP-554")
async def few_iterations(lab: Lab) -> None:
    rows, name = messages.AlterUserScramCredentialsRequest, lab.name("user")
    made = rows.ScramCredentialUpsertion(name=name, mechanism=SCRAM_SHA_256, iterations=10, salt=b"salt", salted_password=b"p" * 32)
    response = await lab.ask_controller(rows(upsertions=[made]))
    expect_error(response.results[0].error_code, ErrorCode.UNACCEPTABLE_CREDENTIAL)


@SECTION.must(29, "Deleting a SCRAM user that does not exist is RESOURCE_NOT_FOUND.", "KIP-554")
async def no_user(lab: Lab) -> None:
    rows = messages.AlterUserScramCredentialsRequest
    gone = rows.ScramCredentialDeletion(name=lab.name("user"), mechanism=SCRAM_SHA_256)
    response = await lab.ask_controller(rows(deletions=[gone]))
    expect_error(response.results[0].error_code, ErrorCode.RESOURCE_NOT_FOUND)


@SECTION.must(30, "DescribeAcls without an authorizer is SECURITY_DISABLED.", "KIP-140")
async def no_acls(lab: Lab) -> None:
    request = messages.DescribeAclsRequest(
        resource_type_filter=TOPIC, resource_name_filter=lab.name(), pattern_type_filter=3, principal_filter=None, host_filter=None,
        operation=1, permission_type=1,
    )
    response = await lab.ask(request, at_least=1)
    if response.error_code == NONE:
        raise Absent("the server has an authorizer")
    expect_error(response.error_code, ErrorCode.SECURITY_DISABLED)


@SECTION.must(31, "A delegation token on a listener without authentication is refused.", "KIP-48")
async def no_token(lab: Lab) -> None:
    response = await lab.ask_controller(messages.CreateDelegationTokenRequest(max_lifetime_ms=1000))
    expect_error(response.error_code, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


@SECTION.must(32, "ElectLeaders without partitions elects the preferred leader of every partition.", "KIP-460", destructive=True)
async def elects_all(lab: Lab) -> None:
    response = await lab.ask_controller(messages.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000), at_least=1)
    expect_error(response.error_code, NONE)
