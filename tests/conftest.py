"""Fixtures for all tests: one real ZooKeeper per session, a path of its own in it for every test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from klamm.zk.embedded import EmbeddedZooKeeper


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[str]:
    """Address `host:port` of a real ZooKeeper."""
    server = EmbeddedZooKeeper()
    yield server.start()
    server.stop()


@pytest.fixture
def chroot() -> str:
    """A random path that no other test uses; it does not exist yet."""
    return f"/test-{uuid.uuid4().hex[:12]}"
