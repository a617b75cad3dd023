"""Random stories of groups, told to Apache Kafka and to Klamm at the same time: `python -m klamm.tests.groups.random_groups --seed 7`.

A story has two groups. Each has a dynamic client, a static one, and the static one's twin, which has the same instance id. A step is drawn
from the seed: it names a client and a request, and what is wrong with the request, if anything. What a step sends depends on earlier
responses (member ids, generations), which must be the same on both sides. JoinGroup and SyncGroup may wait; a client whose request waits
does nothing. After each step all responses that came are written in the order of the clients.

A difference is told once more, since a busy machine may show one that is none. Groups have two members at most: of more, Apache Kafka
chooses a new leader by the order of a hash table.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import klamm
from klamm.protocol import messages
from klamm.tests.groups.group_tale import KINDS, open_tale
from klamm.tests.groups.telling import GroupConnection, GroupGrounds, GroupTale, at, commits, encoded, protocols, subscription
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.members import Members
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import jars
from klamm.tests.stories.both.answers import request
from klamm.zk.embedded.server import EmbeddedZooKeeper

STEPS = 90
AT_ONCE = 8
"""Stories that are told at the same time: they wait more than they work."""
QUIET_S = 0.25
"""A request that has no response after this time waits for others."""
WITHIN_S = 30.0
_WEIGHTS = {
    "JoinGroup": 10, "SyncGroup": 10, "Heartbeat": 5, "LeaveGroup": 2, "OffsetCommit": 4, "OffsetFetch": 2, "DescribeGroups": 3,
    "OffsetDelete": 1, "DeleteGroups": 1,
}
_FAULTS = ("", "", "", "", "", "", "", "", "", "", "", "generation", "generation", "member", "instance", "none")
"""What is wrong with a request: the generation, the member id, the instance id, or no ids at all. Mostly nothing."""


class GroupStep(NamedTuple):
    """A request of one client. `choice` is a number from which its details are taken."""

    client: int
    api: str
    version: int
    fault: str
    choice: int


def story(seed: int) -> list[GroupStep]:
    """The steps of one story."""
    drawn = random.Random(seed)
    names, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    steps = []
    for _ in range(STEPS):
        (name,) = drawn.choices(names, weights)
        lowest = 5 if name == "JoinGroup" and drawn.random() < 0.5 else 1 if name.startswith("Offset") and name != "OffsetDelete" else 0
        version = drawn.randint(lowest, messages.APIS[KEYS[name]].max_version)
        (client,) = drawn.choices(range(6), (4, 4, 1) * 2)
        steps.append(GroupStep(client, name, version, drawn.choice(_FAULTS), drawn.randrange(1 << 16)))
    return steps


class GroupClient:
    """One client: a connection, and what it has been told. `pending` is its request that waits, as (API, version, task)."""

    def __init__(self, name: str, group: str, instance: str | None, connection: GroupConnection) -> None:
        self.name, self.group, self.instance, self.connection = name, group, instance, connection
        self.member_id, self.generation, self.is_leader = "", -1, False
        self.pending: tuple[str, int, asyncio.Task[Any]] | None = None


class Telling:
    """One telling of one story to one cluster."""

    def __init__(self, grounds: GroupGrounds, seed: int) -> None:
        self.tale = GroupTale(grounds)
        self.clients = []
        for number in range(2):
            group = unique_name(f"random-{seed}-{number}")
            self.tale.names[group] = f"group-{number}"
            for name, instance in (("dynamic", None), ("static", "instance"), ("twin", "instance")):
                connection = self.tale.connection(grounds.coordinator(group), name)
                self.clients.append(GroupClient(f"{name}-{number}", group, instance, connection))

    async def tell(self, steps: Sequence[GroupStep]) -> list[str]:
        """The lines."""
        try:
            for step in steps:
                await self._take(step)
        finally:
            self.tale.close()
            for client in self.clients:
                if client.pending is not None:
                    client.pending[2].cancel()
        return self.tale.lines

    async def _take(self, step: GroupStep) -> None:
        client = self.clients[step.client]
        if client.pending is not None or (not client.member_id and step.api in ("SyncGroup", "Heartbeat", "LeaveGroup")):
            return
        value = self._value(client, step)
        version = self._version(client, step)
        self.tale.write_request(client.name, step.api, version, value)
        await client.connection.send(step.api, version, messages.encode(request(step.api, version, value), version))
        task = asyncio.create_task(client.connection.read(step.api, version))
        client.pending = (step.api, version, task)
        if step.api not in ("JoinGroup", "SyncGroup"):
            await asyncio.wait([task], timeout=WITHIN_S)
        if step.api == "LeaveGroup":  # in Apache Kafka a timer ends the rebalance of a group that has nobody but members to come
            try:
                await self.tale.until(client.group, "no rebalance without members", _has_members_or_no_rebalance)
            except AssertionError:  # it waits for a member that was given an id and has not come
                self.tale.lines.append(f"{client.name}: the rebalance goes on")
        await self._settle()

    def _version(self, client: GroupClient, step: GroupStep) -> int:
        if client.instance is None:
            return step.version
        return max(step.version, {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "LeaveGroup": 3, "OffsetCommit": 7}.get(step.api, 0))

    async def _settle(self) -> None:
        """Read all responses that come until nothing comes any more."""
        while waiting := [client for client in self.clients if client.pending is not None]:
            tasks = [client.pending[2] for client in waiting if client.pending is not None]
            await asyncio.wait(tasks, timeout=QUIET_S)
            answered = [client for client in waiting if client.pending is not None and client.pending[2].done()]
            if not answered:
                return
            for client in answered:
                self._answered(client)

    def _answered(self, client: GroupClient) -> None:
        assert client.pending is not None
        (name, version, task), client.pending = client.pending, None
        answer = task.result()
        self.tale.lines.append(f"{client.name}: {name} v{version}")
        self.tale.write_answer(name, version, answer)
        if name == "JoinGroup" and answer is not None:
            if answer.error_code in (0, 79, 25, 82):
                client.member_id = answer.member_id if answer.error_code in (0, 79) else ""
            if answer.error_code == 0:
                client.generation, client.is_leader = answer.generation_id, answer.leader == answer.member_id
        elif name == "LeaveGroup":
            client.member_id, client.generation = "", -1

    # --- requests

    def _value(self, client: GroupClient, step: GroupStep) -> dict[str, Any]:
        who = {"groupId": client.group, "memberId": client.member_id, "groupInstanceId": client.instance}
        generation = client.generation
        match step.fault:
            case "generation":
                generation += 1 if step.choice % 3 else -2
            case "member" if client.member_id:
                who["memberId"] = "nobody"
            case "instance" if client.instance is not None and client.member_id:
                who["groupInstanceId"] = "unknown"
            case "none" if step.api == "OffsetCommit":
                who, generation = {"groupId": client.group}, -1
        makers = {
            "JoinGroup": self._join, "SyncGroup": self._sync, "LeaveGroup": self._leave, "OffsetCommit": self._commit,
            "OffsetFetch": self._fetch, "OffsetDelete": self._delete_offsets,
        }
        if step.api in makers:
            return makers[step.api](client, who, generation, step.choice)
        if step.api == "Heartbeat":
            return {**who, "generationId": generation}
        return {"groups": [client.group]} if step.api == "DescribeGroups" else {"groupsNames": [client.group]}

    def _join(self, client: GroupClient, who: dict[str, Any], generation: int, choice: int) -> dict[str, Any]:
        topics = (["apples"], ["apples", "pears"], ["plums"])[choice % 7 % 3]
        known = protocols(range=subscription(*topics), sticky=subscription(*topics, version=0))
        chosen = known[1:] if choice % 11 == 0 else known
        kind = "connect" if choice % 29 == 0 else "consumer"
        times = {"sessionTimeoutMs": 1_000 * (300 if choice % 31 else 3_000), "rebalanceTimeoutMs": 300_000}
        return {**who, **times, "protocolType": kind, "protocols": chosen, "reason": "drawn" if choice % 2 else None}

    def _sync(self, client: GroupClient, who: dict[str, Any], generation: int, choice: int) -> dict[str, Any]:
        members = [each for each in self.clients if each.group == client.group and each.member_id]
        parts = [{"memberId": each.member_id, "assignment": encoded(f"{each.name} {choice % 5}")} for each in members]
        named = {"protocolType": "consumer" if choice % 13 else "connect", "protocolName": "range" if choice % 17 else None}
        return {**who, **named, "generationId": generation, "assignments": parts if client.is_leader or choice % 19 == 0 else []}

    def _leave(self, client: GroupClient, who: dict[str, Any], generation: int, choice: int) -> dict[str, Any]:
        member = {"memberId": "" if client.instance and choice % 3 == 0 else who["memberId"], "groupInstanceId": who["groupInstanceId"]}
        return {"groupId": client.group, "memberId": who["memberId"], "members": [member]}

    def _commit(self, client: GroupClient, who: dict[str, Any], generation: int, choice: int) -> dict[str, Any]:
        topics = {"apples": [at(choice % 4, choice, f"note {choice % 3}")], **({"pears": [at(0, choice, None)]} if choice % 2 else {})}
        return {**who, "generationIdOrMemberEpoch": generation, "topics": commits(topics)}

    def _fetch(self, client: GroupClient, who: dict[str, Any], generation: int, choice: int) -> dict[str, Any]:
        topics = [{"name": "apples", "partitionIndexes": [0, 1, 3]}, {"name": "pears", "partitionIndexes": [0]}]
        return {"groupId": client.group, "topics": topics, "groups": [{"groupId": client.group, "topics": topics if choice % 2 else None}]}

    def _delete_offsets(self, client: GroupClient, who: dict[str, Any], generation: int, choice: int) -> dict[str, Any]:
        names = ("apples", "pears") if choice % 2 else ("apples",)
        return {"groupId": client.group, "topics": [{"name": name, "partitions": [{"partitionIndex": choice % 3}]} for name in names]}


def _has_members_or_no_rebalance(described: Any) -> bool:
    return bool(described.members) or described.group_state != "PreparingRebalance"


class GroupDifference(NamedTuple):
    """The first line that is not the same, with what was told before it."""

    seed: int
    before: list[str]
    kafka: str
    klamm: str

    def text(self) -> str:
        """For people."""
        return "\n".join((f"seed {self.seed}", *self.before, f"Apache Kafka: {self.kafka}", f"Klamm:        {self.klamm}"))


async def compare(kafka: GroupGrounds, own: GroupGrounds, seed: int) -> GroupDifference | None:
    """Tell one story to both, once more if they differ."""
    difference = None
    for _ in range(2):
        steps = story(seed)
        lines, others = await asyncio.gather(Telling(kafka, seed).tell(steps), Telling(own, seed).tell(steps))
        place = next((n for n, pair in enumerate(zip(lines, others, strict=False)) if pair[0] != pair[1]), min(len(lines), len(others)))
        if lines == others:
            return None
        ends = [each[place] if place < len(each) else "(nothing)" for each in (lines, others)]
        difference = GroupDifference(seed, lines[max(0, place - 24) : place], *ends)
    return difference


async def compare_all(kafka: GroupGrounds, own: GroupGrounds, seeds: Sequence[int]) -> list[GroupDifference]:
    """Tell several stories at the same time."""
    return [each for each in await asyncio.gather(*(compare(kafka, own, seed) for seed in seeds)) if each is not None]


class GroupPair:
    """A cluster of Apache Kafka and one of Klamm, started alike. Use it with `with`."""

    def __init__(self, zookeeper: str, folder: Path, kafka_jars: Path) -> None:
        kind = KINDS["three"]
        settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in kind.configs.items()}
        path = f"/{unique_name('pair')}"
        self._members = Members(kafka_jars, Tree(zookeeper, f"{path}-kafka"), folder, lambda _: settings)
        configs = {name: str(value) for name, value in kind.configs.items()}
        self._cluster = klamm.Cluster(2, zookeeper=f"{zookeeper}{path}-klamm", config=configs)

    def __enter__(self) -> tuple[GroupGrounds, GroupGrounds]:
        """Start both; their grounds, first those of Apache Kafka."""
        self._members.kafka(1, 2)
        running = self._cluster.__enter__()
        kafka = GroupGrounds({broker_id: ("127.0.0.1", broker.port) for broker_id, broker in self._members.brokers.items()})
        own = GroupGrounds({broker_id: (host, port) for broker_id, host, port in running.addresses})
        for grounds in (kafka, own):
            asyncio.run(open_tale("three", grounds))
        return kafka, own

    def __exit__(self, *_: object) -> None:
        self._cluster.__exit__(None, None, None)
        self._members.close()
        self._members.tree.close()


def main() -> int:
    """Tell stories of a seed and the following ones; the exit code is 1 if one differs."""
    parser = argparse.ArgumentParser(description="Tell random stories of groups to Apache Kafka and to Klamm")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0)
    arguments = parser.parse_args()
    zookeeper, differences, seed = EmbeddedZooKeeper(), 0, arguments.seed
    try:
        with tempfile.TemporaryDirectory() as folder, GroupPair(zookeeper.start(), Path(folder), jars()) as (kafka, own):
            end = time.monotonic() + 60 * arguments.minutes
            while time.monotonic() < end:
                for difference in asyncio.run(compare_all(kafka, own, range(seed, seed + AT_ONCE))):
                    differences += 1
                    print(difference.text(), flush=True)
                seed += AT_ONCE
    finally:
        zookeeper.stop()
    print(f"{seed - arguments.seed} stories, {differences} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
