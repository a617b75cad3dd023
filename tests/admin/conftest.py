"""Fixtures of the admin client's tests: scripted brokers, a real Klamm cluster, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import klamm
from klamm.server.local.library import BlockingCluster
from klamm.tests.admin.scripted import ScriptedCluster, scripted


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with scripted() as one:
        yield one


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Every client that a test opens ends its thread."""
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("klamm-admin")] == []


@pytest.fixture(scope="session")
def served(zookeeper: str) -> Iterator[BlockingCluster]:
    """Three Klamm brokers in this process."""
    config = {"auto.leader.rebalance.enable": "false"}
    with klamm.Cluster(3, topics=["orders:6:3", "single:1:1"], zookeeper=f"{zookeeper}/admin-client", config=config) as one:
        yield one
