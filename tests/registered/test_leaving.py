"""Brokers by request that leave: on SIGTERM their leaders are moved away first, after kill -9 they come back under the same id."""

from __future__ import annotations

import threading

import pytest

from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import grave
from klamm.tests.registered.registered import RegisteredMembers
from klamm.tests.registered.three_brokers import TOPIC, producing, three


@pytest.mark.requirement("RREG-10")
def test_sigterm_moves_the_leaders_away_first_and_producers_see_no_error_that_lasts(registered: RegisteredMembers) -> None:
    _, victim, other = three(registered)
    before = registered.registered(victim, "ONLINE")
    epochs = {partition: registered.state(TOPIC, partition).le for partition in range(4)}
    with producing(registered) as producer:
        assert registered.brokers[victim].stop(30) == 0
        after = registered.node(victim)
        assert after is not None and (after.state, after.epoch) == ("OFFLINE", before.epoch)
        assert after.version >= before.version + 2, "ONLINE, STOPPING, OFFLINE: two writes"
        for partition in range(4):
            state = registered.state(TOPIC, partition)
            assert state.leader not in (victim, -1) and victim not in state.isr, state
            assert state.le <= epochs[partition] + 1, "moved by the shutdown, not once more when it was gone"
        producer.goes_on()
        registered.start(victim)
        assert registered.registered(victim, "ONLINE").epoch == before.epoch + 1
        registered.in_sync([TOPIC])
        assert registered.elect(TOPIC) == 0
        registered.shown(TOPIC, 0, lambda leader: leader == victim)
    assert grave(registered, victim, other) == []


@pytest.mark.slow
@pytest.mark.requirement("RREG-10", "RREG-13")
def test_the_controller_itself_leaves_by_sigterm(registered: RegisteredMembers) -> None:
    controller, *_ = three(registered)
    with producing(registered) as producer:
        for _ in range(2):
            controller = registered.tree.controller()
            epoch = registered.registered(controller, "ONLINE").epoch
            assert registered.brokers[controller].stop(30) == 0
            node = registered.node(controller)
            assert node is not None and (node.state, node.epoch) == ("OFFLINE", epoch)
            registered.led_by_none_of(TOPIC, controller)
            producer.goes_on()
            registered.start(controller)
            registered.in_sync([TOPIC])


@pytest.mark.slow
@pytest.mark.requirement("RREG-10")
def test_a_broker_that_is_fenced_leaves_at_once(registered: RegisteredMembers) -> None:
    controller, victim, _ = three(registered)
    registered.network.cut(controller, victim)
    fenced = registered.registered(victim, "FENCED")
    assert registered.brokers[victim].stop(45) == 0, "it gives up by itself"
    node = registered.node(victim)
    assert node is not None and node.epoch == fenced.epoch and node.state in ("FENCED", "OFFLINE")


@pytest.mark.slow
@pytest.mark.requirement("RREG-16", "RREG-4", "RREG-14")
def test_after_kill_9_the_same_id_registers_at_once_and_nothing_is_lost(registered: RegisteredMembers) -> None:
    _, victim, _ = three(registered)
    before = registered.registered(victim, "ONLINE")
    with producing(registered) as producer:
        registered.brokers[victim].kill()
        registered.start(victim)
        assert registered.registered(victim, "ONLINE").epoch == before.epoch + 1
        producer.goes_on()
        registered.in_sync([TOPIC])


@pytest.mark.slow
@pytest.mark.requirement("RREG-8")
def test_after_kill_9_a_broker_that_stays_away_is_fenced_and_its_leaders_are_moved(registered: RegisteredMembers) -> None:
    _, victim, _ = three(registered)
    with producing(registered) as producer:
        registered.brokers[victim].kill()
        registered.registered(victim, "FENCED")
        registered.led_by_none_of(TOPIC, victim)
        producer.goes_on()
        registered.start(victim)
        registered.in_sync([TOPIC])


@pytest.mark.slow
@pytest.mark.requirement("RREG-8", "RREG-22")
def test_a_frozen_broker_is_fenced_and_knows_it_when_it_wakes_up(registered: RegisteredMembers) -> None:
    _, victim, _ = three(registered)
    epoch = registered.registered(victim, "ONLINE").epoch
    with producing(registered) as producer:
        registered.brokers[victim].freeze()
        registered.registered(victim, "FENCED")
        registered.led_by_none_of(TOPIC, victim)
        producer.goes_on()
        registered.brokers[victim].thaw()
        assert registered.registered(victim, "ONLINE").epoch >= epoch
        registered.in_sync([TOPIC])


@pytest.mark.slow
@pytest.mark.requirement("RREG-13", "RREG-10")
@pytest.mark.parametrize("how", ["stopped", "killed", "cut off"])
def test_a_fail_over_keeps_who_is_online_and_gives_the_fenced_and_the_stopping_their_time(registered: RegisteredMembers, how: str) -> None:
    """Beside the controller: one broker ONLINE, one FENCED, one STOPPING that alone can lead a partition."""
    controller, fenced, _ = three(registered)
    registered.add_by_request(4, 5, controlled_shutdown_max_retries=40)
    registered.start(4, 5)
    registered.create("alone", [[5, 4]])
    registered.in_sync(["alone"])
    with producing(registered) as producer:
        registered.brokers[4].kill()
        registered.registered(4, "FENCED")
        wait_for(lambda: registered.state("alone").isr == [5], "only one is in sync")
        stopping_one = threading.Thread(target=registered.brokers[5].stop, args=(90,))
        stopping_one.start()
        before = registered.registered(5, "STOPPING")
        registered.network.cut(controller, fenced)
        registered.registered(fenced, "FENCED")
        others = {1, 2, 3, 5} - {controller}
        epoch = registered.tree.controller_epoch()
        if how == "stopped":
            assert registered.brokers[controller].stop(45) == 0
        elif how == "killed":
            registered.brokers[controller].kill()
        else:
            for broker_id in others:
                registered.network.cut(controller, broker_id)
            registered.tree.delete("/controller")
        wait_for(lambda: registered.tree.controller_epoch() > epoch, "the next election", 30)
        if how == "cut off":
            for broker_id in others:
                registered.network.heal(controller, broker_id)
        for broker_id in others - {5}:
            registered.registered(broker_id, "ONLINE")
        assert registered.node(5) == before, "it has its time still, and leads what only it can lead"
        assert registered.state("alone").leader == 5
        producer.goes_on()
        registered.network.heal(controller, fenced)
        registered.brokers[4].launch()
        registered.registered(4, "ONLINE")
        assert registered.state("alone").leader == 5, "a leader that is stopping takes nobody into the ISR: it is not alive itself"
        stopping_one.join()
        assert registered.brokers[5].exit_code() == 0, "it gives up"
        assert registered.registered(5, "OFFLINE").epoch == before.epoch
        if how != "cut off":
            registered.start(controller)
        registered.start(5)
        registered.in_sync([TOPIC, "alone"])
