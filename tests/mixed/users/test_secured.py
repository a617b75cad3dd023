"""A cluster of both kinds whose brokers speak to each other over SASL_SSL: each is controller, leader and follower of the other."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from klamm.server.local.made_security import MadeSecurity, kafka_python_settings, make_security
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.ports import free_port
from klamm.zk.layout.znodes import encode_config

pytestmark = [pytest.mark.slow, pytest.mark.reference]

KAFKA, KLAMM = 1, 2
MECHANISM = "SCRAM-SHA-512"


def settings_of(made: MadeSecurity) -> dict[str, Any]:
    """A listener without security is for the test alone."""
    own = {name.replace("listener.name.sasl_ssl.", "listener.name.inner."): value for name, value in made.config.items()}
    del own["security.inter.broker.protocol"]
    return own | {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},INNER://127.0.0.1:{free_port()}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:SASL_SSL",
        "inter.broker.listener.name": "INNER",
    }


def test_brokers_of_both_kinds_replicate_over_sasl_ssl(members: Members) -> None:
    made = make_security(
        members.folder / "security", "127.0.0.1", tls=True, mechanism=MECHANISM, now_ms=int(time.time() * 1000)
    )
    for user, configs in made.users.items():
        members.tree.client.create(f"/config/users/{user}", encode_config(configs), makepath=True)
    given = members.settings_of
    members.settings_of = lambda broker_id: given(broker_id) | {
        name.replace(".", "_"): value for name, value in settings_of(made).items()
    }
    members.klamm(KLAMM)
    members.kafka(KAFKA)
    secured = ",".join(broker.address("INNER") for broker in members.brokers.values())
    client: dict[str, Any] = kafka_python_settings(made.client)
    for controller in (KLAMM, KAFKA):
        members.office(controller)
        topic = f"t{controller}"
        members.create(topic, [[KAFKA, KLAMM], [KLAMM, KAFKA]])
        producer = KafkaProducer(bootstrap_servers=secured, acks="all", **client)
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=number % 2).get(60)
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=secured, consumer_timeout_ms=60_000, **client)
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        consumer.seek_to_beginning()
        assert sorted(next(consumer).value for _ in range(10)) == [b"%d" % number for number in range(10)]
        consumer.close()
        for partition in (0, 1):
            wait_for(lambda: sorted(members.state(topic, partition).isr) == [KAFKA, KLAMM], "both are in sync")  # noqa: B023 called at once
