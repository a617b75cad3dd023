"""A broker that is cut off from the controller alone: everybody else, clients and ZooKeeper reach it still (controller 25).

It is fenced, fences itself, loses its leaders, and comes back by itself when the cut is healed. A producer with acks=all writes all the
while, and every record that was acknowledged is read in the end. How soon it is fenced is tested on driven clocks: a controller that stood
still for a moment, on a busy machine, gives its brokers that time.
"""

from __future__ import annotations

import time

import pytest

from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import grave
from klamm.tests.registered.registered import SESSION_TIMEOUT_MS, RegisteredMembers
from klamm.tests.registered.three_brokers import TOPIC, producing, three


def cut_off_and_healed(members: RegisteredMembers, *, closed: bool) -> None:
    controller, victim, other = three(members)
    before = members.registered(victim, "ONLINE")
    with producing(members) as producer:
        members.network.cut(controller, victim)
        if closed:
            members.network.drop(controller, victim)
        members.registered(victim, "FENCED")
        members.led_by_none_of(TOPIC, victim)
        wait_for(lambda: members.refuses_clients(victim), f"{victim} refuses clients")
        assert members.tree.controller() == controller
        for partition in range(4):  # followers leave their ISRs in a write after that of the leaders
            members.becomes(TOPIC, partition, lambda state: victim not in state.isr, f"{victim} is not in sync")
        producer.goes_on()
        members.network.heal(controller, victim)
        after = members.registered(victim, "ONLINE")
        assert after.epoch == before.epoch, "it comes back by fetching, not by another registration"
        members.in_sync([TOPIC])
        members.settled()
    assert members.elect(TOPIC) == 0
    members.shown(TOPIC, 0, lambda leader: leader == victim)
    assert grave(members, controller, victim, other) == []


@pytest.mark.requirement("RREG-20", "RREG-8", "RREG-22")
def test_a_broker_cut_off_from_the_controller_alone_is_fenced_and_comes_back_and_no_record_is_lost(registered: RegisteredMembers) -> None:
    cut_off_and_healed(registered, closed=False)


@pytest.mark.slow
@pytest.mark.requirement("RREG-20")
def test_it_is_the_same_when_the_connections_between_them_are_closed_first(registered: RegisteredMembers) -> None:
    cut_off_and_healed(registered, closed=True)


@pytest.mark.slow
@pytest.mark.requirement("RREG-22")
def test_a_cut_shorter_than_the_session_changes_nothing(registered: RegisteredMembers) -> None:
    controller, victim, _ = three(registered)
    before, leaders = registered.node(victim), registered.leaders(TOPIC)
    with producing(registered):
        for _ in range(3):
            registered.network.cut(controller, victim)
            end = time.monotonic() + SESSION_TIMEOUT_MS / 3000
            wait_for(lambda end=end: time.monotonic() > end, "a third of the session is over")  # type: ignore[misc]
            registered.network.heal(controller, victim)
            end = time.monotonic() + SESSION_TIMEOUT_MS / 3000
            wait_for(lambda end=end: time.monotonic() > end, "heartbeats have passed")  # type: ignore[misc]
    after = registered.node(victim)
    assert before is not None and after is not None and (after.state, after.epoch) == (before.state, before.epoch)
    assert registered.leaders(TOPIC) == leaders


@pytest.mark.slow
@pytest.mark.requirement("RREG-6", "RREG-20")
def test_a_broker_that_is_cut_off_again_and_again_loses_nothing(registered: RegisteredMembers) -> None:
    controller, victim, _ = three(registered)
    with producing(registered) as producer:
        for number in range(4):
            registered.network.cut(controller, victim)
            if number % 2:
                registered.network.drop(controller, victim)
            registered.registered(victim, "FENCED")
            registered.led_by_none_of(TOPIC, victim)
            registered.network.heal(controller, victim)
            registered.registered(victim, "ONLINE")
            registered.in_sync([TOPIC])
            assert registered.elect(TOPIC) == 0
            producer.goes_on()


@pytest.mark.slow
@pytest.mark.requirement("RREG-8", "RREG-13")
def test_all_brokers_cut_off_from_the_controller_are_fenced_and_all_come_back(registered: RegisteredMembers) -> None:
    controller, one, other = three(registered)
    with producing(registered):
        for broker_id in (one, other):
            registered.network.cut(controller, broker_id)
        for broker_id in (one, other):
            registered.registered(broker_id, "FENCED")
        assert registered.tree.controller() == controller
        assert set(registered.leaders(TOPIC).values()) == {controller}, "who is in sync and alive leads"
        for broker_id in (one, other):
            registered.network.heal(controller, broker_id)
        for broker_id in (one, other):
            registered.registered(broker_id, "ONLINE")
        registered.in_sync([TOPIC])
