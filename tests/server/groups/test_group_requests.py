"""Requests of groups at one broker: who may send them, what an old inter-broker protocol refuses, what a broker says while it loads."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import pytest

from klamm.broker.groups.log_records import read_offset
from klamm.broker.metadata_cache import MetadataCache
from klamm.controller.values import StoreRefused
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.pace import SLICE
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC
from klamm.server.security.authorizer import Operation
from klamm.server.transactions.partition_verifier import PartitionVerifier
from klamm.tests.broker import update_metadata
from klamm.tests.server.groups.coordinating_broker import GROUP, CoordinatingBroker, T
from klamm.tests.services import Denying, LostStore, respond

TOPIC = [messages.OffsetFetchRequest.OffsetFetchRequestTopic("t", [0, 1])]
NO_GROUP, NO_TOPIC = E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
async def broker() -> AsyncIterator[CoordinatingBroker]:
    broker = CoordinatingBroker()
    await broker.led()
    yield broker
    await broker.close()


class OffsetStore(LostStore):
    """Offsets in ZooKeeper, and the topics that were created."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.created: list[str] = []

    async def read_consumer_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> list[int | None]:
        return [self.offsets.get(each) for each in partitions]

    async def write_consumer_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets.update(offsets)

    async def topics(self) -> list[str]:
        return []

    async def topic_exists(self, topic: str) -> bool:
        return False

    async def create_topics(self, topics: Sequence[tuple[str, bytes | None, Mapping[int, Ints], Mapping[str, str]]]) -> list[E]:
        self.created += [name for name, *_ in topics]
        return [E.NONE] * len(topics)


class RefusingStore(OffsetStore):
    """ZooKeeper with a group whose name is no name of a znode."""

    async def read_consumer_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> list[int | None]:
        raise StoreRefused("bad arguments")

    async def write_consumer_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        raise StoreRefused("bad arguments")


def join(**fields: Any) -> messages.JoinGroupRequest:
    request = messages.JoinGroupRequest
    usual: dict[str, Any] = {
        "group_id": GROUP, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "member_id": "", "protocol_type": "consumer",
        "protocols": [request.JoinGroupRequestProtocol("range", b"m")],
    }
    return request(**(usual | fields))


def sync(**fields: Any) -> messages.SyncGroupRequest:
    usual: dict[str, Any] = {"group_id": GROUP, "generation_id": 1, "member_id": "m", "protocol_type": "consumer", "protocol_name": "range"}
    return messages.SyncGroupRequest(**(usual | fields))


def heartbeat(**fields: Any) -> messages.HeartbeatRequest:
    usual: dict[str, Any] = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}
    return messages.HeartbeatRequest(**(usual | fields))


def leave(version: int) -> messages.LeaveGroupRequest:
    request = messages.LeaveGroupRequest
    return request(group_id=GROUP, member_id="m") if version < 3 else request(group_id=GROUP, members=[request.MemberIdentity("m", None)])


def commit(offset: int = 5, partitions: Sequence[int] = (0,), *, topic: str = "t", group_id: str = GROUP, **fields: Any) -> Any:
    """`fields` of a partition are lower-case names of the message; those of the request begin with `request_`."""
    request = messages.OffsetCommitRequest
    of_request = {name.removeprefix("request_"): value for name, value in fields.items() if name.startswith("request_")}
    of_part = {name: value for name, value in fields.items() if not name.startswith("request_")}
    parts = [request.OffsetCommitRequestPartition(partition_index=each, committed_offset=offset, **of_part) for each in partitions]
    return request(group_id=group_id, topics=[request.OffsetCommitRequestTopic(topic, partitions=parts)], **of_request)


def fetch(version: int, topics: Any = TOPIC, **fields: Any) -> messages.OffsetFetchRequest:
    request = messages.OffsetFetchRequest
    if version < 8:
        return request(group_id=GROUP, topics=topics, **fields)
    kind = request.OffsetFetchRequestTopics
    rows = None if topics is None else [kind(each.name, partition_indexes=each.partition_indexes) for each in topics]
    return request(groups=[request.OffsetFetchRequestGroup(group_id=GROUP, topics=rows)], **fields)


def delete_offsets(*topics: str) -> messages.OffsetDeleteRequest:
    request = messages.OffsetDeleteRequest
    rows = [request.OffsetDeleteRequestTopic(name, [request.OffsetDeleteRequestPartition(0)]) for name in topics]
    return request(group_id=GROUP, topics=rows)


