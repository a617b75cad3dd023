"""Clusters of three brokers, run as a user runs them, for unchanged clients to use.

There are two: the brokers of one register in ZooKeeper, those of the other with the controller (RegisterBroker). Every test that asks for
`served` runs with both. With the second one, only the tests of aiokafka are part of each run; those of the other libraries are slow ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm.tests.cli.running import readable
from klamm.tests.clients.served import Served
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.tree import Tree

READY_S = 60
BY_REQUEST = ("registerbroker.enable=true", "klamm.broker.registration=controller")
BRIEF = "test_aiokafka"
"""The module whose tests always run with both clusters."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "served" in metafunc.fixturenames:
        marks = () if metafunc.module.__name__.endswith(BRIEF) else (pytest.mark.slow,)
        kinds = ["zookeeper", pytest.param("controller", marks=marks)]
        metafunc.parametrize("served", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def served(request: pytest.FixtureRequest, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tree = Tree(zookeeper, f"/{unique_name('clients')}")
    command = [str(Path(sys.executable).parent / "klamm"), "serve", "--brokers", "3", "--port", "0", "--json", "--zookeeper", tree.hosts]
    settings = ("auto.leader.rebalance.enable=false", *(BY_REQUEST if request.param == "controller" else ()))
    for setting in settings:
        command += ["--config", setting]
    with (tmp_path_factory.mktemp("served") / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        try:
            assert readable(process.stdout, READY_S), "klamm serve says nothing"
            ready = json.loads(process.stdout.readline())
            ports = {b["id"]: b["port"] for b in ready["brokers"]}
            in_zookeeper = set() if request.param == "controller" else set(map(str, ports))
            assert set(tree.children("/brokers/ids")) == in_zookeeper
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
