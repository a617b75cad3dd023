"""Scenarios of the crash matrix about KIP-179: keys 1790, 1791 and 1792.

What must come about follows from what was in ZooKeeper when the controller crashed (R179-8): a reassignment that was written is carried to
its end, one that was not is not begun, and in both cases no throttle of the request is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from klamm.controller.decisions import throttled_replicas as throttles
from klamm.controller.phases import DeletionQueued
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.tests.controller.reassignment.reassignment_scenarios import (
    BEFORE,
    MOVES,
    ended,
    reassign,
    topics_to_move,
    watch,
    watch_of,
    watched,
)
from klamm.tests.controller.simulation.crash_matrix import CrashRun, Scenario, topic
from klamm.tests.controller.throttles.throttle_watch import THROTTLES, properties
from klamm.zk.layout import paths

RATE = 5000
MOVED = paths.REASSIGN_PARTITIONS
BROKERS = (1, 2, 3, 4, 5, 6)


def step_of(made: Sequence[str]) -> str:
    """The last step of R179-6 that has written something: a crash between two topics or two brokers counts to theirs."""
    last = made[-1] if made else ""
    if paths.REASSIGN_PARTITIONS in made:
        return "6"
    if last == paths.THROTTLED_REPLICAS_REMOVAL:
        return "2"
    if last == paths.THROTTLED_RATES_REMOVAL:
        return "4"
    return "3" if last.startswith("/config/topics/") else "5" if last.startswith("/config/brokers/") else "1"


# --- 1790 ---


async def _one_by_one(run: CrashRun) -> None:
    """Where somebody holds phases, whichever, every topic and every broker is a write of its own."""
    run.steering.hold(DeletionQueued)


async def watched_one_by_one(run: CrashRun) -> None:
    await watched(run)
    await _one_by_one(run)


async def reassign_throttled(run: CrashRun) -> None:
    """One request, not repeated; `run.notes` says behind which step the fault struck."""
    await _send_throttled(run, remove_throttle=True)


async def reassign_throttled_for_good(run: CrashRun) -> None:
    await _send_throttled(run, remove_throttle=False)


async def _send_throttled(run: CrashRun, remove_throttle: bool) -> None:
    seen = watch_of(run)
    run.on_strike = lambda: run.notes.append(step_of(seen.made))
    results = await run.request_once(lambda c: c.reassign_partitions(MOVES, RATE, remove_throttle=remove_throttle))
    if results is not None:
        assert all(code is ErrorCode.NONE for code, _ in results.values()), results
        assert MOVED in seen.made or not run.sees_writes, "a response before step 6"


async def reassign_throttled_again(run: CrashRun) -> None:
    """The request is sent until a controller accepts it; partitions that a request before has begun to move are refused then."""
    done = (ErrorCode.NONE, ErrorCode.REASSIGNMENT_IN_PROGRESS)
    await run.request(lambda c: c.reassign_partitions(MOVES, RATE), lambda results: all(code in done for code, _ in results.values()))


def as_written(run: CrashRun) -> bool:
    """R179-8."""
    return ended(run, MOVES if _moved(run) else BEFORE)


def moved(run: CrashRun) -> bool:
    return ended(run, MOVES)


def kept_as_written(run: CrashRun) -> bool:
    """R179-7: with remove_throttle=false there are no removal znodes, and what was set stays."""
    seen, world = watch_of(run), run.world
    seen.nothing_wrong()
    assert not world.throttled_topics and not world.throttled_brokers and not {paths.THROTTLED_REPLICAS_REMOVAL} & set(seen.made)
    for key, target in (MOVES if _moved(run) else BEFORE).items():
        assert world.topics[key.topic].assignments[key.partition].replicas == target
    entities = ["topics/a", "topics/b", *(f"brokers/{b}" for b in (1, 2, 3, 4))]
    assert not _moved(run) or all(THROTTLES & properties(world, entity).keys() for entity in entities)
    return not world.reassigning


def _moved(run: CrashRun) -> bool:
    """Whether the reassignment was written: seen where writes are, else by what came of it."""
    if run.sees_writes:
        return MOVED in watch_of(run).made
    return any(run.world.topics[key.topic].assignments[key.partition].replicas == target for key, target in MOVES.items())


async def watched_for_good(run: CrashRun) -> None:
    await topics_to_move(run)
    watch(run, kept=True)


# --- 1791, 1792 ---

SLOW = TopicPartition("slow", 0)
RATES = {2: (100, 200), 6: (300, 400)}
REPLICAS: dict[TopicPartition, tuple[Ints | None, Ints | None]] = {TopicPartition("b", 0): ((1,), ()), SLOW: ((1, 2), (3,))}
OLD_RATES = {1: ("11", "12"), 2: ("11", "12"), 3: ("11", "12")}
NEW_RATES = {2: ("100", "200"), 6: ("300", "400")}
OLD_LISTS = {"a": ("0:9", "0:8"), "b": ("0:9", "0:8")}
NEW_LISTS = {"b": ("0:1", ""), "slow": ("0:1,0:2", "0:3")}

Throttles = Mapping[Any, tuple[str | None, str | None]]


async def ongoing(run: CrashRun) -> None:
    """Something is reassigned to a broker that is away, and an earlier request has throttled brokers 1 to 3, topics a and b."""
    await topics_to_move(run)
    topic(run, "slow", (1, 2))
    await run.settle()
    run.followers_catch_up = False
    await reassign(run, {SLOW: (1, 4)})
    await run.settle()
    run.world.stop_broker(4)
    await run.settle()
    run.followers_catch_up = True
    world = run.world
    for name, (leaders, followers) in OLD_LISTS.items():
        lists = {throttles.LEADER_REPLICAS: leaders, throttles.FOLLOWER_REPLICAS: followers}
        world.configure_topic(name, {**properties(world, f"topics/{name}"), **lists})
    for broker_id, (leader, follower) in OLD_RATES.items():
        rates = {throttles.LEADER_RATE: leader, throttles.FOLLOWER_RATE: follower}
        world.configure_broker(broker_id, {**properties(world, f"brokers/{broker_id}"), **rates})
    world.place_removals(sorted(OLD_LISTS), sorted(OLD_RATES), False)
    await run.settle()


async def ongoing_and_watched(run: CrashRun) -> None:
    await ongoing(run)
    watch(run, replaced=True)
    await _one_by_one(run)


async def ongoing_and_kept(run: CrashRun) -> None:
    await ongoing(run)
    watch(run, replaced=True, kept=True)
    await _one_by_one(run)


async def alter_rates(run: CrashRun) -> None:
    await _alter_rates(run, remove_throttle=True)


async def alter_rates_for_good(run: CrashRun) -> None:
    await _alter_rates(run, remove_throttle=False)


async def _alter_rates(run: CrashRun, remove_throttle: bool) -> None:
    answer = await run.request_once(lambda c: c.alter_throttled_rates(RATES, remove_throttle=remove_throttle))
    await _look_and_end(run, answer, remove_throttle, rates_of, OLD_RATES, NEW_RATES)


async def alter_replicas(run: CrashRun) -> None:
    await _alter_replicas(run, remove_throttle=True)


async def alter_replicas_for_good(run: CrashRun) -> None:
    await _alter_replicas(run, remove_throttle=False)


async def _alter_replicas(run: CrashRun, remove_throttle: bool) -> None:
    answer = await run.request_once(lambda c: c.alter_throttled_replicas(REPLICAS, remove_throttle=remove_throttle))
    await _look_and_end(run, answer, remove_throttle, lists_of, OLD_LISTS, NEW_LISTS)


async def _look_and_end(
    run: CrashRun, answer: object, remove_throttle: bool, look: Callable[[CrashRun], Throttles], old: Throttles, new: Throttles
) -> None:
    """While the reassignment is ongoing every throttle is the old one, the new one, or gone; then its broker comes back."""
    await run.settle()
    assert run.world.reassigning == {SLOW}
    now = look(run)
    if answer is not None:
        assert now == new, f"answered, with {now}"
    for name, values in now.items():
        assert values in (old.get(name), new.get(name)), f"{name} has {values}"
    assert all(name in now or name in old for name in new) or run.struck
    run.notes.append("answered" if answer is not None else "not answered")
    run.world.start_broker(4)


def rates_of(run: CrashRun) -> Throttles:
    return _throttles(run, "brokers", (1, 2, 3, 4, 6), (throttles.LEADER_RATE, throttles.FOLLOWER_RATE))


def lists_of(run: CrashRun) -> Throttles:
    return _throttles(run, "topics", ("a", "b", "slow"), (throttles.LEADER_REPLICAS, throttles.FOLLOWER_REPLICAS))


def _throttles(run: CrashRun, kind: str, names: Sequence[object], keys: tuple[str, str]) -> Throttles:
    configs = {name: properties(run.world, f"{kind}/{name}") for name in names}
    found = {name: (config.get(keys[0]), config.get(keys[1])) for name, config in configs.items()}
    return {name: values for name, values in found.items() if values != (None, None)}


def all_gone(run: CrashRun) -> bool:
    return ended(run, {SLOW: (1, 4)})


def _kept(look: Callable[[CrashRun], Throttles], new: Throttles) -> Callable[[CrashRun], bool]:
    """R179-17: what an answered request has set stays; one that crashed may have been removed at the end of the reassignment."""

    def came_about(run: CrashRun) -> bool:
        watch_of(run).nothing_wrong()
        assert not run.world.throttled_brokers and not run.world.throttled_topics and not run.world.reassigning
        left = look(run)
        assert all(new.get(name) == values for name, values in left.items()), f"left: {left}"
        return left == new or "answered" not in run.notes

    return came_about


STEP_BY_STEP = Scenario("1790, topics and brokers one by one", reassign_throttled, as_written, watched_one_by_one, BROKERS)
THROTTLED = (
    Scenario("1790, one request", reassign_throttled, as_written, watched, BROKERS),
    Scenario("1790, sent until accepted", reassign_throttled_again, moved, watched, BROKERS),
    Scenario("1790, remove_throttle=false", reassign_throttled_for_good, kept_as_written, watched_for_good, BROKERS),
    Scenario("1791", alter_rates, all_gone, ongoing_and_watched, BROKERS),
    Scenario("1791, remove_throttle=false", alter_rates_for_good, _kept(rates_of, NEW_RATES), ongoing_and_kept, BROKERS),
    Scenario("1792", alter_replicas, all_gone, ongoing_and_watched, BROKERS),
    Scenario("1792, remove_throttle=false", alter_replicas_for_good, _kept(lists_of, NEW_LISTS), ongoing_and_kept, BROKERS),
)
