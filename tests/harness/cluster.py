"""A cluster for one test: klamm processes and fake brokers around one ZooKeeper path, and the requests that tests have in common.

A process may be shared by many tests; then every test brings fake brokers with fresh ids and topics with fresh names.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from klamm.tests.harness import requests
from klamm.tests.harness.client import Client
from klamm.tests.harness.fake_broker import UMR, FakeBroker
from klamm.tests.harness.process import KlammBroker
from klamm.tests.harness.tree import State, Tree
from klamm.tests.harness.waits import WITHIN_S, eventually, eventually_asked

_ids = itertools.count(11)
Partition = tuple[str, int]


class Cluster:
    """`brokers` are klamm processes by id; requests go to the controller's process unless told otherwise."""

    def __init__(self, tree: Tree, folder: Path, brokers: dict[int, KlammBroker] | None = None) -> None:
        self.tree, self.folder = tree, folder
        self.brokers: dict[int, KlammBroker] = brokers or {}
        self.shared = brokers is not None
        self.fake_brokers: list[FakeBroker] = []
        self._clients: dict[int, Client] = {}

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        for fake in self.fake_brokers:
            await fake.die()
        if not self.shared:
            for broker in self.brokers.values():
                broker.kill()
        unreadable = [line for fake in self.fake_brokers for line in fake.unreadable]
        assert not unreadable, unreadable

    # klamm processes

    async def start(self, broker_id: int = 0, **properties: object) -> KlammBroker:
        """Start a klamm process and wait until it is ready. The test's own servers go on meanwhile."""
        broker = self.brokers[broker_id] = KlammBroker(self.tree, self.folder, broker_id, **properties)
        return await asyncio.to_thread(broker.start)

    async def restart(self, broker_id: int = 0) -> None:
        """Start a stopped process again, with the same properties."""
        await asyncio.to_thread(self.brokers[broker_id].start)

    async def stop(self, broker_id: int = 0) -> int:
        """SIGTERM and wait; returns the exit code."""
        return await asyncio.to_thread(self.brokers[broker_id].stop)

    def client(self, to: int | None = None) -> Client:
        """The connection to a klamm process: that of the controller, or the only one."""
        if to is None:
            controller = self.tree.controller()
            to = controller if controller in self.brokers else next(iter(self.brokers))
        port = self.brokers[to].port
        if to not in self._clients or self._clients[to].port != port:
            self._clients[to] = Client("127.0.0.1", port)
        return self._clients[to]

    async def ask(self, message: Any, version: int, to: int | None = None, timeout_s: float = 60) -> Any:
        return await self.client(to).ask(message, version, timeout_s)

    async def restart_controller(self, broker_id: int = 0) -> None:
        """Fail over to the same process: delete `/controller`, wait for the next epoch."""
        epoch = self.tree.controller_epoch()
        self.tree.delete("/controller")
        await eventually(lambda: self.tree.controller() == broker_id and self.tree.controller_epoch() > epoch, "elected again")

    # fake brokers

    async def fake(self, broker_id: int | None = None, rack: str | None = None) -> FakeBroker:
        """A fake broker that the controller has welcomed."""
        fake = FakeBroker(self.tree, next(_ids) if broker_id is None else broker_id, rack)
        self.fake_brokers.append(fake)
        await fake.start()
        await self.welcomed(fake)
        return fake

    async def fakes(self, count: int) -> list[FakeBroker]:
        return [await self.fake() for _ in range(count)]

    async def welcomed(self, fake: FakeBroker) -> None:
        """Wait until the fake got an UpdateMetadata with its present epoch, and the controller's own broker lists it."""
        # versions below 5 carry no broker epoch
        await eventually(lambda: any(f.body.broker_epoch in (fake.epoch, -1) for f in fake.since(0, UMR)), f"UpdateMetadata to {fake.id}")
        if self.tree.controller() in self.brokers:

            async def listed() -> bool:
                return fake.id in {b.node_id for b in (await self.metadata([])).brokers}

            await eventually_asked(listed, f"broker {fake.id} in Metadata")

    async def back(self, fake: FakeBroker) -> None:
        """A dead fake broker returns."""
        await fake.back()
        await self.welcomed(fake)

    async def lost(self, fake: FakeBroker) -> None:
        """A fake broker dies, and the controller's own broker no longer lists it."""
        await fake.die()

        async def gone() -> bool:
            return fake.id not in {b.node_id for b in (await self.metadata([])).brokers}

        await eventually_asked(gone, f"broker {fake.id} gone from Metadata")

    async def settled(self, *fakes: FakeBroker) -> None:
        """Everything that the controller was to send by now has arrived at these fakes.

        Events and requests are both first in, first out: so when one more change of a broker node is told, all before it is, too.
        """
        herald = FakeBroker(self.tree, next(_ids))
        try:
            await herald.start()
            marks = [(fake, fake.mark()) for fake in fakes]
            await eventually(
                lambda: all(any(herald.id in f.live() for f in fake.since(mark, UMR)) for fake, mark in marks), "the herald told"
            )
            marks = [(fake, fake.mark()) for fake in fakes]
            await herald.die()
            await eventually(
                lambda: all(any(herald.id not in f.live() for f in fake.since(mark, UMR)) for fake, mark in marks), "the herald gone"
            )
        finally:
            await herald.refuse()

    # topics

    def topic_name(self) -> str:
        return f"t-{uuid.uuid4().hex[:8]}"

    async def create(
        self, assignment: Sequence[Sequence[FakeBroker | int]], configs: dict[str, str] | None = None, topic: str | None = None
    ) -> str:
        """Create a topic with these replicas; returns its name when every partition with a live replica has a state."""
        topic = topic or self.topic_name()
        code = await self.create_code(assignment, configs, topic)
        assert code == 0, f"CreateTopics {topic}: {code}"
        return topic

    async def create_code(
        self, assignment: Sequence[Sequence[FakeBroker | int]], configs: dict[str, str] | None, topic: str, timeout_ms: int = 10_000
    ) -> int:
        answer = await self.ask(requests.create_topic(topic, [ids(row) for row in assignment], configs=configs, timeout_ms=timeout_ms), 7)
        return int(answer.topics[0].error_code)

    async def delete(self, topic: str, timeout_ms: int = 10_000) -> int:
        answer = await self.ask(requests.delete_topics(topic, timeout_ms=timeout_ms), 6)
        return int(answer.responses[0].error_code)

    async def grow(self, topic: str, count: int, assignment: Sequence[Sequence[FakeBroker | int]]) -> int:
        """CreatePartitions with explicit replicas for the new ones."""
        answer = await self.ask(requests.create_partitions(topic, count, [ids(row) for row in assignment]), 3)
        return int(answer.results[0].error_code)

    async def metadata(self, topics: list[str] | None, version: int = 12, to: int | None = None) -> Any:
        """Metadata of the named topics; None for all."""
        return await self.ask(requests.metadata(topics), version, to)

    async def shown_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int | None:
        """Leader of a partition in Metadata; None when the partition is not shown."""
        (shown,) = (await self.metadata([topic], to=to)).topics
        return next((p.leader_id for p in shown.partitions if p.partition_index == partition), None)

    # states

    def state(self, topic: str, partition: int = 0) -> State:
        state = self.tree.state(topic, partition)
        assert state is not None, f"{topic}-{partition} has no state node"
        return state

    async def becomes(self, topic: str, partition: int = 0, within_s: float = WITHIN_S, **wanted: Any) -> State:
        """Wait until the state node has these fields."""

        def look() -> State | None:
            state = self.tree.state(topic, partition)
            assert state is not None and all(getattr(state, k) == v for k, v in wanted.items()), f"{state}"
            return state

        return await eventually(look, f"state of {topic}-{partition} with {wanted}", within_s)

    async def gone(self, path: str) -> None:
        await eventually(lambda: self.tree.exists(path) is None, f"{path} removed")

    # what leaders and brokers ask of the controller

    async def alter_partition(
        self,
        topic: str,
        leader: FakeBroker,
        isr: Sequence[FakeBroker | int],
        partition: int = 0,
        *,
        version: int = 3,
        le: int = 0,
        pe: int = 0,
        recovery: int = 0,
        epoch: int | None = None,
        topic_id: bytes | None = None,
    ) -> tuple[int, Any]:
        """AlterPartition; `le` and `pe` are offsets to the present values. Returns (top-level code, partition's answer or None)."""
        now = self.tree.state(topic, partition) or State(-1, [], 0, 0, 0, 0)
        request = requests.alter_partition(
            leader.id,
            leader.epoch if epoch is None else epoch,
            topic,
            topic_id or self.tree.topic_id(topic) or requests.NO_ID,
            partition,
            ids(isr),
            leader_epoch=now.le + le,
            partition_epoch=now.pe + pe,
            recovery=recovery,
            version=version,
        )
        answer = await self.ask(request, version)
        found = [p for t in answer.topics for p in t.partitions]
        return int(answer.error_code), found[0] if found else None

    async def isr(self, topic: str, leader: FakeBroker, isr: Sequence[FakeBroker], partition: int = 0) -> None:
        """AlterPartition that must succeed."""
        top, answer = await self.alter_partition(topic, leader, isr, partition)
        assert (top, answer.error_code) == (0, 0), f"AlterPartition {topic}: {top}, {answer}"

    async def controlled_shutdown(
        self, fake: FakeBroker, epoch: int | None = None, version: int = 3, broker_id: int | None = None
    ) -> tuple[int, set[Partition]]:
        """ControlledShutdown; returns (code, remaining partitions)."""
        request = requests.controlled_shutdown(fake.id if broker_id is None else broker_id, fake.epoch if epoch is None else epoch, version)
        answer = await self.ask(request, version)
        return int(answer.error_code), {(p.topic_name, p.partition_index) for p in answer.remaining_partitions}

    async def elect(
        self, partitions: Sequence[Partition] | None, kind: int = 0, version: int = 2, timeout_ms: int = 10_000, to: int | None = None
    ) -> tuple[int, dict[Partition, tuple[int, str | None]]]:
        """ElectLeaders; returns (top-level code, partition → (code, message))."""
        answer = await self.ask(requests.elect_leaders(partitions, kind, version, timeout_ms), version, to)
        results = {
            (t.topic, p.partition_id): (p.error_code, p.error_message) for t in answer.replica_election_results for p in t.partition_result
        }
        assert sum(len(t.partition_result) for t in answer.replica_election_results) == len(results), "a partition answered twice"
        assert answer.throttle_time_ms == 0
        return (0 if version == 0 else int(answer.error_code)), results

    async def moved_away(self, replicas: int = 2) -> tuple[str, FakeBroker, FakeBroker]:
        """A topic on fresh fakes [a, b, ...] led by b though a, its preferred replica, is alive and in sync: (topic, a, b)."""
        fakes = await self.fakes(replicas)
        topic = await self.create([fakes])
        await self.move_away(topic, fakes)
        return topic, fakes[0], fakes[1]

    async def move_away(self, topic: str, fakes: Sequence[FakeBroker], partition: int = 0) -> None:
        """Bounce the preferred replica and let it back into the ISR."""
        first, second = fakes[0], fakes[1]
        first.bounce()
        await self.becomes(topic, partition, leader=second.id)
        await self.welcomed(first)
        await self.isr(topic, second, [*fakes[1:], first], partition)

    async def alter_config(self, kind: int, name: str, values: dict[str, str | None]) -> int:
        """IncrementalAlterConfigs (None deletes); kind 2 is a topic, 4 a broker."""
        answer = await self.ask(requests.set_configs(kind, name, values), 1)
        return int(answer.responses[0].error_code)


def ids(replicas: Sequence[FakeBroker | int]) -> list[int]:
    """Broker ids of fake brokers; an id stands for itself."""
    return [each if isinstance(each, int) else each.id for each in replicas]


async def all_told(fakes: Sequence[FakeBroker], api: str, topic: str, partition: int = 0, **wanted: Any) -> list[Any]:
    """Wait until each of these was told."""
    return list(await asyncio.gather(*(fake.told(api, topic, partition, **wanted) for fake in fakes)))
