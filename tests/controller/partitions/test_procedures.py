"""Brokers come, go, bounce and change (controller 4): what is written, how often, and what everybody is told in which order.

Topic `t` has the replicas [1, 2]; broker 3 looks on, so that somebody is always told.
"""

from __future__ import annotations

import pytest

from klamm.controller.phases import BrokersFailed, BrokersStarted, LeadersElected
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.tests.controller.simulated_brokers import SentFrame
from klamm.tests.controller.stage import Stage

UNCLEAN = {"unclean.leader.election.enable": "true"}


async def opened(stage: Stage) -> Stage:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    assert stage.state("t") == "1 e0 [1, 2] v0"
    return stage


# --- the table of 4.3 ---


async def test_the_leader_dies(stage: Stage) -> None:
    await opened(stage)
    mark = stage.mark()
    await stage.stop(1)
    told = ["LISR 2: t-0 2 e1 [2] v1", "UMR 2: t-0 2 e1 [2] v1 off[1]", "UMR 3: t-0 2 e1 [2] v1 off[1]"]
    assert stage.since(mark) == ["WROTE t-0 2 e1 [2] v1", *told, *told], "by the election, then by the replica that went offline"
    assert stage.replica(1, "t") == "OFFLINE"
    assert stage.partition_state("t") == "ONLINE"


async def test_then_the_other_one_dies_too(stage: Stage) -> None:
    await opened(stage)
    await stage.stop(1)
    mark = stage.mark()
    await stage.stop(2)
    assert stage.since(mark) == ["WROTE t-0 -1 e2 [2] v2", "UMR 3: t-0 -1 e2 [2] v2 off[1, 2]"]
    assert stage.partition_state("t") == "OFFLINE"


async def test_then_it_returns(stage: Stage) -> None:
    await opened(stage)
    await stage.stop(1)
    await stage.stop(2)
    mark = stage.mark()
    await stage.start(2)
    assert stage.since(mark) == [
        "UMR 3:",
        "UMR 2: t-0 -1 e2 [2] v2 off[1]",
        "LISR 2: t-0 -1 e2 [2] v2", "UMR 2: t-0 -1 e2 [2] v2 off[1]", "UMR 3: t-0 -1 e2 [2] v2 off[1]",
        "WROTE t-0 2 e3 [2] v3",
        "LISR 2: t-0 2 e3 [2] v3", "UMR 2: t-0 2 e3 [2] v3 off[1]", "UMR 3: t-0 2 e3 [2] v3 off[1]",
    ]
    assert stage.partition_state("t") == "ONLINE"
    assert stage.replica(2, "t") == "ONLINE"


async def test_instead_the_first_one_returns(stage: Stage) -> None:
    await opened(stage)
    await stage.stop(1)
    await stage.stop(2)
    mark = stage.mark()
    await stage.start(1)
    assert stage.since(mark) == [
        "UMR 3:",
        "UMR 1: t-0 -1 e2 [2] v2 off[2]",
        "LISR 1: t-0 -1 e2 [2] v2", "UMR 1: t-0 -1 e2 [2] v2 off[2]", "UMR 3: t-0 -1 e2 [2] v2 off[2]",
    ]


@pytest.mark.requirement("R704-1", "R704-4")
@pytest.mark.parametrize("where", ["topic", "broker"])
async def test_instead_the_first_one_returns_and_may_lead_unclean(stage: Stage, where: str) -> None:
    await opened(stage)
    await stage.stop(1)
    await stage.stop(2)
    if where == "topic":
        stage.world.configs["t"] = UNCLEAN
    else:
        stage.change_options(unclean_leader_election_enable=True)
    mark = stage.mark()
    await stage.start(1)
    assert stage.writes(mark) == ["WROTE t-0 1 e3 [1] v3 recovering"]
    assert stage.frames(mark, "LISR")[-1] == "LISR 1: t-0 1 e3 [1] v3 recovering"


