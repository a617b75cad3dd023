"""Deleting topics (controller 12.2, 12.3): steps, waiting for dead and unwilling brokers, taking up what was left undone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.values import Assignment, StoredTopic
from klamm.protocol import messages
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.stage import Stage, isr_request

GONE = ["REMOVED /brokers/topics/t", "REMOVED /config/topics/t", "REMOVED /admin/delete_topics/t"]


async def delete(stage: Stage, *topics: str) -> None:
    for t in topics:
        stage.world.delete_topic(t)
    await stage.settle()


def umr(text: str, *broker_ids: int) -> list[str]:
    return [f"UMR {b}: {text}" for b in broker_ids]


async def test_all_steps(stage: Stage) -> None:
    """Leaderless in all caches first, then stopped, then deleted; the nodes go when all have confirmed."""
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    mark = stage.mark()
    stage.channels.silent.update((1, 2, 3))
    await delete(stage, "t")
    assert stage.since(mark) == [
        *umr("t-0 -2 e0 [1, 2] v0", 1, 2, 3),
        "WROTE t-0 -1 e1 [2] v1", "WROTE t-0 -1 e2 [2] v2",  # one after the other leaves; the last one stays in the list
        "SR 1: t-0 e-2", "SR 2: t-0 e-2",
        "SR 1: t-0 e-2 delete", "SR 2: t-0 e-2 delete",
    ]
    assert stage.partition_state("t") == "NON_EXISTENT"
    assert stage.replica(1, "t") == stage.replica(2, "t") == "DELETION_STARTED"
    assert stage.controller.queued_for_deletion("t")
    mark = stage.mark()
    stage.channels.release()
    await stage.settle()
    assert stage.since(mark) == GONE
    assert not stage.controller.queued_for_deletion("t")
    assert "t" not in stage.cluster.topics and not stage.cluster.topics_by_id and not stage.cluster.deletions
    assert "t" not in stage.world.topics and not stage.world.states and not stage.world.deletions


async def test_one_confirmation_is_not_enough(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.channels.silent.add(2)
    await delete(stage, "t")
    assert (stage.replica(1, "t"), stage.replica(2, "t")) == ("DELETION_SUCCESSFUL", "DELETION_STARTED")
    assert "t" in stage.world.topics
    stage.channels.release()
    await stage.settle()
    assert "t" not in stage.world.topics


async def test_many_topics_go_together(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,), (2,))
    await stage.create("u", (2,))
    await stage.create("stays", (1,))
    mark = stage.mark()
    await delete(stage, "t", "u")
    assert set(stage.world.topics) == set(stage.cluster.topics) == {"stays"}
    assert stage.frames(mark, "UMR 1")[0] == "UMR 1: t-0 -2 e0 [1] v0 t-1 -2 e0 [2] v0 u-0 -2 e0 [2] v0"
    assert stage.frames(mark, "SR") == [
        "SR 1: t-0 e-2", "SR 2: t-1 e-2 u-0 e-2", "SR 1: t-0 e-2 delete", "SR 2: t-1 e-2 delete u-0 e-2 delete"
    ]
    for name in ("t", "u"):
        paths = [w for w in stage.writes(mark) if w.endswith(f"/{name}")]
        assert paths == [f"REMOVED /{path}/{name}" for path in ("brokers/topics", "config/topics", "admin/delete_topics")]


async def test_the_name_may_be_used_again(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await delete(stage, "t")
    mark = stage.mark()
    stage.world.create_topic("t", {0: (2,)}, b"another id......")
    await stage.settle()
    assert stage.writes(mark) == ["WROTE t-0 2 e0 [2] v0"]
    assert stage.cluster.topics_by_id[b"another id......"].name == "t"


async def test_partitions_that_never_had_a_leader(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,), (3,))
    mark = stage.mark()
    await delete(stage, "t")
    assert stage.frames(mark, "UMR 1")[0] == "UMR 1: t-0 -2 e0 [1] v0"
    assert stage.cluster.deletions.ineligible == {"t"}, "waits for its broker"
    assert stage.replica(3, "t", 1) == "ONLINE", "as every replica of a new partition; it may not become ineligible from there"
    await stage.start(3)
    assert "t" not in stage.world.topics
    assert stage.frames(mark, "SR 3") == ["SR 3: t-1 e-2", "SR 3: t-1 e-2 delete"]


# --- who is not there ---


async def test_a_dead_replica_is_waited_for(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    mark = stage.mark()
    await delete(stage, "t")
    assert stage.since(mark) == [
        *umr("t-0 -2 e0 [1] v0 off[2]", 1, 3), "WROTE t-0 -1 e2 [1] v2", "SR 1: t-0 e-2", "SR 1: t-0 e-2 delete"
    ]
    assert stage.cluster.deletions.ineligible == {"t"}
    assert stage.replica(1, "t") == "DELETION_SUCCESSFUL"
    assert stage.replica(2, "t") == "OFFLINE", "ready to be tried again once it is back"
    mark = stage.mark()
    stage.channels.silent.add(2)
    await stage.start(2)
    assert stage.since(mark) == [
        "UMR 1:", "UMR 3:",
        "UMR 2:",  # nothing of what is being deleted
        "LISR 2: t-0 -1 e2 [1] v2", *umr("t-0 -2 e0 [1] v0", 1, 2, 3),
        *umr("t-0 -2 e0 [1] v0", 1, 2, 3),
        "SR 2: t-0 e-2", "SR 2: t-0 e-2 delete",
    ]
    assert stage.cluster.deletions.ineligible == set()
    mark = stage.mark()
    stage.channels.release()
    await stage.settle()
    assert stage.since(mark) == GONE
    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == [], "no illegal moves"


async def test_the_first_of_all_replicas_that_returns_is_stopped_at_once(stage: Stage) -> None:
    """Nobody confirmed anything meanwhile, so every replica is still marked as ineligible."""
    await stage.open(1, 2, 3)
    await stage.create("t", (2, 3))
    await stage.stop(2, 3)
    await delete(stage, "t")
    assert stage.cluster.deletions.ineligible == {"t"}
    mark = stage.mark()
    await stage.start(3)
    assert stage.frames(mark, "SR") == ["SR 3: t-0 e-2", "SR 3: t-0 e-2 delete"]
    assert stage.replica(3, "t") == "DELETION_SUCCESSFUL"
    assert stage.cluster.deletions.ineligible == {"t"}, "the other one is still away"
    await stage.start(2)
    assert "t" not in stage.world.topics


async def test_a_topic_that_was_removed_by_hand_leaves_no_mark(stage: Stage) -> None:
    """Else the next topic of that name could not be deleted."""
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.stop(2)
    await delete(stage, "t")
    assert stage.cluster.deletions.ineligible == {"t"}
    del stage.world.topics["t"], stage.world.deletions["t"]
    stage.world.states.clear()
    await stage.put(events.TopicChange())
    assert "t" not in stage.cluster.topics and not stage.controller.queued_for_deletion("t")
    await stage.create("t", (1,))
    await delete(stage, "t")
    assert "t" not in stage.world.topics


async def test_a_replica_dies_before_it_confirms(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await stage.create("u", (2, 1))
    stage.channels.silent.add(2)
    await delete(stage, "t")
    mark = stage.mark()
    await stage.stop(2)
    # other topics come first; then the replica is ineligible, and at once offline again to be ready, which costs a write
    assert stage.writes(mark) == ["WROTE u-0 1 e1 [1] v1", "WROTE t-0 -1 e3 [2] v3"]
    assert (stage.replica(1, "t"), stage.replica(2, "t")) == ("DELETION_SUCCESSFUL", "OFFLINE")
    assert stage.cluster.deletions.ineligible == {"t"}
    stage.channels.release()
    await stage.settle()
    assert "t" in stage.world.topics, "the answer of one that is gone counts for nothing"
    await stage.start(2)
    assert "t" not in stage.world.topics


async def test_a_replica_bounces_before_it_confirms(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.channels.silent.add(2)
    await delete(stage, "t")
    mark = stage.mark()
    stage.channels.silent.clear()
    stage.world.bounce_broker(2)
    await stage.settle()
    assert stage.frames(mark, "SR") == ["SR 2: t-0 e-2", "SR 2: t-0 e-2 delete"], "only the one that bounced is asked again"
    assert stage.writes(mark)[-3:] == GONE


async def test_an_answer_of_the_process_before_the_bounce_confirms_nothing(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (2,))
    stage.channels.silent.add(2)
    await delete(stage, "t")
    late = list(stage.channels.held)
    stage.channels.held.clear()
    stage.world.bounce_broker(2)
    for answer in late:  # they come when the news of the bounce waits in the queue
        asyncio.get_running_loop().call_soon(answer)
    await stage.settle()
    assert stage.replica(2, "t") == "DELETION_STARTED"
    stage.channels.release()
    await stage.settle()
    assert "t" not in stage.world.topics


async def test_only_dead_brokers_die_with_their_deletion(stage: Stage) -> None:
    """A broker that hosts nothing but topics in deletion: the others learn of its death by a request without partitions."""
    await stage.open(1, 2)
    await stage.create("t", (2,))
    stage.channels.silent.add(2)
    await delete(stage, "t")
    mark = stage.mark()
    await stage.stop(2)
    assert stage.since(mark) == ["WROTE t-0 -1 e2 [2] v2", "UMR 1:"]


# --- who does not want to ---


async def test_a_replica_that_cannot_be_deleted_waits_for_its_brokers_start(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.world.undeletable.add((2, TopicPartition("t", 0)))
    mark = stage.mark()
    await delete(stage, "t")
    assert stage.cluster.deletions.ineligible == {"t"}
    assert (stage.replica(1, "t"), stage.replica(2, "t")) == ("DELETION_SUCCESSFUL", "OFFLINE")
    assert stage.frames(mark, "SR") == [
        "SR 1: t-0 e-2", "SR 2: t-0 e-2", "SR 1: t-0 e-2 delete", "SR 2: t-0 e-2 delete",
        "SR 2: t-0 e-2",  # made ready for another try
    ]
    stage.world.undeletable.clear()
    await stage.create("other", (1,))
    assert "t" in stage.world.topics
    stage.world.bounce_broker(2)
    await stage.settle()
    assert "t" not in stage.world.topics


async def test_the_others_go_on_when_one_topic_cannot(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.create("u", (2, 1))
    stage.world.undeletable.add((2, TopicPartition("t", 0)))
    await delete(stage, "t", "u")
    assert set(stage.world.topics) == {"t"}
    assert set(stage.cluster.deletions.topics) == {"t"}


async def stopped(stage: Stage, broker_id: int, error: int, *rows: tuple[str, int, int]) -> None:
    """A broker responds to a StopReplica that deletes partition 0 of all topics on broker 1, or 1 on broker 2."""
    response = messages.StopReplicaResponse
    partitions = [response.StopReplicaPartitionError(topic_name=t, partition_index=i, error_code=e) for t, i, e in rows]
    deleted = frozenset(topic.partitions[broker_id - 1] for topic in stage.cluster.topics.values() if broker_id <= len(topic.partitions))
    stage.controller._on_response(broker_id, 0, response(error_code=error, partition_errors=partitions), deleted)
    await stage.settle()


async def test_answers(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,), (2,))
    await stage.create("alive", (1,))
    stage.channels.silent.update((1, 2))
    await delete(stage, "t")
    for error, *rows in (
        (11,),  # stale epochs name no partitions: nothing happens
        (0, ("t", 1, 0), ("gone", 0, 0), ("t", 7, 0), ("alive", 0, 0)),  # not its replicas, or not in deletion
        (0, ("alive", 0, 56)),
    ):
        await stopped(stage, 1, error, *rows)
        assert stage.replica(1, "t", 0) == "DELETION_STARTED"
        assert stage.replica(2, "t", 1) == "DELETION_STARTED"
        assert stage.replica(1, "alive") == "ONLINE"
        assert stage.cluster.deletions.ineligible == set()
    await stopped(stage, 1, -1, ("t", 0, 0))
    assert stage.cluster.deletions.ineligible == {"t"}, "a top-level error speaks of all that are listed"
    assert stage.replica(1, "t", 0) == "DELETION_INELIGIBLE", "another replica is still being deleted"
    await stopped(stage, 2, 0, ("t", 1, 0))
    assert stage.replica(2, "t", 1) == "DELETION_SUCCESSFUL"
    assert stage.replica(1, "t", 0) == "OFFLINE"
    await stopped(stage, 1, 0, ("t", 0, 0))
    assert stage.replica(1, "t", 0) == "OFFLINE", "a late answer is no confirmation"


async def test_a_refusal_counts_although_the_replica_was_lost_before_it_came(stage: Stage) -> None:
    """Each time the replica is stopped once more, which writes a new leader epoch."""
    await stage.open(1, 2)
    await stage.create("t", (1,))
    stage.channels.silent.add(1)
    await delete(stage, "t")
    for number in range(1, 4):
        assert stage.state("t") == f"-1 e{number} [1] v{number}"
        await stopped(stage, 1, 0, ("t", 0, 56))
        assert stage.replica(1, "t", 0) == "OFFLINE"


async def test_both_outcomes_in_one_answer(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    await stage.create("u", (1,))
    stage.channels.silent.add(1)
    await delete(stage, "t", "u")
    await stopped(stage, 1, 0, ("t", 0, 56), ("u", 0, 0))
    assert set(stage.world.topics) == {"t"}
    assert stage.cluster.deletions.ineligible == {"t"}


async def test_a_failed_log_directory_counts_as_dead(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.world.offline_dirs.add((2, TopicPartition("t", 0)))
    stage.world.notify_log_dir(2)
    await stage.settle()
    mark = stage.mark()
    await delete(stage, "t")
    assert stage.frames(mark, "SR") == ["SR 1: t-0 e-2", "SR 1: t-0 e-2 delete", "SR 2: t-0 e-2"]
    assert stage.cluster.deletions.ineligible == {"t"}
    stage.world.bounce_broker(2)
    await stage.settle()
    assert "t" not in stage.world.topics


# --- requests that come to nothing ---


async def test_deletion_disabled(stage: Stage) -> None:
    stage.change_options(delete_topic_enable=False)
    await stage.open(1)
    await stage.create("t", (1,))
    mark = stage.mark()
    await delete(stage, "t", "gone")
    assert stage.since(mark) == ["REMOVED /admin/delete_topics/gone", "REMOVED /admin/delete_topics/t"]
    stage.world.deletions["t"] = None
    mark = stage.mark()
    await stage.fail_over()
    assert stage.writes(mark)[0] == "REMOVED /admin/delete_topics/t"
    assert stage.state("t") == "1 e0 [1] v0"
    assert not stage.controller.queued_for_deletion("t")


async def test_requests_for_unknown_topics_are_removed(stage: Stage) -> None:
    await stage.open(1)
    await stage.create("t", (1,))
    mark = stage.mark()
    stage.world.deletions["gone"] = None
    await delete(stage, "t")
    assert stage.writes(mark)[0] == "REMOVED /admin/delete_topics/gone"
    assert stage.world.deletions == {} and set(stage.world.topics) == set()


# --- another controller takes over ---


async def test_taken_up_by_the_next_controller(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    stage.channels.silent.update((1, 2))
    await delete(stage, "t")
    assert stage.replica(1, "t") == "DELETION_STARTED"
    mark = stage.mark()
    await stage.fail_over()
    assert stage.writes(mark) == ["WROTE t-0 -1 e3 [2] v3", "REMOVED /admin/preferred_replica_election", *GONE]
    assert [f for f in stage.frames(mark) if f.startswith(("LISR", "SR"))] == [
        "LISR 1: t-0 -1 e2 [2] v2", "LISR 2: t-0 -1 e2 [2] v2",
        "SR 1: t-0 e-2", "SR 2: t-0 e-2", "SR 1: t-0 e-2 delete", "SR 2: t-0 e-2 delete",
    ]
    assert {f.split(": ")[1] for f in stage.frames(mark, "UMR") if ": " in f} == {"t-0 -2 e0 [2] v0"}, "in deletion from the start"


async def test_an_offline_replica_makes_it_wait_at_fail_over(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 3))
    await stage.create("u", (2,))
    stage.world.deletions.update({"t": None, "u": None})
    await stage.fail_over()
    assert stage.cluster.deletions.ineligible == {"t"}
    assert set(stage.world.topics) == {"t"}, "the other one goes"
    assert stage.replica(1, "t") == "ONLINE"
    await stage.start(3)
    assert set(stage.world.topics) == set()


async def test_a_reassignment_makes_it_wait_at_fail_over(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.close()
    stage.world.topics["t"] = StoredTopic(b"t" * 16, {0: Assignment((1, 2), (2,), ())})
    stage.somebody_writes("t", isr=(1,))
    stage.world.deletions["t"] = None
    stage.take_office()
    stage.controller.start()
    await stage.settle()
    assert stage.cluster.deletions.ineligible == {"t"}
    assert "t" in stage.world.topics
    state = stage.world.states[TopicPartition("t", 0)]
    request = isr_request(1, stage.world.brokers[1].epoch, b"t" * 16, 0, state.leader_epoch, state.partition_epoch, [1, 2])
    await stage.controller.alter_partition(request, 2)
    await stage.settle()
    assert "t" not in stage.world.topics and not stage.cluster.reassigning, "the end of the reassignment ends the wait"


async def test_what_was_left_of_a_deletion_is_removed(stage: Stage) -> None:
    """The tree is gone, config and request are not: they must not meet a later topic of this name."""
    await stage.open(1)
    stage.world.deletions["t"] = None
    stage.world.configs["t"] = {"a": "b"}
    mark = stage.mark()
    await stage.fail_over()
    assert stage.writes(mark)[:3] == GONE
    assert not stage.world.deletions and not stage.world.configs
    assert not stage.controller.queued_for_deletion("t")
    await stage.create("t", (1,))
    await stage.fail_over()
    assert stage.state("t") == "1 e0 [1] v0"


async def test_a_topic_without_partitions(stage: Stage) -> None:
    await stage.open(1)
    stage.world.create_topic("t", {}, b"t" * 16)
    await stage.settle()
    mark = stage.mark()
    await delete(stage, "t")
    assert stage.since(mark) == GONE


# --- others, meanwhile ---


async def test_a_topic_in_deletion_shows_no_leader_and_elects_none(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2, 3))
    stage.channels.silent.update((1, 2, 3))
    await delete(stage, "t")
    mark = stage.mark()
    await stage.stop(1)
    assert stage.writes(mark) == []
    await stage.start(1)
    assert not [w for w in stage.writes(mark) if "WROTE" in w]
    shown = {f.split(": ")[1] for f in stage.frames(mark, "UMR") if ": " in f}
    assert shown == {"t-0 -2 e0 [3] v0"}


async def test_the_replicas_of_a_topic_are_known_until_its_znodes_are_gone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    known: list[Any] = []
    delete_topics = stage.store.delete_topics

    async def watched(topics: Any) -> None:
        (partition,) = stage.cluster.topics["t"].partitions.values()
        known.append((partition.assignment.replicas, dict(partition.replica_states)))
        await delete_topics(topics)

    monkeypatch.setattr(stage.store, "delete_topics", watched)
    await delete(stage, "t")
    ((replicas, states),) = known
    assert replicas == (1, 2)
    assert {broker_id: state.name for broker_id, state in states.items()} == {1: "DELETION_SUCCESSFUL", 2: "DELETION_SUCCESSFUL"}
    assert "t" not in stage.cluster.topics
