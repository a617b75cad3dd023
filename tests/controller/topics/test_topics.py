"""Topics and partitions appear, grow and vanish (controller 5.1, 5.2)."""

from __future__ import annotations

from typing import Any

from klamm.controller.events import catalogue as events
from klamm.controller.phases import PartitionsAppeared
from klamm.controller.values import Assignment, LeaderAndIsr, StoredTopic
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.simulated_brokers import SentFrame
from klamm.tests.controller.stage import Stage


def grow(stage: Stage, name: str, assignments: dict[int, tuple[int, ...]]) -> None:
    stage.world.grow_topic(name, assignments)


# --- 5.1 ---


async def test_a_new_topic(stage: Stage) -> None:
    """The first online replica of each list leads, those online are in sync in the order of the list, and only they are told to lead."""
    await stage.open(1, 2, 3)
    mark = stage.mark()
    await stage.create("t", (2, 1), (9, 3, 1), (9,))
    assert stage.since(mark) == [
        "WROTE t-0 2 e0 [2, 1] v0", "WROTE t-1 3 e0 [3, 1] v0",
        "LISR 1: t-0 2 e0 [2, 1] v0 new t-1 3 e0 [3, 1] v0 new",
        "LISR 2: t-0 2 e0 [2, 1] v0 new",
        "LISR 3: t-1 3 e0 [3, 1] v0 new",
        *(f"UMR {b}: t-0 2 e0 [2, 1] v0 t-1 3 e0 [3, 1] v0 off[9]" for b in (1, 2, 3)),
    ]
    assert [stage.partition_state("t", i) for i in range(3)] == ["ONLINE", "ONLINE", "NEW"]
    assert [stage.replica(b, "t", 1) for b in (9, 3, 1)] == ["ONLINE"] * 3, "dead ones too"
    assert stage.world.states[TopicPartition("t", 0)].controller_epoch == 1
    [lisr] = [f.request for f in stage.world.journal[mark:] if isinstance(f, SentFrame) and (f.broker, f.api_key) == (2, 4)]
    assert [(t.topic_name, t.topic_id) for t in lisr.topic_states] == [("t", stage.world.topics["t"].topic_id)]


async def test_many_topics_at_once(stage: Stage) -> None:
    await stage.open(1, 2)
    mark = stage.mark()
    for name in ("a", "b", "c"):
        stage.world.create_topic(name, {0: (1, 2)}, name.encode() * 16)
    await stage.settle()
    assert [f.split(":")[0] for f in stage.frames(mark)] == ["LISR 1", "LISR 2", "UMR 1", "UMR 2"]
    assert len(stage.writes(mark)) == 3


async def test_without_an_id(stage: Stage) -> None:
    """It gets one before anything is told; the event of that write finds nothing new."""
    await stage.open(1)
    mark = stage.mark()
    stage.world.create_topic("t", {0: (1,), 5: (2,)}, None)
    await stage.settle()
    assert stage.writes(mark) == ["TOPIC t {0: [1], 5: [2]}", "WROTE t-0 1 e0 [1] v0"]
    assert stage.world.topics["t"].topic_id == bytes([7] * 16)
    assert stage.cluster.topics_by_id[bytes([7] * 16)].name == "t"
    [lisr] = [f.request for f in stage.world.journal[mark:] if isinstance(f, SentFrame) and f.api_key == 4]
    assert [t.topic_id for t in lisr.topic_states] == [bytes([7] * 16)]


async def test_without_ids_altogether(stage: Stage) -> None:
    stage.change_options(topic_ids_supported=False)
    await stage.open(1)
    mark = stage.mark()
    stage.world.create_topic("t", {0: (1,)}, None)
    await stage.settle()
    assert stage.writes(mark) == ["WROTE t-0 1 e0 [1] v0"]
    assert stage.cluster.topics["t"].id is None


