"""Taking office and giving it away (controller 3), the queue and what it answers when it is cleared (controller 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from klamm.controller.event_loop.controller_election import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS
from klamm.controller.events import catalogue as events
from klamm.controller.phases import EventPhase, FailoverLoaded, FailoverPartitionsStarted, FailoverReplicasStarted, PartitionsAppeared
from klamm.controller.values import Assignment, ControllerMoved, Election, StoredTopic, StoreLost, StoreRefused
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.steering import Hold
from klamm.tests.controller.conftest import Timer
from klamm.tests.controller.simulated_brokers import SentFrame
from klamm.tests.controller.stage import ME, Stage, isr_request

PREFERRED_GONE = "REMOVED /admin/preferred_replica_election"


# --- 3.2 ---


async def test_a_partition_led_by_a_dead_broker_is_written_twice(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await stage.close()
    stage.world.stop_broker(1)
    mark = stage.mark()
    stage.take_office()
    stage.controller.start()
    await stage.settle()
    assert stage.since(mark) == [
        "UMR 2:", "UMR 3:",
        "LISR 2: t-0 1 e0 [1, 2] v0", "UMR 2: t-0 1 e0 [1, 2] v0 off[1]", "UMR 3: t-0 1 e0 [1, 2] v0 off[1]",
        "WROTE t-0 -1 e1 [2] v1",
        "LISR 2: t-0 -1 e1 [2] v1", "UMR 2: t-0 -1 e1 [2] v1 off[1]", "UMR 3: t-0 -1 e1 [2] v1 off[1]",
        "WROTE t-0 2 e2 [2] v2",
        "LISR 2: t-0 2 e2 [2] v2", "UMR 2: t-0 2 e2 [2] v2 off[1]", "UMR 3: t-0 2 e2 [2] v2 off[1]",
        PREFERRED_GONE,
    ]
    assert stage.replica(1, "t") == "OFFLINE"
    assert stage.partition_state("t") == "ONLINE"


async def test_an_isr_that_is_all_dead_grows_older_at_every_fail_over(stage: Stage) -> None:
    await stage.open(1, 3)
    await stage.create("t", (1,))
    await stage.stop(1)
    assert stage.state("t") == "-1 e1 [1] v1"
    for n in (2, 3):
        mark = stage.mark()
        await stage.fail_over()
        assert stage.writes(mark) == [f"WROTE t-0 -1 e{n} [1] v{n}", PREFERRED_GONE]
        assert stage.partition_state("t") == "OFFLINE"


async def test_partitions_that_never_had_a_leader_get_one(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (3, 4))
    await stage.close()
    stage.world.start_broker(3)
    mark = stage.mark()
    stage.take_office()
    stage.controller.start()
    await stage.settle()
    assert stage.writes(mark) == ["WROTE t-0 3 e0 [3] v0", PREFERRED_GONE]
    assert stage.frames(mark, "LISR") == ["LISR 3: t-0 3 e0 [3] v0 new"]


async def test_unclean_leaders_may_be_elected_at_fail_over_where_the_topic_says_so(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    await stage.stop(1)
    await stage.start(2)
    assert stage.state("t") == "-1 e2 [1] v2"
    stage.world.configs["t"] = {"unclean.leader.election.enable": "true"}
    mark = stage.mark()
    await stage.fail_over()
    assert stage.writes(mark) == ["WROTE t-0 -1 e3 [1] v3", "WROTE t-0 2 e4 [2] v4 recovering", PREFERRED_GONE]


async def test_old_notifications_are_removed_unread(stage: Stage) -> None:
    stage.world.notify_isr_change([TopicPartition("t", 0)])
    stage.world.notify_log_dir(1)
    await stage.open(1)
    assert stage.since(0) == [
        "REMOVED /log_dir_event_notification/log_dir_event_0000000002",
        "REMOVED /isr_change_notification/isr_change_0000000001",
        "UMR 1:",
        PREFERRED_GONE,
    ]


async def test_topic_ids_are_back_filled(stage: Stage) -> None:
    moving = Assignment((1, 2), (2,), ())
    stage.world.topics["old"] = StoredTopic(None, {0: moving, 3: Assignment((1,))})
    stage.world.topics["new"] = StoredTopic(b"n" * 16, {0: Assignment((1,))})
    await stage.open(1)
    assert stage.world.topics["old"] == StoredTopic(bytes([7] * 16), {0: moving, 3: Assignment((1,))})
    assert [w for w in stage.writes(0) if w.startswith("TOPIC")] == ["TOPIC old {0: [1, 2], 3: [1]}"]
    sent = [f.request for f in stage.world.journal if isinstance(f, SentFrame) and f.api_key == 4]
    assert {(t.topic_name, t.topic_id) for r in sent for t in r.topic_states} == {("old", bytes([7] * 16)), ("new", b"n" * 16)}


async def test_without_topic_ids_nothing_is_back_filled(stage: Stage) -> None:
    stage.change_options(topic_ids_supported=False)
    stage.world.topics["old"] = StoredTopic(None, {0: Assignment((1,))})
    await stage.open(1)
    assert stage.world.topics["old"].topic_id is None
    assert not [w for w in stage.writes(0) if w.startswith("TOPIC")]


async def test_shutting_down_is_forgotten(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.controller.controlled_shutdown(1, -1)
    assert stage.cluster.alive == {2}
    await stage.fail_over()
    assert stage.cluster.alive == {1, 2}


async def test_brokers_are_listened_to_from_the_start(stage: Stage) -> None:
    """Every watch of the list is armed before its data is read: what comes later is an event."""
    await stage.open(1)
    assert stage.store.armed >= {
        "/controller", "/brokers/ids", "/brokers/topics", "/brokers/ids/1", "/admin/delete_topics", "/log_dir_event_notification",
        "/isr_change_notification", "/admin/preferred_replica_election",
    }


# --- 3.1, 3.3 ---


async def test_only_an_election_raises_the_epoch(stage: Stage) -> None:
    await stage.open(1)
    assert (stage.world.epoch, stage.controller.epoch, stage.controller.is_active) == (1, 1, True)
    await stage.put(events.Reelect())
    await stage.put(events.ControllerChange())
    assert (stage.world.epoch, stage.controller.is_active) == (1, True), "still in office: nothing happens"
    await stage.fail_over()
    assert stage.world.epoch == 2


async def test_somebody_is_controller_already(stage: Stage) -> None:
    stage.world.controller = (5, 5555)
    await stage.open(1)
    assert not stage.controller.is_active
    assert (stage.controller.active_id, stage.world.epoch, stage.since(0)) == (5, 0, [])
    stage.world.drop_controller()
    await stage.settle()
    assert stage.controller.is_active and stage.world.epoch == 1


async def test_a_leftover_of_my_own_earlier_session_is_ended_first(stage: Stage) -> None:
    stage.world.controller = (ME, 5555)
    await stage.open(1)
    assert stage.controller.is_active and stage.controller.term is not None
    assert (stage.world.epoch, stage.world.controller) == (1, (ME, stage.store.session))


async def test_resigns_when_another_one_is_named(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.world.steal(77)
    await stage.settle()
    assert not stage.controller.is_active
    assert (stage.controller.active_id, stage.controller.term, stage.controller.epoch) == (77, None, 0)
    assert stage.channels.open == set(), "all senders are closed"
    mark = stage.mark()
    await stage.stop(1)
    assert stage.since(mark) == []
    stage.world.drop_controller()
    await stage.settle()
    assert stage.controller.is_active and stage.controller.epoch == 3


async def test_a_failed_epoch_check_alone_does_not_resign(stage: Stage) -> None:
    """While `/controller` names me I am the controller, though every write fails."""
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.world.epoch_version += 1
    mark = stage.mark()
    await stage.stop(1)
    assert stage.controller.is_active and stage.controller.term is not None
    assert stage.writes(mark) == []
    stage.world.drop_controller()
    await stage.settle()
    assert stage.controller.is_active
    assert stage.state("t") == "2 e2 [2] v2"


async def test_the_batch_of_a_failed_write_is_dropped(stage: Stage) -> None:
    """What was put in a batch before a fenced write failed is never sent, and does not stop later batches."""
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    stage.world.delete_topic("t")
    stage.store.before_write = [stage.lose_epoch]
    mark = stage.mark()
    await stage.settle()
    assert not stage.controller.is_active
    assert stage.frames(mark, "SR") == []
    stage.world.drop_controller()
    await stage.settle()
    assert "t" not in stage.world.topics, "the deletion goes through in the next term"


async def test_the_batch_of_an_election_that_fails_is_dropped_too(stage: Stage) -> None:
    await stage.open(1, 4)
    await stage.create("led", (4, 1))
    stage.somebody_writes("led", isr=(4,))
    await stage.fail_over()
    await stage.stop(4)
    await stage.create("new", (4,))
    assert [p.topic.name for p in stage.cluster.not_online()] == ["led", "new"]
    stage.store.before_write = [stage.lose_epoch]
    mark = stage.mark()
    await stage.start(4)
    assert stage.writes(mark) == ["WROTE new-0 4 e0 [4] v0"]
    assert not [text for text in stage.frames(mark) if "new" in text], "not told by a controller that has lost its epoch meanwhile"


async def test_a_replica_that_cannot_go_offline_is_ineligible_for_deletion(stage: Stage) -> None:
    """The safe first state of a replica that is not online at fail-over."""
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    stage.somebody_writes("t", controller_epoch=9)
    await stage.fail_over()
    assert (stage.replica(1, "t"), stage.replica(2, "t")) == ("ONLINE", "DELETION_INELIGIBLE")


@pytest.mark.parametrize("phase", [FailoverLoaded, FailoverReplicasStarted, FailoverPartitionsStarted])
@pytest.mark.parametrize("fault", [RuntimeError("a fault of ours"), StoreRefused("ZooKeeper error -102"), ControllerMoved("raised")])
async def test_whatever_fails_while_taking_office_gives_it_away(
    stage: Stage, timers: list[Timer], phase: type[EventPhase], fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing acts on a half-loaded cluster; the office is free at once, and this broker takes part in an election again a little later."""
    hold = stage.steering.hold(phase)
    await stage.open(1)
    hold.fail(fault)
    hold.release()
    await stage.settle()
    assert (stage.controller.is_active, stage.controller.term, stage.world.controller) == (False, None, None)
    assert stage.channels.open == set()
    (retry,) = timers
    retry.fire()
    await stage.settle()
    assert stage.world.epoch == 2, "resigned, `/controller` deleted, elected again"
    traces = [record for record in caplog.records if record.exc_info]
    assert len(traces) == isinstance(fault, RuntimeError), "what is no fault of ours is a line"
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1 + len(traces)
    assert stage.controller.is_active and stage.controller.epoch == 2
    assert stage.world.controller == (ME, stage.store.session)


