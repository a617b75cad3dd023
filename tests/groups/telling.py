"""How requests to group coordinators are told to a cluster of any kind and written down: `GroupGrounds`, `GroupTale`, `Member`.

`GroupGrounds` is a running cluster, known by its addresses. A `GroupTale` is one chapter told to it. Requests are the JSON of Kafka's
converters, where what a version lacks is left out; every exchange is two lines, the request and its response. A request that has to wait
is sent, and its response is read later. Who waits without a line asks DescribeGroups until the group is as it should be
(`GroupTale.until`).

What differs from run to run gets a name: a member id is the text before its UUID and a number, `alice-<1>`; a coordinator is `<leader>` if
it is the broker that leads the group's partition of the offsets topic. Where Kafka's order is that of a hash table, lists are sorted.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from klamm.protocol import json_form, messages
from klamm.tests.harness import requests
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.decoded import decoded
from klamm.tests.harness.waits import eventually_asked
from klamm.tests.stories.both.answers import code, request

OFFSETS_TOPIC = "__consumer_offsets"
TOPICS = {"apples": 3, "pears": 2, "plums": 1}
"""Topics that offsets are committed of, with their partitions."""
WITHIN_S = 30.0
LONG = 60
"""Bytes longer than this are written as their number."""
CLOSED = "the connection is closed"
_MEMBER_ID = re.compile(r"([\w.<> -]*)-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_BYTES = {"JoinGroup": ("metadata",), "SyncGroup": ("assignment",), "DescribeGroups": ("memberMetadata", "memberAssignment")}
"""By API: fields that are bytes. (The metadata of an offset is a text.)"""
_USUAL = {"throttleTimeMs": 0, "authorizedOperations": -(1 << 31)}
_USUAL_OF_JOINS: dict[str, Any] = {
    "sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 60_000, "protocolType": "consumer", "groupInstanceId": None, "reason": None,
}
_SORTED = {
    "DescribeGroups": {"members": "memberId"},
    "JoinGroup": {"members": "memberId"},
    "ListGroups": {"groups": "groupId"},
    "OffsetCommit": {"topics": "name", "partitions": "partitionIndex"},
    "OffsetFetch": {"topics": "name", "partitions": "partitionIndex"},
    "OffsetDelete": {"topics": "name", "partitions": "partitionIndex"},
    "DeleteGroups": {"results": "groupId"},
}
"""By API: lists whose order is that of a hash table in Kafka, and the field that they are sorted by here."""


class GroupConnection:
    """A raw connection; responses come in the order of the requests."""

    def __init__(self, address: tuple[str, int], client_id: str) -> None:
        self.address, self.client_id = address, client_id
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation = itertools.count(1)

    async def send(self, name: str, version: int, body: bytes) -> None:
        """Send one request."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self.address, limit=1 << 26)
        writer = self._streams[1]
        writer.write(messages.encode_request(KEYS[name], version, next(self._correlation), self.client_id, body))
        await writer.drain()

    async def read(self, name: str, version: int) -> Any:
        """The next response, None if the broker closes the connection. Raises TimeoutError."""
        assert self._streams is not None, "nothing was sent"
        reader = self._streams[0]
        try:
            async with asyncio.timeout(WITHIN_S):
                payload = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return None
        _, offset = messages.decode_response_header(KEYS[name], version, payload)
        message, end = decoded(f"{name}Response", version, payload, offset)
        assert end == len(payload), f"{name} v{version}: {len(payload) - end} bytes after the response"
        return message

    async def ask(self, name: str, version: int, value: Mapping[str, Any]) -> Any:
        """Send a request and read its response."""
        await self.send(name, version, messages.encode(request(name, version, dict(value)), version))
        return await self.read(name, version)

    def close(self) -> None:
        """The next request is sent on a new connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class GroupGrounds:
    """A running cluster, by the addresses of its brokers."""

    def __init__(self, brokers: Mapping[int, tuple[str, int]]) -> None:
        self.brokers = dict(brokers)
        self.leaders: list[int] = []
        """The leader of each partition of the offsets topic, once that exists."""

    async def prepare(self) -> None:
        """Create the topics; wait until every broker knows all leaders. The offsets topic exists already."""
        connection = GroupConnection(next(iter(self.brokers.values())), "grounds")
        controller = GroupConnection(self.brokers[await self._controller(connection)], "grounds")
        factor = min(2, len(self.brokers))
        for topic, partitions in TOPICS.items():
            message = requests.create_topic(topic, partitions=partitions, factor=factor)
            await controller.send("CreateTopics", 7, messages.encode(message, 7))
            (answer,) = (await controller.read("CreateTopics", 7)).topics
            assert answer.error_code == 0, answer
        for one in (connection, controller):
            one.close()
        await self.find_leaders()

    async def find_leaders(self) -> None:
        """Wait until every broker knows all leaders of the offsets topic and of `TOPICS`; see `leaders`."""
        for address in self.brokers.values():
            await self._shown(address)

    async def _controller(self, connection: GroupConnection) -> int:
        async def known() -> Any:
            answer = await connection.ask("Metadata", 12, {"topics": []})
            return answer if answer.controller_id in self.brokers and len(answer.brokers) == len(self.brokers) else None

        return int((await eventually_asked(known, "every broker and the controller")).controller_id)

    async def _shown(self, address: tuple[str, int]) -> None:
        connection = GroupConnection(address, "grounds")

        async def shown() -> bool:
            answer = await connection.ask("Metadata", 8, {"topics": [{"name": name} for name in (OFFSETS_TOPIC, *TOPICS)]})
            topics = {each.name: each for each in answer.topics}
            leaders = {each.partition_index: each.leader_id for each in topics[OFFSETS_TOPIC].partitions}
            self.leaders = [leaders[index] for index in sorted(leaders)]
            parts = [each for topic in topics.values() for each in topic.partitions]
            return len(parts) > sum(TOPICS.values()) and all(each.leader_id >= 0 for each in parts)

        await eventually_asked(shown, f"leaders of all partitions at {address}")
        connection.close()

    def partition(self, group: str) -> int:
        """The partition of the offsets topic that a group belongs to: the hash of Java's strings."""
        units = struct.unpack(f">{len(group.encode('utf-16-be')) // 2}H", group.encode("utf-16-be"))
        value = 0
        for unit in units:
            value = (31 * value + unit) & 0xFFFFFFFF
        return (0 if value == 1 << 31 else value if value < 1 << 31 else (1 << 32) - value) % len(self.leaders)

    def coordinator(self, group: str) -> int:
        """The broker that coordinates a group."""
        return self.leaders[self.partition(group)]

    def another(self, group: str) -> int:
        """A broker that does not."""
        return next(each for each in sorted(self.brokers) if each != self.coordinator(group))


