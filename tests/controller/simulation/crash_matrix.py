"""The crash matrix: every scenario of the controller, with a fault at every one of its writes.

A scenario is run once without a fault, which says how many writes it makes. Then it is run again for every write and every fault: the
process that makes this write crashes before or after it, loses its session before or after it, or loses the answer with the connection.
Another process takes over, or the same one goes on; what was requested and not answered is requested again, as its sender would do. When
nothing moves any more the invariants of `simulation` must hold, and what the scenario was for must have come about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest

from klamm.controller.event_loop.loop import Controller
from klamm.controller.events.catalogue import AutoPreferredReplicaLeaderElection, TopicUncleanLeaderElectionEnabled
from klamm.controller.values import Election, StoreLost
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.simulated import Crashed, Faults
from klamm.tests.controller.simulation.simulation import UNCLEAN, Process, Simulation
from klamm.tests.controller.stage import isr_request
from klamm.zk.session.requests import ConnectionLost


class Fault(Enum):
    """What happens at a write."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    LOST_ANSWER = "lost answer"
    EXPIRED_BEFORE = "session lost before"
    EXPIRED_AFTER = "session lost after"


class WriteFault:
    """Counts the writes of one process into the count of all, and strikes once."""

    def __init__(self, matrix: CrashRun, process: Process) -> None:
        self._run = matrix
        self._process = process
        self._numbers: dict[int, int] = {}

    def before(self, number: int, request: Any) -> None:
        self._run.writes += 1
        self._numbers[number] = self._run.writes
        if self._run.strikes(Fault.CRASH_BEFORE, self._run.writes):
            self._process.store.die()
        if self._run.strikes(Fault.EXPIRED_BEFORE, self._run.writes):
            self._process.store.expire()
            raise StoreLost("the session has expired")

    def after(self, number: int, request: Any) -> None:
        mine = self._numbers.pop(number)
        if self._run.strikes(Fault.CRASH_AFTER, mine):
            self._process.store.die()
        if self._run.strikes(Fault.EXPIRED_AFTER, mine):
            self._process.store.expire()
            raise StoreLost("the session has expired")
        if self._run.strikes(Fault.LOST_ANSWER, mine):
            self._process.store.lose_connection()
            raise ConnectionLost


class CrashRun(Simulation):
    """One run of a scenario: three processes that may be controller, or four where two faults strike; the first of them is."""

    def __init__(self, fault: Fault | None = None, at: int = 0, again_after: int = 0) -> None:
        """`again_after` so many writes, where that is not 0, the same fault strikes a second time."""
        super().__init__(0, Faults())
        self.fault = fault
        self.at = at
        self.again_after = again_after
        self.writes = 0
        self.struck = False
        """Whether the fault has struck as often as it was to."""
        self.strikes_made = 0
        self.pause_s = 0.0
        self.on_strike: Callable[[], None] = lambda: None
        """Called when the fault strikes, before it does anything."""
        self.repeats_exactly = True
        """Whether every run of a scenario makes the same number of writes."""
        self.sees_writes = True
        """Whether the observers of the world are told of writes."""
        self.notes: list[str] = []
        """What a scenario wants to remember."""

    def strikes(self, fault: Fault, number: int) -> bool:
        if fault is not self.fault or number != self.at or self.struck:
            return False
        self.strikes_made += 1
        if self.again_after:
            self.at, self.again_after = self.at + self.again_after, 0
        else:
            self.struck = True
        self.on_strike()
        return True

    async def revive(self) -> None:
        """Who crashed stays away."""

    async def prepare(self, scenario: Scenario) -> None:
        for broker_id in scenario.brokers:
            self.world.start_broker(broker_id)
        self.processes.append(self.new_process(100))
        await self.settle()
        for broker_id in (101, 102, 103) if self.again_after else (101, 102):
            self.processes.append(self.new_process(broker_id))
        await self.settle()
        await scenario.prepare(self)
        await self.settle()

    async def act(self, scenario: Scenario) -> None:
        for process in self.processes:
            process.store.zk_session.write_hook = WriteFault(self, process)
        await scenario.act(self)
        await self.settle()

    async def request_once(self, send: Callable[[Controller], Awaitable[Any]]) -> Any:
        """Send a request to the active controller; its response, or None where the process crashed or the controller moved."""
        await self.settle()
        process = self.active
        assert process is not None, "nobody is controller"
        task = asyncio.ensure_future(send(process.controller))
        while not task.done() and not process.crashed:  # noqa: ASYNC110 conditions of two kinds, on one loop
            await asyncio.sleep(self.pause_s)
        if process.crashed:  # whatever it says now reaches nobody
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return None
        try:
            return task.result()
        except ApiError as refused:
            assert refused.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_CONTROLLER_EPOCH), refused
            return None

    async def request(self, send: Callable[[Controller], Awaitable[Any]], accepted: Callable[[Any], bool] = lambda response: True) -> Any:
        """Send a request to the active controller until one responds as its sender wants it, as brokers and clients do."""
        for _ in range(20):
            response = await self.request_once(send)
            if response is not None and accepted(response):
                return response
        raise AssertionError("no controller responds as it should")

    def leaders(self, topic: str) -> list[int]:
        return [state.leader for key, state in sorted(self.world.states.items()) if key.topic == topic]

    async def end(self) -> None:
        for process in self.processes:
            await process.end()