async def test_a_fail_over_that_always_fails_is_tried_ever_more_seldom(stage: Stage, timers: list[Timer]) -> None:
    """One election each time the broker's timer fires, and none in between, however often others resign."""

    async def refuse(names: Any) -> Any:
        raise StoreRefused("ZooKeeper error -102")

    read, stage.store.read_topics = stage.store.read_topics, refuse  # type: ignore[method-assign]
    stage.world.create_topic("t", {0: (1,)}, b"t" * 16)
    await stage.open(1)
    for epoch in range(1, 11):
        assert (stage.world.epoch, len(timers), stage.controller.is_active) == (epoch, epoch, False)
        stage.world.steal(77)
        stage.world.drop_controller()
        stage.world.epoch -= 1
        await stage.settle()
        timers[-1].fire()
        await stage.settle()
    delays = [timer.delay_s for timer in timers]
    assert delays[:3] == [FIRST_RETRY_SECONDS, 2 * FIRST_RETRY_SECONDS, 4 * FIRST_RETRY_SECONDS]
    assert delays[-3:] == [LAST_RETRY_SECONDS] * 3
    stage.store.read_topics = read  # type: ignore[method-assign]
    timers[-1].fire()
    await stage.settle()
    assert stage.controller.is_active and stage.state("t") == "1 e0 [1] v0"


