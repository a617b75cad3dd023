"""A cluster of three brokers with a control API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from klamm.tests.cli.running import Running, call
from klamm.tests.harness.names import unique_name


@pytest.fixture(scope="session")
def steered(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What `klamm serve` prints when it is ready. All tests share it; each leaves all brokers running."""
    place = ("--port", "0", "--zookeeper", f"{zookeeper}/{unique_name('cli-control')}", "--control-port", "0")
    arguments = ("serve", "--json", *place, "--topic", "orders:3:3")
    running = Running(tmp_path_factory.mktemp("steered"), *arguments)
    try:
        yield running.ready()
    finally:
        running.kill()


@pytest.fixture
def cluster(steered: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The same; `klamm control` finds it by its environment. What a test leaves is removed."""
    monkeypatch.setenv("KLAMM_CONTROL", steered["control"])
    monkeypatch.delenv("KLAMM_CONTROL_TOKEN", raising=False)
    yield steered
    monkeypatch.setenv("KLAMM_CONTROL", steered["control"])
    call("control", "unhold", "--all")
    call("control", "reset")