@pytest.mark.parametrize("written", ["TRUE", " True "])
async def test_a_boolean_of_a_topic_may_be_written_in_any_case(stage: Stage, written: str) -> None:
    """As a tool that writes to ZooKeeper directly may have left it."""
    await opened(stage)
    stage.world.configs["t"] = {"unclean.leader.election.enable": written}
    await stage.stop(1)
    await stage.stop(2)
    await stage.start(1)
    assert stage.state("t") == "1 e3 [1] v3 recovering"


async def test_no_unclean_election_over_the_state_of_a_newer_controller(stage: Stage) -> None:
    await opened(stage)
    stage.change_options(unclean_leader_election_enable=True)
    stage.somebody_writes("t", isr=(1,), controller_epoch=stage.cluster.epoch + 1)
    written = stage.world.states[TopicPartition("t", 0)]
    await stage.stop(1)
    assert stage.world.states[TopicPartition("t", 0)] == written


@pytest.mark.parametrize(("config", "unreadable"), [({"unclean.leader.election.enable": "false"}, False), (UNCLEAN, True)])
async def test_a_topic_has_the_last_word_on_unclean_elections(stage: Stage, config: dict[str, str], unreadable: bool) -> None:
    await opened(stage)
    stage.change_options(unclean_leader_election_enable=True)
    stage.world.configs["t"] = config
    if unreadable:
        stage.world.unreadable_configs.add("t")
    await stage.create("other", (2, 1))
    await stage.stop(1)
    await stage.stop(2)
    await stage.start(1)
    assert stage.state("t") == "-1 e2 [2] v2"
    assert stage.state("other") == "1 e3 [1] v3 recovering", "what is wrong with one topic is not wrong with another"


async def test_the_follower_dies_first(stage: Stage) -> None:
    await opened(stage)
    mark = stage.mark()
    await stage.stop(2)
    assert stage.since(mark) == [
        "WROTE t-0 1 e1 [1] v1", "LISR 1: t-0 1 e1 [1] v1", "UMR 1: t-0 1 e1 [1] v1 off[2]", "UMR 3: t-0 1 e1 [1] v1 off[2]"
    ]


@pytest.mark.requirement("R704-3")
async def test_the_mark_of_an_unclean_election_outlives_later_elections(stage: Stage) -> None:
    await opened(stage)
    stage.world.configs["t"] = UNCLEAN
    await stage.stop(1)
    await stage.stop(2)
    await stage.start(1)
    await stage.stop(1)
    assert stage.state("t") == "-1 e4 [1] v4 recovering"
    await stage.start(1)
    assert stage.state("t") == "1 e5 [1] v5 recovering"
    await stage.fail_over()
    assert stage.frames(0, "LISR")[-1] == "LISR 1: t-0 1 e5 [1] v5 recovering"


async def test_without_support_there_is_no_mark(stage: Stage) -> None:
    stage.change_options(leader_recovery_supported=False)
    await opened(stage)
    stage.world.configs["t"] = UNCLEAN
    await stage.stop(1)
    await stage.stop(2)
    await stage.start(1)
    assert stage.state("t") == "1 e3 [1] v3"


async def test_a_broker_without_replicas_dies(stage: Stage) -> None:
    await opened(stage)
    mark = stage.mark()
    await stage.stop(3)
    assert stage.since(mark) == ["UMR 1:", "UMR 2:"], "so that it leaves the caches"


async def test_a_dead_broker_is_not_mentioned_where_replicas_are_told_of(stage: Stage) -> None:
    """No second UpdateMetadata without partitions where one with partitions goes out anyway."""
    await opened(stage)
    await stage.stop(1)
    mark = stage.mark()
    await stage.stop(2)
    assert "UMR 3:" not in stage.since(mark)


# --- 4.1, 4.2 ---


