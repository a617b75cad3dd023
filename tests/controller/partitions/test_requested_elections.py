"""Elections that somebody asks for: by request (controller 10.1), by the znode (10.2), by the rebalance timer (10.3), by a config (8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.values import Election, ElectionResult
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.conftest import Timer
from klamm.tests.controller.stage import Stage

NODE_GONE = "REMOVED /admin/preferred_replica_election"
UNCLEAN = "unclean.leader.election.enable"


def tp(name: str, index: int = 0) -> TopicPartition:
    return TopicPartition(name, index)


async def elect(stage: Stage, election: Election, *keys: TopicPartition) -> dict[TopicPartition, ElectionResult]:
    results = await stage.controller.elect_leaders(keys, election)
    assert all((r.message is None) == (r.error is ErrorCode.NONE) for r in results.values()), "a text exactly where there is an error"
    assert all((r.leader is not None) == (r.error is ErrorCode.NONE) for r in results.values())
    return results


def codes(results: dict[TopicPartition, ElectionResult]) -> dict[str, str]:
    return {str(k): r.error.name for k, r in results.items()}


async def moved(stage: Stage, *names: str) -> None:
    """Broker 1 bounces; its partitions [1, 2] are led by 2 then, and 1 is back in sync (as an older leader would write)."""
    stage.world.bounce_broker(1)
    await stage.settle()
    for name in names:
        assert stage.state(name) == "2 e1 [2] v1"
        stage.somebody_writes(name, isr=(2, 1))
        stage.world.notify_isr_change([tp(name)])
    await stage.settle()


# --- 10.1 ---


@pytest.mark.requirement("R183-12", "R183-16")
async def test_preferred(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await moved(stage, "t")
    mark = stage.mark()
    assert await elect(stage, Election.PREFERRED, tp("t")) == {tp("t"): ElectionResult(ErrorCode.NONE, None, 1)}
    assert stage.since(mark) == [
        "WROTE t-0 1 e2 [2, 1] v3",
        "LISR 1: t-0 1 e2 [2, 1] v3", "LISR 2: t-0 1 e2 [2, 1] v3",
        *(f"UMR {b}: t-0 1 e2 [2, 1] v3" for b in (1, 2, 3)),
    ]


async def test_preferred_tells_dead_replicas_only_as_offline(stage: Stage) -> None:
    """The strategy's recipients are all of the list; who is not registered is sent nothing."""
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    stage.world.bounce_broker(1)
    await stage.settle()
    await stage.stop(3)
    stage.somebody_writes("t", isr=(2, 1))
    stage.world.notify_isr_change([tp("t")])
    await stage.settle()
    mark = stage.mark()
    assert codes(await elect(stage, Election.PREFERRED, tp("t"))) == {"t-0": "NONE"}
    assert [f.split(":")[0] for f in stage.frames(mark, "LISR")] == ["LISR 1", "LISR 2"]


