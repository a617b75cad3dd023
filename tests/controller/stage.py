"""A stage for one controller: a simulated ZooKeeper, brokers that answer, and a transcript of what was written and sent, as short lines.

    WROTE t-0 2 e1 [2] v1          leader, leader epoch, ISR, partition epoch; `recovering` where the mark is set
    LISR 2: t-0 2 e1 [2] v1        to broker 2; `new`, `recovering`, `+[4]` adding, `-[1]` removing where it applies
    UMR 2: t-0 2 e1 [2] v1 off[1]  `off` are the offline replicas; nothing behind the colon where no partition is named
    SR 2: t-0 e1 delete            leader epoch, `delete` where the replica is to be deleted

Partitions within a request are sorted, they have no order of their own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Iterable
from typing import Any

from klamm.controller.changes import Change
from klamm.controller.cluster import Cluster, Partition
from klamm.controller.event_loop.loop import Controller
from klamm.controller.events import catalogue as events
from klamm.controller.options import ControllerOptions
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term.term import Term
from klamm.controller.values import DEFAULT_BROKER, BrokerRegistration, BrokerToRegister, ControllerMoved, LeaderAndIsr, StateWrite
from klamm.protocol import messages
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.seams.clock import Clock
from klamm.seams.steering import Steering
from klamm.tests.controller.simulated import Faults, Removed, SimulatedStore, SimulatedWorld, Wrote, WroteTopic
from klamm.tests.controller.simulated_brokers import SentFrame, SimulatedBrokers, ToldBroker
from klamm.tests.controller.zero_clock import ZeroClock

ME = 100
"""The broker id of the controller; it leads nothing itself."""


class OneConnection:
    """The connection of a broker that registers."""

    def __init__(self) -> None:
        self.is_open = True
        self.host = "127.0.0.1"
        self.principal = "User:ANONYMOUS"


SOON_S = 0.05


def loop_is_idle() -> bool:
    """Whether only the caller runs: no other callback of the loop is ready, and no timer will be soon. Always false on uvloop."""
    loop: Any = asyncio.get_running_loop()
    if not hasattr(loop, "_ready"):
        return False
    return not loop._ready and not any(timer.when() < loop.time() + SOON_S for timer in loop._scheduled)


class StagedStore(SimulatedStore):
    """A store whose next writes can be made to fail, or to meet somebody else's write."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.before_write: list[Any] = []
        """Each is called before one conditional write of states, in turn; None lets it pass."""

    async def write_states(self, writes: Any) -> Any:
        if self.before_write:
            step = self.before_write.pop(0)
            if step is not None:
                step(writes)
        return await super().write_states(writes)


