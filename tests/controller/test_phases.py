"""Every phase of the controller is held, stepped and crashed; what a held phase stops, and what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, get_args

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.phases import (
    BrokersFailed,
    BrokersStarted,
    BrokerStatesStored,
    BrokerThrottlesRemoved,
    BrokerThrottlesSet,
    ControllerElectionDue,
    DeletionPhase,
    DeletionPropagated,
    DeletionQueued,
    DeletionReplicasDeleted,
    DeletionReplicasStopped,
    EventPhase,
    FailoverBegun,
    FailoverDone,
    FailoverLoaded,
    FailoverPartitionsStarted,
    FailoverReplicasStarted,
    IsrsAltered,
    LeadersElected,
    PartitionsAppeared,
    Phase,
    PreferredLeadersElected,
    ReassignmentCaughtUp,
    ReassignmentCompletionStored,
    ReassignmentEpochRaised,
    ReassignmentForgotten,
    ReassignmentLeaderMoved,
    ReassignmentPhase,
    ReassignmentReplicasDeleted,
    ReassignmentReplicasOnline,
    ReassignmentReplicasStarted,
    ReassignmentReplicasStopped,
    ReassignmentsRecorded,
    ReassignmentTargetStored,
    ShutdownLeadersMoved,
    ThrottledBrokersRecorded,
    ThrottledTopicsRecorded,
    ThrottlePhase,
    TopicThrottlesRemoved,
    TopicThrottlesSet,
)
from klamm.controller.values import BrokerState, Election, ElectionResult
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.steering import Hold, Steering
from klamm.tests.controller.stage import ME, Stage, isr_request

EVENT_PHASES: tuple[type[EventPhase], ...] = get_args(EventPhase)
DELETION_PHASES: tuple[type[DeletionPhase], ...] = get_args(DeletionPhase)
REASSIGNMENT_PHASES: tuple[type[ReassignmentPhase], ...] = get_args(ReassignmentPhase)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def opened() -> Stage:
    """Three brokers and two topics."""
    stage = Stage()
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3), (2, 3))
    await stage.create("u", (3, 1))
    return stage


async def fail_over_without_broker_1(stage: Stage) -> None:
    await stage.close()
    stage.world.stop_broker(1)
    stage.take_office()
    stage.controller.start()
    await stage.settle()


async def start_broker_1(stage: Stage) -> None:
    await stage.start(1)


async def stop_broker_1(stage: Stage) -> None:
    await stage.stop(1)


async def register_a_broker(stage: Stage) -> None:
    await in_background(stage, stage.register(9))


async def create_a_topic(stage: Stage) -> None:
    await stage.create("new", (1, 2), (2, 3))


async def ask_for_preferred_leaders(stage: Stage) -> None:
    stage.world.ask_preferred([T0])
    await stage.settle()


async def shut_broker_1_down(stage: Stage) -> None:
    await in_background(stage, stage.controller.controlled_shutdown(1, -1))


async def alter_an_isr(stage: Stage) -> None:
    broker_epoch, topic_id = stage.world.brokers[1].epoch, b"t".ljust(16, b"\1")
    await in_background(stage, stage.controller.alter_partition(isr_request(1, broker_epoch, topic_id, 0, 0, 0, [1, 2]), 2))


async def delete_a_topic(stage: Stage) -> None:
    stage.world.delete_topic("t")
    await stage.settle()


async def add_a_replica(stage: Stage) -> None:
    """It waits until broker 2 is in sync."""
    await in_background(stage, stage.controller.alter_reassignments({TopicPartition("u", 0): (3, 1, 2)}))


async def remove_the_leader(stage: Stage) -> None:
    """The rest of the replicas is in sync: it is complete at once."""
    await in_background(stage, stage.controller.alter_reassignments({T0: (2, 3)}))


async def move_with_a_throttle(stage: Stage) -> None:
    """As `remove_the_leader`, with throttles that the controller removes at the end."""
    await in_background(stage, stage.controller.reassign_partitions({T0: (2, 3)}, 5000))


async def throttle_broker_1(stage: Stage) -> None:
    await in_background(stage, stage.controller.alter_throttled_rates({1: (5000, 6000)}))


async def throttle_broker_2(stage: Stage) -> None:
    await in_background(stage, stage.controller.alter_throttled_rates({2: (5000, 6000)}))


async def throttle_topic_t(stage: Stage) -> None:
    await in_background(stage, stage.controller.alter_throttled_replicas({T0: ((1,), (2,))}))


async def throttle_topic_u(stage: Stage) -> None:
    await in_background(stage, stage.controller.alter_throttled_replicas({TopicPartition("u", 0): (None, ())}))


async def in_background(stage: Stage, request: Awaitable[Any]) -> None:
    """Somebody's request; he may be told that another controller has to do it."""
    task = asyncio.ensure_future(request)
    task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    await stage.settle()