class GroupTale:
    """One chapter. `lines` is what was told so far."""

    def __init__(self, grounds: GroupGrounds) -> None:
        self.grounds = grounds
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        """Names of texts that differ from run to run, other than member ids."""
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._connections: list[GroupConnection] = []
        self._outside: dict[int, GroupConnection] = {}

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def connection(self, broker: int, client_id: str) -> GroupConnection:
        """A new connection."""
        made = GroupConnection(self.grounds.brokers[broker], client_id)
        self._connections.append(made)
        return made

    def outside(self, broker: int) -> GroupConnection:
        """The connection to a broker of somebody who is not a member."""
        if broker not in self._outside:
            self._outside[broker] = self.connection(broker, "outside")
        return self._outside[broker]

    def say(self, text: str) -> None:
        """A heading."""
        self.lines.append(f"# {text}")

    async def ask(self, group: str, name: str, version: int, value: Mapping[str, Any], *, broker: int | None = None) -> Any:
        """Somebody asks the coordinator of a group, or a broker."""
        connection = self.outside(self.grounds.coordinator(group) if broker is None else broker)
        return await self.exchange("", connection, name, version, value)

    async def every_version(self, group: str, name: str, value: Mapping[str, Any], *, broker: int | None = None, first: int = 0) -> None:
        """The same in each version."""
        for version in range(first, messages.APIS[KEYS[name]].max_version + 1):
            await self.ask(group, name, version, value, broker=broker)

    async def exchange(self, who: str, connection: GroupConnection, name: str, version: int, value: Mapping[str, Any]) -> Any:
        """A request and its response."""
        self.write_request(who, name, version, value)
        answer = await connection.ask(name, version, value)
        self.write_answer(name, version, answer)
        return answer

    async def raw(self, group: str, name: str, version: int, what: str, body: bytes) -> None:
        """A request whose bytes are not those of a message; its connection is new."""
        connection = self.connection(self.grounds.coordinator(group), "outside")
        self.lines.append(f"{name} v{version}: {what}")
        await connection.send(name, version, body)
        self.write_answer(name, version, await connection.read(name, version))
        connection.close()

    async def until(self, group: str, what: str, holds: Callable[[Any], bool]) -> None:
        """Wait until DescribeGroups says this of a group."""

        async def look() -> bool:
            answer = await self.outside(self.grounds.coordinator(group)).ask("DescribeGroups", 5, {"groups": [group]})
            return holds(answer.groups[0])

        await eventually_asked(look, f"{group}: {what}", WITHIN_S)

    async def until_in(self, group: str, state: str, members: int | None = None) -> None:
        """Wait until a group is in a state, and has so many members."""
        wanted = f"{state} with {members} members"
        await self.until(group, wanted, lambda seen: seen.group_state == state and members in (None, len(seen.members)))

    async def describe(self, group: str, version: int = 5) -> None:
        """DescribeGroups of one group."""
        await self.ask(group, "DescribeGroups", version, {"groups": [group]})

    def member(self, group: str, name: str, **fields: Any) -> Member:
        """A client that is going to be a member; its client id is its name."""
        return Member(self, group, name, fields)

    # --- lines

    def write_request(self, who: str, name: str, version: int, value: Mapping[str, Any], more: str = "") -> None:
        sent = json_form.to_json(request(name, version, dict(value)), version)
        if name == "JoinGroup":
            sent = {key: each for key, each in sent.items() if key not in _USUAL_OF_JOINS or _USUAL_OF_JOINS[key] != each}
        self.lines.append(f"{f'{who}: ' if who else ''}{name} v{version} {self._text(_shown(name, sent))}{more}")

    def write_answer(self, name: str, version: int, answer: Any) -> None:
        if answer is None:
            self.lines.append(f"    {CLOSED}")
            return
        shown = _shown(name, json_form.to_json(answer, version))
        if name == "FindCoordinator":
            shown = self._placed(shown)
        self._text(shown)  # gives names to new members, in the order of the response
        self.lines.append(f"    {self._text(self._sorted(shown, _SORTED.get(name, {})))}")

    def _sorted(self, value: Any, fields: Mapping[str, str]) -> Any:
        if isinstance(value, list):
            return [self._sorted(each, fields) for each in value]
        if not isinstance(value, dict):
            return value
        shown = {name: self._sorted(each, fields) for name, each in value.items()}
        for name, field in fields.items():
            if shown.get(name):
                shown[name] = sorted(shown[name], key=lambda each: self._place(each[field]))
        return shown

    def _place(self, value: Any) -> tuple[int, str]:
        return (value, "") if isinstance(value, int) else (0, self._text(value))

    def _placed(self, value: dict[str, Any]) -> dict[str, Any]:
        """A response of FindCoordinator with marks for a broker's id and address."""
        if "coordinators" in value:
            return {**value, "coordinators": [self._placed(each) for each in value["coordinators"]]}
        broker = value["nodeId"]
        if self.grounds.brokers.get(broker) == (value["host"], value["port"]):
            is_leader = "key" in value and self.grounds.leaders and broker == self.grounds.coordinator(value["key"])
            return {**value, "nodeId": "<leader>" if is_leader else "<broker>", "host": "<host>", "port": "<port>"}
        return value

    def _text(self, value: Any) -> str:
        text = _MEMBER_ID.sub(self._named, json.dumps(value, ensure_ascii=False))
        for whole, name in self.names.items():
            text = text.replace(whole, name)
        return text

    def _named(self, match: re.Match[str]) -> str:
        whole, before = match[0], match[1]
        if whole not in self._names:
            self._counts[before] = self._counts.get(before, 0) + 1
            self._names[whole] = f"{before}-<{self._counts[before]}>"
        return self._names[whole]


