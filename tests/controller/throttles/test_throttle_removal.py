"""Throttles that requests have set go when no reassignment is ongoing, and no others (KIP-179; controller 22.5)."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.values import Assignment, ConfigWrite, ControllerMoved, WriteOutcome
from klamm.controller.writes.throttle_configs import ATTEMPTS
from klamm.controller.writes.throttle_removal import remove_when_idle
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.stage import Stage
from klamm.tests.controller.throttles.throttle_tree import (
    BROKERS,
    KEPT,
    MOVES,
    OTHER_BROKERS,
    OTHER_TOPICS,
    REMOVALS,
    TOPICS,
    announced,
    config,
    content,
    put,
    rate,
    replicas,
    set_config,
    throttle,
    tree,
)

ENTITIES = ("topics/a", "topics/t", "brokers/1", "brokers/2")


async def throttled(stage: Stage, topics: list[Any], brokers: list[Any]) -> None:
    """Two topics and two brokers with throttles; the removal znodes name these."""
    await stage.open(1, 2)
    await stage.create("t", (1,))
    await stage.create("a", (1,))
    for entity in ENTITIES:
        throttle(stage.world, entity)
    put(stage.world, TOPICS, {"version": 1, "topics": topics})
    put(stage.world, BROKERS, {"version": 1, "brokers": brokers})


def unthrottled(stage: Stage) -> list[str]:
    """Entities that have only their other properties."""
    return [entity for entity in ENTITIES if config(stage.world, entity) == KEPT[entity.partition("/")[0]]]


@pytest.mark.requirement("R179-24", "R179-9")
async def test_properties_go_with_a_notification_then_the_znodes_and_other_properties_stay(stage: Stage) -> None:
    await throttled(stage, ["a", "t"], [1, 2])
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == list(ENTITIES)
    assert announced(stage.world) == list(ENTITIES)
    assert [content(stage.world, path) for path in REMOVALS] == [None] * 4


@pytest.mark.requirement("R179-24")
async def test_a_crash_before_a_removal_znode_is_deleted_leaves_the_work_to_the_next_controller(stage: Stage) -> None:
    await throttled(stage, ["t"], [1])

    async def moved(writes: list[ConfigWrite]) -> Any:
        await write_configs(writes)
        raise ControllerMoved("crashed")

    write_configs = stage.store.write_configs
    stage.store.write_configs = moved  # type: ignore[method-assign, assignment]
    with pytest.raises(ControllerMoved):
        await remove_when_idle(stage.term)
    assert unthrottled(stage) == ["topics/t"]
    assert content(stage.world, TOPICS) is not None and content(stage.world, BROKERS) is not None
    stage.store.write_configs = write_configs  # type: ignore[method-assign]
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == ["topics/t", "brokers/1"]
    assert announced(stage.world) == ["topics/t", "brokers/1"]


@pytest.mark.requirement("R179-27")
async def test_without_removal_znodes_no_throttle_is_touched(stage: Stage) -> None:
    await throttled(stage, [], [])
    for path in (TOPICS, BROKERS):
        stage.world.zk.delete_tree(path)
    before = tree(stage.world)
    await remove_when_idle(stage.term)
    assert tree(stage.world) == before


@pytest.mark.requirement("R179-27")
async def test_throttles_of_entities_that_no_znode_names_stay(stage: Stage) -> None:
    await throttled(stage, ["t"], [2])
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == ["topics/t", "brokers/2"]
    assert rate(stage.world, 1) == ("100", "200")
    assert replicas(stage.world, "a") == ("0:1", "0:2")


@pytest.mark.requirement("R179-23")
async def test_a_znode_with_reassignments_is_an_ongoing_one(stage: Stage) -> None:
    await throttled(stage, ["t"], [1])
    stage.world.zk.place(MOVES, b'{"version":1,"partitions":[]}')
    before = tree(stage.world)
    await remove_when_idle(stage.term)
    assert tree(stage.world) == before


@pytest.mark.requirement("R179-23")
@pytest.mark.parametrize("assignment", [Assignment((2, 1), (2,), ()), Assignment((2, 1), (), (1,))], ids=["adding", "removing"])
async def test_a_partition_with_adding_or_removing_replicas_is_an_ongoing_reassignment(stage: Stage, assignment: Assignment) -> None:
    await throttled(stage, ["t"], [1])
    stage.cluster.reassignments_began([stage.cluster.partition_added(stage.cluster.topics["t"], 0, assignment)])
    before = tree(stage.world)
    await remove_when_idle(stage.term)
    assert tree(stage.world) == before


@pytest.mark.requirement("R179-23")
async def test_the_last_reassignment_ends_with_a_topic_that_vanishes_from_zookeeper(stage: Stage) -> None:
    await throttled(stage, ["t"], [1])
    stage.cluster.reassignments_began([stage.cluster.partition_added(stage.cluster.topics["a"], 0, Assignment((2, 1), (2,), ()))])
    del stage.world.topics["a"]
    await stage.put(events.TopicChange())
    assert unthrottled(stage) == ["topics/t", "brokers/1"]
    assert [content(stage.world, path) for path in REMOVALS] == [None] * 4


@pytest.mark.requirement("R179-26")
async def test_removal_can_be_repeated(stage: Stage) -> None:
    await throttled(stage, ["a", "t"], [1, 2])
    await remove_when_idle(stage.term)
    put(stage.world, TOPICS, {"version": 1, "topics": ["a", "t"]})
    put(stage.world, BROKERS, {"version": 1, "brokers": [1, 2]})
    before = {entity: config(stage.world, entity) for entity in ENTITIES}
    await remove_when_idle(stage.term)
    assert {entity: config(stage.world, entity) for entity in ENTITIES} == before
    assert announced(stage.world) == list(ENTITIES)
    assert [content(stage.world, path) for path in REMOVALS] == [None] * 4


@pytest.mark.requirement("R179-26")
async def test_both_names_of_the_znodes_are_read_and_deleted(stage: Stage) -> None:
    await throttled(stage, ["a"], [2])
    put(stage.world, OTHER_TOPICS, {"version": 1, "topics": ["t", "a"]})
    put(stage.world, OTHER_BROKERS, {"version": 1, "brokers": [1]})
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == list(ENTITIES)
    assert [content(stage.world, path) for path in REMOVALS] == [None] * 4


@pytest.mark.requirement("R179-26")
async def test_unknown_topics_and_brokers_and_names_that_no_topic_has_are_passed_by(stage: Stage) -> None:
    await throttled(stage, ["", "..", "a/b", "nowhere", "t", "x\0y", "\ud800"], [-1, 1, 999])
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == ["topics/t", "brokers/1"]
    assert announced(stage.world) == ["topics/t", "brokers/1"]
    assert stage.world.zk.get("/config/topics/nowhere") is None and stage.world.zk.get("/config/brokers/999") is None
    assert [content(stage.world, path) for path in REMOVALS] == [None] * 4


@pytest.mark.requirement("R179-26")
async def test_a_removal_znode_that_cannot_be_read_is_deleted(stage: Stage) -> None:
    await throttled(stage, [], [])
    put(stage.world, TOPICS, b"{")
    put(stage.world, BROKERS, b"")
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == []
    assert [content(stage.world, path) for path in REMOVALS] == [None] * 4


@pytest.mark.requirement("R179-26")
async def test_a_config_that_cannot_be_read_waits_for_the_next_removal_alone(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await throttled(stage, ["a", "t"], [1])
    put(stage.world, "/config/topics/a", {"version": 1, "config": {"k": 7}})
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == ["topics/t", "brokers/1"]
    assert "The config of topics/a cannot be read" in caplog.text
    assert [content(stage.world, path) for path in REMOVALS] == [{"version": 1, "topics": ["a"]}, None, None, None]


@pytest.mark.requirement("R179-26")
async def test_a_broker_whose_config_cannot_be_read_stays_named_until_the_next_removal(stage: Stage) -> None:
    await throttled(stage, ["a", "t"], [1, 2])
    put(stage.world, "/config/brokers/1", {"version": 1, "config": {"k": 7}})
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == ["topics/a", "topics/t", "brokers/2"]
    assert [content(stage.world, path) for path in REMOVALS] == [None, {"version": 1, "brokers": [1]}, None, None]
    throttle(stage.world, "brokers/1")
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == list(ENTITIES) and content(stage.world, BROKERS) is None


@pytest.mark.requirement("R179-26")
async def test_a_config_that_cannot_be_written_stays_named_and_the_others_are_written(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await throttled(stage, ["a", "t"], [1, 2])
    write_configs, refused = stage.store.write_configs, {"topics/a", "brokers/2"}

    async def refuse(writes: list[ConfigWrite]) -> Any:
        allowed = [write for write in writes if str(write.entity) not in refused]
        outcomes = iter(await write_configs(allowed))
        return [next(outcomes) if write in allowed else WriteOutcome.FAILED for write in writes]

    stage.store.write_configs = refuse  # type: ignore[method-assign, assignment]
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == ["topics/t", "brokers/1"]
    assert "the config of topics/a cannot be written" in caplog.text
    assert [content(stage.world, path) for path in (TOPICS, BROKERS)] == [
        {"version": 1, "topics": ["a"]}, {"version": 1, "brokers": [2]},
    ]
    refused.clear()
    await remove_when_idle(stage.term)
    assert unthrottled(stage) == list(ENTITIES)


@pytest.mark.requirement("R179-24")
async def test_throttles_go_at_once_when_all_entries_of_a_znode_of_reassignments_fail(stage: Stage) -> None:
    await throttled(stage, ["a", "t"], [1, 2])
    stage.world.ask_reassignment({TopicPartition("no-such-topic", 0): (1,)})
    await stage.settle()
    assert unthrottled(stage) == list(ENTITIES)
    assert [content(stage.world, path) for path in (*REMOVALS, MOVES)] == [None] * 5


@pytest.mark.requirement("R179-9")
async def test_a_config_that_somebody_writes_meanwhile_is_read_again(stage: Stage) -> None:
    await throttled(stage, ["a", "t"], [])
    write_configs, meanwhile = stage.store.write_configs, [{"x": "1", "y": "2"}, {"x": "3"}]

    async def late(writes: list[ConfigWrite]) -> Any:
        if meanwhile:
            set_config(stage.world, "topics/t", {**config(stage.world, "topics/t"), **meanwhile.pop()})
        return await write_configs(writes)

    stage.store.write_configs = late  # type: ignore[method-assign, assignment]
    await remove_when_idle(stage.term)
    assert config(stage.world, "topics/t") == {**KEPT["topics"], "x": "1", "y": "2"}
    assert replicas(stage.world, "a") == (None, None)
    assert announced(stage.world) == ["topics/a", "topics/t"]


async def test_a_config_that_somebody_writes_all_the_time_waits_for_the_next_time(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await throttled(stage, ["t"], [])
    write_configs, tries = stage.store.write_configs, []

    async def late(writes: list[ConfigWrite]) -> Any:
        tries.append(writes)
        set_config(stage.world, "topics/t", {**config(stage.world, "topics/t"), "x": str(len(tries))})
        return await write_configs(writes)

    stage.store.write_configs = late  # type: ignore[method-assign, assignment]
    await remove_when_idle(stage.term)
    assert len(tries) == ATTEMPTS
    assert "the configs of topics/t are changed all the time by somebody else" in caplog.text
    assert content(stage.world, TOPICS) == {"version": 1, "topics": ["t"]}
    stage.store.write_configs = write_configs  # type: ignore[method-assign]
    await remove_when_idle(stage.term)
    assert replicas(stage.world, "t") == (None, None) and content(stage.world, TOPICS) is None


async def test_where_kip_179_is_off_nothing_is_read_or_written(stage: Stage) -> None:
    await throttled(stage, ["t"], [1])
    stage.change_options(kip179_enable=False)
    await stage.settle()
    before, requests = tree(stage.world), stage.world.zk.requests
    await remove_when_idle(stage.term)
    assert tree(stage.world) == before and stage.world.zk.requests == requests


async def test_one_request_to_zookeeper_tells_that_there_is_nothing_to_remove(stage: Stage) -> None:
    await stage.open(1)
    requests = stage.world.zk.requests
    await remove_when_idle(stage.term)
    assert stage.world.zk.requests == requests + 1
    assert stage.cluster.partition(TopicPartition("t", 0)) is None
