"""What brokers post and answer: failed log directories (controller 4.6), ISR changes of an older protocol (9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.values import ControllerMoved
from klamm.protocol import messages
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.stage import Stage

LOG_DIR, ISR = "REMOVED /log_dir_event_notification/log_dir_event_", "REMOVED /isr_change_notification/isr_change_"


def tp(name: str, index: int = 0) -> TopicPartition:
    return TopicPartition(name, index)


async def lose(stage: Stage, broker_id: int, *keys: TopicPartition) -> None:
    stage.world.offline_dirs.update((broker_id, key) for key in keys)
    stage.world.notify_log_dir(broker_id)
    await stage.settle()


# --- 4.6 ---


async def test_a_failed_log_directory(stage: Stage) -> None:
    """Roles again for everything on the broker; its answer names what is lost: a leader moves, a follower leaves the ISR."""
    await stage.open(1, 2, 3)
    await stage.create("led", (1, 2))
    await stage.create("followed", (2, 1))
    await stage.create("fine", (1, 2))
    mark = stage.mark()
    await lose(stage, 1, tp("led"), tp("followed"))
    everything = "fine-0 1 e0 [1, 2] v0 followed-0 2 e0 [2, 1] v0 led-0 1 e0 [1, 2] v0"
    election = "led-0 2 e1 [2] v1"
    shrunk = "followed-0 2 e1 [2] v1"
    assert stage.since(mark) == [
        f"LISR 1: {everything}", *(f"UMR {b}: {everything}" for b in (1, 2, 3)),
        f"{LOG_DIR}0000000001",
        f"WROTE {election}", f"LISR 2: {election}", *(f"UMR {b}: {election} off[1]" for b in (1, 2, 3)),
        f"WROTE {shrunk}", f"LISR 2: {shrunk} {election}", *(f"UMR {b}: {shrunk} off[1] {election} off[1]" for b in (1, 2, 3)),
        "SR 1: followed-0 e0 led-0 e1",
    ]
    assert stage.replica(1, "led") == stage.replica(1, "followed") == "OFFLINE"
    assert stage.replica(1, "fine") == "ONLINE"


async def test_it_may_not_lead_again(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await lose(stage, 1, tp("t"))
    await stage.stop(2)
    assert stage.state("t") == "-1 e2 [2] v2", "nobody else is in sync"
    stage.change_options(unclean_leader_election_enable=True)
    await stage.create("u", (3,))
    await stage.start(4)
    assert stage.state("t") == "-1 e2 [2] v2", "not even unclean"
    mark = stage.mark()
    stage.world.bounce_broker(1)
    await stage.settle()
    assert stage.cluster.offline_dirs == {}, "forgotten when it comes back"
    assert stage.state("t") == "1 e3 [1] v3 recovering"
    assert "UMR 1: t-0 1 e3 [1] v3 off[2]" in stage.since(mark)


async def test_its_last_member_leads_no_more(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1,))
    mark = stage.mark()
    await lose(stage, 1, tp("t"))
    assert stage.writes(mark) == [f"{LOG_DIR}0000000001", "WROTE t-0 -1 e1 [1] v1"]
    assert stage.partition_state("t") == "OFFLINE"
    await stage.stop(1)
    assert stage.cluster.offline_dirs == {}, "nothing is remembered of the dead"


async def test_the_truth_may_come_with_any_answer(stage: Stage) -> None:
    await stage.open(1, 2)
    stage.world.offline_dirs.add((1, tp("t")))
    await stage.create("t", (1, 2))
    assert stage.state("t") == "2 e1 [2] v1"
    assert stage.cluster.offline_replicas(stage.partition("t")) == (1,)
    mark = stage.mark()
    stage.world.offline_dirs.clear()
    stage.world.notify_log_dir(1)
    await stage.settle()
    assert stage.cluster.offline_dirs == {}, "a role it took is the proof that it is back"
    assert stage.since(mark) == [
        "LISR 1: t-0 2 e1 [2] v1", "UMR 1: t-0 2 e1 [2] v1 off[1]", "UMR 2: t-0 2 e1 [2] v1 off[1]", f"{LOG_DIR}0000000001"
    ], "nobody is told of that"


def answered(topic_id: bytes, *rows: tuple[int, int], top: int = 0) -> Any:
    response = messages.LeaderAndIsrResponse
    errors = [response.LeaderAndIsrPartitionError(partition_index=i, error_code=e) for i, e in rows]
    return response(error_code=top, topics=[response.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors)])


def answered_by_name(*rows: tuple[str, int, int]) -> Any:
    response = messages.LeaderAndIsrResponse
    row = response.LeaderAndIsrPartitionError
    return response(partition_errors=[row(topic_name=t, partition_index=i, error_code=e) for t, i, e in rows])


async def test_an_answer_of_a_process_that_is_gone(stage: Stage) -> None:
    """It waits in the queue behind the news that its broker was bounced: what it says of log directories is no longer true."""
    await stage.open(1, 2)
    await stage.create("t", (1,))
    stage.channels.silent.add(1)
    await lose(stage, 1, tp("t"))
    mark = stage.mark()
    stage.world.bounce_broker(1)
    asyncio.get_running_loop().call_soon(stage.channels.release)
    await stage.settle()
    assert stage.writes(mark) == ["WROTE t-0 -1 e1 [1] v1", "WROTE t-0 1 e2 [1] v2"]
    assert stage.cluster.offline_dirs == {}


@pytest.mark.parametrize("by_name", [False, True])
async def test_answers(stage: Stage, by_name: bool) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2), (1, 2), (1, 2))
    topic = stage.cluster.topics["t"]

    def answer(*rows: tuple[int, int]) -> Any:
        return answered_by_name(*(("t", i, e) for i, e in rows)) if by_name else answered(topic.wire_id, *rows)

    def lost() -> set[int]:
        return {p.index for p in stage.cluster.offline_dirs.get(1, set())}

    await stage.put(events.LeaderAndIsrResponseReceived(1, stage.world.brokers[1].epoch, answer((0, 56), (1, 56), (2, 0), (7, 56))))
    assert lost() == {0, 1}
    assert [stage.state("t", i) for i in range(3)] == ["2 e1 [2] v1", "2 e1 [2] v1", "1 e0 [1, 2] v0"]
    mark = stage.mark()
    await stage.put(events.LeaderAndIsrResponseReceived(1, stage.world.brokers[1].epoch, answer((0, 56), (1, 11))))
    assert lost() == {0, 1}, "other errors say nothing about log directories"
    assert stage.since(mark) == [], "what was lost before is no news"
    await stage.put(events.LeaderAndIsrResponseReceived(1, stage.world.brokers[1].epoch, answer((1, 0), (2, 56))))
    assert lost() == {0, 2}
    await stage.put(events.LeaderAndIsrResponseReceived(1, stage.world.brokers[1].epoch, answer((0, 0), (2, 0))))
    assert stage.cluster.offline_dirs == {}
    await stage.put(events.LeaderAndIsrResponseReceived(7, 5, answer((0, 56))))
    assert stage.cluster.offline_dirs == {}, "one that is not registered"
    await stage.put(events.LeaderAndIsrResponseReceived(2, stage.world.brokers[2].epoch, answer((0, 0))))
    assert stage.cluster.offline_dirs == {}


async def test_answers_with_a_top_level_error_are_only_logged(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    topic = stage.cluster.topics["t"]
    before = len(stage.controller.queue)
    for response in (answered(topic.wire_id, (0, 56), top=11), answered(topic.wire_id, (0, 0)), answered(topic.wire_id, (0, 11))):
        stage.controller._on_response(1, 0, response, frozenset())
        assert len(stage.controller.queue) == before, "not worth an event"
    stage.controller._on_response(1, 0, answered(topic.wire_id, (0, 56)), frozenset())
    assert len(stage.controller.queue) == before + 1
    await stage.settle()
    stage.controller._on_response(1, 0, answered(topic.wire_id, (0, 0)), frozenset())
    await stage.settle()
    assert stage.cluster.offline_dirs == {}, "worth one while something is lost"


async def test_a_notification_of_a_dead_broker(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    await stage.stop(1)
    mark = stage.mark()
    stage.world.notify_log_dir(1)
    await stage.settle()
    assert stage.since(mark) == [f"{LOG_DIR}0000000001"]


async def test_many_notifications_at_once(stage: Stage) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))
    mark = stage.mark()
    for b in (2, 1, 2):
        stage.world.notify_log_dir(b)
    await stage.settle()
    assert stage.frames(mark, "LISR") == ["LISR 1: t-0 1 e0 [1, 2] v0", "LISR 2: t-0 1 e0 [1, 2] v0"]
    assert stage.world.log_dir_notifications == {}
    mark = stage.mark()
    stage.world.notify_log_dir(1)
    await stage.settle()
    assert stage.frames(mark, "LISR") == ["LISR 1: t-0 1 e0 [1, 2] v0"], "watched again"


# --- 9 ---


async def test_isr_changes_of_an_older_protocol(stage: Stage) -> None:
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2), (1, 2))
    for i in (0, 1):
        stage.somebody_writes("t", i, isr=(1,))
    mark = stage.mark()
    stage.world.notify_isr_change([tp("t", 0), tp("gone")])
    stage.world.notify_isr_change([tp("t", 0)])
    await stage.settle()
    assert stage.since(mark) == [
        *(f"UMR {b}: t-0 1 e0 [1] v1" for b in (1, 2, 3)), f"{ISR}0000000001", f"{ISR}0000000002"
    ]
    assert stage.partition("t").info == stage.world.states[tp("t")]
    p = stage.partition("t", 1)
    assert p.info is not None and p.info.isr == (1, 2), "not named, not read"
    mark = stage.mark()
    stage.world.notify_isr_change([tp("t", 1)])
    await stage.settle()
    assert stage.frames(mark) == [f"UMR {b}: t-1 1 e0 [1] v1" for b in (1, 2, 3)], "watched again"


async def test_notifications_of_nothing_known(stage: Stage) -> None:
    await stage.open(1)
    mark = stage.mark()
    stage.world.notify_isr_change([])
    await stage.settle()
    assert stage.since(mark) == [f"{ISR}0000000001"]
    mark = stage.mark()
    stage.world.notify_isr_change([tp("gone")])
    await stage.settle()
    assert stage.since(mark) == ["UMR 1:", f"{ISR}0000000002"]


async def test_a_partition_whose_node_is_gone_keeps_what_is_known(stage: Stage) -> None:
    await stage.open(1)
    await stage.create("t", (1,))
    del stage.world.states[tp("t")]
    mark = stage.mark()
    stage.world.notify_isr_change([tp("t")])
    await stage.settle()
    assert stage.since(mark) == ["UMR 1: t-0 1 e0 [1] v0", f"{ISR}0000000001"]


@pytest.mark.parametrize("kind", ["isr", "log_dir"])
async def test_notifications_are_removed_even_when_handling_them_fails(stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.open(1, 2)
    await stage.create("t", (1, 2))

    async def fail(*_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    if kind == "isr":
        monkeypatch.setattr(stage.store, "read_states", fail)
        stage.world.notify_isr_change([tp("t")])
    else:
        monkeypatch.setattr(stage.term.sender, "batch", lambda: 1 / 0)
        stage.world.notify_log_dir(1)
    await stage.settle()
    assert stage.world.isr_notifications == {} == stage.world.log_dir_notifications
    assert stage.controller.is_active


async def test_a_lost_epoch_while_removing_notifications(stage: Stage) -> None:
    await stage.open(1)

    async def lose_epoch(names: Any) -> None:
        stage.world.steal(77)
        raise ControllerMoved("stolen")

    stage.store.delete_isr_notifications = lose_epoch  # type: ignore[method-assign]
    stage.world.notify_isr_change([])
    await stage.settle()
    assert not stage.controller.is_active


async def test_the_state_of_a_reassigned_partition_that_its_older_leader_writes_is_read_again(stage: Stage) -> None:
    stage.change_options(alter_partition_supported=False)
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2))
    await stage.controller.alter_reassignments({tp("t"): (1, 2, 3)})
    await stage.settle()
    assert stage.state("t") == "1 e1 [1, 2] v1"
    stage.somebody_writes("t", isr=(1,))
    await stage.settle()
    assert stage.state("t") == "1 e1 [1] v2"
    stage.somebody_writes("t", isr=(1, 2, 3))
    await stage.settle()
    assert stage.state("t") == "1 e2 [1, 2, 3] v4", "the watch is armed again, and the end of the reassignment raises the leader epoch"
    stage.somebody_writes("t", isr=(1, 2))
    await stage.settle()
    known = stage.partition("t").info
    assert known is not None and known.isr == (1, 2, 3), "nothing is watched any more"
