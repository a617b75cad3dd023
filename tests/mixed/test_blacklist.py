"""preferred_leader_blacklist in clusters that have Kafka brokers: they store it as a key they do not know, and go by the assignment.

Kafka's own kafka-configs writes the list, once as KIP-491 has it and once with the brackets that the tool needs. Kafka's brokers and a
controller of Kafka are not disturbed by it; when Klamm is controller the list counts, whoever stored it.
"""

from __future__ import annotations

import pytest

from klamm.tests.harness import requests
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members, grave
from klamm.tests.mixed.kafka_errors import unusual
from klamm.tests.reference.tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.reference]

NAME = "preferred_leader_blacklist"
PLACE = "/config/brokers/<default>"
OF_ALL_BROKERS = ("--entity-type", "brokers", "--entity-default")
NOT_NEEDED = 84


def stored(members: Members) -> dict[str, str]:
    """The cluster-wide broker configs in ZooKeeper."""
    config: dict[str, str] = (members.tree.json(PLACE) or {"config": {}})["config"]
    return config


def tool(members: Members) -> Tools:
    return Tools(members.jars, members.folder, members.bootstrap(*(b.id for b in members.running())))


def led_by_preferred(members: Members, topic: str, leader: int) -> None:
    """A preferred election makes this broker the leader, or finds that it is."""
    assert members.elect(topic) in (0, NOT_NEEDED)
    members.shown(topic, 0, lambda shown: shown == leader)


def moved_away(members: Members, topic: str) -> None:
    """Stop and start broker 1 so that 2 leads, with 1 back in the ISR."""
    members.brokers[1].stop()
    members.led_by(topic, 0, 2)
    members.start(1)
    members.in_sync([topic])


@pytest.mark.requirement("R491-19", "R491-17")
def test_kafka_brokers_store_the_list_and_ignore_it_and_klamm_goes_by_it_when_it_is_controller(members: Members) -> None:
    members.kafka(1, 2, 3)
    members.create("orders", [[1, 2, 3]])
    members.in_sync(["orders"])
    if members.tree.controller() != 3:
        members.office(3)

    bare = tool(members).run("kafka-configs", *OF_ALL_BROKERS, "--alter", "--add-config", f"{NAME}=1,10,65")
    assert bare.returncode != 0 and stored(members) == {}, bare
    tool(members).succeed("kafka-configs", *OF_ALL_BROKERS, "--alter", "--add-config", f"{NAME}=[1,10,65]")
    assert stored(members) == {NAME: "1,10,65"}

    moved_away(members, "orders")
    led_by_preferred(members, "orders", 1)  # a Kafka controller does not know the list
    assert members.state("orders").leader == 1

    members.klamm(4)
    members.office(4)
    led_by_preferred(members, "orders", 2)
    members.office(3)
    led_by_preferred(members, "orders", 1)
    members.office(4)
    led_by_preferred(members, "orders", 2)

    # Klamm stores what the tool writes as Kafka does, and a Kafka broker that starts with it is none the worse
    tool(members).succeed("kafka-configs", *OF_ALL_BROKERS, "--alter", "--delete-config", NAME)
    assert stored(members) == {}
    led_by_preferred(members, "orders", 1)
    tool(members).succeed("kafka-configs", *OF_ALL_BROKERS, "--alter", "--add-config", f"{NAME}=[1,10,65]")
    assert stored(members) == {NAME: "1,10,65"}
    members.brokers[3].stop()
    members.start(3)
    members.in_sync(["orders"])
    assert unusual(members.real()) == []
    assert grave(members, 4) == []


@pytest.mark.requirement("R491-17")
def test_kafka_configs_writes_the_same_list_through_klamm_and_through_kafka(members: Members) -> None:
    """One after the other, since the tool sends its requests to any broker of a cluster."""
    said: dict[int, list[str]] = {}
    for broker_id, start in ((1, members.kafka), (0, members.klamm)):
        for before in members.brokers.values():
            before.stop()
        start(broker_id)
        one = Tools(members.jars, members.folder, members.bootstrap(broker_id))
        bare = one.run("kafka-configs", *OF_ALL_BROKERS, "--alter", "--add-config", f"{NAME}=1,10,65")
        assert bare.returncode != 0 and stored(members) == {}, bare
        set_to = one.succeed("kafka-configs", *OF_ALL_BROKERS, "--alter", "--add-config", f"{NAME}=[1,10,65]")
        assert stored(members) == {NAME: "1,10,65"}
        shown = one.succeed("kafka-configs", *OF_ALL_BROKERS, "--describe")
        gone = one.succeed("kafka-configs", *OF_ALL_BROKERS, "--alter", "--delete-config", NAME)
        assert stored(members) == {}
        empty = one.succeed("kafka-configs", *OF_ALL_BROKERS, "--describe")
        said[broker_id] = [bare.stdout, bare.stderr.splitlines()[0], set_to, gone, empty]
        print(broker_id, shown)
        if broker_id == 0:
            assert f"{NAME}=1,10,65 sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{NAME}=1,10,65}}" in shown, shown
    assert said[0] == said[1]


@pytest.mark.requirement("R491-19")
def test_a_list_that_kafka_stores_although_it_is_none_counts_as_empty(members: Members) -> None:
    """A Kafka broker checks nothing of a key it does not know, so a controller may read anything."""
    members.kafka(1, 2)
    members.klamm(3)
    members.create("orders", [[1, 2]])
    members.in_sync(["orders"])
    request = requests.set_configs(requests.BROKER, "", {NAME: "one,-2"})
    (answer,) = members.ask(request, 1, to=1).responses
    assert answer.error_code == 0, "a Kafka broker takes any value"
    wait_for(lambda: stored(members) == {NAME: "one,-2"}, "stored")
    members.office(3)
    moved_away(members, "orders")
    led_by_preferred(members, "orders", 1)
    assert members.brokers[3].alive()