async def nothing(stage: Stage) -> None:
    """All is as `opened` left it."""


async def led_by_another(stage: Stage) -> None:
    """The preferred leader of t-0 does not lead it."""
    stage.somebody_writes("t", leader=2, leader_epoch=1)
    stage.world.notify_isr_change([T0])
    await stage.settle()


class Scene(NamedTuple):
    """How a controller comes to a phase: `act`, after `prepare`. `again`: who asked for it asks the next controller too."""

    phase: Phase
    act: Callable[[Stage], Awaitable[None]]
    prepare: Callable[[Stage], Awaitable[None]] = nothing
    again: bool = False


SCENES = [
    Scene(ControllerElectionDue(ME), fail_over_without_broker_1),
    Scene(FailoverBegun(2, ME), fail_over_without_broker_1),
    Scene(FailoverLoaded(2, ME), fail_over_without_broker_1),
    Scene(FailoverReplicasStarted(2, ME), fail_over_without_broker_1),
    Scene(FailoverPartitionsStarted(2, ME), fail_over_without_broker_1),
    Scene(FailoverDone(2, ME), fail_over_without_broker_1),
    Scene(BrokersStarted(1, (1,)), start_broker_1, prepare=stop_broker_1),
    Scene(BrokersFailed(1, (1,)), stop_broker_1),
    Scene(LeadersElected(1, (1,)), stop_broker_1),
    Scene(BrokerStatesStored(1, (9,), BrokerState.FENCED), register_a_broker, again=True),
    Scene(PartitionsAppeared(1, (TopicPartition("new", 0), TopicPartition("new", 1))), create_a_topic),
    Scene(PreferredLeadersElected(1, (T0,)), ask_for_preferred_leaders, prepare=led_by_another),
    Scene(ShutdownLeadersMoved(1, 1), shut_broker_1_down, again=True),
    Scene(IsrsAltered(1, (T0,)), alter_an_isr),
    Scene(DeletionQueued(1, "t"), delete_a_topic),
    Scene(DeletionPropagated(1, "t"), delete_a_topic),
    Scene(DeletionReplicasStopped(1, "t"), delete_a_topic),
    Scene(DeletionReplicasDeleted(1, "t"), delete_a_topic),
    Scene(ReassignmentTargetStored(1, "u", 0), add_a_replica),
    Scene(ReassignmentEpochRaised(1, "u", 0), add_a_replica),
    Scene(ReassignmentReplicasStarted(1, "u", 0), add_a_replica),
    Scene(ReassignmentCaughtUp(1, "t", 0), remove_the_leader),
    Scene(ReassignmentReplicasOnline(1, "t", 0), remove_the_leader),
    Scene(ReassignmentLeaderMoved(1, "t", 0), remove_the_leader),
    Scene(ReassignmentReplicasStopped(1, "t", 0), remove_the_leader),
    Scene(ReassignmentReplicasDeleted(1, "t", 0), remove_the_leader),
    Scene(ReassignmentCompletionStored(1, "t", 0), remove_the_leader),
    Scene(ReassignmentForgotten(1, "t", 0), remove_the_leader),
    Scene(ThrottledTopicsRecorded(1, 1, ("t",)), move_with_a_throttle, again=True),
    Scene(TopicThrottlesSet(1, 1, "t"), move_with_a_throttle, again=True),
    Scene(ThrottledBrokersRecorded(1, 1, (1, 2, 3)), move_with_a_throttle, again=True),
    Scene(ReassignmentsRecorded(1, 1, (T0,)), move_with_a_throttle),
    Scene(BrokerThrottlesSet(1, 1, 1), throttle_broker_1, again=True),
    Scene(BrokerThrottlesRemoved(1, 2, 2), throttle_broker_1, prepare=throttle_broker_2, again=True),
    Scene(TopicThrottlesRemoved(1, 2, "u"), throttle_topic_t, prepare=throttle_topic_u, again=True),
]