async def test_an_election_that_cannot_be_held_is_tried_again(stage: Stage, timers: list[Timer], caplog: pytest.LogCaptureFixture) -> None:
    stage.world.spoilt.add("/controller_epoch")
    await stage.open(1)
    timers[0].fire()
    await stage.settle()
    assert (stage.controller.is_active, len(timers)) == (False, 2)
    assert [record.exc_info for record in caplog.records if record.levelname == "ERROR"] == [None, None]
    stage.world.spoilt.clear()
    timers[1].fire()
    await stage.settle()
    assert stage.controller.is_active and stage.world.epoch == 1


async def test_a_session_that_ends_while_taking_office_leaves_no_term(stage: Stage, timers: list[Timer]) -> None:
    hold = stage.steering.hold(FailoverLoaded)
    await stage.open(1)
    hold.fail(StoreLost("the session is over"))
    await stage.settle()
    assert (stage.controller.is_active, stage.controller.term, stage.channels.open) == (False, None, set())
    await stage.controller.expire()
    assert [timer.handle.cancelled() for timer in timers] == [True], "the next session begins with an election"


async def test_a_session_that_is_not_over_after_all_gets_its_controller_back(stage: Stage, timers: list[Timer]) -> None:
    hold = stage.steering.hold(FailoverLoaded)
    await stage.open(1)
    hold.fail(StoreLost("a mistake"))
    hold.release()
    await stage.settle()
    assert stage.world.controller is not None and not stage.controller.is_active
    timers[0].fire()
    await stage.settle()
    assert stage.controller.is_active and stage.world.epoch == 2


