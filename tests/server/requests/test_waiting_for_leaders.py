"""Waiting for the leaders of new topics: all of them at the same time."""

from __future__ import annotations

import asyncio

from klamm.protocol.nouns import NO_LEADER
from klamm.server.apis.topic_creation import wait_for_leaders
from klamm.tests.broker import update_metadata
from klamm.tests.services import make_services


async def test_a_topic_that_has_lost_its_leader_again_is_waited_for_too() -> None:
    services = make_services()

    def publish(**leaders: int) -> None:
        rows = [
            update_metadata.topic(name, 10 + number, update_metadata.partition(0, leader, (1,), (1,)))
            for number, (name, leader) in enumerate(leaders.items())
        ]
        services.metadata.update(update_metadata.update(*rows))
        services.purgatory.check([(name, [0]) for name in leaders])

    publish(a=NO_LEADER, b=NO_LEADER)
    waiting = asyncio.ensure_future(wait_for_leaders(services, {"a": [0], "b": [0]}, 20_000))
    for leaders, is_done in (({"b": 1}, False), ({"a": 1, "b": NO_LEADER}, False), ({"b": 1}, True)):
        publish(**leaders)
        for _ in range(5):
            await asyncio.sleep(0)
        assert waiting.done() is is_done, leaders
    assert waiting.result() == set()
