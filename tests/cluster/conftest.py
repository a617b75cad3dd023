"""Clusters for tests: one shared klamm broker that is controller, or an empty ZooKeeper path to start processes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.process import KlammBroker
from klamm.tests.harness.tree import Tree


@pytest.fixture(scope="session")
def shared_broker(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammBroker]:
    """Broker 0, the controller of tests that bring their own fake brokers."""
    tree = Tree(zookeeper, f"/{unique_name('shared')}")
    broker = KlammBroker(tree, tmp_path_factory.mktemp("shared"), 0)
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.kill()
        tree.close()


@pytest.fixture
async def cluster(shared_broker: KlammBroker) -> AsyncIterator[Cluster]:
    """The shared controller, for one test, which leaves it running. If another one is in office then, it is elected again."""
    one = Cluster(shared_broker.tree, shared_broker.folder, {0: shared_broker})
    try:
        yield one
    finally:
        await one.close()
        if one.tree.controller() != shared_broker.id:
            await one.restart_controller()
    assert shared_broker.alive(), shared_broker.tail()


@pytest.fixture
async def empty(zookeeper: str, chroot: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Nothing started: the test starts processes as it likes. All of them are killed at its end."""
    tree = Tree(zookeeper, chroot)
    one = Cluster(tree, tmp_path)
    try:
        yield one
    finally:
        await one.close()
        tree.close()
