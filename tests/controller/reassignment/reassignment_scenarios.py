"""Scenarios of the crash matrix about reassignments: key 45, the legacy znode, resumption, and the removal of throttles at their end.

Followers catch up by themselves (`Simulation.followers_catch_up`), so a reassignment that began comes to its end, unless a broker of its
target is away. A request is sent until a controller accepts it, as an admin client does.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm.controller.decisions import throttled_replicas as throttles
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.tests.controller.simulation.crash_matrix import CrashRun, Scenario, outside, topic
from klamm.tests.controller.throttles.throttle_watch import ThrottleWatch, properties

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MOVES: dict[TopicPartition, Ints] = {A0: (3, 4), A1: (2, 4), B0: (1, 2)}
"""Both replicas replaced, one replaced, order only."""

BEFORE: dict[TopicPartition, Ints] = {A0: (1, 2), A1: (2, 3), B0: (2, 1)}
BROKERS = (1, 2, 3, 4, 5)
HAND = "hand"
"""A topic whose throttles a person has set."""

BY_HAND = (f"topics/{HAND}", "brokers/5")
ANOTHER = {"retention.ms": "7654321"}


async def topics_to_move(run: CrashRun) -> None:
    """Topics a and b; throttles that a person has set for a third topic and a broker that moves nothing."""
    run.followers_catch_up = True
    topic(run, "a", BEFORE[A0], BEFORE[A1])
    topic(run, "b", BEFORE[B0])
    topic(run, HAND, (1, 2))
    world = run.world
    world.configure_topic("a", dict(ANOTHER))
    world.configure_broker(1, {"max.connections": "432"})
    world.configure_topic(HAND, {throttles.LEADER_REPLICAS: "0:1", throttles.FOLLOWER_REPLICAS: "*", **ANOTHER})
    world.configure_broker(5, {throttles.LEADER_RATE: "777", throttles.FOLLOWER_RATE: "778"})
    await run.settle()


async def watched(run: CrashRun) -> None:
    await topics_to_move(run)
    watch(run)


def watch(run: CrashRun, *, kept: bool = False, replaced: bool = False) -> ThrottleWatch:
    """Begin to look at the throttles."""
    return ThrottleWatch(run.world, BY_HAND, kept=kept, replaced=replaced)


def watch_of(run: CrashRun) -> ThrottleWatch:
    return next(observer for observer in run.world.observers if isinstance(observer, ThrottleWatch))


def set_throttles(run: CrashRun) -> None:
    """Throttles as a request has set them, with the znodes that say so."""
    world = run.world
    lists = {throttles.LEADER_REPLICAS: "0:1", throttles.FOLLOWER_REPLICAS: ""}
    for name in ("a", "b"):
        world.configure_topic(name, {**properties(world, f"topics/{name}"), **lists})
    for broker_id in (1, 2, 3, 4):
        rates = {throttles.LEADER_RATE: "1000", throttles.FOLLOWER_RATE: "1000"}
        world.configure_broker(broker_id, {**properties(world, f"brokers/{broker_id}"), **rates})
    world.place_removals(["a", "b"], [1, 2, 3, 4], False)


def replicas(run: CrashRun, key: TopicPartition) -> Ints:
    return run.world.topics[key.topic].assignments[key.partition].replicas


def ended(run: CrashRun, wanted: Mapping[TopicPartition, Ints], *, replaced: bool = False) -> bool:
    """No reassignment and no throttle of a request is left, and the partitions have these replicas, all in sync.

    A reassignment that is `replaced` is forgotten with its replacement in ZooKeeper: where the controller crashes then, nobody stops the
    replicas that it was adding, with Apache Kafka too.
    """
    watch_of(run).nothing_left()
    for key, target in wanted.items():
        assert replicas(run, key) == target, f"{key} has replicas {replicas(run, key)}"
        assert set(run.world.states[key].isr) == set(target), f"{key} has the ISR {run.world.states[key].isr}"
    for broker_id, told in run.told.items():
        held = {key for key, role in told.roles.items() if key not in told.stopped}
        hosted = {key for key in wanted if broker_id in wanted[key]}
        left = held & wanted.keys() - hosted
        assert hosted <= held and (not left or (replaced and run.strikes_made)), f"broker {broker_id} holds {held}"
    return True


def all_moved(run: CrashRun) -> bool:
    return ended(run, MOVES)


# --- key 45 ---


async def reassign(run: CrashRun, targets: Mapping[TopicPartition, Ints | None]) -> None:
    done = (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)  # of a cancellation that was carried out before its answer was lost
    await run.request(lambda c: c.alter_reassignments(dict(targets)), lambda results: all(code in done for code, _ in results.values()))


async def reassign_all(run: CrashRun) -> None:
    await reassign(run, MOVES)


async def under_way(run: CrashRun) -> None:
    """a and b are on their way to the targets, and wait for their followers."""
    await topics_to_move(run)
    run.followers_catch_up = False
    await reassign(run, {A0: MOVES[A0], A1: MOVES[A1]})
    await run.settle()
    assert run.world.reassigning == {A0, A1}
    watch(run)


async def throttled_under_way(run: CrashRun) -> None:
    await topics_to_move(run)
    run.followers_catch_up = False
    await reassign(run, {A0: MOVES[A0], A1: MOVES[A1]})
    await run.settle()
    set_throttles(run)
    watch(run)


async def catch_up(run: CrashRun) -> None:
    run.followers_catch_up = True


async def override(run: CrashRun) -> None:
    await reassign(run, {A0: (4, 5), A1: (1, 2, 3)})
    run.followers_catch_up = True


async def cancel(run: CrashRun) -> None:
    await reassign(run, {A0: None, A1: None})
    run.followers_catch_up = True


async def new_replica_in_sync(run: CrashRun) -> None:
    """a-0 and a-1 wait for broker 5, which is away; broker 3 or 4 is in sync already, and leads a-0."""
    await topics_to_move(run)
    run.followers_catch_up = False
    await reassign(run, {A0: (3, 5), A1: (4, 5)})
    await run.settle()
    run.world.stop_broker(5)
    await run.settle()
    run.followers_catch_up = True
    await run.settle()
    run.world.stop_broker(1)
    await run.settle()
    run.world.stop_broker(2)
    await run.settle()
    assert run.world.states[A0].leader == 3 and 4 in run.world.states[A1].isr
    run.world.start_broker(1)
    await run.settle()
    run.world.start_broker(2)
    await run.settle()
    assert run.world.states[A0].leader == 3 and run.world.reassigning == {A0, A1}
    run.world.start_broker(5)
    run.followers_catch_up = False
    await run.settle()
    watch(run)


async def a_target_is_away(run: CrashRun) -> None:
    """The reassignments wait for a broker that is gone."""
    await under_way(run)
    run.world.stop_broker(4)
    await run.settle()
    run.followers_catch_up = True
    await run.settle()
    assert run.world.reassigning == {A0, A1}


async def fail_over(run: CrashRun) -> None:
    first = run.active
    assert first is not None
    first.crash()
    run.followers_catch_up = True


async def fail_over_with_a_bounce(run: CrashRun) -> None:
    await fail_over(run)
    run.world.bounce_broker(4)


# --- the legacy znode ---

LEGACY = {**MOVES, TopicPartition("unknown", 0): (1, 2), TopicPartition("a", 7): (1,)}


async def legacy_under_way(run: CrashRun) -> None:
    await topics_to_move(run)
    run.followers_catch_up = False
    run.world.ask_reassignment(MOVES)
    await run.settle()
    assert run.world.reassignments is not None
    watch(run)


# --- the removal of throttles ---


async def left_throttles(run: CrashRun, alias: bool = False) -> None:
    """A controller that is gone has left throttles and the znodes that say so; nothing is reassigned."""
    await topics_to_move(run)
    set_throttles(run)
    if alias:
        run.world.place_removals(["b", "gone"], [4, 9], True)
    watch(run)


async def left_throttles_and_aliases(run: CrashRun) -> None:
    await left_throttles(run, alias=True)


def cancelled(run: CrashRun) -> bool:
    return ended(run, BEFORE, replaced=True)


def not_moved(run: CrashRun) -> bool:
    return ended(run, BEFORE)


def overridden(run: CrashRun) -> bool:
    return ended(run, {A0: (4, 5), A1: (1, 2, 3)}, replaced=True)


def both_moved(run: CrashRun) -> bool:
    return ended(run, {A0: MOVES[A0], A1: MOVES[A1]})


async def delete(run: CrashRun) -> None:
    """Without a fail-over a topic is deleted at once; the next controller waits for the end of its reassignment."""
    run.world.delete_topic("a")
    run.followers_catch_up = True


def deleted(run: CrashRun) -> bool:
    watch_of(run).nothing_left()
    return "a" not in run.world.topics


REASSIGNMENTS = (
    Scenario("45, request", reassign_all, all_moved, watched, BROKERS),
    Scenario("45, completion", catch_up, both_moved, under_way, BROKERS),
    Scenario("45, override", override, overridden, under_way, BROKERS),
    Scenario("45, cancel", cancel, cancelled, under_way, BROKERS),
    Scenario("45, cancel with a new leader", cancel, cancelled, new_replica_in_sync, BROKERS),
    Scenario("45, override with a new leader", override, overridden, new_replica_in_sync, BROKERS),
    Scenario("45, fail-over", fail_over, both_moved, under_way, BROKERS),
    Scenario("45, fail-over and bounce", fail_over_with_a_bounce, both_moved, under_way, BROKERS),
    Scenario(
        "45, return of a target",
        outside(lambda run: run.world.start_broker(4)),
        both_moved,
        a_target_is_away,
        BROKERS,
    ),
    Scenario("legacy znode", outside(lambda run: run.world.ask_reassignment(LEGACY)), all_moved, watched, BROKERS),
    Scenario("legacy znode, fail-over", fail_over, all_moved, legacy_under_way, BROKERS),
    Scenario("removal at completion", catch_up, both_moved, throttled_under_way, BROKERS),
    Scenario("removal at cancellation", cancel, cancelled, throttled_under_way, BROKERS),
    Scenario("removal at deletion", delete, deleted, throttled_under_way, BROKERS),
    Scenario("removal at fail-over", fail_over, not_moved, left_throttles, BROKERS),
    Scenario("removal at fail-over, other names", fail_over, not_moved, left_throttles_and_aliases, BROKERS),
)