async def test_a_lost_epoch_and_a_controller_that_cannot_be_read_leave_no_term(stage: Stage, timers: list[Timer]) -> None:
    """Both while the cluster is loaded: nothing may act on the half of it."""
    hold = stage.steering.hold(FailoverLoaded)
    await stage.open(1)

    async def refuse() -> Any:
        raise StoreRefused("ZooKeeper error -102")

    read, stage.store.controller_id = stage.store.controller_id, refuse  # type: ignore[method-assign]
    hold.fail(ControllerMoved("raised"))
    hold.release()
    await stage.settle()
    assert (stage.controller.is_active, stage.controller.term, stage.channels.open) == (False, None, set())
    stage.store.controller_id = read  # type: ignore[method-assign]
    timers[0].fire()
    await stage.settle()
    assert stage.controller.is_active and stage.world.epoch == 2


@pytest.mark.parametrize("fault", [StoreRefused("ZooKeeper error -102"), RuntimeError("a fault of ours")])
async def test_a_broker_that_cannot_read_who_is_the_controller_looks_again(stage: Stage, timers: list[Timer], fault: Exception) -> None:
    async def refuse() -> Any:
        raise fault

    read, stage.store.controller_id = stage.store.controller_id, refuse  # type: ignore[method-assign]
    await stage.open(1)
    assert not stage.controller.is_active
    stage.store.controller_id = read  # type: ignore[method-assign]
    (retry,) = timers
    retry.fire()
    await stage.settle()
    assert stage.controller.is_active


async def test_a_load_that_fails_waits_for_the_others(stage: Stage, timers: list[Timer]) -> None:
    """The ids that it gives to topics without one are written in its own term."""
    for number in range(60):
        stage.world.create_topic(f"t{number:02}", {0: (1,)}, None)
    read, going = stage.store.read_topics, asyncio.Event()

    async def read_topics(names: Any) -> Any:
        if "t00" in names:
            raise StoreRefused("ZooKeeper error -102")
        await going.wait()
        return await read(names)

    stage.store.read_topics = read_topics  # type: ignore[method-assign]
    await stage.open(1)
    assert stage.world.controller is not None and timers == [], "the term goes on until each of its reads has ended"
    going.set()
    await stage.settle()
    assert stage.world.controller is None and len(timers) == 1
    assert {topic.topic_id is None for topic in stage.world.topics.values()} == {True, False}, "the first fifty could not be read"