async def test_startup_in_full(stage: Stage) -> None:
    """All partitions to the new broker, roles, then what waited for it: a leaderless and a new partition."""
    await opened(stage)
    await stage.create("idle", (3,))
    await stage.create("waits", (4,), (2, 4))
    assert (stage.state("waits"), stage.partition_state("waits")) == (None, "NEW")
    mark = stage.mark()
    await stage.start(4)
    every = "idle-0 3 e0 [3] v0 t-0 1 e0 [1, 2] v0 waits-1 2 e0 [2] v0"
    assert stage.since(mark) == [
        "UMR 1:", "UMR 2:", "UMR 3:",
        f"UMR 4: {every}",
        "LISR 4: waits-1 2 e0 [2] v0",
        *(f"UMR {b}: waits-1 2 e0 [2] v0" for b in (1, 2, 3, 4)),
        "WROTE waits-0 4 e0 [4] v0",
        "LISR 4: waits-0 4 e0 [4] v0 new",
        *(f"UMR {b}: waits-0 4 e0 [4] v0" for b in (1, 2, 3, 4)),
    ]


async def test_bounced(stage: Stage) -> None:
    """A failure, then a start with the new epoch: the leader is lost, and comes back only by election."""
    await opened(stage)
    old = stage.cluster.brokers[1].epoch
    mark = stage.mark()
    stage.world.bounce_broker(1)
    await stage.settle()
    assert stage.cluster.brokers[1].epoch == stage.world.brokers[1].epoch > old
    assert stage.writes(mark) == ["WROTE t-0 2 e1 [2] v1"]
    told = ["LISR 2: t-0 2 e1 [2] v1", "UMR 2: t-0 2 e1 [2] v1 off[1]", "UMR 3: t-0 2 e1 [2] v1 off[1]"]
    assert stage.frames(mark) == [
        *told, *told,
        "UMR 2:", "UMR 3:",
        "UMR 1: t-0 2 e1 [2] v1",
        "LISR 1: t-0 2 e1 [2] v1", "UMR 1: t-0 2 e1 [2] v1", "UMR 2: t-0 2 e1 [2] v1", "UMR 3: t-0 2 e1 [2] v1",
    ]


async def test_an_older_epoch_is_no_bounce(stage: Stage) -> None:
    await opened(stage)
    known = stage.world.brokers[1]
    stage.world.brokers[1] = known._replace(epoch=known.epoch - 1)
    mark = stage.mark()
    stage.world.start_broker(4)
    await stage.settle()
    assert stage.cluster.brokers[1] == known
    assert stage.writes(mark) == []


async def test_new_then_bounced_then_dead(stage: Stage) -> None:
    """One look finds all three; each group is done with before the next begins."""
    await stage.open(1, 2, 3, 6, 7)
    await stage.create("t", (1, 2, 4))
    await stage.create("new", (4,))
    mark = stage.mark()
    hold = stage.steering.hold(BrokersStarted, BrokersFailed, LeadersElected)
    stage.world.start_broker(4)
    stage.world.bounce_broker(2)
    stage.world.stop_broker(1)
    stage.world.stop_broker(6)
    await stage.settle()
    phases = []
    while hold.held:
        phases.append(hold.step())
        await stage.settle()
    epoch = stage.cluster.epoch
    assert phases == [
        BrokersStarted(epoch, (4,)),
        BrokersFailed(epoch, (2,)), LeadersElected(epoch, (2,)), BrokersStarted(epoch, (2,)),
        BrokersFailed(epoch, (1, 6)), LeadersElected(epoch, (1, 6)),
    ]
    assert stage.writes(mark) == ["WROTE new-0 4 e0 [4] v0", "WROTE t-0 1 e1 [1] v1", "WROTE t-0 -1 e2 [1] v2"]
    alive = [{b.id for b in f.request.live_brokers} for f in stage.world.journal[mark:] if isinstance(f, SentFrame) and f.api_key == 6]
    steps = [now for before, now in zip([set(), *alive], alive, strict=False) if now != before]
    assert steps == [{1, 2, 3, 4, 6, 7}, {1, 3, 4, 6, 7}, {1, 2, 3, 4, 6, 7}, {2, 3, 4, 7}]
    assert stage.channels.open == {2, 3, 4, 7}


