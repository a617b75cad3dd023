"""Where a story is told: brokers under test of one kind, fake brokers, a client, and the tree.

A `Target` makes brokers: Klamm's or a real Kafka's, from the same properties. A `Stage` is a cluster of them for one story, with fake
brokers beside them; requests of clients that reach a fake broker are passed on to a broker under test, so that tools see a whole cluster.

Steps of a story come one after the other for the controller too: whatever changes a broker waits until the controller's own broker shows
the change, then for a request that goes through the controller's queue and changes nothing. Before a broker goes, all that was on its way
to it arrives.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.client import ConnectionClosed
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import UMR, FakeBroker
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import eventually, eventually_asked
from klamm.tests.stories.both.story_file import StoryFile

PROPERTIES: dict[str, object] = {
    "replica.lag.time.max.ms": 600_000,
    "log.cleaner.enable": "false",
    "offsets.topic.num.partitions": 1,
    "controlled.shutdown.max.retries": 1,
    "controlled.shutdown.retry.backoff.ms": 200,
    "zookeeper.session.timeout.ms": 6000,
}
"""Of every broker under test: no leader shrinks an ISR by itself, because fake brokers fetch nothing."""

MARKER = "/admin/delete_topics/no-such-topic"
MARKED_S, QUIET_S = 1.0, 0.1
"""How long a controller may take to pass the marker, and how long a story is left alone that has no controller."""

_FROM_CONTROLLERS = {struct.pack(">h", key) for key in (4, 5, 6)}


@dataclass
class Target:
    """A kind of broker. `jars` is the folder of Kafka's jars for the real one."""

    name: str
    jars: Path | None = None

    def broker(self, tree: Tree, folder: Path, broker_id: int, properties: dict[str, object]) -> OwnedBroker:
        settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in {**PROPERTIES, **properties}.items()}
        if self.jars is None:
            return OwnedBroker(tree, folder, broker_id, **settings)
        return KafkaBroker(self.jars, tree, folder, broker_id, **settings)


class Grounds:
    """What the stories of one file share: a path of ZooKeeper and, in a shared file, broker 0."""

    def __init__(self, target: Target, zookeeper: str, file: StoryFile) -> None:
        self.target, self.zookeeper, self.file = target, zookeeper, file
        self._folder = tempfile.TemporaryDirectory(prefix="klamm-stories-", ignore_cleanup_errors=True)
        self._tree: Tree | None = None
        self._brokers: dict[int, OwnedBroker] = {}

    def stage(self) -> Stage:
        """The stage of the next story; blocks while a shared broker starts."""
        if not self.file.shared:
            folder = Path(tempfile.mkdtemp(dir=self._folder.name))
            return Stage(self.target, Tree(self.zookeeper, f"/story-{uuid.uuid4().hex[:12]}"), folder, {}, shared=False)
        if self._tree is None:
            self._tree = Tree(self.zookeeper, f"/stories-{uuid.uuid4().hex[:12]}")
        if 0 not in self._brokers or not self._brokers[0].alive():
            self._brokers[0] = self.target.broker(self._tree, Path(self._folder.name), 0, dict(self.file.properties))
            self._brokers[0].start()
        return Stage(self.target, self._tree, Path(self._folder.name), self._brokers, shared=True)

    def keep(self, stage: Stage) -> None:
        """The next story goes on with the brokers of this one, which may have started them anew."""
        self._brokers.update({broker_id: broker for broker_id, broker in stage.brokers.items() if isinstance(broker, OwnedBroker)})

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.kill()
        if self._tree is not None:
            self._tree.close()
        self._folder.cleanup()