async def test_a_topic_that_vanished(stage: Stage) -> None:
    """Forgotten without a word: the caches keep it."""
    await stage.open(1)
    await stage.create("t", (1,))
    await stage.create("stays", (1,))
    del stage.world.topics["t"]
    mark = stage.mark()
    await stage.put(events.TopicChange())
    assert stage.since(mark) == []
    assert set(stage.cluster.topics) == {"stays"} and len(stage.cluster.topics_by_id) == 1
    assert TopicPartition("t", 0) in stage.told[1].metadata
    await stage.stop(1)
    assert stage.writes(mark) == ["WROTE stays-0 -1 e1 [1] v1"]


async def test_a_topic_that_vanished_before_it_was_read(stage: Stage) -> None:
    await stage.open(1)
    read = stage.store.read_topics

    async def too_late(names: Any) -> Any:
        return [None if name == "t" else node for name, node in zip(names, await read(names), strict=True)]

    stage.store.read_topics = too_late  # type: ignore[method-assign]
    mark = stage.mark()
    stage.world.create_topic("t", {0: (1,)}, b"t" * 16)
    stage.world.create_topic("u", {0: (1,)}, b"u" * 16)
    await stage.settle()
    assert stage.writes(mark) == ["WROTE u-0 1 e0 [1] v0"]
    assert set(stage.cluster.topics) == {"u"}


async def test_a_state_that_is_there_already(stage: Stage) -> None:
    """Its partition stays new until the next fail-over finds out what it is; others are not hindered."""
    await stage.open(1)
    mark = stage.mark()
    stage.world.create_topic("t", {0: (1,), 1: (1,)}, b"t" * 16)
    stage.world.states[TopicPartition("t", 0)] = LeaderAndIsr(1, 4, (1,), 0, 6)
    await stage.settle()
    assert stage.writes(mark) == ["WROTE t-1 1 e0 [1] v0"]
    assert stage.frames(mark, "LISR") == ["LISR 1: t-1 1 e0 [1] v0 new"]
    assert stage.partition_state("t", 0) == "NEW"
    await stage.start(2)
    assert stage.partition_state("t", 0) == "NEW"
    await stage.fail_over()
    assert stage.partition_state("t", 0) == "ONLINE"
    assert stage.state("t", 0) == "1 e4 [1] v6"


async def test_created_in_the_middle_of_a_reassignment(stage: Stage) -> None:
    """A node that comes with replicas being added or removed: all of them are replicas, and every leader is told which.

    As in Apache Kafka, only the next controller goes on with the reassignment.
    """
    await stage.open(1, 2)
    stage.world.topics["t"] = StoredTopic(b"t" * 16, {0: Assignment((2, 1), (2,), (1,))})
    mark = stage.mark()
    await stage.put(events.TopicChange())
    assert stage.frames(mark, "LISR") == ["LISR 1: t-0 2 e0 [2, 1] v0 +[2] -[1] new", "LISR 2: t-0 2 e0 [2, 1] v0 +[2] -[1] new"]
    assert stage.cluster.reassigning == set()


# --- 5.2 ---


async def test_new_partitions(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    mark = stage.mark()
    grow(stage, "t", {1: (2, 1), 2: (9,)})
    await stage.settle()
    assert stage.since(mark) == [
        "WROTE t-1 2 e0 [2, 1] v0",
        "LISR 1: t-1 2 e0 [2, 1] v0 new", "LISR 2: t-1 2 e0 [2, 1] v0 new",
        "UMR 1: t-1 2 e0 [2, 1] v0", "UMR 2: t-1 2 e0 [2, 1] v0",
    ]
    assert stage.partition_state("t", 2) == "NEW"
    mark = stage.mark()
    grow(stage, "t", {3: (1,)})
    await stage.settle()
    assert stage.writes(mark) == ["WROTE t-3 1 e0 [1] v0"], "watched again"


async def test_several_topics_grow_in_one_go(stage: Stage) -> None:
    """Waiting events of this kind are handled together: the same writes, fewer frames."""
    await stage.open(1)
    for name in ("t", "u", "v"):
        await stage.create(name, (1,))
    hold = stage.steering.hold(PartitionsAppeared)
    mark = stage.mark()
    grow(stage, "t", {1: (1,)})
    await stage.settle()
    grow(stage, "u", {1: (1,)})
    grow(stage, "v", {1: (1,)})
    await stage.settle()
    assert stage.since(mark) == []
    hold.release()
    await stage.settle()
    assert sorted(stage.writes(mark)) == ["WROTE t-1 1 e0 [1] v0", "WROTE u-1 1 e0 [1] v0", "WROTE v-1 1 e0 [1] v0"]
    assert stage.frames(mark, "LISR") == ["LISR 1: t-1 1 e0 [1] v0 new", "LISR 1: u-1 1 e0 [1] v0 new v-1 1 e0 [1] v0 new"]


async def test_other_replicas_of_known_partitions_are_not_looked_at(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2), (1, 2))
    mark = stage.mark()
    grow(stage, "t", {0: (2, 1)})
    await stage.settle()
    assert stage.since(mark) == []
    assert stage.partition("t").assignment == Assignment((1, 2))


