"""A random story of a controller on the simulated ZooKeeper."""

from __future__ import annotations

import asyncio
from ast import literal_eval
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, get_args

from klamm.controller.event_loop.loop import Controller
from klamm.controller.events import catalogue as events
from klamm.controller.phases import DeletionPhase, Phase
from klamm.controller.values import DEFAULT_BROKER, Election
from klamm.protocol.nouns import TopicPartition
from klamm.seams.steering import Hold
from klamm.tests.controller.simulated import Draws, Faults, SimulatedWorld, plain
from klamm.tests.controller.simulation.simulation import UNCLEAN, Simulation
from klamm.tests.controller.stage import isr_request

PHASES: dict[str, type[Phase]] = {phase.__name__: phase for phase in get_args(Phase)}
DELETIONS: list[str] = [phase.__name__ for phase in get_args(DeletionPhase)]


class SimulatedStory(Simulation):
    """One seeded run."""

    def __init__(self, seed: int, faults: Faults) -> None:
        super().__init__(seed, faults)
        self.initial_faults = asdict(faults)
        self.next_topic = 0
        self.holds: list[Hold[Any]] = []
        self.next_partition = 9
        self.blocks: set[int] = set()
        self.actions: list[Callable[[], Any]] = [
            self.start, self.stop, self.bounce, self.create, self.grow, self.delete, self.prefer, self.propose_isr, self.write_isr,
            self.drop_controller, self.allow_unclean, self.leave, self.lose_log_dir, self.elect, self.rebalance, self.allocate,
            self.nothing,
        ]

    async def step(self) -> None:
        self.rng.choice(self.actions)()
        turns = self.rng.randint(0, 12)
        self.world.story.append(("turns", (turns,)))
        await self.turns(turns)

    async def turns(self, count: int) -> None:
        """Time passes; who crashed starts again."""
        for _ in range(count):
            await asyncio.sleep(0)
        await self.revive()

    def do(self, name: str, *args: Any) -> None:
        """Something that is requested of the processes: written down, then done."""
        self.world.story.append((name, plain(args)))
        getattr(self, name)(*args)

    # --- what happens ---

    def start(self) -> None:
        w = self.world
        if len(w.brokers) < 4:
            w.start_broker(self.rng.choice([b for b in range(1, 6) if b not in w.brokers]))

    def stop(self) -> None:
        w = self.world
        if len(w.brokers) > 1:
            w.stop_broker(self.rng.choice(sorted(w.brokers)))

    def bounce(self) -> None:
        if self.world.brokers:
            self.world.bounce_broker(self.rng.choice(sorted(self.world.brokers)))

    def create(self) -> None:
        w, rng = self.world, self.rng
        name = f"t{self.next_topic}"
        if name in w.topics or rng.random() < 0.7:
            self.next_topic += 1
            name = f"t{self.next_topic}"
        if name in w.topics or name in w.deletions:
            return
        replicas = {p: tuple(rng.sample(range(1, 6), rng.randint(1, 3))) for p in range(rng.randint(1, 4))}
        w.create_topic(name, replicas, None if rng.random() < 0.2 else rng.randbytes(16))

    def grow(self) -> None:
        w, rng = self.world, self.rng
        if w.topics:  # also one that is being deleted: that is taken back
            t = rng.choice(sorted(w.topics))
            self.next_partition += 1  # numbers are not used again: a partition that was taken back may still be known
            w.grow_topic(t, {self.next_partition: tuple(rng.sample(range(1, 6), 2))})

    def delete(self) -> None:
        w, rng = self.world, self.rng
        topics = sorted(t for t in w.topics if t not in w.deletions)
        if topics and rng.random() < 0.4:
            w.delete_topic(rng.choice(topics))

    def prefer(self) -> None:
        w = self.world
        if w.states:
            w.ask_preferred(self.rng.sample(sorted(w.states), min(3, len(w.states))))

    def elect(self) -> None:
        w, rng = self.world, self.rng
        if w.states:
            keys = rng.sample(sorted(w.states), min(3, len(w.states)))
            election = Election.UNCLEAN if rng.random() < 0.3 else Election.PREFERRED
            self.do("request_election", keys, election)

    def request_election(self, keys: list[TopicPartition], election: int) -> None:
        for p in self.processes:
            p.ask(self._elect(p.controller, [TopicPartition(*key) for key in keys], Election(election)))

    async def _elect(self, controller: Controller, keys: list[TopicPartition], election: Election) -> None:
        results = await controller.elect_leaders(keys, election)
        assert set(results) == set(keys)
        for key, result in results.items():
            if result.leader is not None:
                assert any(k == key and state.leader == result.leader for k, state in self.world.history), f"{key}: nobody elected it"

    def allocate(self) -> None:
        w = self.world
        if w.brokers:
            self.do("request_producer_ids", self.rng.choice(sorted(w.brokers)))

    def request_producer_ids(self, broker_id: int) -> None:
        for p in self.processes:
            p.ask(self._allocate(p.controller, broker_id, self.world.brokers[broker_id].epoch))

    async def _allocate(self, controller: Controller, broker_id: int, epoch: int) -> None:
        first, count = await controller.allocate_producer_ids(broker_id, epoch)
        assert count == 1000 and first not in self.blocks, "given twice"
        self.blocks.add(first)

    def rebalance(self) -> None:
        self.do("fire_rebalance_timers")

    def fire_rebalance_timers(self) -> None:
        for p in self.processes:
            p.controller.put(events.AutoPreferredReplicaLeaderElection())

    def list_some_brokers(self) -> None:
        """Other brokers are on the blacklist from now on; whoever is the controller hears of it."""
        self.do("list_brokers", self.rng.sample(range(1, 6), self.rng.randint(0, 3)))

    def list_brokers(self, broker_ids: list[int]) -> None:
        self.world.broker_configs["<default>"] = {"preferred_leader_blacklist": ",".join(map(str, broker_ids))}
        for p in self.processes:
            p.controller.put(events.ConfigsChanged(DEFAULT_BROKER))

    def check(self) -> None:
        """Besides, the controller knows the list of now (R491-5)."""
        super().check()
        listed = {int(b) for b in self.world.broker_configs.get("<default>", {}).get("preferred_leader_blacklist", "").split(",") if b}
        assert [p.controller.term.cluster.listed for p in self.processes if p.controller.term is not None] == [listed]

    def drop_controller(self) -> None:
        if self.rng.random() < 0.3:
            self.world.drop_controller()

    def allow_unclean(self) -> None:
        w, rng = self.world, self.rng
        topics = sorted(t for t in w.topics if t not in w.deletions)
        if topics and rng.random() < 0.3:
            t = rng.choice(topics)
            w.configure_topic(t, {**w.configs[t], UNCLEAN: "true"})
            self.do("announce_unclean_election", t)

    def announce_unclean_election(self, topic: str) -> None:
        for p in self.processes:
            p.controller.put(events.TopicUncleanLeaderElectionEnabled(topic))

    def leave(self) -> None:
        """A broker asks whoever is the controller to let it go; sometimes it goes then."""
        w, rng = self.world, self.rng
        if len(w.brokers) > 1:
            self.do("request_controlled_shutdown", rng.choice(sorted(w.brokers)))

    def request_controlled_shutdown(self, broker_id: int) -> None:
        for p in self.processes:
            p.ask(p.controller.controlled_shutdown(broker_id, self.world.brokers[broker_id].epoch))

    def lose_log_dir(self) -> None:
        w, rng = self.world, self.rng
        if w.brokers and w.states and rng.random() < 0.5:
            b = rng.choice(sorted(w.brokers))
            w.fail_log_dirs(b, [key for key in w.states if rng.random() < 0.3])

    def write_isr(self) -> None:
        """A leader of an older protocol writes its ISR itself and tells the controller by a notification."""
        w, rng = self.world, self.rng
        if not w.states:
            return
        key = rng.choice(sorted(w.states))
        state = w.states[key]
        if state.leader not in w.brokers or key.topic in w.deletions or state.recovery:
            return
        replicas = w.topics[key.topic].assignments[key.partition].replicas
        told = self.told.get(state.leader)  # it takes in whom it has in its metadata
        alive = set() if told is None else told.live & set(w.brokers)
        others = [r for r in replicas if r != state.leader and r in alive and (r, key) not in w.offline_dirs]
        isr = (state.leader, *(r for r in others if rng.random() < 0.7))
        w.write(key, state._replace(isr=isr, partition_epoch=state.partition_epoch + 1))
        w.notify_isr_change([key])

    def propose_isr(self) -> None:
        """A leader asks for a new ISR, from what it was told or from something older."""
        w, rng = self.world, self.rng
        if not w.states:
            return
        key = rng.choice(sorted(w.states))
        state = w.states[key]
        broker = w.brokers.get(state.leader)
        topic = w.topics.get(key.topic)
        if broker is None or topic is None or topic.topic_id is None:
            return
        replicas = topic.assignments[key.partition].replicas
        others = [r for r in replicas if r != state.leader and (r, key) not in w.offline_dirs]
        isr = [state.leader, *(r for r in others if rng.random() < 0.7)]
        leader_epoch = state.leader_epoch - rng.choice([0, 0, 0, 1])
        partition_epoch = state.partition_epoch - rng.choice([0, 0, 0, 1])
        self.do("request_isr", key, broker.id, isr, leader_epoch, partition_epoch)

    def request_isr(self, key: TopicPartition, broker_id: int, isr: list[int], leader_epoch: int, partition_epoch: int) -> None:
        broker, topic_id = self.world.brokers[broker_id], self.world.topics[key[0]].topic_id
        assert topic_id is not None
        body = isr_request(broker_id, broker.epoch, topic_id, key[1], leader_epoch, partition_epoch, isr)
        for p in self.processes:
            p.ask(self._alter(p.controller, TopicPartition(*key), body))

    async def _alter(self, controller: Controller, key: TopicPartition, body: Any) -> None:
        response = await controller.alter_partition(body, 2)
        for row in (row for t in response.topics for row in t.partitions if row.error_code == 0):
            state = (row.leader_id, row.leader_epoch, tuple(row.isr), row.leader_recovery_state, row.partition_epoch)
            assert any(k == key and s[:5] == state for k, s in self.world.history), f"{key}: answered {state}, which was never written"

    def hold_some_phase(self) -> None:
        """From now on controllers are held at some phase, whatever it is about."""
        if len(self.holds) < 3:
            self.do("hold", self.rng.choice(sorted(PHASES)) if self.rng.random() < 0.5 else self.rng.choice(DELETIONS))

    def step_some_hold(self) -> None:
        held = [number for number, hold in enumerate(self.holds) if hold.held]
        if held:
            self.do("step_hold", self.rng.choice(held))

    def release_some_hold(self) -> None:
        if self.holds:
            self.do("release_hold", self.rng.randrange(len(self.holds)))

    def hold(self, phase: str) -> None:
        self.holds.append(self.steering.hold(PHASES[phase]))

    def step_hold(self, number: int) -> None:
        self.holds[number].step()

    def release_hold(self, number: int) -> None:
        self.holds.pop(number).release()

    def nothing(self) -> None:
        """Time passes."""

    async def tell(self, steps: int, controllers: int) -> None:
        for b in (1, 2, 3):
            self.world.start_broker(b)
        self.do("start_processes", controllers)
        for _ in range(steps):
            await self.step()
        await self.rest()

    def start_processes(self, count: int) -> None:
        self.processes = [self.new_process(100 + i) for i in range(count)]

    async def rest(self) -> None:
        """From here on nothing goes wrong, and everything comes to rest."""
        self.steering.release()
        self.faults.__init__()  # type: ignore[misc]
        await self.settle()

    # --- the story as text ---

    def text(self) -> str:
        """What happened, a line for each step; `replayed` tells it again."""
        steps = [f"{name} {args!r}" for name, args in self.world.story]
        return "\n".join([f"faults {self.initial_faults!r}", f"struck {self.draws.struck!r}", *steps])

    @classmethod
    async def replayed(cls, text: str) -> SimulatedStory:
        """The same story from its text."""
        head, struck, *steps = text.splitlines()
        story = cls(0, Faults(**literal_eval(head.removeprefix("faults "))))
        story.draws = Draws(story.rng, frozenset(literal_eval(struck.removeprefix("struck "))))
        for step in steps:
            name, _, args = step.partition(" ")
            if name == "turns":
                story.world.story.append((name, literal_eval(args)))
                await story.turns(*literal_eval(args))
            elif hasattr(SimulatedWorld, name):
                getattr(story.world, name)(*literal_eval(args))
            else:
                story.do(name, *literal_eval(args))
        await story.rest()
        return story