@dataclass
class StoryFake(FakeBroker):
    """A fake broker that passes on what it has no answer for, to the port that `forward` names; without one it hangs up."""

    forward: Callable[[], int | None] = field(default=lambda: None)
    shown: dict[str, int] = field(default_factory=dict)
    """How many frames the story has looked at, by view."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._onward: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    def listens(self) -> bool:
        """Whether it takes requests and answers them."""
        return self._server is not None and not self._held

    def forget(self) -> None:
        """What it was told so far is no matter."""
        self.shown = dict.fromkeys(("told", "live"), self.mark())

    async def _handle(self, connection: int, payload: bytes) -> bytes | None:
        if payload[:2] in _FROM_CONTROLLERS:
            return await super()._handle(connection, payload)
        port = self.forward()
        if port is None:
            return None
        if connection not in self._onward:
            self._onward[connection] = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
        reader, writer = self._onward[connection]
        writer.write(struct.pack(">i", len(payload)) + payload)
        length = await reader.readexactly(4)
        return length + await reader.readexactly(struct.unpack(">i", length)[0])

    async def refuse(self) -> None:
        for _, writer in self._onward.values():
            writer.close()
        self._onward = {}
        await super().refuse()


def _drop_bare(fake: StoryFake, mark: int) -> bool:
    """Take the newest UpdateMetadata without partitions out of what a fake was sent since `mark`; whether there was one."""
    for number in range(len(fake.frames) - 1, mark - 1, -1):
        if fake.frames[number].api == UMR and not fake.frames[number].partitions():
            del fake.frames[number]
            return True
    return False


T = TypeVar("T")


def _with_ports(value: str) -> str:
    """A property's value with a free port for each `<port>`."""
    while "<port>" in value:
        value = value.replace("<port>", str(free_port()), 1)
    return value


