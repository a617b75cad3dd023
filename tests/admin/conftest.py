"""Fixtures of the admin client's tests: scripted brokers, a real Klamm cluster, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import klamm
from klamm.admin.calls import deadlines
from klamm.testing import BlockingCluster
from klamm.tests.admin.scripted import ScriptedCluster, client_threads, scripted
from klamm.tests.harness.members import Members
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import NoJars, jars


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with scripted() as one:
        yield one


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Every client that a test opens ends its thread."""
    yield
    assert client_threads() == []


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls for which the broker waits end 400 ms after their time-out instead of a second."""
    monkeypatch.setattr(deadlines, "RESPONSE_GRACE_MS", 400)


@pytest.fixture(scope="session")
def served(zookeeper: str) -> Iterator[BlockingCluster]:
    """Three Klamm brokers in this process."""
    config = {"auto.leader.rebalance.enable": "false"}
    place = f"{zookeeper}/{unique_name('admin-client')}"
    with klamm.Cluster(3, topics=["orders:6:3", "single:1:1"], zookeeper=place, config=config) as one:
        yield one


@pytest.fixture(scope="session", params=["klamm", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.reference])])
def members(request: pytest.FixtureRequest, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Brokers 1, 2 and 3 of one kind, as processes, each with two log directories."""
    folder = tmp_path_factory.mktemp(f"admin-{request.param}")
    try:
        where = jars() if request.param == "kafka" else folder
    except NoJars as problem:
        pytest.fail(str(problem), pytrace=False)
    tree = Tree(zookeeper, f"/{unique_name('admin')}")

    def settings(broker_id: int) -> dict[str, object]:
        """A follower fetches little at a time, so that a throttled move takes its time."""
        return {
            "log_dirs": f"{folder}/one-{broker_id},{folder}/two-{broker_id}",
            "replica_fetch_max_bytes": 20_000,
            "replica_fetch_response_max_bytes": 20_000,
            "zookeeper_session_timeout_ms": 3000 if request.param == "klamm" else 6000,
        }

    one = Members(where, tree, folder, settings)
    try:
        getattr(one, request.param)(1, 2, 3)
        yield one
    finally:
        one.close()
        tree.close()
