"""Whatever a controller reads and writes, in whatever order, its metadata log replayed is what it knows to be committed (RREG-18).

A `Run` draws reads and writes of one controller, and what others do to ZooKeeper between them: topics that are deleted and created again,
states written behind its back, brokers that bounce, configs. Writes lose their version, and answers are lost after the write took hold.
After each step a view that took all batches one after the other is compared: with a view of the whole log, and with what the step itself
wrote. From time to time the controller reads everything; then the view is what ZooKeeper holds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable

import pytest

from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.metadata_log.logged_store import LoggedStore
from klamm.controller.values import (
    DEFAULT_BROKER,
    Assignment,
    Broker,
    BrokerRegistration,
    BrokerState,
    ConfigEntity,
    ConfigWrite,
    LeaderAndIsr,
    StateWrite,
    TopicWrite,
    WriteOutcome,
)
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.tests.broker.whole_view import WholeView
from klamm.tests.controller.metadata_log.metadata_views import ENOUGH, Plain, plain_partition, plain_view, plain_world, replayed
from klamm.tests.controller.simulated import Faults, SimulatedStore, SimulatedWorld
from klamm.tests.harness.seeds import seeds

TOPICS, BROKERS = ("a", "b", "c"), (1, 2, 3, 4)
EPOCHS = (0, 1, 2**31 - 2, 2**31 - 1, -(2**31), -1)


class Run:
    """One controller and everybody else, drawn from a seed."""

    def __init__(self, seed: int, faults: Faults, max_bytes: int = 64 << 20) -> None:
        self.rng = random.Random(seed)
        self.world = SimulatedWorld()
        self.faults = faults
        self.quiet = Faults()
        self.store = SimulatedStore(self.world, lambda event: None, self.quiet, random.Random(seed))
        self.log = MetadataLog(1, max_bytes=max_bytes)
        self.logged = LoggedStore(self.store, self.log)
        self.view = WholeView()
        self.view.restart(1, 0)
        self.leaving: set[int] = set()
        self.ids = itertools.count(1)
        self.snapshots = 0

    # --- what others do ---

    def others(self) -> None:
        world, rng = self.world, self.rng
        name, b = rng.choice(TOPICS), rng.choice(BROKERS)
        match rng.randrange(13):
            case 0 | 1:
                if name not in world.topics:
                    topic_id = None if rng.random() < 0.2 else next(self.ids).to_bytes(16, "big")
                    world.create_topic(name, {p: self.replicas() for p in range(rng.randint(1, 4))}, topic_id)
            case 2:
                world.zk.delete_tree(f"/brokers/topics/{name}")
            case 3:
                if name in world.topics:
                    world.grow_topic(name, {len(world.topics[name].assignments): self.replicas()})
            case 4 | 5:
                key = TopicPartition(name, rng.randrange(3))
                if name in world.topics and key.partition in world.topics[name].assignments:
                    world.write(key, self.state())
            case 6:
                if b not in world.brokers:
                    world.start_broker(b)
                elif rng.random() < 0.5:
                    world.bounce_broker(b)
                    self.leaving.discard(b)
                else:
                    world.stop_broker(b)
                    self.leaving.discard(b)
            case 7:
                if b in world.brokers:
                    world.change_broker(world.brokers[b]._replace(endpoints=(Endpoint("PLAINTEXT", "h", rng.randrange(5), 0),)))
            case 8 | 9:
                world.write_config(*rng.choice([("topics", name), ("brokers", str(b)), ("brokers", "<default>")]), self.properties())
            case 10:
                if b in world.brokers:
                    world.spoil_broker(b)
            case 11:
                if name in world.topics:
                    world.spoil_topic(name)
            case 12:
                if name in world.topics:
                    world.zk.delete_tree(f"/brokers/topics/{name}")
                    world.create_topic(name, {0: self.replicas()}, next(self.ids).to_bytes(16, "big"))

    def replicas(self) -> tuple[int, ...]:
        return tuple(self.rng.sample(BROKERS, self.rng.randint(1, 3)))

    def state(self) -> LeaderAndIsr:
        rng = self.rng
        return LeaderAndIsr(rng.choice((*BROKERS, -1, -2)), rng.choice(EPOCHS), self.replicas(), rng.randrange(2), 0, 1)

    def properties(self) -> dict[str, str]:
        return {name: str(self.rng.randrange(3)) for name in self.rng.sample("xyz", self.rng.randrange(3))}

    # --- what the controller does ---

    async def controller(self) -> None:
        steps: tuple[Callable[[], Awaitable[object]], ...] = (
            self.look_at_brokers, self.write_registrations, self.look_at_topics, self.write_topics, self.look_at_states, self.write_states,
            self.write_states, self.create_states, self.delete_topics, self.look_at_configs, self.write_configs, self.shut_down,
        )
        self.quiet.lost_version, self.quiet.lost_answer = self.faults.lost_version, self.faults.lost_answer
        await self.rng.choice(steps)()
        self.quiet.lost_version = self.quiet.lost_answer = 0.0

    def some_partitions(self) -> list[TopicPartition]:
        known = [TopicPartition(name, p) for name in TOPICS for p in range(4)]
        return self.rng.sample(known, self.rng.randint(1, 6))

    async def brokers(self) -> dict[int, Broker]:
        """A broker that is not there, or cannot be read, has left."""
        found = await self.logged.brokers()
        self.leaving &= found.keys()
        return found

    async def look_at_brokers(self) -> None:
        if self.rng.random() < 0.5:
            await self.brokers()
        else:
            await self.logged.broker(self.rng.choice(BROKERS))

    async def write_registrations(self) -> None:
        known = self.world.registrations
        writes = []
        for b in self.rng.sample(BROKERS, self.rng.randint(1, 2)):
            before = known.get(b)
            if before is not None and self.rng.random() < 0.7:
                writes.append(before._replace(state=self.rng.choice(list(BrokerState))))
            else:
                endpoint = Endpoint("PLAINTEXT", "r", self.rng.randrange(70_000), 0)
                epoch = 0 if before is None else before.epoch
                writes.append(BrokerRegistration(b, epoch + 1, BrokerState.FENCED, (endpoint,), self.rng.choice((None, "r1"))))
        await self.logged.write_registrations(writes)

    async def look_at_topics(self) -> None:
        await self.logged.read_topics(await self.logged.topics() if self.rng.random() < 0.5 else self.rng.sample(TOPICS, 2))

    async def write_topics(self) -> None:
        writes = []
        for name in self.rng.sample(TOPICS, self.rng.randint(1, 2)):
            stored = self.world.topics.get(name) if f"/brokers/topics/{name}" not in self.world.spoilt else None
            if stored is None:
                continue
            topic_id = stored.topic_id if stored.topic_id is not None else next(self.ids).to_bytes(16, "big")
            assignments = dict(stored.assignments)
            for p in list(assignments):
                if self.rng.random() < 0.3:
                    replicas = self.replicas()
                    assignments[p] = Assignment(replicas, replicas[:1]) if self.rng.random() < 0.5 else Assignment(replicas)
                elif self.rng.random() < 0.1:
                    del assignments[p]
            writes.append(TopicWrite(name, topic_id, assignments))
        # as the controller, which knows what it writes
        named = [write.topic for write in writes]
        await self.logged.read_topics(named)
        await self.logged.topic_configs(named)
        await self.logged.read_states([TopicPartition(write.topic, p) for write in writes for p in write.assignments])
        await self.logged.write_topics(writes)
        view, world = plain_view(self.whole()), plain_world(self.world)
        for topic in {write.topic for write in writes}:
            assert view["topics"][topic] == world["topics"][topic]
            assert partitions_of(view, topic) == partitions_of(world, topic)
            assert view["configs"].get((2, topic)) == world["configs"].get((2, topic))

    async def look_at_states(self) -> None:
        await self.logged.read_states(self.some_partitions())

    async def write_states(self) -> None:
        writes = []
        for key in self.some_partitions():
            before = self.world.states.get(key)
            if before is None:
                continue
            epoch = before.leader_epoch
            after = self.state()._replace(leader_epoch=self.rng.choice((epoch, epoch, epoch + 1 if epoch < 2**31 - 1 else -(2**31), 7)))
            if self.rng.random() < 0.5:
                after = after._replace(leader=before.leader, isr=self.rng.choice((before.isr, after.isr)))
            expected = before.partition_epoch - (self.rng.random() < 0.1)
            writes.append(StateWrite(*key, after._replace(partition_epoch=expected + 1), max(expected, 0)))
        self.hold(writes, await self.logged.write_states(writes))

    async def create_states(self) -> None:
        there = [key for key in self.some_partitions() if key.topic in self.world.topics]
        writes = [StateWrite(*key, self.state()._replace(leader_epoch=0), -1) for key in there]
        self.hold(writes, await self.logged.create_states(writes))

    def hold(self, writes: list[StateWrite], outcomes: list[WriteOutcome]) -> None:
        """States that were written are in the log, where it has the partition."""
        view = plain_view(self.whole())
        for write, outcome in zip(writes, outcomes, strict=True):
            known = view["partitions"].get((write.topic, write.partition))
            if outcome is WriteOutcome.OK and known is not None:
                stored = self.world.states[TopicPartition(write.topic, write.partition)]
                assert known == plain_partition(Assignment(*known[:3]), stored)

    async def delete_topics(self) -> None:
        names = self.rng.sample(TOPICS, 1)
        await self.logged.delete_topics([(name, range(self.rng.randrange(4))) for name in names])
        view = plain_view(self.whole())
        assert not any(name in view["topics"] or (2, name) in view["configs"] for name in names)

    async def look_at_configs(self) -> None:
        if self.rng.random() < 0.5:
            await self.logged.topic_configs(self.rng.sample(TOPICS, 2))
        else:
            await self.logged.read_configs([DEFAULT_BROKER, ConfigEntity("brokers", "1"), ConfigEntity("topics", "a")])

    async def write_configs(self) -> None:
        entities = [ConfigEntity("topics", "b"), DEFAULT_BROKER]
        stored = await self.logged.read_configs(entities)
        versions = [-1 if config is None else config.version + (self.rng.random() < 0.1) for config in stored]
        writes = [ConfigWrite(entity, self.properties(), version) for entity, version in zip(entities, versions, strict=True)]
        outcomes = await self.logged.write_configs(writes)
        configs = plain_view(self.whole())["configs"]
        for (kind, name), write, outcome in zip(((2, "b"), (4, "")), writes, outcomes, strict=True):
            assert outcome is not WriteOutcome.OK or configs.get((kind, name), {}) == write.properties

    async def shut_down(self) -> None:
        b = self.rng.choice(BROKERS)
        if b in await self.brokers():
            self.log.shutdown_began(b)
            self.leaving.add(b)

    # --- what must hold ---

    def whole(self) -> WholeView:
        return replayed(self.log)

    async def follow(self) -> None:
        """The view takes what is new, as a broker that long polls; one that is behind the start of the log begins again."""
        if self.view.next_offset < self.log.start_offset:
            self.view.restart(1, self.log.start_offset)
            self.snapshots += 1
        while self.view.next_offset < self.log.high_watermark:
            before = self.view.next_offset
            self.view.apply(self.log.read(before, self.rng.choice((0, 300, ENOUGH))), 1)
            assert self.view.next_offset > before
        assert plain_view(self.view) == plain_view(self.whole())

    async def read_everything(self) -> None:
        """What cannot be read is mended first: it says nothing."""
        for path in list(self.world.spoilt):
            self.world.spoilt.discard(path)
        await self.brokers()
        await self.logged.registrations()
        names = await self.logged.topics()
        await self.logged.read_topics(names)
        missing = [name for name in names if self.world.topics[name].topic_id is None]
        writes = [TopicWrite(name, next(self.ids).to_bytes(16, "big"), self.world.topics[name].assignments) for name in missing]
        await self.logged.write_topics(writes)
        await self.logged.read_states([TopicPartition(name, p) for name in names for p in self.world.topics[name].assignments])
        await self.logged.all_configs()

    async def go(self, steps: int) -> None:
        for _ in range(10):
            self.others()
        await self.store.register_controller(1, 0)
        await self.read_everything()
        self.log.began()
        for step in range(steps):
            await self.follow()
            if step % 20 == 0:
                await self.read_everything()
                await self.follow()
                world = plain_world(self.world, self.leaving)
                assert plain_view(self.view) == with_ports(world)
            elif self.rng.random() < 0.3:
                self.others()
            else:
                await self.controller()


def partitions_of(plain: Plain, topic: str) -> Plain:
    return {index: partition for (name, index), partition in plain["partitions"].items() if name == topic}


def with_ports(world: Plain) -> Plain:
    """As the log has it: endpoints whose ports have no place in a record are left out."""
    brokers = {b: (epoch, tuple(e for e in ends if e.port < 2**16), *rest) for b, (epoch, ends, *rest) in world["brokers"].items()}
    return {**world, "brokers": brokers}


@pytest.mark.requirement("RREG-18")
@pytest.mark.parametrize("seed", seeds(30))
async def test_the_log_replayed_is_what_is_committed_after_every_step(seed: int) -> None:
    await Run(seed, Faults()).go(150)


@pytest.mark.requirement("RREG-18")
@pytest.mark.parametrize("seed", seeds(30))
async def test_the_log_replayed_is_what_is_committed_though_versions_and_answers_are_lost(seed: int) -> None:
    await Run(seed, Faults(lost_version=0.2, lost_answer=0.1)).go(150)


@pytest.mark.requirement("RREG-18")
@pytest.mark.parametrize("seed", range(10))
async def test_a_log_that_outgrows_its_bound_again_and_again_is_still_what_is_committed(seed: int) -> None:
    run = Run(seed, Faults(lost_version=0.1), max_bytes=5000)
    await run.go(200)
    assert run.log.start_offset > 0