def partitions_of(response: Any, version: int = 5) -> dict[tuple[str, int], Any]:
    """Rows of an OffsetFetch response."""
    topics = response.topics if version < 8 else response.groups[0].topics
    return {(topic.name, row.partition_index): row for topic in topics for row in topic.partitions}


# --- who may


def denying(operation: Operation, name: str | None = None) -> Denying:
    return Denying((operation, name))


@pytest.mark.parametrize("version", [0, 4, 9])
async def test_join_needs_read_on_the_group(broker: CoordinatingBroker, version: int) -> None:
    response = await respond(broker.services(denying(Operation.READ, GROUP)), join(), version)
    assert (response.error_code, response.member_id) == (NO_GROUP, "")
    assert broker.groups.group(GROUP) is None


async def test_sync_heartbeat_and_leave_need_read_on_the_group(broker: CoordinatingBroker) -> None:
    services = broker.services(denying(Operation.READ, GROUP))
    for request, version in ((sync(), 5), (heartbeat(), 4), (leave(0), 0), (leave(5), 5)):
        assert (await respond(services, request, version)).error_code == NO_GROUP


async def test_the_protocol_of_a_sync_is_checked_before_permissions(broker: CoordinatingBroker) -> None:
    services = broker.services(denying(Operation.READ, GROUP))
    assert (await respond(services, sync(protocol_name=None), 5)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert (await respond(services, sync(protocol_name=None), 4)).error_code == NO_GROUP


@pytest.mark.parametrize("version", [0, 8])
async def test_a_commit_needs_read_on_the_group_and_the_topic(broker: CoordinatingBroker, version: int) -> None:
    store = OffsetStore()
    for denied, code in ((GROUP, NO_GROUP), ("t", NO_TOPIC)):
        response = await respond(broker.services(denying(Operation.READ, denied), store), commit(), version)
        assert [row.error_code for row in response.topics[0].partitions] == [code]
    assert broker.groups.group(GROUP) is None
    assert store.offsets == {}


@pytest.mark.parametrize(("version", "code_of"), [
    (0, lambda response: response.topics[0].partitions[0].error_code),
    (2, lambda response: response.error_code),
    (5, lambda response: response.error_code),
    (8, lambda response: response.groups[0].error_code),
])
async def test_a_fetch_needs_describe_on_the_group(broker: CoordinatingBroker, version: int, code_of: Any) -> None:
    services = broker.services(denying(Operation.DESCRIBE, GROUP), OffsetStore())
    assert code_of(await respond(services, fetch(version), version)) == NO_GROUP


async def test_who_may_not_describe_the_group_has_one_row_for_each_partition_in_version_0(broker: CoordinatingBroker) -> None:
    named: list[tuple[str, list[int]]] = [("t", [0, 0]), ("u", []), ("v", [2]), ("t", [1])]
    topics = [messages.OffsetFetchRequest.OffsetFetchRequestTopic(*each) for each in named]
    response = await respond(broker.services(denying(Operation.DESCRIBE, GROUP), OffsetStore()), fetch(0, topics), 0)
    assert [(topic.name, [row.partition_index for row in topic.partitions]) for topic in response.topics] == [("t", [0, 1]), ("v", [2])]


@pytest.mark.parametrize("version", [0, 1, 7, 8])
async def test_a_topic_that_may_not_be_described_has_its_code_in_a_fetch(broker: CoordinatingBroker, version: int) -> None:
    rows = partitions_of(await respond(broker.services(denying(Operation.DESCRIBE, "t"), OffsetStore()), fetch(version), version), version)
    assert {row.error_code for row in rows.values()} == {NO_TOPIC}


@pytest.mark.parametrize("version", [2, 8])
async def test_a_fetch_of_all_topics_leaves_out_those_that_may_not_be_described(broker: CoordinatingBroker, version: int) -> None:
    await respond(broker.services(), commit(), 8)
    assert partitions_of(await respond(broker.services(), fetch(version, None), version), version)
    assert partitions_of(await respond(broker.services(denying(Operation.DESCRIBE, "t")), fetch(version, None), version), version) == {}


async def test_deletions_of_offsets_need_delete_on_the_group_and_read_on_the_topic(broker: CoordinatingBroker) -> None:
    await respond(broker.services(), commit(), 8)
    refused = await respond(broker.services(denying(Operation.DELETE, GROUP)), delete_offsets("t"), 0)
    assert refused.error_code == NO_GROUP
    response = await respond(broker.services(denying(Operation.READ, "t")), delete_offsets("t"), 0)
    assert (response.error_code, response.topics[0].partitions[0].error_code) == (E.NONE, NO_TOPIC)
    assert broker.offset() == 5


async def test_groups_that_may_not_be_described_are_described_first_and_not_listed(broker: CoordinatingBroker) -> None:
    for group_id in ("open", "closed"):
        await respond(broker.services(), commit(group_id=group_id), 8)
    services = broker.services(Denying((Operation.DESCRIBE, "closed"), (Operation.DESCRIBE, "kafka-cluster")))
    described = await respond(services, messages.DescribeGroupsRequest(groups=["open", "closed"]), 5)
    assert [(row.group_id, row.error_code) for row in described.groups] == [("closed", NO_GROUP), ("open", E.NONE)]
    listed = await respond(services, messages.ListGroupsRequest(), 4)
    assert [row.group_id for row in listed.groups] == ["open"]


async def test_who_may_describe_the_cluster_is_listed_every_group(broker: CoordinatingBroker) -> None:
    await respond(broker.services(), commit(), 8)
    listed = await respond(broker.services(denying(Operation.DESCRIBE, GROUP)), messages.ListGroupsRequest(), 4)
    assert [row.group_id for row in listed.groups] == [GROUP]


async def test_groups_that_may_not_be_deleted_come_last(broker: CoordinatingBroker) -> None:
    for group_id in ("closed", "open"):
        await respond(broker.services(), commit(group_id=group_id), 8)
    services = broker.services(denying(Operation.DELETE, "closed"))
    response = await respond(services, messages.DeleteGroupsRequest(groups_names=["closed", "open", "open"]), 2)
    assert [(row.group_id, row.error_code) for row in response.results] == [("open", E.NONE), ("closed", NO_GROUP)]
    assert broker.groups.group("closed") is not None


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_the_coordinator_of_a_group_is_found_by_those_who_may_describe_it(broker: CoordinatingBroker, version: int) -> None:
    request = messages.FindCoordinatorRequest(key=GROUP) if version < 4 else messages.FindCoordinatorRequest(coordinator_keys=[GROUP])
    response = await respond(broker.services(denying(Operation.DESCRIBE, GROUP)), request, version)
    row = response if version < 4 else response.coordinators[0]
    assert (row.error_code, row.node_id) == (NO_GROUP, -1)


# --- the inter-broker protocol


async def test_below_inter_broker_protocol_2_3_there_are_no_static_members() -> None:
    broker = CoordinatingBroker(inter_broker_protocol_version="2.2")
    await broker.led()
    services = broker.services()
    requests = ((join(group_instance_id="i"), 5), (sync(group_instance_id="i"), 3), (heartbeat(group_instance_id="i"), 3))
    for request, version in requests:
        assert (await respond(services, request, version)).error_code == E.UNSUPPORTED_VERSION
    response = await respond(services, commit(request_group_instance_id="i"), 7)
    assert response.topics[0].partitions[0].error_code == E.UNSUPPORTED_VERSION
    assert (await respond(services, heartbeat(), 3)).error_code == E.UNKNOWN_MEMBER_ID
    await broker.close()


# --- while a partition is loaded


async def test_what_a_broker_says_while_it_loads_the_group() -> None:
    broker = CoordinatingBroker()
    broker.lead()
    services = broker.services()
    assert (await respond(services, heartbeat(), 4)).error_code == E.NONE
    assert (await respond(services, sync(), 5)).error_code == E.REBALANCE_IN_PROGRESS
    joined = await respond(services, join(member_id="m"), 9)
    assert (joined.error_code, joined.member_id) == (E.COORDINATOR_LOAD_IN_PROGRESS, "m")
    assert (await respond(services, leave(5), 5)).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert (await respond(services, messages.ListGroupsRequest(), 5)).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    await broker.settle()
    assert (await respond(services, messages.ListGroupsRequest(), 5)).error_code == E.NONE
    await broker.close()


# --- members


@pytest.mark.parametrize(("version", "timeout_ms"), [(0, 10_000), (1, 60_000)])
async def test_the_first_version_of_join_has_no_rebalance_timeout_of_its_own(
    broker: CoordinatingBroker, version: int, timeout_ms: int
) -> None:
    joining = asyncio.ensure_future(respond(broker.services(), join(), version))
    await broker.settle()
    await broker.advance(0)
    response = await joining
    group = broker.groups.group(GROUP)
    assert group is not None
    member = group.members[response.member_id]
    assert (member.rebalance_timeout_ms, member.session_timeout_ms, member.client_host) == (timeout_ms, 10_000, "/127.0.0.1")


# --- offsets


async def test_who_wants_stable_offsets_waits_for_the_transaction(broker: CoordinatingBroker) -> None:
    await respond(broker.services(), commit(5), 8)
    assert await broker.groups.commit(broker.commit_request(9, producer_id=1, producer_epoch=0)) is E.NONE
    for version, key in ((7, ("t", 0)), (8, ("t", 0))):
        waits = partitions_of(await respond(broker.services(), fetch(version, require_stable=True), version), version)
        assert (waits[key].error_code, waits[key].committed_offset) == (E.UNSTABLE_OFFSET_COMMIT, -1)
        assert waits["t", 1].error_code == E.NONE
        reads = partitions_of(await respond(broker.services(), fetch(version), version), version)
        assert (reads[key].error_code, reads[key].committed_offset) == (E.NONE, 5)


class FixedVerifier(PartitionVerifier):
    """A coordinator of transactions that says the same of every partition."""

    def __init__(self, code: E) -> None:
        self.code = code

    async def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition], *, adds: bool = False
    ) -> dict[TopicPartition, E]:
        return dict.fromkeys(partitions, self.code)