class Stage:
    """One controller on stage."""

    def __init__(self, finalized_features: dict[str, int] | None = None, clock: Clock | None = None, **options: Any) -> None:
        self.world = SimulatedWorld()
        self.clock = ZeroClock() if clock is None else clock
        self.told: dict[int, ToldBroker] = {}
        self.steering = Steering()
        self.options = ControllerOptions(**{"auto_leader_rebalance_enable": False, **options})
        self.finalized_features = finalized_features or {}
        self.take_office()

    def take_office(self) -> None:
        """A new process with a controller in it."""
        self.changes: list[Change] = []
        """What the cluster of this process went through."""
        self.store = StagedStore(self.world, self._event, Faults(), random.Random(0))
        self.channels = SimulatedBrokers(self.world, self.told)
        self.controller = Controller(
            ME, self.store, self.channels, self.options, self._register, clock=self.clock, new_topic_id=lambda: bytes([7] * 16),
            finalized_features=lambda: self.finalized_features, steering=self.steering, subscriber=self.changes.append,
        )

    def _event(self, event: Any) -> None:
        self.controller.put(event)

    async def _register(self) -> None:
        """The brokers of the stage stay registered."""

    # --- acting ---

    async def open(self, *broker_ids: int) -> None:
        """Brokers are there, then the controller takes office."""
        for b in broker_ids:
            self.world.start_broker(b)
        self.controller.start()
        await self.settle()

    async def register(self, broker_id: int, connection: Any = None, **fields: Any) -> BrokerRegistration:
        """A broker registers with the controller, on a connection of its own unless one is given. Raises ApiError."""
        broker = BrokerToRegister(broker_id, (Endpoint("PLAINTEXT", f"h{broker_id}", 9092, 0),))._replace(**fields)
        self.world.by_request.add(broker_id)
        stored = await self.controller.register_broker(broker, OneConnection() if connection is None else connection)
        await self.settle()
        return stored

    async def settle(self) -> None:
        """Until nothing moves any more."""
        quiet = turns = 0
        while quiet < (3 if loop_is_idle() else 30):
            before = self._marks()
            await asyncio.sleep(0)
            quiet = quiet + 1 if before == self._marks() else 0
            turns += 1
            assert turns < 20_000, "it never settles"

    def _marks(self) -> tuple[int, ...]:
        return len(self.world.journal), self.world.zk.requests, len(self.controller.queue)

    async def start(self, *broker_ids: int) -> None:
        for b in broker_ids:
            self.world.start_broker(b)
        await self.settle()

    async def stop(self, *broker_ids: int) -> None:
        for b in broker_ids:
            self.world.stop_broker(b)
        await self.settle()

    async def create(self, name: str, *replicas: tuple[int, ...]) -> None:
        self.world.create_topic(name, dict(enumerate(replicas)), name.encode().ljust(16, b"\1"))
        await self.settle()

    async def blacklist(self, *broker_ids: int) -> None:
        """These brokers are on `preferred_leader_blacklist` from now on."""
        self.world.broker_configs["<default>"] = {"preferred_leader_blacklist": ",".join(map(str, broker_ids))}
        await self.put(events.ConfigsChanged(DEFAULT_BROKER))
        assert self.cluster.listed == set(broker_ids)

    def change_options(self, **changes: Any) -> None:
        """The broker's configs change: the next event is handled with other options."""
        self.options = dataclasses.replace(self.options, **changes)
        self.controller.put(events.OptionsChanged(self.options))

    async def put(self, event: Any) -> None:
        self.controller.put(event)
        await self.settle()

    async def fail_over(self) -> None:
        """Another controller takes office: the old one's process ends, in its place a new one starts."""
        await self.close()
        self.take_office()
        self.controller.start()
        await self.settle()

    async def close(self) -> None:
        self.channels.dead = True
        if self.store in self.world.stores:
            self.store.disconnect()
        await self.controller.close()

    # --- looking ---

    @property
    def term(self) -> Term:
        assert self.controller.term is not None
        return self.controller.term

    @property
    def cluster(self) -> Cluster:
        return self.term.cluster

    def partition(self, name: str, index: int = 0) -> Partition:
        p = self.cluster.partition(TopicPartition(name, index))
        assert p is not None
        return p

    def state(self, name: str, index: int = 0) -> str | None:
        """A partition's state in ZooKeeper; the controller must know the same."""
        key = TopicPartition(name, index)
        stored = self.world.states.get(key)
        p = self.cluster.partition(key)
        assert p is not None and (p.info is None) == (stored is None)
        if stored is None:
            return None
        assert p.info is not None
        assert p.info._replace(controller_epoch=0) == stored._replace(controller_epoch=0)
        return shown(stored)

    def replica(self, broker_id: int, name: str, index: int = 0) -> str:
        state: ReplicaState = self.cluster.replica_state(self.partition(name, index), broker_id)
        return state.name

    def partition_state(self, name: str, index: int = 0) -> str:
        state: PartitionState = self.partition(name, index).state
        return state.name

    def mark(self) -> int:
        return len(self.world.journal)

    def since(self, mark: int) -> list[str]:
        """The transcript from there on."""
        return [line(entry) for entry in self.world.journal[mark:]]

    def frames(self, mark: int, kind: str = "") -> list[str]:
        """Requests only, of one kind or all."""
        return [text for text in self.since(mark) if text.startswith(("LISR", "UMR", "SR")) and text.startswith(kind)]

    def writes(self, mark: int) -> list[str]:
        """What the controller did to ZooKeeper."""
        return [text for text in self.since(mark) if not text.startswith(("LISR", "UMR", "SR"))]

    # --- meddling ---

    def somebody_writes(self, name: str, index: int = 0, **changes: Any) -> None:
        """A state is written behind the controller's back."""
        key = TopicPartition(name, index)
        before = self.world.states[key]
        self.world.write(key, before._replace(partition_epoch=before.partition_epoch + 1, **changes))

    def lose_epoch(self, _: Iterable[StateWrite] = ()) -> None:
        """Another controller is elected, as a fenced write will find out."""
        self.world.steal(77)
        raise ControllerMoved("stolen")


def shown(s: LeaderAndIsr) -> str:
    text = f"{s.leader} e{s.leader_epoch} {list(s.isr)} v{s.partition_epoch}"
    return text + " recovering" if s.recovery else text


def line(entry: Any) -> str:
    match entry:
        case Wrote(key, state):
            return f"WROTE {key} {shown(state)}"
        case WroteTopic(topic, stored):
            return f"TOPIC {topic} { ({i: list(a.replicas) for i, a in sorted(stored.assignments.items())}) }"
        case Removed(path):
            return f"REMOVED {path}"
        case SentFrame():
            return frame_line(entry)
    raise AssertionError(entry)


def frame_line(frame: SentFrame) -> str:
    request = frame.request
    rows = []
    for t in request.topic_states:
        for p in t.partition_states:
            name = f"{t.topic_name}-{p.partition_index}"
            match frame.api_key:
                case 4:
                    text = f"{name} {p.leader} e{p.leader_epoch} {list(p.isr)} v{p.partition_epoch}"
                    text += f" +{list(p.adding_replicas)}" if p.adding_replicas else ""
                    text += f" -{list(p.removing_replicas)}" if p.removing_replicas else ""
                    text += " new" if p.is_new else ""
                    text += " recovering" if p.leader_recovery_state else ""
                case 5:
                    text = f"{name} e{p.leader_epoch}" + (" delete" if p.delete_partition else "")
                case _:
                    text = f"{name} {p.leader} e{p.leader_epoch} {list(p.isr)} v{p.zk_version}"
                    text += f" off{list(p.offline_replicas)}" if p.offline_replicas else ""
            rows.append(text)
    kind = {4: "LISR", 5: "SR", 6: "UMR"}[frame.api_key]
    return f"{kind} {frame.broker}:" + "".join(f" {r}" for r in sorted(rows))


def isr_request(
    broker_id: int, broker_epoch: int, topic_id: bytes, index: int, leader_epoch: int, partition_epoch: int, isr: list[int],
    recovery: int = 0,
) -> Any:
    """An AlterPartition request for one partition, as version 2 wants it."""
    request = messages.AlterPartitionRequest
    data = request.PartitionData(
        partition_index=index, leader_epoch=leader_epoch, new_isr=isr, leader_recovery_state=recovery, partition_epoch=partition_epoch
    )
    return request(broker_id=broker_id, broker_epoch=broker_epoch, topics=[request.TopicData(topic_id=topic_id, partitions=[data])])


__all__ = ["ME", "OneConnection", "Stage", "StagedStore", "events", "frame_line", "isr_request", "line", "shown"]