Step = Callable[[CrashRun], Awaitable[None]]
"""Something that is done to a run, or a look at what came of it; it may raise AssertionError."""


async def nothing(run: CrashRun) -> None:
    """No preparation."""


@dataclass(frozen=True)
class Scenario:
    """A procedure of the controller: what is there before, what sets it going, and what it is for."""

    name: str
    act: Step
    came_about: Callable[[CrashRun], bool]
    prepare: Step = nothing
    brokers: tuple[int, ...] = (1, 2, 3)


class Row(NamedTuple):
    """Writes of a scenario, faults tried, and of how many the outcome was right; the others by their names."""

    name: str
    writes: int
    tried: int
    right: int
    wrong: tuple[str, ...]


# --- preparations ---


def topic(run: CrashRun, name: str, *replicas: tuple[int, ...], with_id: bool = True) -> None:
    run.world.create_topic(name, dict(enumerate(replicas)), name.encode().ljust(16, b"\1") if with_id else None)


async def two_topics(run: CrashRun) -> None:
    """Leaders on all three brokers, one partition without a second replica."""
    topic(run, "a", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    topic(run, "b", (2, 1), (2,), (3, 2))
    await run.settle()


async def three_topics(run: CrashRun) -> None:
    await two_topics(run)
    topic(run, "d", (1, 2), (2, 1))


async def broker_2_away(run: CrashRun) -> None:
    await two_topics(run)
    run.world.stop_broker(2)
    await run.settle()


async def leaders_away(run: CrashRun) -> None:
    """Broker 1 was bounced and is in sync again, and leads nothing."""
    await two_topics(run)
    run.world.bounce_broker(1)
    await run.settle()
    for key, state in run.world.states.items():
        replicas = run.world.topics[key.topic].assignments[key.partition].replicas
        if set(state.isr) != set(replicas):
            run.world.write(key, state._replace(isr=tuple(sorted(replicas, key=lambda b: b != state.leader))))
            run.world.notify_isr_change([key])
    await run.settle()
    assert 1 not in run.leaders("a")


async def no_leader_in_sync(run: CrashRun) -> None:
    """`a` has one member in sync, which is dead; another replica is alive."""
    topic(run, "a", (1, 2), (1, 2))
    await run.settle()
    run.world.stop_broker(2)
    await run.settle()
    run.world.stop_broker(1)
    run.world.start_broker(2)
    await run.settle()
    assert run.leaders("a") == [-1, -1]


async def deletion_waits(run: CrashRun) -> None:
    await broker_2_away(run)
    run.world.delete_topic("b")
    await run.settle()
    assert "b" in run.world.topics


# --- what sets a scenario going ---


async def fail_over(run: CrashRun) -> None:
    """The controller dies, with work left undone: a dead broker, a deletion, an election, notifications, a topic without an id."""
    first = run.active
    assert first is not None
    first.crash()
    world = run.world
    world.stop_broker(3)
    world.delete_topic("d")
    world.preferred = [TopicPartition("a", 0)]
    world.notify_isr_change([TopicPartition("a", 1)])
    world.notify_log_dir(1)
    topic(run, "c", (1, 2), with_id=False)


async def elect_on_request(run: CrashRun) -> None:
    keys = [key for key in run.world.states if key.topic == "a"]
    done = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    await run.request(lambda c: c.elect_leaders(keys, Election.PREFERRED), lambda results: all(r.error in done for r in results.values()))


async def elect_uncleanly_on_request(run: CrashRun) -> None:
    keys = [key for key in run.world.states if key.topic == "a"]
    done = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    await run.request(lambda c: c.elect_leaders(keys, Election.UNCLEAN), lambda results: all(r.error in done for r in results.values()))


async def put_until(run: CrashRun, make: Callable[[], Any], topic_name: str, leaders: Iterable[int]) -> None:
    """An event without a sender, put again at the next controller until it has its effect, as its timer or its notification would be."""
    wanted = list(leaders)
    for _ in range(4):
        await run.settle()
        if run.leaders(topic_name) == wanted:
            return
        assert run.active is not None
        run.active.controller.put(make())


async def rebalance(run: CrashRun) -> None:
    await put_until(run, AutoPreferredReplicaLeaderElection, "a", (1, 2, 3))


async def allow_unclean(run: CrashRun) -> None:
    run.world.configs["a"] = {UNCLEAN: "true"}
    await put_until(run, lambda: TopicUncleanLeaderElectionEnabled("a"), "a", (2, 2))


async def controlled_shutdown(run: CrashRun) -> None:
    epoch = run.world.brokers[2].epoch
    await run.request(lambda c: c.controlled_shutdown(2, epoch))


async def shut_down_and_stop(run: CrashRun) -> None:
    await controlled_shutdown(run)
    run.world.stop_broker(2)


async def alter_isr(run: CrashRun, isr: tuple[int, ...]) -> None:
    """The leader of a-0 proposes an ISR until it has it, each time with what it has been told last."""
    key = TopicPartition("a", 0)
    for _ in range(10):
        await run.settle()
        state = run.world.states[key]
        if state.isr == isr:
            return
        leader, topic_id = run.world.brokers[state.leader], run.world.topics["a"].topic_id
        assert topic_id is not None
        request = isr_request(leader.id, leader.epoch, topic_id, 0, state.leader_epoch, state.partition_epoch, list(isr))
        await run.request(lambda c, request=request: c.alter_partition(request, 2))  # type: ignore[misc]


async def shrink(run: CrashRun) -> None:
    await alter_isr(run, (1,))


async def expand(run: CrashRun) -> None:
    await alter_isr(run, (1,))
    run.writes = 0
    await alter_isr(run, (1, 2, 3))


def outside(change: Callable[[CrashRun], Any]) -> Step:
    """Something that a broker, a tool or an administrator does to ZooKeeper."""

    async def act(run: CrashRun) -> None:
        change(run)

    return act


def gone(*names: str) -> Callable[[CrashRun], bool]:
    """Nothing is left of these topics."""

    def look(run: CrashRun) -> bool:
        world = run.world
        left = [*world.topics, *world.configs, *world.deletions, *(key.topic for key in world.states)]
        return not set(names) & set(left)

    return look


def led(topic_name: str, *leaders: int) -> Callable[[CrashRun], bool]:
    return lambda run: run.leaders(topic_name) == list(leaders)


def _delete(run: CrashRun, *names: str) -> None:
    for name in names:
        run.world.delete_topic(name)


def _create_many(run: CrashRun) -> None:
    topic(run, "many", *(((1, 2), (2, 3), (3, 1))[i % 3] for i in range(340)))


async def many_partitions(run: CrashRun) -> None:
    topic(run, "many", *(((1, 2), (1, 3))[i % 2] for i in range(1_010)))
    await run.settle()


def _lose_log_dir(run: CrashRun) -> None:
    run.world.offline_dirs.update((2, key) for key in run.world.states)
    run.world.notify_log_dir(2)


SCENARIOS = (
    Scenario("fail-over", fail_over, lambda run: gone("d")(run) and run.leaders("c") == [1], three_topics),
    Scenario("broker death", outside(lambda run: run.world.stop_broker(2)), led("b", 1, -1, 3), two_topics),
    Scenario(
        "broker death, several multis",
        outside(lambda run: run.world.stop_broker(1)),
        lambda run: 1 not in run.leaders("many"),
        many_partitions,
    ),
    Scenario("broker return", outside(lambda run: run.world.start_broker(2)), led("b", 1, 2, 3), broker_2_away),
    Scenario("broker bounce", outside(lambda run: run.world.bounce_broker(2)), lambda run: run.leaders("b")[1:] == [2, 3], two_topics),
    Scenario("topic creation", outside(lambda run: topic(run, "c", (1, 2), (2, 3), (3,))), led("c", 1, 2, 3), two_topics),
    Scenario("topic creation without an id", outside(lambda run: topic(run, "c", (1, 2), with_id=False)), led("c", 1), two_topics),
    Scenario(
        "topic creation, several multis",
        outside(_create_many),
        lambda run: -1 not in run.leaders("many") and len(run.leaders("many")) == 340,
        two_topics,
    ),
    Scenario("growth", outside(lambda run: run.world.grow_topic("b", {3: (3, 1), 4: (1,)})), led("b", 2, 2, 3, 3, 1), two_topics),
    Scenario("deletion", outside(lambda run: _delete(run, "a", "b")), gone("a", "b"), two_topics),
    Scenario("deletion of an unknown topic", outside(lambda run: run.world.delete_topic("x")), gone("x"), two_topics),
    Scenario("deletion with a dead replica", outside(lambda run: _delete(run, "b")), lambda run: "b" in run.world.deletions, broker_2_away),
    Scenario("deletion after the replica's return", outside(lambda run: run.world.start_broker(2)), gone("b"), deletion_waits),
    Scenario(
        "preferred election from znode",
        outside(lambda run: run.world.ask_preferred([key for key in run.world.states if key.topic == "a"])),
        led("a", 1, 2, 3),
        leaders_away,
    ),
    Scenario("preferred election on request", elect_on_request, led("a", 1, 2, 3), leaders_away),
    Scenario("automatic preferred election", rebalance, led("a", 1, 2, 3), leaders_away),
    Scenario("unclean election by config", allow_unclean, led("a", 2, 2), no_leader_in_sync),
    Scenario("unclean election on request", elect_uncleanly_on_request, led("a", 2, 2), no_leader_in_sync),
    Scenario("controlled shutdown", shut_down_and_stop, led("b", 1, -1, 3), two_topics),
    Scenario("AlterPartition, shrink", shrink, lambda run: run.world.states[TopicPartition("a", 0)].isr == (1,), two_topics),
    Scenario("AlterPartition, expand", expand, lambda run: run.world.states[TopicPartition("a", 0)].isr == (1, 2, 3), two_topics),
    Scenario(
        "ISR change notification",
        outside(lambda run: run.world.notify_isr_change([TopicPartition("a", 0), TopicPartition("b", 1)])),
        lambda run: not run.world.isr_notifications,
        two_topics,
    ),
    Scenario("log directory failure", outside(_lose_log_dir), led("b", 1, -1, 3), two_topics),
)


async def once(scenario: Scenario, fault: Fault | None, at: int) -> int:
    """Run a scenario with a fault at one of its writes; how many writes there were. Raises AssertionError where something is wrong."""
    return await through(CrashRun(fault, at), scenario)


async def through(run: CrashRun, scenario: Scenario) -> int:
    """As `once`, in a run that was made for it."""
    bad: list[Any] = []

    def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crashed):
            bad.append(context)

    asyncio.get_running_loop().set_exception_handler(unhandled)
    try:
        await run.prepare(scenario)
        run.check()
        await run.act(scenario)
        writes = run.writes
        run.check()
        assert scenario.came_about(run), "what it was for did not come about"
        assert run.struck or run.fault is None or not run.repeats_exactly, "the write was not made"
    finally:
        await run.end()
    assert not bad, bad
    return writes


