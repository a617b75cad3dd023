"""A cluster of three brokers, run as a user runs it, for unchanged clients to use."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm.tests.clients.served import Served
from klamm.tests.harness.tree import Tree

READY_S = 60


@pytest.fixture(scope="session")
def served(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tree = Tree(zookeeper, f"/clients-{uuid.uuid4().hex[:8]}")
    command = [str(Path(sys.executable).parent / "klamm"), "serve", "--brokers", "3", "--port", "0", "--json", "--zookeeper", tree.hosts]
    with (tmp_path_factory.mktemp("served") / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--config", "auto.leader.rebalance.enable=false"], stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        try:
            assert select.select([process.stdout], [], [], READY_S)[0], "klamm serve says nothing"
            ready = json.loads(process.stdout.readline())
            ports = {b["id"]: b["port"] for b in ready["brokers"]}
            yield Served(ready["bootstrap_servers"], ports, ready["controller_id"], ready["cluster_id"], tree)
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            tree.close()


@pytest.fixture
def node_script() -> Callable[..., list[dict[str, object]]]:
    """Run a script of this folder with Node and the client installed in `.venv/node`; its lines of JSON."""
    modules = Path(sys.prefix) / "node"

    def run(name: str, *arguments: str) -> list[dict[str, object]]:
        command = ["node", str(Path(__file__).parent / name), str(modules), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run
