"""`docker-compose.yml` is run: clients of this machine and of the network, a lost broker, an end in order, kept data, the pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer

from klamm.admin import AdminClient
from klamm.admin.calls.errors import TimedOut
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.waits import wait_for
from klamm.tests.images.containers import Compose, logs, podman

pytestmark = [pytest.mark.slow, pytest.mark.images, pytest.mark.timeout(900)]

FROM_THE_NETWORK = "klamm-1:19092,klamm-2:19092,klamm-3:19092"
BROKERS = ("klamm-1", "klamm-2", "klamm-3")
WITHIN_S = 120


class ComposeCluster:
    """The ZooKeeper and the brokers of the file."""

    def __init__(self) -> None:
        self._ports = free_ports(len(BROKERS))
        self._compose = Compose({f"KLAMM_PORT_{broker}": str(port) for broker, port in enumerate(self._ports, 1)})

    @property
    def addresses(self) -> list[str]:
        """Where clients of this machine find the brokers."""
        return [f"localhost:{port}" for port in self._ports]

    def up(self) -> None:
        """Start them; returns when all brokers are live."""
        self._compose("up", "--detach", "zookeeper", *BROKERS)
        with AdminClient(",".join(self.addresses)) as admin:
            wait_for(lambda: live_brokers(admin) == {1, 2, 3}, "three brokers", WITHIN_S)

    def stop(self) -> None:
        """Stop them all at once. Fails, with the log, if a broker did not end in order."""
        self._compose("stop")
        for broker in BROKERS:
            (state,) = json.loads(podman("inspect", container(broker)))
            assert state["State"]["ExitCode"] == 0, f"{broker}: {state['State']}\n{logs(container(broker))}"

    def down(self, *options: str) -> None:
        """Stop and remove all containers of the file."""
        self._compose("--profile", "pipeline", "down", *options)

    def pipeline(self) -> str:
        """Run the pipeline on a Spark cluster of two containers; returns what it prints."""
        self._compose("--profile", "pipeline", "up", "--detach", "--no-deps", "spark-master", "spark-worker")
        return self._compose("--profile", "pipeline", "run", "--rm", "-T", "--no-deps", "pipeline")


def container(service: str) -> str:
    return f"klamm_{service}_1"


@pytest.fixture(scope="module")
def cluster(broker_image: None, zookeeper_image: None) -> Iterator[ComposeCluster]:
    """A running cluster; nothing of it is left at the end."""
    cluster = ComposeCluster()
    cluster.down("--volumes")
    cluster.up()
    yield cluster
    cluster.down("--volumes", "--timeout", "0")


def live_brokers(admin: AdminClient) -> set[int]:
    try:
        return {broker.id for broker in admin.describe_cluster(timeout_ms=5_000).brokers}
    except TimedOut:
        return set()


def leaders(admin: AdminClient) -> set[int | None]:
    return {partition.leader for partition in admin.describe_topics(["orders"])["orders"].partitions}


def in_sync(admin: AdminClient) -> list[set[int]]:
    return [set(partition.isr) for partition in admin.describe_topics(["orders"])["orders"].partitions]


def in_the_network(*arguments: str) -> str:
    """What a command of klamm prints in a container of the network."""
    return podman("run", "--rm", "--network", "klamm_default", "klamm", *arguments)


def values(cluster: ComposeCluster) -> list[bytes]:
    consumer = KafkaConsumer("orders", bootstrap_servers=cluster.addresses, auto_offset_reset="earliest", consumer_timeout_ms=15_000)
    read = sorted(record.value for _, record in zip(range(2), consumer, strict=False))
    consumer.close()
    return read


def test_the_cluster_of_the_compose_file_serves_loses_a_broker_and_keeps_its_data(cluster: ComposeCluster) -> None:
    in_the_network("topics", "create", "orders", "--partitions", "3", "--replication-factor", "3", "--bootstrap-server", FROM_THE_NETWORK)
    producer = KafkaProducer(bootstrap_servers=cluster.addresses, acks="all")
    producer.send("orders", b"from the host", partition=0).get(30)
    assert in_the_network("consume", "orders", "-e", "--bootstrap-server", FROM_THE_NETWORK) == "from the host\n"

    podman("kill", container("klamm-1"))
    with AdminClient(",".join(cluster.addresses[1:])) as admin:
        wait_for(lambda: live_brokers(admin) == {2, 3}, "the loss of broker 1", WITHIN_S)
        wait_for(lambda: leaders(admin) <= {2, 3}, "other leaders", WITHIN_S)
        producer.send("orders", b"without broker 1", partition=1).get(30)
        producer.close()
        podman("start", container("klamm-1"))
        wait_for(lambda: in_sync(admin) == [{1, 2, 3}] * 3, "broker 1 in all ISRs", WITHIN_S)

    cluster.stop()
    cluster.down()
    cluster.up()
    assert values(cluster) == [b"from the host", b"without broker 1"]


def test_the_pipeline_profile_makes_tables_of_what_the_brokers_wrote_to_the_lake(cluster: ComposeCluster, pipeline_image: None) -> None:
    said = cluster.pipeline()
    assert re.search(r"\b[1-9]\d* frames = [1-9]\d* messages \+ 0 in quarantine", said), said
    folders = podman("run", "--rm", "--volume", "klamm_lake:/lake", "--entrypoint", "ls", "klamm-pipeline", "/lake").split()
    assert {"journal", "bronze", "silver", "gold"} <= set(folders)