class Stage(Cluster):
    """One story's cluster."""

    def __init__(self, target: Target, tree: Tree, folder: Path, brokers: dict[int, OwnedBroker], *, shared: bool) -> None:
        super().__init__(tree, folder)
        self.target, self.shared = target, shared
        self.brokers.update(brokers)
        self.by_id: dict[int, StoryFake] = {}
        self._resources: dict[str, tuple[Any, Callable[[Any], object]]] = {}

    def resource(self, name: str, make: Callable[[], T], close: Callable[[T], object]) -> T:
        """What words keep for one story: made when it is first asked for, closed with the stage."""
        if name not in self._resources:
            self._resources[name] = (make(), close)
        made: T = self._resources[name][0]
        return made

    async def close(self) -> None:
        """The story's end: its fakes are gone and forgotten; brokers of its own are killed, a shared one goes on."""
        for made, close in self._resources.values():
            close(made)
        try:
            gone = set(self.by_id)
            await super().close()
            if self.shared and gone and self.tree.controller() in self.brokers:
                await self.forgotten(gone)
        finally:
            for client in self._clients.values():
                await client.close()
            if not self.shared:
                self.tree.close()

    # brokers under test

    async def launch(self, broker_id: int, properties: dict[str, str], *, wait: bool = True) -> OwnedBroker:
        """Start broker `broker_id`, with the port and the data of its former life if it had one."""
        old = self.brokers.get(broker_id)
        settings: dict[str, object] = {name: _with_ports(value) for name, value in properties.items()}
        if old is not None:
            settings = {"listeners": old.settings["listeners"], **settings}
            await eventually(lambda: self.tree.exists(f"/brokers/ids/{broker_id}") is None, f"old node of {broker_id} gone")
        client = self._clients.pop(broker_id, None)
        if client is not None:
            await client.close()  # it was connected to the former process
        broker = self.target.broker(self.tree, self.folder, broker_id, settings)
        self.brokers[broker_id] = broker
        if not wait:
            broker.launch()
            return broker
        await asyncio.to_thread(broker.start)
        return broker

    def one(self, to: int | None = None) -> int:
        """The broker under test that a request goes to: the named one, the controller, or the lowest."""
        if to is not None:
            return to
        controller = self.tree.controller()
        return controller if controller in self.brokers else min(self.brokers)

    # fake brokers

    async def enter(self, broker_ids: list[int], racks: list[str] | None = None) -> None:
        """New fake brokers, known to everybody."""
        for number, broker_id in enumerate(broker_ids):
            fake = StoryFake(self.tree, broker_id, racks[number] if racks else None, forward=self._port)
            self.by_id[broker_id] = fake
            self.fake_brokers.append(fake)
            await fake.start()
            await self.greeted(fake)
        await self.flush()
        for fake in self.by_id.values():
            fake.forget()

    def _port(self) -> int | None:
        return self.brokers[self.one()].port if self.brokers else None

    async def greeted(self, fake: StoryFake) -> None:
        """Wait until a fake was told of itself; when nobody is controller, there is nothing to wait for."""
        if self.tree.controller() in self.brokers:
            await self.welcomed(fake)

    async def forgotten(self, broker_ids: set[int]) -> None:
        """Wait until the controller's broker shows none of these."""

        async def gone() -> bool:
            return not broker_ids & {broker.node_id for broker in (await self.metadata([])).brokers}

        if self.tree.controller() in self.brokers:
            await eventually_asked(gone, f"brokers {sorted(broker_ids)} gone from Metadata")
            await self.barrier()

    async def barrier(self) -> None:
        """Whatever the controller's queue held is done: an election of nothing has gone through it."""
        controller = self._live_controller()
        if controller is None:
            return
        try:
            await self.ask(requests.elect_leaders([("no-such-topic", 0)]), 2, to=controller, timeout_s=10)
        except (ConnectionClosed, TimeoutError):
            return  # it is on its way out: the next look will tell

    async def flush(self) -> None:
        """Whatever the controller had to say so far has arrived at the fake brokers.

        An AlterPartition that names nothing makes it send every broker an UpdateMetadata without partitions, behind all the rest.
        """
        await self.barrier()
        controller = self._live_controller()
        if controller is None:
            return
        for fake, mark in await self._marked(controller):
            await eventually(lambda fake=fake, mark=mark: fake.since(mark, UMR), f"a word of the controller to {fake.id}")  # type: ignore[misc]

    async def _marked(self, controller: int) -> list[tuple[StoryFake, int]]:
        """Make the controller send its UpdateMetadata without partitions; fakes that get it, and how many frames they had before."""
        marks = [(fake, fake.mark()) for fake in self.by_id.values() if fake.listens() and self.tree.exists(fake.path) is not None]
        epoch = self.tree.broker_epoch(controller)
        nothing = messages.AlterPartitionRequest(broker_id=controller, broker_epoch=epoch, topics=[])
        await self.ask(nothing, 3, to=controller, timeout_s=10)
        return marks

    def _live_controller(self) -> int | None:
        """The broker under test that is controller, None when nobody is, or somebody else."""
        controller = self.tree.controller()
        return controller if controller in self.brokers and self.brokers[controller].alive() else None

    async def idle(self, *, frames: bool) -> None:
        """The controller has nothing left to do: what is not there now does not come any more.

        Its watches fire in the order of the changes, so when it has removed a request to delete an unknown topic, it has seen all changes
        before that. Then it does what its queue holds (`barrier`). `frames`: what it sends has arrived at the fake brokers, too; what marks
        that is not kept. Without, nothing is sent to mark it: a controller that failed may say with that what it did not say before. A
        controller that does not get that far within MARKED_S, or none at all, is left alone for a while instead.
        """
        await self.barrier()
        controller = self._live_controller()
        if controller is None:
            await asyncio.sleep(QUIET_S)
            return
        self.tree.put(MARKER, b"")
        try:
            await eventually(lambda: self.tree.exists(MARKER) is None, "the marker removed", MARKED_S)
            await self.barrier()
            for fake, mark in await self._marked(controller) if frames else ():
                await eventually(lambda fake=fake, mark=mark: _drop_bare(fake, mark), f"a word to {fake.id}", MARKED_S)  # type: ignore[misc]
        except (AssertionError, ConnectionClosed, TimeoutError):
            self.tree.delete(MARKER)

    def fake_named(self, text: str) -> StoryFake:
        assert int(text) in self.by_id, f"there is no fake broker {text}"
        return self.by_id[int(text)]
