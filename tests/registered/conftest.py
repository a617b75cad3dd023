"""Fixtures of clusters whose brokers register with the controller by requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.process import KlammBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.registered.hostile import HEARTBEAT_MS, SESSION_TIMEOUT_MS, Impostor, fresh_id
from klamm.tests.registered.registered import RegisteredMembers


@pytest.fixture
def registered(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[RegisteredMembers]:
    """Members of one cluster; none is started."""
    yield from _members(zookeeper, chroot, tmp_path, Path("no-jars"))


@pytest.fixture
def mixed(zookeeper: str, chroot: str, tmp_path: Path, kafka_jars: Path) -> Iterator[RegisteredMembers]:
    """Members of one cluster, Kafka brokers among them; none is started."""
    yield from _members(zookeeper, chroot, tmp_path, kafka_jars)


def _members(
    zookeeper: str, chroot: str, folder: Path, jars: Path, settings_of: Callable[[int], dict[str, Any]] = lambda _: {}
) -> Iterator[RegisteredMembers]:
    members = RegisteredMembers(jars, Tree(zookeeper, chroot), folder, settings_of)
    try:
        yield members
    finally:
        members.close()
        members.tree.close()


@pytest.fixture(scope="module")
def controller(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammBroker]:
    """Broker 0, the controller of all tests of a file of hostile brokers."""
    tree = Tree(zookeeper, f"/{unique_name('hostile')}")
    settings = {
        "registerbroker_enable": "on",
        "broker_session_timeout_ms": SESSION_TIMEOUT_MS,
        "broker_heartbeat_interval_ms": HEARTBEAT_MS,
    }
    broker = KlammBroker(tree, tmp_path_factory.mktemp("hostile"), 0, **settings)
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.kill()
        tree.close()


@pytest.fixture
async def cluster(controller: KlammBroker) -> AsyncIterator[Cluster]:
    """The shared controller, for one test. It must be alive and at work at the end."""
    one = Cluster(controller.tree, controller.folder, {0: controller})
    try:
        yield one
        topic = await one.create([[0]])
        assert await one.shown_leader(topic) == 0
    finally:
        await one.close()
    assert controller.alive(), controller.tail()
    assert "Traceback" not in controller.log.read_text(errors="replace"), controller.tail()


@pytest.fixture
async def impostor(controller: KlammBroker) -> AsyncIterator[Impostor]:
    """A broker of an id that was never used, registered."""
    one = Impostor(controller.port, fresh_id())
    assert (await one.register()).error_code == 0
    yield one
    await one.client.close()