async def test_senders_are_adjusted_before_anything_is_sent(stage: Stage) -> None:
    """What is meant for one that is dead already, but not yet forgotten, has no sender."""
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    mark = stage.mark()
    stage.world.start_broker(4)
    stage.world.stop_broker(2)
    await stage.settle()
    assert [text for text in stage.frames(mark) if text.split()[1] == "2:"] == []
    assert stage.frames(mark)[0] == "UMR 1:"


async def test_every_request_carries_its_receivers_epoch(stage: Stage) -> None:
    await opened(stage)
    mark = stage.mark()
    stage.world.bounce_broker(2)
    await stage.settle()
    await stage.start(4)
    frames = [f for f in stage.world.journal[mark:] if isinstance(f, SentFrame)]
    assert {f.broker for f in frames} == {1, 2, 3, 4}
    for f in frames:
        assert f.request.broker_epoch == stage.world.brokers[f.broker].epoch
        assert (f.request.controller_id, f.request.controller_epoch) == (100, 1)


async def test_a_broker_nobody_can_dial_is_absent(stage: Stage) -> None:
    await opened(stage)
    mark = stage.mark()
    stage.world.start_broker(4)
    broker = stage.world.brokers[4]
    stage.world.brokers[4] = broker._replace(endpoints=(Endpoint("OTHER", "h", 1, 0),))
    stage.world.start_broker(5)
    await stage.settle()
    assert set(stage.cluster.brokers) == {1, 2, 3, 5}, "the others are handled"
    assert stage.frames(mark) == ["UMR 1:", "UMR 2:", "UMR 3:", "UMR 5: t-0 1 e0 [1, 2] v0"]


# --- 4.4 ---


async def test_a_broker_that_nobody_could_dial_is_there_when_its_node_is_repaired(stage: Stage) -> None:
    """Found so at the fail-over, or later; unreadable, or without the endpoint."""
    for b in (1, 2, 3, 4):
        stage.world.start_broker(b)
        if b in (1, 3):
            stage.world.spoil_broker(b)
        else:
            stage.world.brokers[b] = stage.world.brokers[b]._replace(endpoints=())
        if b == 2:
            stage.controller.start()
            await stage.settle()
        assert set(stage.cluster.brokers if b > 1 else ()) == set()
    await stage.create("t", (1, 2, 3, 4))
    good = (Endpoint("PLAINTEXT", "mended", 9092, 0),)
    for b in (1, 2, 3, 4):
        stage.world.change_broker(stage.world.brokers[b]._replace(endpoints=good))
        await stage.settle()
        assert set(stage.cluster.brokers) == set(range(1, b + 1))
    assert stage.channels.open == {1, 2, 3, 4}
    assert stage.state("t") == "1 e0 [1] v0"


async def test_endpoints_change(stage: Stage) -> None:
    await opened(stage)
    broker = stage.world.brokers[2]
    mark = stage.mark()
    for changed in (broker._replace(rack="r"), broker._replace(rack="s", epoch=broker.epoch + 5)):
        stage.world.change_broker(changed)
        await stage.settle()
        assert stage.since(mark) == [], "a rack alone is ignored"
    stage.world.change_broker(broker._replace(endpoints=(Endpoint("PLAINTEXT", "elsewhere", 1, 0),), epoch=broker.epoch + 5))
    await stage.settle()
    assert stage.since(mark) == ["UMR 1:", "UMR 2:", "UMR 3:"]
    [sent] = [f.request for f in stage.world.journal[mark:] if isinstance(f, SentFrame) and f.broker == 1]
    assert [b.endpoints[0].host for b in sent.live_brokers] == ["host1", "elsewhere", "host3"]
    assert stage.cluster.brokers[2].epoch == broker.epoch, "the epoch is that of the node's creation"
    stage.world.change_broker(broker._replace(features=(("f", 1, 2),)))
    await stage.settle()
    assert len(stage.since(mark)) == 6, "watched again; features count too"
    await stage.start(4)
    mark = stage.mark()
    stage.world.change_broker(stage.world.brokers[4]._replace(endpoints=(Endpoint("PLAINTEXT", "moved", 1, 0),)))
    await stage.settle()
    assert stage.since(mark) == ["UMR 1:", "UMR 2:", "UMR 3:", "UMR 4:"], "one that came later is watched too"


