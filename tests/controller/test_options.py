"""ControllerOptions: a value that an event replaces."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.options import ControllerOptions
from klamm.controller.phases import PartitionsAppeared
from klamm.tests.controller.stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    one = Stage()
    yield one
    await one.close()


def test_options_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ControllerOptions().delete_topic_enable = False  # type: ignore[misc]


async def test_an_event_that_is_being_handled_keeps_its_options(stage: Stage) -> None:
    await stage.open(1)
    hold = stage.steering.hold(PartitionsAppeared)
    stage.world.create_topic("t", {0: (1,)}, b"t" * 16)
    await hold.reached()
    before = stage.term.options
    stage.change_options(unclean_leader_election_enable=True)
    await asyncio.sleep(0)
    assert stage.term.options is before
    hold.release()
    await stage.settle()
    assert stage.term.options is stage.controller.options is stage.options


async def test_requests_name_the_listener_of_the_new_options(stage: Stage) -> None:
    await stage.open(1)
    stage.change_options(inter_broker_listener="OTHER")
    await stage.create("t", (1,))
    [told] = [entry.request for entry in stage.world.journal if getattr(entry, "api_key", None) == 4]
    assert [(leader.host_name, leader.port) for leader in told.live_leaders] == [("", -1)], "broker 1 has no such listener"


async def test_options_that_wait_when_the_session_expires_count_in_the_next_term(stage: Stage) -> None:
    await stage.open(1)
    stage.change_options(delete_topic_enable=False)
    await stage.controller.expire()
    stage.controller.put(events.Reelect())
    await stage.settle()
    assert not stage.controller.options.delete_topic_enable
