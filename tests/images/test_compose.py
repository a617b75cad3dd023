"""`docker-compose.yml` is run: clients of this machine and of the network, a lost broker, the pipeline, an end without lost data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer

from klamm.admin import AdminClient
from klamm.tests.harness.waits import wait_for
from klamm.tests.images.containers import compose, podman

pytestmark = [pytest.mark.slow, pytest.mark.images, pytest.mark.usefixtures("images")]

FROM_HERE = "localhost:9092,localhost:9093,localhost:9094"
FROM_THE_NETWORK = "klamm-1:19092,klamm-2:19092,klamm-3:19092"
BROKERS = ("zookeeper", "klamm-1", "klamm-2", "klamm-3")
WITHIN_S = 120


@pytest.fixture
def started() -> Iterator[None]:
    """The services of the file; nothing of them is left at the end."""
    compose("down", "--volumes")
    up()
    yield
    compose("--profile", "pipeline", "down", "--volumes")


def up() -> None:
    compose("up", "--detach", *BROKERS)
    with AdminClient(FROM_HERE) as admin:
        wait_for(lambda: live_brokers(admin) == {1, 2, 3}, "three brokers", WITHIN_S)


def live_brokers(admin: AdminClient) -> set[int]:
    try:
        return {broker.id for broker in admin.describe_cluster(timeout_ms=5_000).brokers}
    except OSError:
        return set()


def in_the_network(*arguments: str) -> str:
    """What a command of klamm prints in a container of the network."""
    return podman("run", "--rm", "--network", "klamm_default", "klamm", *arguments)


def values() -> list[bytes]:
    consumer = KafkaConsumer("orders", bootstrap_servers=FROM_HERE.split(","), auto_offset_reset="earliest", consumer_timeout_ms=15_000)
    read = sorted(record.value for _, record in zip(range(2), consumer, strict=False))
    consumer.close()
    return read


@pytest.mark.timeout(900)
def test_the_cluster_of_the_compose_file_serves_loses_a_broker_is_studied_and_keeps_its_data(started: None) -> None:
    in_the_network("topics", "create", "orders", "--partitions", "3", "--replication-factor", "3", "--bootstrap-server", FROM_THE_NETWORK)
    producer = KafkaProducer(bootstrap_servers=FROM_HERE.split(","), acks="all")
    producer.send("orders", b"from the host", partition=0).get(30)
    assert in_the_network("consume", "orders", "-e", "--bootstrap-server", FROM_THE_NETWORK) == "from the host\n"

    podman("kill", "klamm_klamm-1_1")
    with AdminClient(FROM_HERE.split(",", 1)[1]) as admin:
        wait_for(lambda: live_brokers(admin) == {2, 3}, "the loss of broker 1", WITHIN_S)
        wait_for(lambda: leaders(admin) <= {2, 3}, "other leaders", WITHIN_S)
        producer.send("orders", b"without broker 1", partition=1).get(30)
        producer.close()
        podman("start", "klamm_klamm-1_1")
        wait_for(lambda: in_sync(admin) == [{1, 2, 3}] * 3, "broker 1 in all ISRs", WITHIN_S)
    assert values() == [b"from the host", b"without broker 1"]

    compose("down")
    up()
    assert values() == [b"from the host", b"without broker 1"]

    compose("--profile", "pipeline", "up", "--detach", "--no-deps", "spark-master", "spark-worker")
    said = compose("--profile", "pipeline", "run", "--rm", "--no-deps", "pipeline")
    print(said)
    tables = podman("run", "--rm", "--volume", "klamm_lake:/lake", "--entrypoint", "ls", "klamm-pipeline", "/lake")
    assert "tables" in tables, tables + said


def leaders(admin: AdminClient) -> set[int | None]:
    return {partition.leader for partition in admin.describe_topics(["orders"])["orders"].partitions}


def in_sync(admin: AdminClient) -> list[set[int]]:
    return [set(partition.isr) for partition in admin.describe_topics(["orders"])["orders"].partitions]
