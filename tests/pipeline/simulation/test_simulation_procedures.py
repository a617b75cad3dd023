"""What the simulation does with one partition is what the controller itself does with it: states, leader epochs and assignments are
compared behind each step, for random clusters and random steps, with a whole controller on a simulated ZooKeeper.

Followers catch up as the simulation says: one joins the ISR with each request, in the order of the assignment.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from enum import Enum
from typing import Any

import pytest

from klamm.controller import procedures as tables
from klamm.controller.brokers import controlled_shutdown, startup_and_failure
from klamm.controller.events import catalogue as events
from klamm.controller.phases import Phase
from klamm.controller.reassignment import steps as reassignment_steps
from klamm.controller.values import RECOVERING, Election, LeaderAndIsr
from klamm.pipeline.simulation import procedures as simulated_procedures
from klamm.pipeline.simulation.procedures import Procedures
from klamm.pipeline.simulation.simulated_partition import Simulated
from klamm.pipeline.simulation.steps import (
    Blacklist,
    Brokers,
    Elect,
    Kill,
    Reassign,
    Rebalance,
    Return,
    Shutdown,
    Step,
    Unclean,
    check,
)
from klamm.protocol.nouns import NO_EPOCH, Ints, TopicPartition
from klamm.seams.steering import Steering
from klamm.tests.controller.stage import Stage, isr_request

IDS = range(1, 7)
TOPIC = "t"


def random_steps(rng: random.Random, count: int, plans: list[dict[int, Ints]], partitions: int) -> list[Step]:
    """Steps that follow each other as they can; `plans` gets the reassignments."""
    running, steps = set(IDS), list[Step]()
    while len(steps) < count:
        gone = sorted(set(IDS) - running)
        match rng.randrange(9):
            case 0 | 1 if len(running) > 1:
                dead = tuple(rng.sample(sorted(running), rng.randint(1, min(3, len(running) - 1))))
                steps.append(Kill(dead))
                running -= set(dead)
            case 2 if gone:
                back = tuple(rng.sample(gone, rng.randint(1, len(gone))))
                steps.append(Return(back))
                running |= set(back)
            case 3 if len(running) > 1:
                leaving = rng.choice(sorted(running))
                steps.append(Shutdown((leaving,)))
                running -= {leaving}
            case 4:
                steps.append(Blacklist(tuple(rng.sample(IDS, rng.randint(0, 3)))))
            case 5:
                steps.append(Elect(unclean=rng.random() < 0.3))
            case 6:
                steps.append(Rebalance(rng.choice((0, 10, 30))))
            case 7:
                steps.append(Unclean(rng.random() < 0.5))
            case 8:
                plan = {i: tuple(rng.sample(IDS, rng.randint(1, 3))) for i in rng.sample(range(partitions), partitions // 3)}
                steps.append(Reassign(len(plans)))
                plans.append(plan)
    return steps


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    one = Stage()
    yield one
    await one.close()


class Cluster:
    """A controller on stage, and followers that catch up."""

    def __init__(self, stage: Stage, behind: dict[TopicPartition, set[int]]) -> None:
        self.stage = stage
        self.behind = behind

    async def step(self, step: Step, plans: list[dict[int, Ints]]) -> None:
        stage = self.stage
        match step:
            case Kill(ids):
                await stage.stop(*ids)
                self.caught_up(ids)
            case Return(ids):
                await stage.start(*ids)
            case Shutdown(ids):
                for b in ids:
                    await stage.controller.controlled_shutdown(b, NO_EPOCH)
                    await stage.stop(b)
                    self.caught_up((b,))
                    await self.follow()
            case Blacklist(ids):
                await stage.blacklist(*ids)
            case Unclean(enabled):
                was = stage.options.unclean_leader_election_enable
                stage.change_options(unclean_leader_election_enable=enabled)
                await stage.settle()
                if enabled and not was:
                    await stage.put(events.UncleanLeaderElectionEnabled())
            case Elect(unclean):
                election = Election.UNCLEAN if unclean else Election.PREFERRED
                await stage.controller.elect_leaders(list(stage.world.states), election)
            case Rebalance(percentage):
                stage.change_options(leader_imbalance_per_broker_percentage=percentage, auto_leader_rebalance_enable=True)
                await stage.settle()
                await stage.put(events.AutoPreferredReplicaLeaderElection())
                stage.change_options(auto_leader_rebalance_enable=False)
            case Reassign(plan):
                await stage.controller.alter_reassignments({TopicPartition(TOPIC, i): t for i, t in plans[plan].items()})
        await stage.settle()
        await self.follow()

    def caught_up(self, dead: tuple[int, ...]) -> None:
        for held in self.behind.values():
            held.difference_update(dead)

    async def follow(self) -> None:
        """One joins after the other, until nothing is left to report."""
        world = self.stage.world
        progress = True
        while progress:
            progress = False
            for key, state in list(world.states.items()):
                p = self.stage.partition(*key)
                joined = self.joined(key, state, p.assignment.replicas, world.online())
                if joined is None:
                    continue
                request = isr_request(
                    state.leader, world.brokers[state.leader].epoch, p.topic.wire_id, key.partition, state.leader_epoch,
                    state.partition_epoch, list(joined),
                )
                await self.stage.controller.alter_partition(request, 2)
                await self.stage.settle()
                progress = progress or world.states[key] != state

    def joined(self, key: TopicPartition, state: LeaderAndIsr, replicas: Ints, online: set[int]) -> Ints | None:
        if state.leader not in online:
            return None
        if state.recovery == RECOVERING:
            return state.isr
        new = [r for r in replicas if r not in state.isr and r in online and r not in self.behind.get(key, ())]
        return (*state.isr, new[0]) if new else None


@pytest.mark.parametrize("seed", range(12))
async def test_each_step_does_to_a_partition_what_the_controller_does(stage: Stage, seed: int) -> None:
    rng = random.Random(seed)
    count = 24
    await stage.open(*IDS)
    await stage.create(TOPIC, *[tuple(rng.sample(IDS, rng.randint(1, 4))) for _ in range(count)])
    for i in rng.sample(range(count), 6):
        state = stage.world.states[TopicPartition(TOPIC, i)]
        if len(state.isr) > 1:
            stage.somebody_writes(TOPIC, i, isr=state.isr[: rng.randint(1, len(state.isr) - 1)])
    await stage.fail_over()
    plans: list[dict[int, Ints]] = []
    steps = tuple(random_steps(rng, 12, plans, count))
    check(Brokers(frozenset(IDS)), IDS, steps)

    first = Brokers(frozenset(IDS))
    simulated = {}
    for key, state in stage.world.states.items():
        targets = tuple(plan.get(key.partition) for plan in plans)
        one = simulated[key] = Simulated(stage.partition(*key).assignment, state, targets=targets)
        one.begin(first)
    cluster = Cluster(stage, {key: set(one.behind) for key, one in simulated.items()})
    rebalanced: dict[int, frozenset[int]] = {}
    procedures = Procedures(first, steps, rebalanced)
    for number, step in enumerate(steps):
        if isinstance(step, Rebalance):
            rebalanced[number] = over_ratio(procedures, number, step, list(simulated.values()))
        await cluster.step(step, plans)
        for key, one in simulated.items():
            procedures.apply(one, number)
            stored, p = stage.world.states[key], stage.partition(*key)
            assert one.state is not None
            told = f"step {number + 1} ({step}) of {[*map(str, steps)]}, {key}"
            assert one.state._replace(controller_epoch=0) == stored._replace(controller_epoch=0), told
            assert one.assignment == p.assignment, told
            assert one.phase is p.state, told


def over_ratio(procedures: Procedures, number: int, step: Rebalance, partitions: list[Simulated]) -> frozenset[int]:
    """Counted one by one."""
    size: dict[int, int] = {}
    imbalanced: dict[int, int] = {}
    for p in partitions:
        owner, is_imbalanced = procedures.owner(p, procedures.before[number])
        if owner is not None:
            size[owner] = size.get(owner, 0) + 1
            imbalanced[owner] = imbalanced.get(owner, 0) + is_imbalanced
    return frozenset(b for b, n in imbalanced.items() if n / size[b] > step.percentage / 100)


# --- the order of the steps ---

ACTIONS = [
    (tables.FailureStep, startup_and_failure.FAILURE_ACTIONS, simulated_procedures.FAILURE_ACTIONS),
    (tables.StartupStep, startup_and_failure.STARTUP_ACTIONS, simulated_procedures.STARTUP_ACTIONS),
    (tables.ShutdownStep, controlled_shutdown.SHUTDOWN_ACTIONS, simulated_procedures.SHUTDOWN_ACTIONS),
    (tables.ReassignmentStep, reassignment_steps.ACTIONS, simulated_procedures.REASSIGNMENT_ACTIONS),
]


@pytest.mark.parametrize(("steps", "controller", "simulation"), ACTIONS)
def test_controller_and_simulation_have_an_action_for_each_step(
    steps: type[Enum], controller: Mapping[Any, Any], simulation: Mapping[Any, Any]
) -> None:
    assert set(controller) == set(simulation) == set(steps)


PHASES: Mapping[Any, type[Phase]] = {
    **tables.FAILURE_PHASES, **tables.STARTUP_PHASES, **tables.SHUTDOWN_PHASES, **tables.REASSIGNMENT_PHASES,
}


class Looker(Steering):
    """Holds nothing and notes the phases of the tables."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @property
    def holds(self) -> bool:
        return True

    def note(self, phase: object) -> None:
        if type(phase) in PHASES.values():
            self.seen.append(type(phase).__name__)

    async def reach(self, phase: object, broker_id: int) -> None:
        self.note(phase)

    def park(
        self, phase: object, go_on: Callable[[], None], broker_id: int, fail: Callable[[BaseException], None] | None = None
    ) -> None:
        self.note(phase)


