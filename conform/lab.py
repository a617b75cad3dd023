"""What a case works with: connections to the brokers of the cluster, versions that both sides have, topics and groups of its own.

A lab knows one address. It connects to controllers, leaders and coordinators as the cluster's responses name them. Everything that it
creates has a name with the random prefix of the run, and `clean_up` deletes it.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from klamm.conform.case import Absent, Broken, Case, Exchange, Unreachable
from klamm.conform.connection import KEYS, Connection, error_name, expect_error
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.record import Record, encode_batch

NONE = ErrorCode.NONE
NOT_YET = frozenset({
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.CONCURRENT_TRANSACTIONS,
})
"""Errors that a client repeats its request after."""
PAUSE_S = 0.05
SIMPLE = 7
"""The version of Metadata that finds leaders: later ones are for the cases of their own."""
Address = tuple[str, int]


class SaslPlace(NamedTuple):
    """A listener with SASL and a user of it."""

    host: str
    port: int
    mechanism: str
    user: str
    password: str


class Lab:
    """One cluster under test. `exchanges` are those of the case that runs."""

    party = "server"
    output = ""
    """A server's output is not known."""

    def __init__(self, host: str, port: int, sasl: SaslPlace | None = None, tls: ssl.SSLContext | None = None) -> None:
        """`tls` is for all connections, those to the listener with SASL too."""
        self.address: Address = (host, port)
        self._tls = tls
        self.sasl = sasl
        self.versions: dict[int, tuple[int, int]] = {}
        self.exchanges: list[Exchange] = []
        self.prefix = f"conform-{secrets.token_hex(4)}-"
        self._numbers = itertools.count(1)
        self._open: list[Connection] = []
        self._topics: list[str] = []
        self._groups: list[str] = []
        self._undoing: list[Any] = []

    async def start(self) -> None:
        """Learn the versions of the server. Raises Unreachable."""
        try:
            first = await Connection.open(*self.address, self.exchanges, self._tls)
        except OSError as error:
            reason = getattr(error, "verify_message", "") or error.strerror or error
            raise Unreachable(f"{self.where} cannot be reached: {reason}") from None
        try:
            response = await first.ask(messages.ApiVersionsRequest(), 0)
            self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
            if not self.versions:
                raise Unreachable(f"{self.where} advertises no API: error {error_name(response.error_code)}")
            await self._check_open(first)
        except Broken as broken:
            wanted = "PLAINTEXT" if self._tls is None else "SSL"
            raise Unreachable(f"{self.where} does not speak Kafka's protocol (is its port {wanted}?): {broken}") from None
        finally:
            first.close()

    async def _check_open(self, connection: Connection) -> None:
        """Raise Unreachable if the server wants its clients to authenticate: all cases would fail."""
        if not {int(KEYS[name].key) for name in ("SaslHandshake", "Metadata")} <= set(self.versions):
            return
        sent = connection.frame(messages.MetadataRequest(topics=[]), self.version("Metadata", SIMPLE))
        if await connection.raw(sent.frame) is None:
            raise Unreachable(f"{self.where} closes the connection of a client that has not authenticated (has its listener SASL?)")

    @property
    def where(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    async def prepare(self, case: Case) -> None:
        """Nothing: the server is there."""

    def begin(self, case_id: str, exchanges: list[Exchange]) -> None:
        """A case begins."""
        self.exchanges = exchanges

    def end(self) -> None:
        """A case has ended: close its connections."""
        for each in self._open:
            each.close()
        self._open.clear()

    def name(self, kind: str = "topic") -> str:
        """A name that nobody has."""
        return f"{self.prefix}{kind}-{next(self._numbers)}"

    def group(self) -> str:
        """The id of a group that is deleted at the end."""
        self._groups.append(self.name("group"))
        return self._groups[-1]

    # versions and connections

    def version(self, api: str, at_most: int = 99, at_least: int = 0) -> int:
        """The highest version of an API that the server and this suite have, in these limits. Raises Absent."""
        low, high = self.versions.get(int(KEYS[api].key), (0, -1))
        highest = min(high, KEYS[api].max_version, at_most)
        if highest < max(low, at_least):
            limits = f" {at_least} to {at_most}" if (at_least, at_most) != (0, 99) else ""
            raise Absent(f"the server has no {api}{limits}")
        return highest

    async def connect(self, address: Address | None = None) -> Connection:
        """A new connection, which is closed at the end of the case."""
        try:
            made = await Connection.open(*(address or self.address), self.exchanges, self._tls)
        except OSError as error:
            raise Broken(f"no connection to {(address or self.address)[0]}:{(address or self.address)[1]}: {error}") from None
        self._open.append(made)
        return made

    async def ask(self, message: Any, at_most: int = 99, at_least: int = 0) -> Any:
        """The response of the address under test, in the highest version."""
        name = type(message).__name__.removesuffix("Request")
        version = self.version(name, at_most, at_least)
        return await (await self.connect()).ask(message, version)

    async def metadata(self, *topics: str, at_most: int = 12) -> Any:
        """Metadata of these topics, without creating them."""
        version = self.version("Metadata", at_most, 1)
        wanted = [messages.MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        request = messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=version < 4)
        return await (await self.connect()).ask(request, version)

    async def controller(self) -> Connection:
        """A connection to the broker that takes requests for the controller."""
        metadata = await self.metadata(at_most=SIMPLE)
        address = next(((each.host, each.port) for each in metadata.brokers if each.node_id == metadata.controller_id), None)
        return await self.connect(address)

    async def ask_controller(self, message: Any, at_most: int = 99, at_least: int = 0) -> Any:
        """The response of the controller, in the highest version."""
        version = self.version(type(message).__name__.removesuffix("Request"), at_most, at_least)
        return await (await self.controller()).ask(message, version)

    async def leader(self, topic: str, partition: int = 0) -> Connection:
        """A connection to the leader of a partition; waits until it has one."""
        while True:
            metadata = await self.metadata(topic, at_most=SIMPLE)
            for each in metadata.topics[0].partitions:
                address = next(((one.host, one.port) for one in metadata.brokers if one.node_id == each.leader_id), None)
                if each.partition_index == partition and address is not None:
                    return await self.connect(address)
            expect_error(metadata.topics[0].error_code, NONE, *NOT_YET, what=f"Metadata of {topic}")
            await asyncio.sleep(PAUSE_S)

    async def coordinator(self, key: str, kind: int = 0) -> Connection:
        """A connection to the coordinator of a group (0) or of a transactional id (1); waits until there is one."""
        version = self.version("FindCoordinator", 3, 1 if kind else 0)
        while True:
            found = await (await self.connect()).ask(messages.FindCoordinatorRequest(key=key, key_type=kind), version)
            if found.error_code == NONE:
                return await self.connect((found.host, found.port))
            expect_error(found.error_code, *NOT_YET, what=f"FindCoordinator of {key}")
            await asyncio.sleep(PAUSE_S)

    async def until_error(self, ask: Callable[[], Awaitable[Any]], row: Callable[[Any], Any], *errors: ErrorCode) -> Any:
        """Ask again until the error code of the row is one of these; none are NONE. The limit of time of the case ends it."""
        while True:
            response = await ask()
            if row(response).error_code in (errors or (NONE,)):
                return response
            await asyncio.sleep(PAUSE_S)

    async def until(self, ask: Callable[[], Awaitable[Any]], holds: Callable[[Any], object]) -> Any:
        """Ask again until the response is as it should be: what one broker was told, others know a little later."""
        while True:
            response = await ask()
            if holds(response):
                return response
            await asyncio.sleep(PAUSE_S)

    # topics and records

    async def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic with a leader for each partition; its configs with underscores for points.

        A server without CreateTopics may create it when Metadata asks for it.
        """
        name = self.name()
        self._topics.append(name)
        if partitions == 1 and not configs and int(KEYS["CreateTopics"].key) not in self.versions:
            wanted = [messages.MetadataRequest.MetadataRequestTopic(name=name)]
            await self.ask(messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=True), SIMPLE)
            await self._is_known(name, 1)
            return name
        row = messages.CreateTopicsRequest.CreatableTopic
        pair = messages.CreateTopicsRequest.CreatableTopicConfig
        pairs = [pair(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        request = messages.CreateTopicsRequest(
            topics=[row(name=name, num_partitions=partitions, replication_factor=1, configs=pairs)], timeout_ms=8000
        )
        created = await self.ask_controller(request)
        expect_error(created.topics[0].error_code, NONE, what=f"CreateTopics of {name}")
        await self._is_known(name, partitions)
        return name

    async def _is_known(self, topic: str, partitions: int) -> None:
        """Wait until each broker names the leaders of a new topic, and the leaders serve it: brokers learn of it one after the other."""
        version, named = self.version("Metadata", SIMPLE, 1), [messages.MetadataRequest.MetadataRequestTopic(name=topic)]
        request = messages.MetadataRequest(topics=named, allow_auto_topic_creation=version < 4)
        for broker in (await self.metadata(at_most=SIMPLE)).brokers:
            connection = await self.connect((broker.host, broker.port))
            await self.until(
                partial(connection.ask, request, version),
                lambda it: len([each for each in it.topics[0].partitions if each.leader_id >= 0]) >= partitions,
            )
        for partition in range(partitions) if int(KEYS["ListOffsets"].key) in self.versions else ():
            await self._is_served(topic, partition)

    async def _is_served(self, topic: str, partition: int) -> None:
        part = messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        rows = [messages.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
        connection, version = await self.leader(topic, partition), self.version("ListOffsets", 7)
        request = messages.ListOffsetsRequest(replica_id=-1, topics=rows)
        await self.until(lambda: connection.ask(request, version), lambda it: it.topics[0].partitions[0].error_code not in NOT_YET)

    async def delete_topics(self, *names: str) -> Any:
        """The response of DeleteTopics."""
        if self.version("DeleteTopics") < 6:
            return await self.ask_controller(messages.DeleteTopicsRequest(topic_names=list(names), timeout_ms=8000))
        state = messages.DeleteTopicsRequest.DeleteTopicState
        return await self.ask_controller(messages.DeleteTopicsRequest(topics=[state(name=name) for name in names], timeout_ms=8000))

    def remember(self, topic: str) -> None:
        """Delete this topic at the end, if it exists."""
        self._topics.append(topic)

    def undo(self, message: Any) -> None:
        """Send this request to the controller at the end, because the case may end before it can. Raises Absent."""
        self.version(type(message).__name__.removesuffix("Request"))
        self._undoing.append(message)

    async def topic_id(self, topic: str) -> bytes:
        """The id of a topic. Raises Absent if the server has none."""
        self.version("Metadata", 12, 10)
        found: bytes = (await self.metadata(topic)).topics[0].topic_id
        return found

    def produce_request(self, topic: str, records: bytes | None, acks: int = -1, partition: int = 0, **more: Any) -> Any:
        """A Produce request of one partition."""
        part = messages.ProduceRequest.PartitionProduceData(index=partition, records=records)
        topics = [messages.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
        return messages.ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics, **more)

    async def produce(self, topic: str, records: bytes | None, acks: int = -1, partition: int = 0, at_most: int = 99, **more: Any) -> Any:
        """The response of one partition; repeated while the topic is new."""
        version = self.version("Produce", at_most, 3)
        connection = await self.leader(topic, partition)
        while True:
            response = await connection.ask(self.produce_request(topic, records, acks, partition, **more), version)
            answer = response.responses[0].partition_responses[0]
            if answer.error_code not in NOT_YET:
                return answer
            await asyncio.sleep(PAUSE_S)

    async def fetch(self, topic: str, offset: int = 0, partition: int = 0, version: int | None = None, **more: Any) -> Any:
        """The response of one partition."""
        chosen = self.version("Fetch", 12, 4) if version is None else version
        response = await (await self.leader(topic, partition)).ask(fetch_request(topic, offset, partition, **more), chosen)
        if response.error_code or not response.responses:
            raise Broken(f"Fetch: error {error_name(response.error_code)}, {len(response.responses)} topics")
        return response.responses[0].partitions[0]

    # the end

    async def clean_up(self, limit_s: float) -> str:
        """Delete what the run has made, each kind within this time. What is left behind, as a text; empty if nothing is."""
        self.begin("", [])
        left: list[str] = []
        for kind, delete in (("topics", self._delete_topics), ("users and quotas", self._undo), ("groups", self._delete_groups)):
            try:
                async with asyncio.timeout(limit_s):
                    await delete(left)
            except TimeoutError:
                left.append(f"{kind} that begin with {self.prefix}: they were not deleted within {limit_s:g} s")
            except Exception as error:  # noqa: BLE001 a response may be anything, and the other kinds are deleted nevertheless
                left.append(f"{kind} that begin with {self.prefix}: {error}")
            finally:
                self.end()
        return ", ".join(left)

    async def _undo(self, left: list[str]) -> None:
        for message in self._undoing:
            await self.ask_controller(message)
            self.end()

    async def _delete_groups(self, left: list[str]) -> None:
        """Groups in a rebalance are asked for again: they are empty when it ends."""
        waiting = self._groups if int(KEYS["DeleteGroups"].key) in self.versions else []
        while waiting:
            codes = {group: await self._delete_group(group) for group in waiting}
            waiting = [group for group, code in codes.items() if code == ErrorCode.NON_EMPTY_GROUP]
            bad = {group: code for group, code in codes.items() if code not in (NONE, ErrorCode.GROUP_ID_NOT_FOUND)}
            left += [f"{group} ({error_name(code)})" for group, code in bad.items() if group not in waiting]
            await asyncio.sleep(PAUSE_S if waiting else 0)

    async def _delete_group(self, group: str) -> int:
        coordinator = await self.coordinator(group)
        request, version = messages.DeleteGroupsRequest(groups_names=[group]), self.version("DeleteGroups")
        code: int = (await coordinator.ask(request, version)).results[0].error_code
        if code == ErrorCode.NON_EMPTY_GROUP:
            await self._remove_members(coordinator, group)
            code = (await coordinator.ask(request, version)).results[0].error_code
        self.end()
        return code

    async def _remove_members(self, coordinator: Connection, group: str) -> None:
        request = messages.DescribeGroupsRequest(groups=[group])
        members = (await coordinator.ask(request, self.version("DescribeGroups"))).groups[0].members
        identity = messages.LeaveGroupRequest.MemberIdentity
        rows = [
            identity(member_id="" if each.group_instance_id else each.member_id, group_instance_id=each.group_instance_id)
            for each in members
        ]
        await coordinator.ask(messages.LeaveGroupRequest(group_id=group, members=rows), self.version("LeaveGroup", 5, 3))

    async def _delete_topics(self, left: list[str]) -> None:
        names = list(dict.fromkeys(self._topics))
        if not names:
            return
        response = await self.delete_topics(*names)
        bad = [each for each in response.responses if each.error_code not in (NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        left += [f"{each.name} ({error_name(each.error_code)})" for each in bad]


def fetch_request(topic: str, offset: int = 0, partition: int = 0, **more: Any) -> Any:
    """A Fetch request of one partition without a session. `of_partition` are fields of the partition, the others those of the request."""
    given = {"fetch_offset": offset, "partition_max_bytes": 1 << 20} | more.pop("of_partition", {})
    part = messages.FetchRequest.FetchPartition(partition=partition, **given)
    fields = {"max_wait_ms": 100, "min_bytes": 0, "max_bytes": 1 << 24, "session_id": 0, "session_epoch": -1} | more
    named = messages.FetchRequest.FetchTopic(topic=topic, partitions=[part])
    return messages.FetchRequest(replica_id=-1, topics=[named], **fields)


def batch(*values: str | bytes | None, **options: Any) -> bytes:
    """A batch with a record for each value. Options are those of `encode_batch`."""
    now = options.pop("timestamp", None) or int(time.time() * 1000)
    key = options.pop("key", None)
    records = [Record(i, now, key, value.encode() if isinstance(value, str) else value) for i, value in enumerate(values)]
    return encode_batch(records, **options)
