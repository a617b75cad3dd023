"""Brokers that register by request in one cluster with Kafka brokers, which register in ZooKeeper (controller 25, RREG-14 and 15)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.tests.harness.fake_broker import FakeBroker
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import grave
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.record_clients import produce, read_all
from klamm.tests.harness.waits import eventually
from klamm.tests.mixed.kafka_errors import unusual
from klamm.tests.reference.tools import Tools
from klamm.tests.registered.registered import RegisteredMembers
from klamm.tests.registered.three_brokers import producing

KAFKA = {
    "listener_security_protocol_map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}
TOPIC = "ledger"


def mixed_cluster(members: RegisteredMembers, **of_kafka: object) -> None:
    """Klamm 0 registers in ZooKeeper and is controller, Kafka 1 and 2 too, Klamm 3 and 4 by request; `ledger` is on all of them but 0.
    `of_kafka` are more settings of Kafka 1 and 2.
    """
    def settings_of(broker_id: int) -> dict[str, object]:
        if broker_id not in (1, 2):
            return {}
        client, internal = free_ports(2)
        listeners = f"CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}"
        return {**KAFKA, "listeners": listeners, "replica_lag_time_max_ms": 4000, **of_kafka}

    base = members.settings_of
    members.settings_of = lambda broker_id: base(broker_id) | settings_of(broker_id)
    members.add_in_zookeeper(0)
    members.start(0)
    members.kafka(1, 2)
    members.add_by_request(3, 4)
    members.start(3, 4)
    assert members.tree.controller() == 0
    members.create(TOPIC, [[1, 3], [3, 1], [4, 2], [2, 4]])
    members.in_sync([TOPIC])


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.requirement("RREG-15", "RREG-5")
def test_both_kinds_replicate_from_each_other_and_kafkas_tools_and_clients_know_both(mixed: RegisteredMembers) -> None:
    mixed_cluster(mixed)
    assert mixed.tree.children("/brokers/ids") == ["0", "1", "2"]
    assert mixed.tree.children("/cluster/brokers") == ["3", "4"]
    for broker in mixed.running():
        assert sorted(broker.known()[0]) == [0, 1, 2, 3, 4]
    tools = Tools(mixed.jars, mixed.folder, mixed.bootstrap(4))
    tools.succeed("kafka-topics", "--create", "--topic", "made", "--replica-assignment", "3:1:4")
    tools.succeed("kafka-topics", "--create", "--topic", "other", "--replica-assignment", "2:4:3")
    mixed.in_sync(["made", "other"])
    tools.succeed("kafka-console-producer", "--topic", "made", stdin="".join(f"line-{n}\n" for n in range(50)))
    read = Tools(mixed.jars, mixed.folder, mixed.bootstrap(1)).run(
        "kafka-console-consumer", "--topic", "made", "--partition", 0, "--offset", "earliest", "--max-messages", 50, "--timeout-ms", 30_000
    )
    assert read.stdout.split() == [f"line-{n}" for n in range(50)]
    said = tools.succeed("kafka-topics", "--describe")
    assert "Replicas: 3,1,4" in said and "Replicas: 2,4,3" in said
    versions = tools.succeed("kafka-broker-api-versions")
    assert all(f"(id: {broker_id} " in versions for broker_id in range(5)), versions
    with producing(mixed) as producer:
        # one of each kind leaves and comes back
        for broker_id in (3, 1):
            assert mixed.brokers[broker_id].stop() in (0, 143)
            mixed.led_by_none_of(TOPIC, broker_id)
            producer.goes_on()
            mixed.start(broker_id)
            mixed.in_sync([TOPIC, "made", "other"])
        # and one of each kind dies
        for broker_id in (4, 2):
            mixed.brokers[broker_id].kill()
            mixed.led_by_none_of(TOPIC, broker_id)
            producer.goes_on()
            mixed.start(broker_id)
            mixed.in_sync([TOPIC, "made", "other"])
    assert unusual(mixed.real()) == []
    assert grave(mixed, 0, 3, 4) == []


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.requirement("RREG-15", "RREG-13", "RREG-22")
def test_a_kafka_controller_takes_over_and_gives_back_and_registrations_are_left_alone(mixed: RegisteredMembers) -> None:
    """A Kafka controller knows no brokers by request: they fence themselves meanwhile, and come back without registering again.

    Its session is so long that it stays controller when a busy machine stops it for some seconds. Else Klamm would be elected.
    """
    mixed_cluster(mixed, zookeeper_session_timeout_ms=60_000)
    before = {broker_id: mixed.node(broker_id) for broker_id in (3, 4)}
    for broker_id in (0, 3, 4):  # who must not be elected
        mixed.brokers[broker_id].freeze()
    mixed.tree.delete("/controller")
    wait_for(lambda: mixed.tree.controller() in (1, 2), "a Kafka broker is controller")
    for broker_id in (0, 3, 4):
        mixed.brokers[broker_id].thaw()

    def are_fenced() -> bool:
        assert mixed.tree.controller() in (1, 2), f"broker {mixed.tree.controller()} is the controller"
        return mixed.refuses_clients(3) and mixed.refuses_clients(4)

    wait_for(are_fenced, "brokers by request fence themselves")
    mixed.led_by_none_of(TOPIC, 3, 4)
    produce(mixed.bootstrap(1, 2), TOPIC, [f"under-kafka-{n}" for n in range(100)])
    assert {broker_id: mixed.node(broker_id) for broker_id in (3, 4)} == before, "nobody writes registrations now"

    for broker_id in (1, 2, 3, 4):
        mixed.brokers[broker_id].freeze()
    mixed.tree.delete("/controller")
    wait_for(lambda: mixed.tree.controller() == 0, "Klamm is controller again")
    for broker_id in (1, 2, 3, 4):
        mixed.brokers[broker_id].thaw()
    for broker_id in (3, 4):
        mixed.registered(broker_id, "ONLINE")
    mixed.settled()
    mixed.in_sync([TOPIC])
    held = read_all(mixed.bootstrap(3, 4), TOPIC)
    assert held.total() == 100 and set(held.values()) == {1}
    assert unusual(mixed.real()) == [], "nobody sends a Kafka controller what it does not know"


def same_id_by_request(members: RegisteredMembers) -> int:
    """Klamm 0 in ZooKeeper, 3 and 4 by request, a topic on both: the epoch of 3."""
    members.add_in_zookeeper(0)
    members.start(0)
    members.add_by_request(3, 4)
    members.start(3, 4)
    members.create(TOPIC, [[3, 4], [4, 3]])
    members.in_sync([TOPIC])
    return members.registered(3, "ONLINE").epoch


class InternalBroker(FakeBroker):
    """A fake broker with the listener of the brokers of these clusters."""

    def node(self, port: int | None = None, rack: str | None = None) -> dict[str, Any]:
        node = super().node(port, rack)
        endpoints = [endpoint.replace("PLAINTEXT://", "INTERNAL://") for endpoint in node["endpoints"]]
        return node | {"endpoints": endpoints, "listener_security_protocol_map": {"INTERNAL": "PLAINTEXT"}}


@pytest.mark.requirement("RREG-14")
async def test_a_broker_of_the_same_id_in_zookeeper_wins_while_it_is_there(registered: RegisteredMembers) -> None:
    epoch = await asyncio.to_thread(same_id_by_request, registered)
    fake = InternalBroker(registered.tree, 3)
    await fake.start()
    try:
        await asyncio.to_thread(registered.registered, 3, "FENCED")
        await eventually(lambda: registered.refuses_clients(3), "the broker by request is fenced")
        told = await eventually(lambda: fake.since(0, "UpdateMetadata"), "the one in ZooKeeper is told about the cluster")
        assert told[-1].body.broker_epoch == fake.epoch, "its epoch is that of its znode"
        await eventually(lambda: fake.since(0, "LeaderAndIsr"), "and about its partitions")
        node = registered.node(3)
        assert node is not None and (node.state, node.epoch) == ("FENCED", epoch), "it cannot be unfenced"
    finally:
        await fake.die()
    assert (await asyncio.to_thread(registered.registered, 3, "ONLINE")).epoch == epoch
    await asyncio.to_thread(registered.settled)
    await asyncio.to_thread(registered.in_sync, [TOPIC])
