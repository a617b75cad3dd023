"""Tests with a cluster of Klamm in a container. Its clients must know their port before it starts, so a free one is chosen here."""

import json
import secrets
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from testcontainers.core.container import DockerContainer
from testcontainers.core.waiting_utils import wait_for_logs

TOKEN = secrets.token_hex()


@pytest.fixture(scope="session")
def klamm():
    with socket.create_server(("localhost", 0)) as probe:
        port = probe.getsockname()[1]
    control = "--control-host 0.0.0.0 --control-port 9090"
    container = DockerContainer("klamm-serve").with_command(f"serve --brokers 1 --topic orders:1:1 {control}")
    container = container.with_env("KLAMM_ADVERTISED", f"localhost:{port}").with_env("KLAMM_CONTROL_TOKEN", TOKEN)
    container = container.with_bind_ports(9092, port).with_exposed_ports(9090)
    with container:
        wait_for_logs(container, f"localhost:{port}", timeout=60)
        yield {
            "bootstrap_servers": f"localhost:{port}",
            "control": f"http://{container.get_container_host_ip()}:{container.get_exposed_port(9090)}",
        }


def control(klamm, path, body=None):
    """What the control API responds: a POST with a body, a GET without one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(klamm["control"] + path, data, {"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def test_a_producer_tries_again_after_an_error(klamm):
    control(klamm, "/faults", {"filter": {"api": "Produce"}, "effect": {"error": "NOT_LEADER_OR_FOLLOWER"}, "first": 1})
    with KafkaProducer(bootstrap_servers=klamm["bootstrap_servers"], client_id="shop") as producer:
        producer.send("orders", b"record").get(30)
    errors = [request["error"] for request in control(klamm, "/requests?client_id=shop&api=Produce")["requests"]]
    assert errors == ["NOT_LEADER_OR_FOLLOWER", None]


def test_a_topic_is_created_when_the_controller_goes_on(klamm):
    hold = control(klamm, "/holds", {"phase": "ZooKeeperWrite", "where": {"paths": "/brokers/topics/bills"}})["id"]
    with KafkaAdminClient(bootstrap_servers=klamm["bootstrap_servers"]) as admin, ThreadPoolExecutor() as threads:
        created = threads.submit(admin.create_topics, ["bills"])
        control(klamm, f"/holds/{hold}?wait=reached&timeout_ms=10000")
        control(klamm, f"/holds/{hold}/release", {})
        created.result(10)
