"""Tells the recorded story to three klamm processes, each behind a proxy that records what the controller sends to it.

What would come in another order is done by hand: the brokers' fetches do not arrive, so that no leader changes its ISR, none recovers by
itself, and leaders' AlterPartition requests are sent as they were recorded, in their order, in the leader's name. So is what is not built
yet: internal topics are created by request; and the reassignment's outcome is written into ZooKeeper, followed by an election that the
same broker wins (so controller epochs are one higher from there on). Where two brokers could win an election, the other one's way to
ZooKeeper is held until the one of the recording has won. Produced records and groups are left out.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from klamm.protocol import json_form, messages
from klamm.protocol.apis import ApiKey
from klamm.tests.harness.client import Client
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import FakeBroker, Frame
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.process import KlammBroker
from klamm.tests.harness.proxy import Proxy
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import eventually
from klamm.tests.stories.recorded.recording import Form, recording, topic_ids

SESSION_MS = 20_000
"""No session expires by itself, however busy the machine is: the way to ZooKeeper ends those of killed and frozen brokers."""
HERALD = 900
"""Id of a broker that comes and goes to mark the end of a step."""
BROKERS = (0, 1, 2)


def is_bare(frame: Frame) -> bool:
    """An UpdateMetadata without partitions: brokers came or went."""
    return frame.api == "UpdateMetadata" and not frame.partitions()


def without_herald(frames: list[Frame]) -> list[Frame]:
    """Frames but for those that say that the herald came and went."""
    kept, here = [], False
    for frame in frames:
        if frame.api == "UpdateMetadata" and HERALD in frame.live():
            here = True
        elif here and is_bare(frame):
            here = False
        else:
            kept.append(frame)
    return kept


class Teller:
    """`heard[step][receiver]` are the frames of a step; `altered[step]` pairs of answers to AlterPartition, ours and the recorded one."""

    def __init__(self, zookeeper: str, chroot: str, folder: Path) -> None:
        self.tree, self.folder, self.chroot = Tree(zookeeper, chroot), folder, chroot
        self.cluster = Cluster(self.tree, folder)
        self._zookeeper_port = int(zookeeper.rsplit(":", 1)[1])
        self.fronts: dict[int, Proxy] = {}
        self.ways: dict[int, Proxy] = {}
        self.heard: dict[str, dict[int, list[Frame]]] = {}
        self.altered: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
        self.producer_ids: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self._marks = dict.fromkeys(BROKERS, 0)
        self._deaf: set[int] = set()

    # life

    async def tell(self) -> None:
        """The whole story, step by step."""
        try:
            for broker in BROKERS:
                self.fronts[broker] = await Proxy(free_port(), dropped={ApiKey.FETCH}).start()
                self.ways[broker] = await Proxy(self._zookeeper_port, frames=False).start()
            for step, act in self._acts().items():
                await act()
                await self._hear(step)
        finally:
            for process in self.cluster.brokers.values():
                process.kill()
            for proxy in [*self.fronts.values(), *self.ways.values()]:
                await proxy.close()
            await self.cluster.close()
            self.tree.close()

    def _acts(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What happens in each step."""

        def starting(broker: int) -> Callable[[], Awaitable[None]]:
            return lambda: self._start(broker)

        def creating(topic: str, assignment: list[list[int]]) -> Callable[[], Awaitable[None]]:
            return lambda: self._create((topic, assignment))

        return {
            "start-0": starting(0),
            "start-1": starting(1),
            "start-2": starting(2),
            "create-topics": lambda: self._create(("solo", [[1]]), ("three", [[0, 1, 2], [1, 2, 0]]), ("pair", [[0, 1]])),
            "transaction": self._transaction,
            "group": creating("__consumer_offsets", [[1, 2, 0], [2, 0, 1]]),
            "stop-2-cleanly": lambda: self._stop(2),
            "start-2-again": lambda: self._return("start-2-again", 2),
            "kill-1": lambda: self._kill(1),
            "start-1-again": lambda: self._return("start-1-again", 1),
            "preferred-election": lambda: self._elect("three", 1, 0),
            "reassign-pair-0-1-to-2-1": self._reassigned_by_hand,
            "add-partition": self._add_partition,
            "freeze-2": self._freeze_2,
            "thaw-2": self._thaw_2,
            "create-dirty": creating("dirty", [[1, 2]]),
            "dirty-stop-2": lambda: self._stop(2),
            "dirty-kill-1": lambda: self._kill(1),
            "dirty-start-2": lambda: self._return("dirty-start-2", 2),
            "dirty-elect-unclean": lambda: self._elect("dirty", 0, 1),
            "dirty-start-1": lambda: self._return("dirty-start-1", 1),
            "topic-config": self._topic_config,
            "stop-controller-0-cleanly": lambda: self._stop(0, winner=2),
            "delete-solo-without-0": lambda: self._delete("solo"),
            "start-0-again": lambda: self._return("start-0-again", 0),
            "delete-three": lambda: self._delete("three"),
            "stop-2-before-delete": lambda: self._stop(2, winner=1),
            "delete-pair-without-2": lambda: self._delete("pair"),
            "start-2-deletion-resumes": lambda: self._return("start-2-deletion-resumes", 2),
            "kill-controller": lambda: self._kill(1, winner=0),
        }

    async def _hear(self, step: str) -> None:
        """Wait until everything of this step has been told (a broker comes and goes to mark the end) and keep it."""
        alive = [b for b in self.cluster.brokers if self.cluster.brokers[b].alive() and b not in self._deaf]
        await self._herald(alive)
        self.heard[step] = {}
        for broker in BROKERS:
            told = self.fronts[broker].frames[self._marks[broker] :]
            self.heard[step][broker] = without_herald(told)
            self._marks[broker] += len(told)
        for name in self.tree.children("/brokers/topics"):
            topic_id = self.tree.topic_id(name)
            if topic_id is not None:
                self.names[base64.urlsafe_b64encode(topic_id).decode().rstrip("=")] = name

    async def _herald(self, alive: list[int]) -> None:
        """A broker without replicas registers and leaves: returns when these brokers were told of both, and so of all that was before."""
        herald = FakeBroker(self.tree, HERALD)
        await herald.start()
        for here in (True, False):
            marks = {b: len(self.fronts[b].frames) for b in alive}

            def told(here: bool = here, marks: dict[int, int] = marks) -> bool:
                frames = {b: [f for f in self.fronts[b].frames[marks[b] :] if is_bare(f)] for b in alive}
                return all(any((HERALD in f.live()) == here for f in frames[b]) for b in alive)

            if not here:
                await herald.die()
            await eventually(told, f"the end of a step told to {alive}")

    # acts

    async def _start(self, broker: int) -> None:
        front, way = self.fronts[broker], self.ways[broker]
        process = KlammBroker(
            self.tree,
            self.folder,
            broker,
            listeners=f"PLAINTEXT://127.0.0.1:{front.target_port}",
            advertised_listeners=f"PLAINTEXT://127.0.0.1:{front.port}",
            zookeeper_connect=f"127.0.0.1:{way.port}{self.chroot}",
            zookeeper_session_timeout_ms=SESSION_MS,
            broker_rack=f"rack-{broker}",
            replica_lag_time_max_ms=3_600_000,
            **{"kip704.recovery.mode": "manual"},
        )
        self.cluster.brokers[broker] = process
        mark = len(front.frames)
        await asyncio.to_thread(process.start)
        await eventually(lambda: front.frames[mark:], f"{broker} is told of the cluster")

    async def _return(self, step: str, broker: int) -> None:
        await self._start(broker)
        await self._herald([b for b in self.cluster.brokers if self.cluster.brokers[b].alive()])
        await self._leaders_ask(step)

    async def _stop(self, broker: int, winner: int | None = None) -> None:
        others = [b for b in self.cluster.brokers if b not in (broker, winner) and self.cluster.brokers[b].alive()]
        await self._while_held(others if winner is not None else [], winner, lambda: asyncio.to_thread(self.cluster.brokers[broker].stop))
        await self._missed(broker)

    async def _kill(self, broker: int, winner: int | None = None) -> None:
        async def kill() -> None:
            self.cluster.brokers[broker].kill()
            await self.ways[broker].end_session()
            await eventually(lambda: self.tree.broker_epoch(broker) == -1, f"the session of {broker} expired")

        others = [b for b in self.cluster.brokers if b not in (broker, winner) and self.cluster.brokers[b].alive()]
        await self._while_held(others if winner is not None else [], winner, kill)
        await self._missed(broker)

    async def _while_held(self, held: list[int], winner: int | None, act: Callable[[], Awaitable[Any]]) -> None:
        """Do something that makes brokers elect a controller while some cannot take part; returns when the winner is controller."""
        for broker in held:
            self.ways[broker].hold()
        try:
            await act()
            if winner is not None:
                await eventually(lambda: self._speaks(winner), f"{winner} is controller")
        finally:
            for broker in held:
                self.ways[broker].release()

    async def _missed(self, broker: int) -> None:
        """Wait until the controller has noticed that a broker is gone: it tells itself so."""

        def gone() -> bool:
            front = self.fronts.get(self.tree.controller())
            told = [] if front is None else [f for f in front.frames if f.api == "UpdateMetadata"]
            return bool(told) and broker not in told[-1].live()

        await eventually(gone, f"the controller noticed that {broker} is gone")

    def _speaks(self, broker: int) -> bool:
        """Whether this broker is controller and has said so: its picture of the brokers is complete then."""
        epoch = self.tree.controller_epoch()
        last = [f for front in self.fronts.values() for f in front.frames[-1:]]
        return self.tree.controller() == broker and any(f.body.controller_epoch == epoch for f in last)

    async def _create(self, *topics: tuple[str, list[list[int]]]) -> None:
        for name, assignment in topics:
            await self.cluster.create(assignment, topic=name)

    async def _elect(self, topic: str, partition: int, kind: int) -> None:
        top, results = await self.cluster.elect([(topic, partition)], kind=kind)
        assert (top, results) == (0, {(topic, partition): (0, None)})

    async def _delete(self, topic: str) -> None:
        assert await self.cluster.delete(topic) == 0

    async def _transaction(self) -> None:
        await self._create(("__transaction_state", [[2, 1, 0]]))
        request = messages.AllocateProducerIdsRequest(broker_id=2, broker_epoch=self.tree.broker_epoch(2))
        self.producer_ids = json_form.to_json(await self.cluster.ask(request, 0), 0)

    async def _add_partition(self) -> None:
        assert await self.cluster.grow("pair", 2, [[1, 2]]) == 0

    async def _topic_config(self) -> None:
        assert await self.cluster.alter_config(2, "three", {"retention.ms": "1000000"}) == 0

    async def _freeze_2(self) -> None:
        self.cluster.brokers[2].freeze()
        self._deaf.add(2)
        await self._leaders_ask("freeze-2")
        await self.ways[2].end_session()
        await self._missed(2)

    async def _thaw_2(self) -> None:
        front = self.fronts[0]
        mark = len(front.frames)
        self.cluster.brokers[2].thaw()
        self._deaf.discard(2)
        await eventually(lambda: any(2 in f.live() for f in front.frames[mark:] if is_bare(f)), "2 is registered again")
        await self._herald(list(BROKERS))
        await self._leaders_ask("thaw-2")

    async def _reassigned_by_hand(self) -> None:
        """pair-0 moves from [0, 1] to [2, 1] with leader epoch 4 and partition epoch 6, and broker 0 reads it all anew."""
        pair = self.tree.topic_id("pair")
        self.tree.put_topic("pair", {0: [2, 1]}, pair)
        while self.cluster.state("pair").pe < 6:
            self.tree.put_state("pair", 0, 2, [1, 2], 4, 1)
        await self._while_held([1, 2], 0, lambda: self.cluster.restart_controller(0))

    async def _leaders_ask(self, step: str) -> None:
        """Send the AlterPartition requests of a step in the leaders' names; keep the answers beside the recorded ones."""
        form = Form(lambda epoch: epoch, lambda _, __: True, topic_ids())
        ours = Form(lambda epoch: epoch, lambda _, __: True, self.names)
        ids = {name: topic_id for topic_id, name in self.names.items()}
        answers = {r.pair: r.body for r in recording() if r.is_answer and r.api == "AlterPartition"}
        pairs = self.altered.setdefault(step, [])
        for asked in recording():
            if asked.is_answer or asked.step != step or asked.api != "AlterPartition":
                continue
            topics = [{**t, "topicId": ids[topic_ids()[t["topicId"]]]} for t in asked.body["topics"]]
            body = {**asked.body, "brokerEpoch": self.tree.broker_epoch(asked.sender), "topics": topics}
            request = json_form.from_json("AlterPartitionRequest", asked.version, body)
            client = Client("127.0.0.1", self.cluster.brokers[asked.receiver].port)
            answer = await client.ask(request, asked.version)
            await client.close()
            pairs.append((ours.altered(json_form.to_json(answer, asked.version)), form.altered(answers[asked.number])))