async def test_partitions_that_are_missing_in_the_node_are_kept(stage: Stage) -> None:
    await stage.open(1)
    await stage.create("t", (1,), (1,))
    stage.world.topics["t"] = StoredTopic(b"t" * 16, {0: Assignment((1,))})
    mark = stage.mark()
    await stage.put(events.PartitionModifications("t"))
    assert stage.since(mark) == []
    assert set(stage.cluster.topics["t"].partitions) == {0, 1}


async def test_news_of_unknown_topics(stage: Stage) -> None:
    await stage.open(1)
    await stage.create("t", (1,))
    mark = stage.mark()
    await stage.put(events.PartitionModifications("gone"))
    assert stage.since(mark) == []
    await stage.create("u", (1,))
    del stage.world.topics["t"]
    grow(stage, "u", {1: (1,)})
    stage.controller.put(events.PartitionModifications("t"))
    mark = stage.mark()
    await stage.settle()
    assert stage.writes(mark) == ["WROTE u-1 1 e0 [1] v0"], "one that is gone does not hinder another"


async def test_a_topic_that_cannot_be_read_is_absent_until_it_is_repaired(stage: Stage) -> None:
    """Its node is not touched, other topics are handled; what is wrong may be there at the fail-over or come later."""
    stage.world.create_topic("odd", {0: (1,)}, None)
    stage.world.spoil_topic("odd")
    await stage.open(1)
    await stage.create("fine", (1,))
    assert set(stage.cluster.topics) == {"fine"} and stage.world.topics["odd"].topic_id is None
    stage.world.grow_topic("odd", {1: (1,)})
    await stage.settle()
    assert [stage.state("odd", i) for i in (0, 1)] == ["1 e0 [1] v0"] * 2
    stage.world.spoil_topic("odd")
    await stage.settle()
    assert set(stage.cluster.topics["odd"].partitions) == {0, 1}, "what is known stays"


async def test_a_topic_in_deletion_does_not_grow(stage: Stage) -> None:
    """The node is written back: partitions that have a node of their own, with the assignment that is known."""
    await stage.open(1, 2)
    await stage.create("t", (1, 2), (2, 1), (9,))
    stage.channels.silent.update((1, 2))
    stage.world.delete_topic("t")
    await stage.settle()
    mark = stage.mark()
    grow(stage, "t", {0: (2,), 3: (1,)})
    await stage.settle()
    assert stage.since(mark) == ["TOPIC t {0: [1, 2], 1: [2, 1]}"], "the third one never had a node"
    assert stage.world.topics["t"].topic_id == b"t".ljust(16, b"\1")
    assert set(stage.cluster.topics["t"].partitions) == {0, 1, 2}
    mark = stage.mark()
    grow(stage, "t", {0: (2,)})
    await stage.settle()
    assert stage.since(mark) == [], "nothing to add: ignored"
    stage.world.topics["t"] = StoredTopic(b"t".ljust(16, b"\1"), {1: Assignment((2,)), 5: Assignment((1,))})
    await stage.put(events.PartitionModifications("t"))
    assert stage.since(mark) == ["TOPIC t {1: [2, 1]}"], "what somebody took out stays out"
    stage.channels.release()
    await stage.start(9)
    assert "t" not in stage.world.topics