scenes = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: type(scene.phase).__name__)


def test_every_phase_is_tested() -> None:
    assert {type(scene.phase) for scene in SCENES} == set(get_args(Phase))
    assert set(get_args(Phase)) == {*EVENT_PHASES, *DELETION_PHASES, *REASSIGNMENT_PHASES, *get_args(ThrottlePhase)}


@pytest.fixture
async def stages() -> AsyncIterator[list[Stage]]:
    found: list[Stage] = []
    yield found
    for one in found:
        await one.close()


async def set_up(stages: list[Stage], scene: Scene) -> Stage:
    stage = await opened()
    stages.append(stage)
    await scene.prepare(stage)
    return stage


def outcome(stage: Stage) -> dict[str, Any]:
    """What ZooKeeper holds, without epochs: they say how often something was tried."""
    world = stage.world
    return {
        "topics": {name: stored.assignments for name, stored in sorted(world.topics.items())},
        "states": {str(key): (state.leader, state.isr) for key, state in sorted(world.states.items())},
        "deletions": sorted(world.deletions),
        "preferred": world.preferred,
        "reassignments": world.reassignments,
        "throttles": {name: config for name, config in sorted((*world.configs.items(), *world.broker_configs.items())) if config},
        "throttles to be removed": (world.throttled_topics, world.throttled_brokers),
    }


async def undisturbed(stages: list[Stage], scene: Scene) -> Stage:
    stage = await set_up(stages, scene)
    await scene.act(stage)
    return stage


@scenes
async def test_a_held_phase_goes_on_as_if_it_had_not_been_held(stages: list[Stage], scene: Scene) -> None:
    free = await undisturbed(stages, scene)
    stage = await set_up(stages, scene)
    hold = stage.steering.hold(type(scene.phase))
    await scene.act(stage)
    assert hold.held == [scene.phase]
    assert hold.step() == scene.phase
    await stage.settle()
    assert hold.held == []
    assert stage.since(0) == free.since(0), "the same writes and the same requests in the same order"
    assert stage.controller.is_active


@scenes
async def test_inside_an_event_the_queue_waits_between_events_it_does_not(stages: list[Stage], scene: Scene) -> None:
    stage = await set_up(stages, scene)
    hold = stage.steering.hold(type(scene.phase))
    await scene.act(stage)
    mark = stage.mark()
    stage.world.create_topic("other", {0: (2,)}, b"other".ljust(16, b"\1"))
    await stage.settle()
    if isinstance(scene.phase, EventPhase):
        assert stage.since(mark) == []
        hold.release()
        await stage.settle()
    else:
        assert hold.held == [scene.phase]
    assert "WROTE other-0 2 e0 [2] v0" in stage.writes(mark)