async def test_another_fault_is_the_end_of_its_event_only(stage: Stage) -> None:
    await stage.open(1, 2)
    read, reads = stage.store.brokers, [1]

    async def fail_once() -> Any:
        if reads:
            reads.clear()
            raise RuntimeError("a fault of ours")
        return await read()

    stage.store.brokers = fail_once  # type: ignore[method-assign]
    stage.store.armed.discard("/brokers/ids")
    await stage.put(events.BrokerChange())
    assert stage.controller.is_active
    stage.world.start_broker(4)
    await stage.put(events.BrokerChange())
    assert set(stage.cluster.brokers) == {1, 2, 4}


async def test_expired_and_back(stage: Stage) -> None:
    await stage.open(1, 2)
    registered: list[int] = []

    async def register() -> None:
        registered.append(stage.world.epoch)

    stage.controller.election._register_broker = register
    writes = len(stage.writes(0))
    stage.world.controller = None  # the ephemeral went with the session; nobody is told, the watches went too
    stage.store.armed.clear()
    await stage.controller.expire()
    await stage.settle()
    assert (stage.controller.active_id, stage.controller.term, stage.channels.open) == (-1, None, set())
    assert len(stage.writes(0)) == writes, "nothing is written"
    assert stage.world.epoch == 1
    stage.controller.new_session()
    await stage.settle()
    assert registered == [1], "registered before the election"
    assert stage.controller.is_active and stage.world.epoch == 2


# --- 2: preemption ---


async def held(stage: Stage) -> Hold[PartitionsAppeared]:
    """The controller is kept busy, what comes now waits in the queue."""
    hold = stage.steering.hold(PartitionsAppeared)
    stage.world.create_topic("slow", {0: (1,)}, b"s" * 16)
    await hold.reached()
    return hold


def ask_everything(stage: Stage) -> dict[str, asyncio.Future[Any]]:
    c = stage.controller
    asked = {
        "elect": c.elect_leaders([TopicPartition("slow", 0)], Election.PREFERRED),
        "shutdown": c.controlled_shutdown(1, -1),
        "alter": c.alter_partition(messages.AlterPartitionRequest(broker_id=1), 3),
        "allocate": c.allocate_producer_ids(1, stage.world.brokers[1].epoch),
    }
    return {name: asyncio.ensure_future(work) for name, work in asked.items()}


async def refusals(asked: Mapping[str, asyncio.Future[Any]]) -> dict[str, ErrorCode]:
    results = await asyncio.gather(*asked.values(), return_exceptions=True)
    assert all(isinstance(r, ApiError) for r in results), results
    return {name: r.code for name, r in zip(asked, results, strict=True) if isinstance(r, ApiError)}


PREEMPTED = {
    "elect": ErrorCode.NOT_CONTROLLER,
    "shutdown": ErrorCode.STALE_CONTROLLER_EPOCH,
    "alter": ErrorCode.NOT_CONTROLLER,
    "allocate": ErrorCode.NOT_CONTROLLER,
}


async def test_what_waits_when_the_session_expires_is_preempted(stage: Stage) -> None:
    await stage.open(1, 2)
    hold = await held(stage)
    mark = stage.mark()
    asked = ask_everything(stage)
    await stage.settle()
    assert not any(a.done() for a in asked.values())
    expiring = asyncio.ensure_future(stage.controller.expire())
    assert await refusals(asked) == PREEMPTED, "at once, though an event is still being handled"
    assert not expiring.done(), "Expire waits for it"
    hold.release()
    await expiring
    await stage.settle()
    assert stage.controller.term is None
    assert stage.writes(mark) == ["WROTE slow-0 1 e0 [1] v0"], "none of them was processed"


async def test_what_waits_at_the_end_is_preempted(stage: Stage) -> None:
    await stage.open(1, 2)
    await held(stage)
    asked = ask_everything(stage)
    await stage.settle()
    await stage.controller.close()
    assert await refusals(asked) == PREEMPTED