@pytest.mark.requirement("R183-6", "R183-7", "R183-8", "R183-10")
async def test_classification(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("doomed", (1, 2), (2, 1))
    await stage.create("led", (1, 2))
    await stage.create("lagging", (1, 2))
    await stage.create("dead", (4, 2))
    await stage.create("moved", (1, 2))
    await moved(stage, "led", "moved")
    assert codes(await elect(stage, Election.PREFERRED, tp("led"))) == {"led-0": "NONE"}
    stage.channels.silent.update((1, 2))
    stage.world.delete_topic("doomed")
    await stage.settle()
    mark = stage.mark()
    asked = [tp("gone"), tp("led", 7), tp("doomed"), tp("doomed", 1), tp("led"), tp("lagging"), tp("dead"), tp("moved")]
    results = await elect(stage, Election.PREFERRED, *asked, *asked)
    assert codes(results) == {
        "gone-0": "UNKNOWN_TOPIC_OR_PARTITION", "led-7": "UNKNOWN_TOPIC_OR_PARTITION",
        "doomed-0": "INVALID_TOPIC_EXCEPTION", "doomed-1": "INVALID_TOPIC_EXCEPTION",
        "led-0": "ELECTION_NOT_NEEDED",
        "lagging-0": "PREFERRED_LEADER_NOT_AVAILABLE", "dead-0": "PREFERRED_LEADER_NOT_AVAILABLE",
        "moved-0": "NONE",
    }
    assert results[tp("led")].message == "Leader election not needed for topic partition.", "the default text of the code"
    assert stage.writes(mark) == ["WROTE moved-0 1 e2 [2, 1] v3"], "elected once, others untouched"
    assert stage.partition_state("lagging") == "ONLINE"
    stage.channels.release()


async def test_nothing_asked_nothing_done(stage: Stage) -> None:
    await stage.open(1)
    mark = stage.mark()
    assert await elect(stage, Election.PREFERRED) == {}
    assert stage.since(mark) == []


@pytest.mark.requirement("R704-16")
async def test_unclean(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("lost", (1, 2))
    await stage.create("alive", (3,))
    await stage.stop(2)
    await stage.stop(1)
    await stage.start(2)
    await stage.create("nobody", (1,))
    assert stage.state("lost") == "-1 e2 [1] v2"
    mark = stage.mark()
    asked = [tp("lost"), tp("alive"), tp("gone")]
    results = await elect(stage, Election.UNCLEAN, *asked)
    assert codes(results) == {"lost-0": "NONE", "alive-0": "ELECTION_NOT_NEEDED", "gone-0": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert results[tp("lost")].leader == 2
    assert stage.since(mark)[:2] == ["WROTE lost-0 2 e3 [2] v3 recovering", "LISR 2: lost-0 2 e3 [2] v3 recovering"]
    assert stage.partition_state("lost") == "ONLINE"


async def test_unclean_without_anybody(stage: Stage) -> None:
    await stage.open(1, 3)
    await stage.create("t", (1,))
    await stage.stop(1)
    mark = stage.mark()
    assert codes(await elect(stage, Election.UNCLEAN, tp("t"))) == {"t-0": "ELIGIBLE_LEADERS_NOT_AVAILABLE"}
    assert stage.writes(mark) == []


async def test_unclean_prefers_a_clean_leader(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    stage.world.write(tp("t"), stage.world.states[tp("t")]._replace(leader=-1, isr=(2,), partition_epoch=1))
    stage.world.notify_isr_change([tp("t")])
    await stage.settle()
    results = await elect(stage, Election.UNCLEAN, tp("t"))
    assert results == {tp("t"): ElectionResult(ErrorCode.NONE, None, 2)}
    assert stage.state("t") == "2 e1 [2] v2"


async def test_unclean_is_needed_while_the_leader_shuts_down(stage: Stage) -> None:
    """Its leader is registered but not alive; there is nobody else either."""
    await stage.open(1, 2)
    await stage.create("t", (1,))
    await stage.controller.controlled_shutdown(1, -1)
    assert codes(await elect(stage, Election.UNCLEAN, tp("t"))) == {"t-0": "ELIGIBLE_LEADERS_NOT_AVAILABLE"}
    assert stage.state("t") == "1 e0 [1] v0"


async def test_a_partition_that_never_had_a_leader_and_still_has_none(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("dead", (4,))
    results = await elect(stage, Election.PREFERRED, tp("dead"))
    assert codes(results) == {"dead-0": "PREFERRED_LEADER_NOT_AVAILABLE"}
    results = await elect(stage, Election.UNCLEAN, tp("dead"))
    assert codes(results) == {"dead-0": "ELIGIBLE_LEADERS_NOT_AVAILABLE"}


async def test_a_new_partition_whose_node_could_not_be_created_is_tried_again(stage: Stage) -> None:
    await stage.open(1, 2)
    create: Callable[[Any], Awaitable[Any]] = stage.store.create_states
    failing = [True]

    async def fail_once(writes: Any) -> Any:
        if failing:
            failing.clear()
            return await create([w._replace(topic="nowhere") for w in writes])
        return await create(writes)

    stage.store.create_states = fail_once  # type: ignore[method-assign]
    await stage.create("t", (1, 2))
    assert (stage.state("t"), stage.partition_state("t")) == (None, "NEW")
    mark = stage.mark()
    assert await elect(stage, Election.PREFERRED, tp("t")) == {tp("t"): ElectionResult(ErrorCode.NONE, None, 1)}
    assert stage.since(mark)[:3] == ["WROTE t-0 1 e0 [1, 2] v0", "LISR 1: t-0 1 e0 [1, 2] v0 new", "LISR 2: t-0 1 e0 [1, 2] v0 new"]


async def test_the_state_is_read_anew_where_nobody_could_lead(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.world.bounce_broker(1)
    await stage.settle()
    stage.somebody_writes("t", isr=(2, 1))  # nobody was notified
    assert codes(await elect(stage, Election.PREFERRED, tp("t"))) == {"t-0": "NONE"}
    assert stage.state("t") == "1 e2 [2, 1] v3"


# --- 10.2 ---


async def ask_by_node(stage: Stage, *keys: TopicPartition) -> None:
    stage.world.ask_preferred(list(keys))
    await stage.settle()


async def led_by_the_other(stage: Stage) -> None:
    """Partitions t-0 and t-1, which prefer broker 1 and are led by 2 with both in sync."""
    await stage.open(1, 2)
    await stage.create("t", (1, 2), (1, 2))
    stage.world.bounce_broker(1)
    await stage.settle()
    for i in (0, 1):
        stage.somebody_writes("t", i, isr=(2, 1))


@pytest.mark.requirement("R183-18")
async def test_by_node(stage: Stage) -> None:
    await led_by_the_other(stage)
    mark = stage.mark()
    await ask_by_node(stage, tp("t", 1), tp("gone"))
    assert stage.writes(mark) == ["WROTE t-1 1 e2 [2, 1] v3", NODE_GONE], "deleted after the election"
    mark = stage.mark()
    await ask_by_node(stage, tp("t", 0))
    assert stage.writes(mark) == ["WROTE t-0 1 e2 [2, 1] v3", NODE_GONE], "watched again"


@pytest.mark.requirement("R183-18")
@pytest.mark.parametrize("keys", [[], [tp("gone")], [tp("t")], [tp("new")], [tp("doomed")]])
async def test_by_node_with_nothing_to_elect(stage: Stage, keys: list[TopicPartition]) -> None:
    """Also where the node is unreadable (it is empty then), and where a partition never had a leader."""
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.create("new", (4,))
    await stage.create("doomed", (1, 4))
    stage.world.delete_topic("doomed")
    await stage.settle()
    mark = stage.mark()
    await ask_by_node(stage, *keys)
    assert stage.writes(mark) == [NODE_GONE]
    assert stage.world.preferred is None


async def test_by_node_never_unclean(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.stop(1)
    await stage.stop(2)
    await stage.start(1)
    mark = stage.mark()
    await ask_by_node(stage, tp("t"))
    assert stage.writes(mark) == [NODE_GONE]
    assert stage.state("t") == "-1 e2 [2] v2"


async def test_by_node_a_second_one_in_between_is_seen(stage: Stage) -> None:
    await led_by_the_other(stage)
    remove: Callable[[], Awaitable[None]] = stage.store.delete_preferred_election
    created: list[bool] = []

    async def remove_and_meet_another() -> None:
        await remove()
        if not created:
            created.append(True)
            stage.store.armed.discard("/admin/preferred_replica_election")  # the deletion used up the watch
            stage.world.ask_preferred([tp("t", 1)])

    stage.store.delete_preferred_election = remove_and_meet_another  # type: ignore[method-assign]
    await ask_by_node(stage, tp("t", 0))
    assert stage.state("t", 1) == "1 e2 [2, 1] v3"
    assert stage.world.preferred is None


@pytest.mark.requirement("R183-18")
async def test_by_node_at_fail_over(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2), (1, 2))
    await stage.create("new", (4, 5))
    stage.world.bounce_broker(1)
    await stage.settle()
    stage.somebody_writes("t", 0, isr=(2, 1))
    stage.world.preferred = [tp("new"), tp("t", 0), tp("gone"), tp("t", 1)]
    mark = stage.mark()
    await stage.fail_over()
    assert stage.writes(mark) == ["WROTE t-0 1 e2 [2, 1] v3", NODE_GONE]
    assert stage.world.epoch == 2, "one that never had a leader does not end the term"
    assert "/admin/preferred_replica_election" in stage.store.armed


# --- 10.3 ---


async def imbalanced(stage: Stage, partitions: int, wrong: int) -> None:
    """Partitions that prefer 1; `wrong` of them are led by 2, with 1 in sync."""
    await stage.open(1, 2)
    await stage.create("t", *[(1, 2)] * partitions)
    for i in range(wrong):
        stage.somebody_writes("t", i, leader=2, leader_epoch=1)
    await stage.fail_over()


@pytest.mark.parametrize(
    ("percentage", "partitions", "wrong", "elected"),
    [
        (10, 10, 1, 0), (10, 10, 2, 2), (10, 11, 1, 0), (10, 9, 1, 1), (0, 10, 1, 1), (50, 2, 1, 0), (50, 3, 2, 2), (100, 2, 2, 0),
        (30, 10, 3, 0),
    ],
)
async def test_rebalance_strictly_above_the_limit(stage: Stage, percentage: int, partitions: int, wrong: int, elected: int) -> None:
    stage.change_options(leader_imbalance_per_broker_percentage=percentage)
    await imbalanced(stage, partitions, wrong)
    mark = stage.mark()
    await stage.put(events.AutoPreferredReplicaLeaderElection())
    assert sorted(stage.writes(mark)) == [f"WROTE t-{i} 1 e2 [1, 2] v2" for i in range(elected)]


async def test_rebalance_counts_each_broker_by_itself(stage: Stage) -> None:
    stage.change_options(leader_imbalance_per_broker_percentage=40)
    await imbalanced(stage, 4, 1)
    await stage.create("u", (2, 1), (2, 1))
    stage.somebody_writes("u", 1, leader=1, leader_epoch=1)
    await stage.fail_over()
    mark = stage.mark()
    await stage.put(events.AutoPreferredReplicaLeaderElection())
    assert stage.writes(mark) == ["WROTE u-1 2 e2 [2, 1] v2"], "half of what prefers 2, a quarter of what prefers 1"


async def test_rebalance_counts_what_it_cannot_elect(stage: Stage) -> None:
    """The ratio is of all that are led elsewhere; only those whose preferred replica is online and in sync move."""
    await imbalanced(stage, 4, 2)
    stage.change_options(leader_imbalance_per_broker_percentage=49)
    stage.somebody_writes("t", 0, isr=(2,))
    stage.world.notify_isr_change([tp("t", 0)])
    await stage.create("new", (4,))  # never led: its preferred broker has no imbalance
    await stage.settle()
    mark = stage.mark()
    await stage.put(events.AutoPreferredReplicaLeaderElection())
    assert stage.writes(mark) == ["WROTE t-1 1 e2 [1, 2] v2"]


async def test_rebalance_looks_at_the_isr_it_knows(stage: Stage) -> None:
    await imbalanced(stage, 2, 0)
    stage.somebody_writes("t", leader=2, leader_epoch=1, isr=(2,))
    await stage.fail_over()
    stage.somebody_writes("t", isr=(2, 1))
    mark = stage.mark()
    await stage.put(events.AutoPreferredReplicaLeaderElection())
    assert stage.writes(mark) == []


async def test_rebalance_does_not_count_deletions(stage: Stage) -> None:
    stage.change_options(leader_imbalance_per_broker_percentage=50)
    await imbalanced(stage, 3, 1)
    await stage.create("doomed", (1, 4), (1, 4))
    stage.world.delete_topic("doomed")
    await stage.settle()
    assert stage.state("doomed") == "-1 e1 [1] v1"
    mark = stage.mark()
    await stage.put(events.AutoPreferredReplicaLeaderElection())
    assert stage.writes(mark) == [], "one of three, not three of five"


async def test_rebalance_leaves_dead_and_leaving_brokers_and_deletions_alone(stage: Stage) -> None:
    await imbalanced(stage, 2, 2)
    await stage.create("u", (3, 2))
    await stage.create("doomed", (2, 4))
    await stage.controller.controlled_shutdown(1, -1)
    stage.world.delete_topic("doomed")
    await stage.settle()
    mark = stage.mark()
    await stage.put(events.AutoPreferredReplicaLeaderElection())
    assert stage.since(mark) == []


async def test_rebalance_does_not_touch_the_node(stage: Stage) -> None:
    await imbalanced(stage, 2, 2)
    stage.world.preferred = [tp("t", 0)]
    await stage.put(events.AutoPreferredReplicaLeaderElection())
    assert stage.world.preferred == [tp("t", 0)]


async def test_the_timer_of_the_rebalance(stage: Stage, timers: list[Timer]) -> None:
    """First after five seconds, then the interval after each run ends; none without the setting, none after resigning."""
    await stage.open(1)
    stage.change_options(leader_imbalance_check_interval_seconds=77)
    await stage.fail_over()
    assert timers == [], "the setting is off"
    stage.change_options(auto_leader_rebalance_enable=True)
    await stage.fail_over()
    assert [(timer.delay_s, timer.args[0]) for timer in timers] == [(5, events.AutoPreferredReplicaLeaderElection())]
    timers[0].fire()
    await stage.settle()
    assert [timer.delay_s for timer in timers] == [5, 77]
    stage.world.steal(77)
    await stage.settle()
    assert timers[-1].handle.cancelled()
    await stage.put(events.AutoPreferredReplicaLeaderElection())
    assert len(timers) == 2, "not active: nothing is planned"


async def test_a_rebalance_that_waits_when_its_term_ends_is_none_of_the_next(stage: Stage, timers: list[Timer]) -> None:
    """Each term has one chain of timers."""
    stage.change_options(auto_leader_rebalance_enable=True)
    await stage.open(1)
    stage.world.steal(77)
    stage.controller.put(events.ControllerChange())
    timers[0].fire()
    stage.world.drop_controller()
    stage.controller.put(events.Reelect())
    await stage.settle()
    assert stage.controller.is_active and stage.controller.epoch == 3
    assert [timer.delay_s for timer in timers] == [5, 5]


# --- 8: unclean elections turned on ---


async def leaderless(stage: Stage) -> None:
    """`t` and `u` [1, 2] have lost 1, the last in sync; 2 is there."""
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await stage.create("u", (1, 2))
    await stage.stop(2)
    await stage.stop(1)
    await stage.start(2)
    assert stage.state("t") == stage.state("u") == "-1 e2 [1] v2"


async def test_turned_on_for_a_topic(stage: Stage) -> None:
    await leaderless(stage)
    stage.world.configs.update({"t": {UNCLEAN: "true"}, "u": {UNCLEAN: "true"}})
    mark = stage.mark()
    await stage.put(events.TopicUncleanLeaderElectionEnabled("t"))
    assert stage.writes(mark) == ["WROTE t-0 2 e3 [2] v3 recovering"], "for that topic only"
    await stage.put(events.TopicUncleanLeaderElectionEnabled("gone"))


async def test_turned_on_for_all(stage: Stage) -> None:
    await leaderless(stage)
    stage.world.configs["u"] = {UNCLEAN: "false"}
    stage.change_options(unclean_leader_election_enable=True)
    mark = stage.mark()
    await stage.put(events.UncleanLeaderElectionEnabled())
    assert stage.writes(mark) == ["WROTE t-0 2 e3 [2] v3 recovering"]
