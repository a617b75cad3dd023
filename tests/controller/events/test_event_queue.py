"""The queue's order and numbers, and the causes of events: what put them there, and which event a response belongs to."""

from __future__ import annotations

import asyncio
import logging
from typing import get_args

import pytest

from klamm.controller.event_loop.decision_log import cause_text
from klamm.controller.events import catalogue as events
from klamm.controller.events.causes import (
    WATCH_FIRED,
    BrokerStarted,
    Cause,
    ConfigChanged,
    QueuedEvent,
    RequestReceived,
    ResponseReceived,
    SessionChanged,
    TimerFired,
)
from klamm.controller.events.queue import EventQueue
from klamm.controller.values import ControllerMoved, Election
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.conftest import Timer
from klamm.tests.controller.stage import Stage


def queue_of(*waiting: events.Event) -> EventQueue:
    queue = EventQueue()
    for event in waiting:
        queue.put(event, WATCH_FIRED)
    return queue


async def test_events_come_in_order_and_are_numbered_from_one() -> None:
    queue = queue_of(events.TopicChange(), events.TopicDeletion())
    assert [await queue.get(), await queue.get()] == [
        QueuedEvent(1, events.TopicChange(), WATCH_FIRED),
        QueuedEvent(2, events.TopicDeletion(), WATCH_FIRED),
    ]


async def test_get_waits_for_the_next_event() -> None:
    queue = EventQueue()
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.put(events.TopicChange(), ConfigChanged())
    assert await waiting == QueuedEvent(1, events.TopicChange(), ConfigChanged())


def test_take_same_stops_at_another_kind() -> None:
    t, u = events.PartitionModifications("t"), events.PartitionModifications("u")
    queue = queue_of(t, u, events.TopicChange(), t)
    assert [queued.event for queued in queue.take_same(events.PartitionModifications)] == [t, u]
    assert queue.take_same(events.PartitionModifications) == [] and len(queue) == 2


async def test_drop_keeps_the_other_kinds_and_their_numbers() -> None:
    queue = queue_of(events.AutoPreferredReplicaLeaderElection(), events.TopicChange(), events.AutoPreferredReplicaLeaderElection())
    queue.drop(events.AutoPreferredReplicaLeaderElection)
    assert len(queue) == 1 and (await queue.get()).sequence == 2


async def test_clear_preempts_requests_and_an_older_expiry() -> None:
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    block: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
    queue = queue_of(events.Expire(begun), events.AllocateProducerIds(1, 1, block), events.TopicChange())
    queue.clear()
    assert begun.done() and len(queue) == 0
    with pytest.raises(ApiError) as error:
        await block
    assert error.value.code is ErrorCode.NOT_CONTROLLER


async def causes(stage: Stage) -> list[tuple[str, Cause]]:
    """(event, cause) of everything that is put on the queue from now on."""
    seen: list[tuple[str, Cause]] = []
    put = stage.controller.queue.put

    def note(event: events.Event, cause: Cause) -> None:
        seen.append((type(event).__name__, cause))
        put(event, cause)

    stage.controller.queue.put = note  # type: ignore[method-assign]
    return seen


async def test_the_first_events_of_a_broker(stage: Stage) -> None:
    seen = await causes(stage)
    await stage.open(1)
    assert seen == [("Startup", BrokerStarted()), ("ControllerChange", WATCH_FIRED)]


async def test_a_request_is_the_cause_of_its_event_with_its_connection(stage: Stage) -> None:
    await stage.open(1)
    seen = await causes(stage)
    await stage.controller.allocate_producer_ids(1, stage.world.brokers[1].epoch)
    await stage.controller.elect_leaders([TopicPartition("t", 0)], Election.PREFERRED, RequestReceived("ElectLeaders", "127.0.0.1:1-2", 7))
    assert seen == [
        ("AllocateProducerIds", RequestReceived("AllocateProducerIds")),
        ("ElectLeaders", RequestReceived("ElectLeaders", "127.0.0.1:1-2", 7)),
    ]


async def test_a_response_names_the_event_that_sent_the_request(stage: Stage) -> None:
    await stage.open(1)
    await stage.create("t", (1,))
    seen = await causes(stage)
    stage.world.delete_topic("t")
    await stage.settle()
    (response,) = [cause for name, cause in seen if name == "StopReplicaResponseReceived"]
    # Startup, ControllerChange, TopicChange; TopicDeletion is the fourth one
    assert response == ResponseReceived(1, 4)


async def test_sessions_and_retries_are_causes(stage: Stage, timers: list[Timer]) -> None:
    stage.store.before_write = []
    stage.world.spoilt.add("/controller_epoch")
    seen = await causes(stage)
    stage.controller.election._put = stage.controller.queue.put
    await stage.open(1)
    stage.world.spoilt.clear()
    timers[0].fire()
    await stage.settle()
    assert ("Reelect", TimerFired("election retry")) in seen
    await stage.controller.expire()
    stage.controller.new_session()
    await stage.settle()
    assert [entry for entry in seen if entry[1] == SessionChanged()] == [
        ("Expire", SessionChanged()),
        ("RegisterBrokerAndReelect", SessionChanged()),
    ]


async def test_while_an_event_is_processed_it_is_the_current_one(stage: Stage) -> None:
    """Of the controller, of its term, and as a number of the sender: writes and frames can be traced to it."""
    await stage.open(1)
    at_write: list[tuple[object, ...]] = []

    def look(writes: object) -> None:
        c, term = stage.controller, stage.term
        assert c.current is term.event and c.current is not None
        at_write.append((type(c.current.event).__name__, c.current.sequence == term.sender.event))
        raise ControllerMoved("enough")

    await stage.create("t", (1,))
    stage.store.before_write = [look]
    await stage.stop(1)
    assert at_write == [("BrokerChange", True)]
    assert stage.controller.current is None


async def test_the_decision_line_names_number_and_cause(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.open(1)
    with caplog.at_level(logging.DEBUG, logger="klamm.controller"):
        await stage.create("t", (1,))
    (line,) = [record.getMessage() for record in caplog.records if " TopicChange " in record.getMessage()]
    assert line.startswith("broker 100: event 3 TopicChange (a watch fired): ")
    assert "t-0 leader 1 isr 1 leader epoch 0 partition epoch 0" in line


def test_every_cause_has_a_text() -> None:
    samples: dict[type, Cause] = {
        TimerFired: TimerFired("leader rebalance"),
        RequestReceived: RequestReceived("AlterPartition", "x", 5),
        ResponseReceived: ResponseReceived(2, 17),
    }
    texts = {cause_text(samples.get(kind) or kind()) for kind in get_args(Cause)}
    assert len(texts) == len(get_args(Cause))
    assert {"timer leader rebalance", "request AlterPartition 5 of connection x", "response of broker 2 to event 17"} < texts