# --- 6.2, 7.2: other people's writes ---


async def test_an_election_meets_another_version(stage: Stage) -> None:
    await opened(stage)
    await stage.create("u", (1, 3))
    stage.store.before_write = [lambda _: stage.somebody_writes("t", isr=(1, 2), leader_epoch=4)]
    mark = stage.mark()
    await stage.stop(1)
    assert stage.state("t") == "2 e5 [2] v2", "decided again on what was read"
    assert stage.state("u") == "3 e1 [3] v1", "written at the first try"
    assert stage.writes(mark) == ["WROTE t-0 1 e4 [1, 2] v1", "WROTE u-0 3 e1 [3] v1", "WROTE t-0 2 e5 [2] v2"]


async def test_no_candidate_is_decided_on_a_fresh_read(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    await stage.start(2)
    stage.somebody_writes("t", isr=(1, 2))  # an older leader took 2 in; the controller has not heard of it
    await stage.stop(1)
    assert stage.state("t") == "2 e2 [2] v3"


async def test_a_shrink_meets_another_version(stage: Stage) -> None:
    await opened(stage)
    stage.store.before_write = [lambda _: stage.somebody_writes("t", isr=(2, 1))]
    mark = stage.mark()
    await stage.stop(2)
    assert stage.writes(mark) == ["WROTE t-0 1 e0 [2, 1] v1", "WROTE t-0 1 e1 [1] v2"]
    assert stage.frames(mark, "LISR") == ["LISR 1: t-0 1 e1 [1] v2"]


async def test_nothing_to_shrink_is_decided_on_a_fresh_read(stage: Stage) -> None:
    await opened(stage)
    stage.somebody_writes("t", isr=(1,))
    await stage.fail_over()
    stage.somebody_writes("t", isr=(1, 2))
    await stage.stop(2)
    assert stage.state("t") == "1 e1 [1] v3"


async def test_a_member_that_is_not_in_the_isr_costs_no_write(stage: Stage) -> None:
    await opened(stage)
    stage.somebody_writes("t", isr=(1,))
    await stage.fail_over()
    mark = stage.mark()
    await stage.stop(2)
    assert stage.writes(mark) == []
    assert stage.frames(mark) == ["LISR 1: t-0 1 e0 [1] v1", "UMR 1: t-0 1 e0 [1] v1 off[2]", "UMR 3: t-0 1 e0 [1] v1 off[2]"]
    assert stage.partition("t").info == stage.world.states[TopicPartition("t", 0)]._replace(controller_epoch=2), "as if written by me"


async def test_a_state_of_a_later_controller_is_left_alone(stage: Stage) -> None:
    await opened(stage)
    stage.somebody_writes("t", controller_epoch=9)
    mark = stage.mark()
    await stage.stop(1)
    assert stage.writes(mark) == []
    assert stage.partition_state("t") == "OFFLINE", "no election"
    assert stage.replica(1, "t") == "ONLINE", "and the replica keeps its state"
    assert stage.frames(mark, "LISR") == []


async def test_a_state_that_is_gone(stage: Stage) -> None:
    await opened(stage)
    await stage.create("u", (1, 3))
    del stage.world.states[TopicPartition("t", 0)]
    mark = stage.mark()
    await stage.stop(1)
    assert stage.writes(mark) == ["WROTE u-0 3 e1 [3] v1"]
    assert stage.partition_state("t") == "OFFLINE"
    assert stage.replica(1, "t") == "ONLINE"


async def test_a_state_that_changes_all_the_time_is_given_up(stage: Stage) -> None:
    await opened(stage)
    stage.store.before_write = [lambda _: stage.somebody_writes("t")] * 300
    await stage.stop(1)
    assert stage.partition_state("t") == "OFFLINE"
    stage.store.before_write = []
    await stage.start(1)
    assert stage.partition_state("t") == "ONLINE", "the loop goes on"