@pytest.mark.parametrize(
    ("said", "version", "code"),
    [
        (E.CONCURRENT_TRANSACTIONS, 0, E.CONCURRENT_TRANSACTIONS),
        (E.CONCURRENT_TRANSACTIONS, 4, E.CONCURRENT_TRANSACTIONS),
        (E.NETWORK_EXCEPTION, 4, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NETWORK_EXCEPTION, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 2, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.COORDINATOR_NOT_AVAILABLE, 4, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_COORDINATOR, 4, E.NOT_COORDINATOR),
        (E.TRANSACTION_ABORTABLE, 3, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 4, E.TRANSACTION_ABORTABLE),
        (E.INVALID_PRODUCER_ID_MAPPING, 4, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_offsets_of_a_transaction_that_cannot_be_verified_have_the_code_of_its_coordinator(
    broker: CoordinatingBroker, said: E, version: int, code: E
) -> None:
    request = messages.TxnOffsetCommitRequest
    topic = request.TxnOffsetCommitRequestTopic("t", partitions=[request.TxnOffsetCommitRequestPartition(0, 5, -1, "")])
    services = dataclasses.replace(broker.services(), verifier=FixedVerifier(said))
    asked = request(transactional_id="tx", group_id=GROUP, producer_id=1, producer_epoch=0, topics=[topic])
    response = await respond(services, asked, version)
    assert [row.error_code for row in response.topics[0].partitions] == [code]
    assert not broker.records()


@pytest.mark.parametrize("version", [2, 4])
async def test_a_retention_time_counts_from_the_commit(broker: CoordinatingBroker, version: int) -> None:
    now_ms = broker.clock.now_ms()
    await respond(broker.services(), commit(request_retention_time_ms=60_000), version)
    (record,) = broker.records()
    assert record.value is not None
    stored = read_offset(record.value)
    assert (stored.commit_ms, stored.expire_ms) == (now_ms, now_ms + 60_000)


async def test_a_retention_time_that_ends_after_the_last_time_has_passed_already(broker: CoordinatingBroker) -> None:
    response = await respond(broker.services(), commit(request_retention_time_ms=2**63 - 1), 4)
    assert response.topics[0].partitions[0].error_code == E.NONE
    (record,) = broker.records()
    assert record.value is not None
    assert read_offset(record.value).expire_ms == broker.clock.now_ms() - 2**63 - 1


async def test_a_commit_without_a_retention_time_has_no_expiry_and_the_time_of_now(broker: CoordinatingBroker) -> None:
    await respond(broker.services(), commit(request_retention_time_ms=-1), 2)
    await respond(broker.services(), commit(partitions=[1], commit_timestamp=77), 1)
    stored = [read_offset(record.value) for record in broker.records() if record.value is not None]
    assert [(each.commit_ms, each.expire_ms) for each in stored] == [(broker.clock.now_ms(), None), (77, None)]


async def test_version_0_keeps_offsets_in_zookeeper_and_no_others_with_long_metadata(broker: CoordinatingBroker) -> None:
    store = OffsetStore()
    services = broker.services(store=store)
    await respond(services, commit(6), 0)
    response = await respond(services, commit(7, [1], committed_metadata="m" * 4097), 0)
    assert response.topics[0].partitions[0].error_code == E.OFFSET_METADATA_TOO_LARGE
    assert store.offsets == {T: 6}
    assert broker.groups.group(GROUP) is None
    rows = partitions_of(await respond(services, fetch(0), 0))
    assert {key: (row.error_code, row.committed_offset) for key, row in rows.items()} == {
        ("t", 0): (E.NONE, 6), ("t", 1): (E.UNKNOWN_TOPIC_OR_PARTITION, -1),
    }


async def test_version_0_has_a_row_each_time_a_partition_is_named_and_the_last_offset_that_fits(broker: CoordinatingBroker) -> None:
    store = OffsetStore()
    request = messages.OffsetCommitRequest
    parts = [(0, 6, ""), (0, 7, ""), (0, 8, "m" * 4097), (9, 1, "")]
    rows = [request.OffsetCommitRequestPartition(index, offset, committed_metadata=metadata) for index, offset, metadata in parts]
    asked = request(group_id=GROUP, topics=[request.OffsetCommitRequestTopic("t", partitions=rows)])
    response = await respond(broker.services(store=store), asked, 0)
    codes = [(row.partition_index, row.error_code) for row in response.topics[0].partitions]
    assert sorted(codes) == [(0, E.NONE), (0, E.NONE), (0, E.OFFSET_METADATA_TOO_LARGE), (9, E.UNKNOWN_TOPIC_OR_PARTITION)]
    assert store.offsets == {T: 7}


async def test_version_0_says_which_partitions_are_not_there_when_zookeeper_refuses_the_group(broker: CoordinatingBroker) -> None:
    services = broker.services(store=RefusingStore())
    committed = await respond(services, commit(6, [0, 9]), 0)
    codes = {row.partition_index: row.error_code for row in committed.topics[0].partitions}
    assert codes == {0: E.UNKNOWN_SERVER_ERROR, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    topics = [messages.OffsetFetchRequest.OffsetFetchRequestTopic(name, [0]) for name in ("t", "gone")]
    rows = partitions_of(await respond(services, fetch(0, topics), 0))
    assert {key: row.error_code for key, row in rows.items()} == {
        ("t", 0): E.UNKNOWN_SERVER_ERROR, ("gone", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_version_0_reads_no_offset_of_a_topic_that_is_gone(broker: CoordinatingBroker) -> None:
    store = OffsetStore()
    store.offsets = {TopicPartition("gone", 0): 6}
    topics = [messages.OffsetFetchRequest.OffsetFetchRequestTopic("gone", [0])]
    rows = partitions_of(await respond(broker.services(store=store), fetch(0, topics), 0))
    assert rows["gone", 0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("version", "at_the_top", "of_partitions"), [
    (0, E.NONE, {NO_GROUP}), (1, E.NONE, set()), (2, NO_GROUP, set()), (3, NO_GROUP, set()),
])
async def test_the_error_of_a_group_is_at_the_top_from_version_2_on_and_missing_in_version_1(
    broker: CoordinatingBroker, version: int, at_the_top: E, of_partitions: set[E]
) -> None:
    response = await respond(broker.services(denying(Operation.DESCRIBE, GROUP), OffsetStore()), fetch(version), version)
    rows = {row.error_code for row in partitions_of(response).values()}
    assert (getattr(response, "error_code", E.NONE), rows) == (at_the_top, of_partitions)


async def test_the_deletion_of_no_offsets_looks_for_the_group_too(broker: CoordinatingBroker) -> None:
    assert (await respond(broker.services(), delete_offsets(), 0)).error_code == E.GROUP_ID_NOT_FOUND
    assert (await respond(broker.services(), delete_offsets("t"), 0)).error_code == E.GROUP_ID_NOT_FOUND


# --- FindCoordinator


async def test_a_request_for_many_groups_creates_the_offsets_topic_once(broker: CoordinatingBroker) -> None:
    store, empty = OffsetStore(), MetadataCache(1)
    empty.update(update_metadata.update(brokers=[update_metadata.broker(each) for each in (1, 2, 3)]))
    services = dataclasses.replace(broker.services(store=store), metadata=empty)
    request = messages.FindCoordinatorRequest(coordinator_keys=["a", "b", "c"])
    response = await respond(services, request, 4)
    assert {row.error_code for row in response.coordinators} == {E.COORDINATOR_NOT_AVAILABLE}
    assert store.created == [OFFSETS_TOPIC]


async def test_the_coordinator_has_the_address_of_the_listener_that_was_asked(broker: CoordinatingBroker) -> None:
    two = update_metadata.broker(1, "INSIDE", "OUTSIDE")
    two = two._replace(endpoints=[each._replace(host=each.listener.lower()) for each in two.endpoints])
    row = update_metadata.partition(0, 1, (1,), (1,))
    broker.metadata.update(update_metadata.update(update_metadata.topic(OFFSETS_TOPIC, 2, row), brokers=[two]))
    for listener in ("INSIDE", "OUTSIDE"):
        response = await respond(broker.services(), messages.FindCoordinatorRequest(key=GROUP), 3, listener)
        assert (response.error_code, response.node_id, response.host) == (E.NONE, 1, listener.lower())
    response = await respond(broker.services(), messages.FindCoordinatorRequest(key=GROUP), 3, "ELSEWHERE")
    assert response.error_code == E.COORDINATOR_NOT_AVAILABLE


async def test_a_coordinator_that_is_down_is_not_available(broker: CoordinatingBroker) -> None:
    row = update_metadata.partition(0, 5, (5,), (5,))
    broker.metadata.update(update_metadata.update(update_metadata.topic(OFFSETS_TOPIC, 2, row)))
    response = await respond(broker.services(), messages.FindCoordinatorRequest(key=GROUP), 3)
    assert (response.error_code, response.node_id) == (E.COORDINATOR_NOT_AVAILABLE, -1)


# --- long lists


async def turns_of(broker: CoordinatingBroker, request: Any, version: int) -> tuple[Any, int]:
    """The response, and how often the loop had its turn before it came."""
    task, turns = asyncio.ensure_future(respond(broker.services(), request, version)), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return task.result(), turns


async def test_many_members_leave_in_slices_and_each_has_its_code(broker: CoordinatingBroker) -> None:
    member = (await broker.stable()).member_id
    row = messages.LeaveGroupRequest.MemberIdentity
    members = [row(member if i == 2 * SLICE else f"m{i}", None) for i in range(3 * SLICE + 1)]
    response, turns = await turns_of(broker, messages.LeaveGroupRequest(group_id=GROUP, members=members), 5)
    assert turns >= 3
    assert [(each.member_id, each.error_code) for each in response.members] == [
        (each.member_id, E.NONE if each.member_id == member else E.UNKNOWN_MEMBER_ID) for each in members
    ]
    group = broker.groups.group(GROUP)
    assert group is not None and not group.members


async def test_members_that_leave_while_another_broker_becomes_coordinator_are_told_so(broker: CoordinatingBroker) -> None:
    row = messages.LeaveGroupRequest.MemberIdentity
    members = [row(f"m{i}", None) for i in range(3 * SLICE)]
    task = asyncio.ensure_future(respond(broker.services(), messages.LeaveGroupRequest(group_id=GROUP, members=members), 5))
    await asyncio.sleep(0)
    broker.lead(leader=2, epoch=2)
    response = await task
    assert (response.error_code, response.members) == (E.NOT_COORDINATOR, [])


async def test_many_assignments_are_read_beside_the_loop_and_each_member_gets_its_own(broker: CoordinatingBroker) -> None:
    joined = await broker.joined()
    row = messages.SyncGroupRequest.SyncGroupRequestAssignment
    assignments = [row(joined.member_id if i == SLICE else f"m{i}", b"%d" % i) for i in range(2 * SLICE)]
    request = sync(generation_id=joined.generation, member_id=joined.member_id, assignments=assignments)
    response, turns = await turns_of(broker, request, 5)
    assert (response.error_code, response.assignment) == (E.NONE, b"%d" % SLICE)
    assert turns > 1


async def test_a_group_that_is_named_often_is_deleted_once(broker: CoordinatingBroker) -> None:
    await respond(broker.services(), commit(), 8)
    names = [GROUP, *(f"g{i}" for i in range(2 * SLICE)), GROUP, "g1"]
    response, turns = await turns_of(broker, messages.DeleteGroupsRequest(groups_names=names), 2)
    rows = [(row.group_id, row.error_code) for row in response.results]
    assert rows == [(GROUP, E.NONE), *((name, E.GROUP_ID_NOT_FOUND) for name in names[1:-2])]
    assert turns > 2
