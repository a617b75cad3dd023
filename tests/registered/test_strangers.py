"""A stranger that knows id and epoch of a broker, in a cluster without authentication (RREG-25).

It can neither stop that broker nor keep it online when it is dead. The brokers are processes of Klamm's own; they have secrets.
"""

from __future__ import annotations

import asyncio

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.waits import eventually_asked
from klamm.tests.registered.hostile import Impostor
from klamm.tests.registered.registered import RegisteredMembers
from klamm.tests.registered.three_brokers import TOPIC, three

STALE = ErrorCode.STALE_BROKER_EPOCH


def stranger(members: RegisteredMembers, victim: int) -> Impostor:
    """Connected to the controller; it knows all that ZooKeeper has of the victim."""
    one = Impostor(members.brokers[members.tree.controller()].port, victim)
    node = members.node(victim)
    assert node is not None
    one.epoch = node.epoch
    return one


@pytest.mark.slow
@pytest.mark.requirement("RREG-25", "RREG-8", "RREG-13")
async def test_who_knows_id_and_epoch_neither_stops_a_broker_nor_keeps_a_dead_one_online(registered: RegisteredMembers) -> None:
    controller, victim, other = await asyncio.to_thread(three, registered)
    epochs = {broker_id: registered.registered(broker_id, "ONLINE").epoch for broker_id in (victim, other)}
    one = stranger(registered, victim)
    for wants in (True, False):
        assert (await one.fetch(want_shut_down=wants)).error_code == STALE
    await one.client.close()
    assert registered.registered(victim, "ONLINE").epoch == epochs[victim] and victim in registered.leaders(TOPIC).values()

    registered.brokers[controller].kill()
    await asyncio.to_thread(registered.led_by_none_of, TOPIC, controller)
    one = stranger(registered, victim)
    assert (await one.fetch(want_shut_down=True)).error_code == STALE, "the next controller knows the broker by its secret too"
    for broker_id, epoch in epochs.items():
        assert registered.registered(broker_id, "ONLINE").epoch == epoch, "nobody had to register again"

    await one.client.close()
    if registered.tree.controller() == victim:
        victim = other
    one = stranger(registered, victim)
    registered.brokers[victim].kill()

    async def is_fenced() -> bool:
        assert (await one.fetch()).error_code == STALE
        node = registered.node(victim)
        return node is not None and node.state == "FENCED"

    await eventually_asked(is_fenced, "the dead broker is fenced although a stranger fetches in its name")
    await one.client.close()