@scenes
async def test_another_controller_ends_what_was_held_when_a_controller_crashed(stages: list[Stage], scene: Scene) -> None:
    free = await undisturbed(stages, scene)
    stage = await set_up(stages, scene)
    hold = stage.steering.hold(type(scene.phase))
    await scene.act(stage)
    assert hold.held == [scene.phase]
    await stage.close()
    assert hold.held == [], "with the controller its phase is gone"
    hold.release()
    await stage.fail_over()
    if scene.again:
        await scene.act(stage)
    assert outcome(stage) == outcome(free)
    assert stage.controller.is_active and stage.controller.epoch == stage.world.epoch


@pytest.mark.parametrize("scene", [scene for scene in SCENES if isinstance(scene.phase, EventPhase)], ids=lambda s: type(s.phase).__name__)
async def test_a_fault_at_a_phase_ends_its_event_only(stages: list[Stage], scene: Scene) -> None:
    """While failing over it gives `/controller` back, as every fault does; the next election succeeds."""
    stage = await set_up(stages, scene)
    hold = stage.steering.hold(type(scene.phase))
    await scene.act(stage)
    hold.fail(RuntimeError("a fault of ours"))
    hold.release()
    await stage.settle()
    if not stage.controller.is_active:
        stage.controller.election.close()  # no retry timer
        await stage.fail_over()
    await stage.create("other", (2,))
    assert stage.state("other") == "2 e0 [2] v0"


async def test_a_session_that_expires_ends_a_held_deletion(stages: list[Stage]) -> None:
    stage = await undisturbed(stages, Scene(DeletionQueued(1, "t"), nothing))
    hold = stage.steering.hold(DeletionPropagated)
    await delete_a_topic(stage)
    await stage.controller.expire()
    await stage.settle()
    assert hold.held == []


# --- a held deletion ---


def vanish(stage: Stage, name: str) -> None:
    """Somebody removes a topic and the request for its deletion from ZooKeeper by hand."""
    del stage.world.topics[name], stage.world.deletions[name]
    stage.controller.put(events.TopicChange())


async def on_with_everything_else(stage: Stage) -> None:
    """Topics are created, elected, shrunk, grown and deleted, brokers die and return; each is done with at once."""
    alter, elect = stage.controller.alter_partition, stage.controller.elect_leaders
    await stage.create("new", (2, 3), (1, 2))
    assert [stage.state("new", i) for i in (0, 1)] == ["2 e0 [2, 3] v0", "1 e0 [1, 2] v0"]
    response = await alter(isr_request(2, stage.world.brokers[2].epoch, b"new".ljust(16, b"\1"), 0, 0, 0, [2]), 2)
    assert [p.error_code for t in response.topics for p in t.partitions] == [0]
    assert stage.state("new") == "2 e0 [2] v1"
    stage.world.grow_topic("new", {2: (3,)})
    await stage.settle()
    assert stage.state("new", 2) == "3 e0 [3] v0"
    await stage.stop(3)
    assert stage.state("u") == "1 e1 [1] v1", "another leader, and a smaller ISR"
    await stage.start(3)
    response = await alter(isr_request(1, stage.world.brokers[1].epoch, b"u".ljust(16, b"\1"), 0, 1, 1, [1, 3]), 2)
    assert [p.error_code for t in response.topics for p in t.partitions] == [0]
    assert await elect([TopicPartition("u", 0)], Election.PREFERRED) == {TopicPartition("u", 0): ElectionResult(ErrorCode.NONE, None, 3)}
    await stage.create("short", (1, 2, 3))
    stage.world.delete_topic("short")
    await stage.settle()
    assert "short" not in stage.world.topics and not stage.controller.queued_for_deletion("short")


@pytest.mark.parametrize("kind", DELETION_PHASES)
async def test_everything_else_goes_on_while_a_deletion_is_held(stages: list[Stage], kind: type[DeletionPhase]) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(kind, where={"topic": "t"})
    await delete_a_topic(stage)
    assert hold.held == [kind(1, "t")]
    await on_with_everything_else(stage)
    assert hold.held == [kind(1, "t")] and stage.controller.queued_for_deletion("t")
    assert set(stage.world.topics) == {"new", "t", "u"}
    hold.release()
    await stage.settle()
    assert set(stage.world.topics) == set(stage.cluster.topics) == {"new", "u"}
    assert not stage.world.deletions and not stage.cluster.deletions


