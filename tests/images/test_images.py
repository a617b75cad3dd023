"""The images of the Dockerfile are built and run: size, user, file system, health, signals, clients."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer

from klamm.tests.harness.names import unique_name
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.waits import wait_for
from klamm.tests.images.containers import BASE, inspect, podman

pytestmark = [pytest.mark.slow, pytest.mark.images, pytest.mark.timeout(900)]

MEGABYTES = {"klamm": 230, "klamm-serve": 230, "klamm-pipeline": 1300}
"""What an image may add to its base."""
BUILT_BY = {"klamm": "broker_image", "klamm-serve": "serve_image", "klamm-pipeline": "pipeline_image"}
LOCKED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges")


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a container, which is removed at the end."""
    name = unique_name("klamm")
    yield name
    podman("rm", "--force", "--ignore", "--volumes", name)


@pytest.mark.parametrize("image", MEGABYTES)
def test_an_image_is_small_and_does_not_run_as_root(image: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(BUILT_BY[image])
    described = inspect(image)
    added = (described["Size"] - inspect(BASE)["Size"]) / 1e6
    print(f"{image}: {added:.0f} MB beside its base")
    assert added < MEGABYTES[image]
    assert described["User"] == "klamm"
    assert described["Config"]["StopSignal"] == "SIGTERM"
    said = podman("run", "--rm", *LOCKED, image, "--version")
    assert re.fullmatch(r"klamm [\d.]+\n", said)
    kept = podman("run", "--rm", "--entrypoint", "python", image, "-c", "import os; print(os.getuid(), os.access('/opt/klamm', os.W_OK))")
    assert kept == "1000 False\n"


def test_a_cluster_in_one_container_is_found_at_the_address_of_the_environment(name: str, serve_image: None) -> None:
    """With a file system that is read only, without capabilities; it becomes healthy, and SIGTERM ends it in order."""
    (port,) = free_ports(1)
    ports = ("--publish", f"127.0.0.1:{port}:9092", "--env", f"KLAMM_ADVERTISED=127.0.0.1:{port}")
    podman("run", "--detach", "--name", name, *LOCKED, *ports, "klamm-serve", "serve", "--brokers", "1", "--json", "--topic", "orders:2:1")
    ready = wait_for(lambda: podman("logs", name).partition("\n")[0], "the line of JSON", 60)
    assert json.loads(ready)["bootstrap_servers"] == f"127.0.0.1:{port}"
    producer = KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}")
    producer.send("orders", b"record").get(30)
    producer.close()
    consumer = KafkaConsumer("orders", bootstrap_servers=f"127.0.0.1:{port}", auto_offset_reset="earliest")
    assert next(consumer).value == b"record"
    consumer.close()
    podman("healthcheck", "run", name)
    podman("stop", "--time", "20", name)
    (state,) = json.loads(podman("inspect", name))
    assert (state["State"]["ExitCode"], state["State"]["OOMKilled"]) == (0, False), podman("logs", name)