async def test_what_is_asked_of_one_that_is_not_active(stage: Stage) -> None:
    stage.world.controller = (5, 5555)
    await stage.open(1)
    assert await refusals(ask_everything(stage)) == PREEMPTED


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (StoreLost("the session is over"), ErrorCode.NOT_CONTROLLER),
        (StoreRefused("ZooKeeper error -102"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ControllerMoved("another one"), ErrorCode.NOT_CONTROLLER),
        (ApiError(ErrorCode.INVALID_REQUEST), ErrorCode.INVALID_REQUEST),
        (RuntimeError("a fault of ours"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_alter_partitions_that_are_handled_together_are_all_answered_when_one_fails(
    stage: Stage, problem: Exception, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    await stage.create("u", (1, 2, 3))

    def fail(writes: Any) -> None:
        raise problem

    stage.store.before_write = [fail]
    epoch = stage.world.brokers[1].epoch
    bodies = [isr_request(1, epoch, name.encode().ljust(16, b"\1"), 0, 0, 0, [1, 2]) for name in ("t", "u", "t")]
    caplog.clear()
    asked = {str(i): asyncio.ensure_future(stage.controller.alter_partition(body, 2)) for i, body in enumerate(bodies)}
    assert await refusals(asked) == dict.fromkeys(asked, code)
    assert bool([record for record in caplog.records if record.exc_info]) == isinstance(problem, RuntimeError)


async def test_a_lost_epoch_is_answered_as_preempted(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    stage.store.before_write = [stage.lose_epoch]
    with pytest.raises(ApiError) as e:
        await stage.controller.controlled_shutdown(1, -1)
    assert e.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert not stage.controller.is_active
    stage.world.drop_controller()
    await stage.settle()
    await stage.stop(2)
    await stage.stop(1)
    await stage.start(2)
    assert stage.state("t") == "-1 e2 [1] v2"
    stage.store.before_write = [stage.lose_epoch]
    with pytest.raises(ApiError) as e:
        await stage.controller.elect_leaders([TopicPartition("t", 0)], Election.UNCLEAN)
    assert e.value.code is ErrorCode.NOT_CONTROLLER
    assert not stage.controller.is_active


async def test_a_fault_is_answered_too(stage: Stage) -> None:
    await stage.open(1, 2)

    async def fail(broker_id: int) -> tuple[int, int]:
        raise RuntimeError("a fault of ours")

    stage.store.allocate_producer_ids = fail  # type: ignore[method-assign]
    with pytest.raises(ApiError) as e:
        await stage.controller.allocate_producer_ids(1, stage.world.brokers[1].epoch)
    assert e.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert stage.controller.is_active


# --- AllocateProducerIds (14) ---


async def test_allocate_producer_ids(stage: Stage) -> None:
    await stage.open(1, 2)
    c, epoch = stage.controller, stage.world.brokers[1].epoch
    assert await c.allocate_producer_ids(1, epoch) == (0, 1000)
    assert await c.allocate_producer_ids(2, stage.world.brokers[2].epoch) == (1000, 1000)
    for broker_id, broker_epoch, code in (
        (9, epoch, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (1, epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
        (1, epoch + 1, ErrorCode.STALE_BROKER_EPOCH),
        (1, -1, ErrorCode.STALE_BROKER_EPOCH),
    ):
        with pytest.raises(ApiError) as e:
            await c.allocate_producer_ids(broker_id, broker_epoch)
        assert e.value.code is code
    assert await c.allocate_producer_ids(1, epoch) == (2000, 1000)


async def test_partitions_added_while_their_topic_gets_an_id_are_kept(stage: Stage) -> None:
    stage.world.topics["old"] = StoredTopic(None, {0: Assignment((1,))})
    write = stage.store.write_topics

    async def grown_before(writes: Any) -> Any:
        stage.store.write_topics = write  # type: ignore[method-assign]
        stage.world.grow_topic("old", {1: (1,)})
        return await write(writes)

    stage.store.write_topics = grown_before  # type: ignore[method-assign]
    await stage.open(1)
    stored = stage.world.topics["old"]
    assert stored.topic_id is not None and set(stored.assignments) == {0, 1}
    assert stage.cluster.topics["old"].id == stored.topic_id and set(stage.cluster.topics["old"].partitions) == {0, 1}
