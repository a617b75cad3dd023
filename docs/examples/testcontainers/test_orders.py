"""A test with a cluster of Klamm in a container. Its clients must know their port before it starts, so a free one is chosen here."""

import socket

import pytest
from kafka import KafkaConsumer, KafkaProducer
from testcontainers.core.container import DockerContainer
from testcontainers.core.waiting_utils import wait_for_logs


@pytest.fixture(scope="session")
def bootstrap_servers():
    with socket.create_server(("localhost", 0)) as probe:
        port = probe.getsockname()[1]
    klamm = DockerContainer("klamm-serve").with_command("serve --brokers 1 --topic orders:1:1")
    klamm = klamm.with_env("KLAMM_ADVERTISED", f"localhost:{port}").with_bind_ports(9092, port)
    with klamm:
        wait_for_logs(klamm, f"localhost:{port}", timeout=60)
        yield f"localhost:{port}"


def test_a_record_is_read(bootstrap_servers):
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send("orders", b"record").get(30)
    with KafkaConsumer("orders", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        assert next(consumer).value == b"record"