def note_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The phases of the tables that belong to the steps of the simulation, as they are taken."""
    seen: list[str] = []

    def noting(step: Enum, action: Callable[..., None]) -> Callable[..., None]:
        def act(*arguments: Any) -> None:
            action(*arguments)
            if step in PHASES:
                seen.append(PHASES[step].__name__)

        return act

    for name, order, actions in (
        ("ON_FAILURE", tables.FAILURE, simulated_procedures.FAILURE_ACTIONS),
        ("ON_STARTUP", tables.STARTUP, simulated_procedures.STARTUP_ACTIONS),
        ("ON_SHUTDOWN", tables.SHUTDOWN, simulated_procedures.SHUTDOWN_ACTIONS),
        ("ON_WAITING", tables.WAITING, simulated_procedures.REASSIGNMENT_ACTIONS),
        ("ON_COMPLETION", tables.COMPLETION, simulated_procedures.REASSIGNMENT_ACTIONS),
    ):
        in_order: list[Callable[..., None]] = [actions[step] for step in order]  # type: ignore[index]
        assert getattr(simulated_procedures, name) == in_order
        monkeypatch.setattr(simulated_procedures, name, [noting(step, action) for step, action in zip(order, in_order, strict=True)])
    first = tables.ReassignmentStep.STORE_TARGET
    store = simulated_procedures.REASSIGNMENT_ACTIONS[first]
    monkeypatch.setattr(simulated_procedures, "REASSIGNMENT_ACTIONS", {first: noting(first, store)})
    return seen


async def test_a_partition_goes_through_the_same_steps_in_the_controller_and_in_the_simulation(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All brokers of the story have a replica, so that each of its steps concerns the partition."""
    looker = stage.steering = Looker()
    stage.take_office()
    await stage.open(1, 2, 3, 4)
    await stage.create(TOPIC, (1, 2, 3))
    seen = note_steps(monkeypatch)
    key = TopicPartition(TOPIC, 0)
    plans: list[dict[int, Ints]] = [{0: (4, 3, 2)}, {0: (1, 2)}]
    steps: tuple[Step, ...] = (
        Kill((1,)), Return((1,)), Shutdown((2,)), Return((2,)), Reassign(0), Kill((4, 3)), Return((3, 4)), Reassign(1),
    )
    first = Brokers(frozenset((1, 2, 3, 4)))
    one = Simulated(stage.partition(*key).assignment, stage.world.states[key], targets=tuple(plan[0] for plan in plans))
    one.begin(first)
    cluster, procedures = Cluster(stage, {}), Procedures(first, steps)
    for number, step in enumerate(steps):
        looker.seen.clear()
        seen.clear()
        await cluster.step(step, plans)
        procedures.apply(one, number)
        assert seen == looker.seen, step
        assert seen