@pytest.mark.parametrize("kind", DELETION_PHASES)
async def test_everything_else_goes_on_while_a_deletion_is_held_and_its_controller_crashes(
    stages: list[Stage], kind: type[DeletionPhase]
) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(kind, where={"topic": "t"})
    await delete_a_topic(stage)
    assert hold.held == [kind(1, "t")]
    await stage.fail_over()
    assert hold.held == [kind(2, "t")], "the next controller comes to the same phase"
    await on_with_everything_else(stage)
    assert hold.held == [kind(2, "t")]
    hold.release()
    await stage.settle()
    assert set(stage.world.topics) == set(stage.cluster.topics) == {"new", "u"}
    assert not stage.world.deletions and not stage.cluster.deletions


async def test_a_deletion_is_stepped_from_its_beginning_to_its_end(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(*DELETION_PHASES)
    seen: list[tuple[str, set[str]]] = []
    mark = stage.mark()
    await delete_a_topic(stage)
    while hold.held:
        seen.append((type(hold.step()).__name__, {line.split(" ")[0] for line in stage.since(mark)}))
        mark = stage.mark()
        await stage.settle()
    assert seen == [
        ("DeletionQueued", set()),
        ("DeletionPropagated", {"UMR"}),
        ("DeletionReplicasStopped", {"WROTE", "SR"}),
        ("DeletionReplicasDeleted", {"SR"}),
    ]
    assert {line.split(" ")[0] for line in stage.since(mark)} == {"REMOVED"}
    assert "t" not in stage.world.topics


async def test_of_two_topics_one_is_held_and_the_other_deleted(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(DeletionReplicasStopped, where={"topic": "t"})
    stage.world.delete_topic("t")
    stage.world.delete_topic("u")
    await stage.settle()
    assert set(stage.world.topics) == {"t"} and hold.held == [DeletionReplicasStopped(1, "t")]
    assert not [line for line in stage.frames(0, "SR") if "t-" in line and "delete" in line]


@pytest.mark.parametrize("kind", DELETION_PHASES)
async def test_growth_of_a_topic_whose_deletion_is_held_is_taken_back(stages: list[Stage], kind: type[DeletionPhase]) -> None:
    """The other partitions of the topic are not held either: what is due for them is done."""
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(kind)
    await delete_a_topic(stage)
    stage.world.grow_topic("t", {2: (3,)})
    await stage.settle()
    assert sorted(stage.world.topics["t"].assignments) == [0, 1]
    hold.release()
    await stage.settle()
    assert "t" not in stage.world.topics


@pytest.mark.parametrize("kind", DELETION_PHASES)
@pytest.mark.parametrize("back", ["while it is held", "after its release"])
async def test_a_broker_that_dies_while_a_deletion_is_held_is_waited_for(
    stages: list[Stage], kind: type[DeletionPhase], back: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(kind)
    await delete_a_topic(stage)
    await stage.stop(2)
    if kind is DeletionReplicasDeleted:
        assert hold.held, "all replicas are deleted: the dead broker has none"
    if back == "while it is held":
        await stage.start(2)
    caplog.clear()
    hold.release()
    await stage.settle()
    if back == "after its release":
        assert ("t" in stage.world.topics) == (kind is not DeletionReplicasDeleted)
        await stage.start(2)
    assert "t" not in stage.world.topics and not stage.cluster.deletions
    if kind is not DeletionReplicasDeleted:
        assert not [record for record in caplog.records if record.levelname == "ERROR"], "every move of a replica is a legal one"


async def test_a_topic_that_vanishes_while_its_deletion_is_held_leaves_nothing_behind(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(DeletionQueued)
    await delete_a_topic(stage)
    vanish(stage, "t")
    await stage.settle()
    assert hold.held == [] and not stage.cluster.deletions
    stage.world.create_topic("t", {0: (2,)}, b"another id......")
    await stage.settle()
    assert stage.state("t") == "2 e0 [2] v0"


async def test_a_release_that_waits_behind_the_end_of_its_deletion_is_ignored(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(DeletionQueued)
    await delete_a_topic(stage)
    busy = stage.steering.hold(PartitionsAppeared)
    stage.world.create_topic("slow", {0: (1,)}, b"s" * 16)
    await busy.reached()
    vanish(stage, "t")
    await asyncio.sleep(0)
    hold.step()
    mark = stage.mark()
    busy.release()
    await stage.settle()
    assert "t" not in stage.cluster.topics and not stage.cluster.deletions
    assert stage.writes(mark) == ["WROTE slow-0 1 e0 [1] v0"] and not stage.frames(mark, "SR")


# --- the interface ---


async def test_a_hold_waits_for_what_it_wants(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(PartitionsAppeared, where={"partitions": TopicPartition("b", 0)})
    reached = asyncio.ensure_future(hold.reached())
    await stage.create("a", (1,))
    assert not reached.done() and stage.state("a") == "1 e0 [1] v0"
    stage.world.create_topic("b", {0: (1,)}, b"b" * 16)
    assert await reached == PartitionsAppeared(1, (TopicPartition("b", 0),))


async def test_the_first_of_two_holds_gets_the_phase(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    first, second = stage.steering.hold(DeletionQueued), stage.steering.hold(DeletionQueued, DeletionPropagated)
    await delete_a_topic(stage)
    assert (first.held, second.held) == ([DeletionQueued(1, "t")], [])
    first.step()
    await stage.settle()
    assert second.held == [DeletionPropagated(1, "t")]
    stage.steering.release()
    await stage.settle()
    assert "t" not in stage.world.topics and not stage.steering.holds


async def test_nothing_held_cannot_be_stepped_and_a_procedure_cannot_fail(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    hold: Hold[DeletionQueued] = stage.steering.hold(DeletionQueued)
    with pytest.raises(IndexError):
        hold.step()
    await delete_a_topic(stage)
    with pytest.raises(ValueError, match="cannot fail"):
        hold.fail(RuntimeError())
    assert hold.held == [DeletionQueued(1, "t")]


async def test_requests_of_a_held_controller_wait_and_are_answered(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(PartitionsAppeared)
    stage.world.create_topic("slow", {0: (1,)}, b"s" * 16)
    await hold.reached()
    block = asyncio.ensure_future(stage.controller.allocate_producer_ids(1, stage.world.brokers[1].epoch))
    await stage.settle()
    assert not block.done() and stage.controller.is_active
    hold.release()
    assert await block == (0, 1000)


async def test_requests_of_a_held_controller_that_crashes_are_refused(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    hold = stage.steering.hold(PartitionsAppeared)
    stage.world.create_topic("slow", {0: (1,)}, b"s" * 16)
    await hold.reached()
    block = asyncio.ensure_future(stage.controller.allocate_producer_ids(1, stage.world.brokers[1].epoch))
    await stage.settle()
    await stage.close()
    with pytest.raises(ApiError) as error:
        await block
    assert error.value.code is ErrorCode.NOT_CONTROLLER
    assert hold.held == []


async def test_without_holds_no_phase_is_made(stages: list[Stage]) -> None:
    stage = await opened()
    stages.append(stage)
    steering = Steering()
    stage.term.steering = steering

    async def never(phase: object, broker_id: int) -> None:
        raise AssertionError(phase)

    steering.reach = never  # type: ignore[method-assign]
    await stage.create("new", (1,))
    await stage.stop(1)
    assert stage.state("new") == "-1 e1 [1] v1"