class Member:
    """A client with a connection of its own to the coordinator. `fields` are those of its JoinGroup requests that are not usual."""

    def __init__(self, tale: GroupTale, group: str, name: str, fields: Mapping[str, Any]) -> None:
        self.tale, self.group, self.name = tale, group, name
        self.fields: dict[str, Any] = {"protocols": protocols(range=name[:4]), **fields}
        self.member_id, self.generation = "", -1
        self.connection = tale.connection(tale.grounds.coordinator(group), name)

    @property
    def instance_id(self) -> str | None:
        """Its group instance id, if it is a static member."""
        given = self.fields.get("groupInstanceId")
        return None if given is None else str(given)

    def identity(self) -> dict[str, Any]:
        """The fields with which a member says who it is."""
        return {"groupId": self.group, "memberId": self.member_id, "groupInstanceId": self.instance_id}

    async def send_join(self, version: int, **changes: Any) -> None:
        """Send a JoinGroup that has to wait."""
        value = self._join(version, changes)
        self.tale.write_request(self.name, "JoinGroup", version, value, " ...")
        await self.connection.send("JoinGroup", version, messages.encode(request("JoinGroup", version, value), version))

    async def read_join(self, version: int) -> Any:
        """Read its response."""
        answer = await self.connection.read("JoinGroup", version)
        self.tale.lines.append(f"{self.name}: ... JoinGroup v{version}")
        self.tale.write_answer("JoinGroup", version, answer)
        self._joined(answer)
        return answer

    async def join(self, version: int, **changes: Any) -> Any:
        """JoinGroup that is answered at once."""
        answer = await self.tale.exchange(self.name, self.connection, "JoinGroup", version, self._join(version, changes))
        self._joined(answer)
        return answer

    def _join(self, version: int, changes: Mapping[str, Any]) -> dict[str, Any]:
        usual = {"groupId": self.group, "memberId": self.member_id, "sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 60_000}
        return {**usual, "protocolType": "consumer", **self.fields, **changes}

    def _joined(self, answer: Any) -> None:
        if answer is not None and answer.member_id:
            self.member_id = answer.member_id
        if answer is not None and answer.error_code == 0:
            self.generation = answer.generation_id

    def _sync(self, assignments: Mapping[str, str], changes: Mapping[str, Any]) -> dict[str, Any]:
        rows = [{"memberId": member_id, "assignment": encoded(text)} for member_id, text in assignments.items()]
        named = {"protocolType": self.fields.get("protocolType", "consumer"), "protocolName": self.fields["protocols"][0]["name"]}
        return {**self.identity(), **named, "generationId": self.generation, "assignments": rows, **changes}

    async def sync(self, version: int, assignments: Mapping[str, str] | None = None, **changes: Any) -> Any:
        """SyncGroup that is answered at once; the leader sends assignments by member id."""
        return await self.tale.exchange(self.name, self.connection, "SyncGroup", version, self._sync(assignments or {}, changes))

    async def send_sync(self, version: int, **changes: Any) -> None:
        """Send a SyncGroup that has to wait."""
        value = self._sync({}, changes)
        self.tale.write_request(self.name, "SyncGroup", version, value, " ...")
        await self.connection.send("SyncGroup", version, messages.encode(request("SyncGroup", version, value), version))

    async def read_sync(self, version: int) -> Any:
        """Read its response."""
        answer = await self.connection.read("SyncGroup", version)
        self.tale.lines.append(f"{self.name}: ... SyncGroup v{version}")
        self.tale.write_answer("SyncGroup", version, answer)
        return answer

    async def heartbeat(self, version: int = 4, **changes: Any) -> None:
        value = {**self.identity(), "generationId": self.generation, **changes}
        await self.tale.exchange(self.name, self.connection, "Heartbeat", version, value)

    async def leave(self, version: int = 5, **changes: Any) -> None:
        """LeaveGroup of this member alone."""
        mine = {"memberId": self.member_id, "groupInstanceId": self.instance_id, **changes}
        value = {"groupId": self.group, **({"memberId": self.member_id} if version < 3 else {"members": [mine]})}
        await self.tale.exchange(self.name, self.connection, "LeaveGroup", version, value)

    async def commit(self, version: int, topics: Mapping[str, Sequence[Mapping[str, Any]]], **changes: Any) -> None:
        """OffsetCommit of a member."""
        value = {**self.identity(), "generationIdOrMemberEpoch": self.generation, "topics": commits(topics), **changes}
        await self.tale.exchange(self.name, self.connection, "OffsetCommit", version, value)


def encoded(text: str | bytes) -> str:
    """Bytes as JSON has them."""
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def protocols(**metadata: str | bytes) -> list[dict[str, str]]:
    """Protocols of a JoinGroup, by preference, with their metadata.

    Metadata of consumers is a `subscription`, or shorter than six bytes: in longer ones Apache Kafka may read a number of topics that it
    has no memory for, and then it never responds.
    """
    return [{"name": name, "metadata": encoded(each)} for name, each in metadata.items()]


def commits(topics: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Topics of an OffsetCommit."""
    return [{"name": name, "partitions": list(partitions)} for name, partitions in topics.items()]


def at(partition: int, offset: int, metadata: str | None = "", epoch: int = -1, **more: Any) -> dict[str, Any]:
    """One partition of an OffsetCommit."""
    return {"partitionIndex": partition, "committedOffset": offset, "committedMetadata": metadata, "committedLeaderEpoch": epoch, **more}


def subscription(*topics: str, version: int = 1) -> bytes:
    """What a consumer sends to say which topics it is subscribed to."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1) + (struct.pack(">i", 0) if version >= 1 else b"")


async def form(tale: GroupTale, *members: Member, version: int = 5) -> None:
    """These become the members of a stable group, one after the other, without a line; the first leads."""
    mark = len(tale.lines)
    sync_version = min(version, 4)  # version 5 names the protocol, which may not be the first of a member
    for count in range(1, len(members) + 1):
        newest, before = members[count - 1], members[: count - 1]
        if version >= 4 and newest.instance_id is None:
            await newest.join(version)
        if before:
            await newest.send_join(version)
            await tale.until_in(newest.group, "PreparingRebalance", count)
            for each in before:
                await each.send_join(version)
            for each in (*before, newest):
                await each.read_join(version)
        else:
            await newest.join(version)
        await members[0].sync(sync_version, {each.member_id: f"part of {each.name}" for each in members[:count]})
        for each in members[1:count]:
            await each.sync(sync_version)
    del tale.lines[mark:]


def _shown(api: str, value: Any) -> Any:
    """A message in JSON as it is written: names of error codes, bytes as text."""
    if isinstance(value, list):
        return [_shown(api, each) for each in value]
    if not isinstance(value, dict):
        return _shortened(value) if isinstance(value, str) else value
    return {name: _field(api, name, each) for name, each in value.items() if name not in _USUAL or _USUAL[name] != each}


def _field(api: str, name: str, value: Any) -> Any:
    if name == "errorCode":
        return code(value)
    if name == "errorMessage":
        return value if value in (None, "", "NONE") else "<text>"
    if name in _BYTES.get(api, ()):
        data = base64.b64decode(value)
        return f"{len(data)} bytes" if len(data) > LONG else repr(data)[2:-1]
    return _shown(api, value)


def _shortened(text: str) -> str:
    return f"{text[:8]}... {len(text)} characters" if len(text) > 200 else text