Place = tuple[int, Fault]
"""A write, from 1, and what happens there."""


def everywhere(faults: Collection[Fault]) -> Callable[[int], list[Place]]:
    """All of these faults at all writes."""
    return lambda writes: [(at, fault) for at in range(1, writes + 1) for fault in faults]


def spread(faults: Sequence[Fault]) -> Callable[[int], list[Place]]:
    """Each of these faults at one write, from the first write to the last; all writes where there are not more."""

    def places(writes: int) -> list[Place]:
        last = len(faults) - 1
        return [(1 + i * (writes - 1) // last, fault) for i, fault in enumerate(faults)]

    return places


OTHER_FAULTS = tuple(fault for fault in Fault if fault is not Fault.CRASH_AFTER)
"""Each run tries a crash after every write, and fewer of these."""


def in_turn(writes: int) -> list[Place]:
    """A crash after each write, and at each write one of the other faults, in turn."""
    return [(at, fault) for at in range(1, writes + 1) for fault in (Fault.CRASH_AFTER, OTHER_FAULTS[at % len(OTHER_FAULTS)])]


async def row(
    scenario: Scenario,
    run_once: Callable[[Scenario, Fault | None, int], Awaitable[int]] = once,
    places: Callable[[int], Iterable[Place]] = everywhere(tuple(Fault)),
) -> Row:
    """Faults at these places of a scenario, which follow from the number of its writes."""
    writes = await run_once(scenario, None, 0)
    wrong = []
    tried = 0
    for at, fault in places(writes):
        tried += 1
        try:
            await run_once(scenario, fault, at)
        except AssertionError as problem:
            wrong.append(f"{scenario.name}, {fault.value} write {at} of {writes}: {problem}")
    return Row(scenario.name, writes, tried, tried - len(wrong), tuple(wrong))


def keep(rows: list[Row], found: Row) -> None:
    """Add a row to the table. Fails if something was wrong in it, or if nothing was written."""
    rows.append(found)
    assert not found.wrong, "\n".join(found.wrong)
    assert found.writes > 0


def table(rows: Iterable[Row]) -> str:
    """The matrix as text."""
    found = list(rows)
    total = Row("all", sum(r.writes for r in found), sum(r.tried for r in found), sum(r.right for r in found), ())
    lines = [f"{'scenario':<38} {'writes':>6} {'tried':>6} {'right':>6}"]
    return "\n".join(lines + [f"{r.name:<38} {r.writes:>6} {r.tried:>6} {r.right:>6}" for r in (*found, total)])


def print_uncaptured(config: pytest.Config, text: str) -> None:
    """Print what everybody should see who runs the tests."""
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{text}")
