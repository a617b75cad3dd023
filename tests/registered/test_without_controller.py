"""A cluster without a controller: brokers by request go on as those of ZooKeeper do, until there is the next one (controller 25, RREG-24).

Their session time-out is 9 s here, and the ZooKeeper session of the controller lasts 15 s: for more than 6 s nobody answers them. They are
longer than in other files because a broker serves only if it reads its registration in ZooKeeper every third of its session time-out, and a
busy machine may stop it for a second. Whether a broker that is cut off is fenced meanwhile is in `test_cut_off.py`.
"""

from __future__ import annotations

import pytest

from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.record_clients import RunningProducer
from klamm.tests.registered.registered import RegisteredMembers
from klamm.tests.registered.three_brokers import TOPIC, producing


def never_fenced(members: RegisteredMembers, *ids: int) -> None:
    """These brokers served clients since they began to do so, and the controller has not fenced them either."""
    for broker_id in ids:
        broker = members.brokers[broker_id]
        assert "ONLINE → FENCED" not in broker.log.read_text(), broker.tail()
        assert members.registered(broker_id, "ONLINE").epoch == 1


def on_two_others(members: RegisteredMembers) -> tuple[int, int, int]:
    """Start three brokers by request: (the controller, another one, the third). The topic has one replica each on the latter two."""
    members.add_by_request(1, 2, 3, broker_session_timeout_ms=9000, zookeeper_session_timeout_ms=15_000)
    members.start(1, 2, 3)
    controller = members.tree.controller()
    one, other = (broker_id for broker_id in (1, 2, 3) if broker_id != controller)
    members.create(TOPIC, [[one], [other], [one], [other]])
    members.settled()
    return controller, one, other


def next_controller(members: RegisteredMembers, former: int, producer: RunningProducer) -> None:
    """Wait until there is one, while the producer goes on."""

    def look() -> bool:
        producer.goes_on()
        assert members.tree.controller() not in (-1, former)
        return True

    wait_for(look, "the next controller")
    producer.goes_on()


@pytest.mark.slow
@pytest.mark.requirement("RREG-24", "RREG-13")
def test_brokers_serve_on_from_the_death_of_the_controller_to_the_next_one(registered: RegisteredMembers) -> None:
    controller, one, other = on_two_others(registered)
    with producing(registered) as producer:
        registered.brokers[controller].kill()
        next_controller(registered, controller, producer)
        registered.registered(controller, "FENCED")
    never_fenced(registered, one, other)


@pytest.mark.slow
@pytest.mark.requirement("RREG-24", "RREG-13")
def test_brokers_serve_on_while_the_controller_is_frozen_and_it_comes_back(registered: RegisteredMembers) -> None:
    controller, one, other = on_two_others(registered)
    with producing(registered) as producer:
        registered.brokers[controller].freeze()
        next_controller(registered, controller, producer)
        registered.registered(controller, "FENCED")
        registered.brokers[controller].thaw()
        registered.registered(controller, "ONLINE")
    never_fenced(registered, one, other)
