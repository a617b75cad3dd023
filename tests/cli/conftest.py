"""Commands for tests: everything that a test starts is gone when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.cli.members import ToolMembers
from klamm.tests.cli.running import Running

Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `klamm ARGUMENTS`."""
    started: list[Running] = []

    def one(*arguments: object, **options: Any) -> Running:
        started.append(Running(tmp_path, *arguments, **options))
        return started[-1]

    yield one
    for running in started:
        running.kill()


@pytest.fixture
def serve(start: Start, zookeeper: str, chroot: str) -> Start:
    """Starts `klamm serve ARGUMENTS` on the tests' ZooKeeper, where it does not matter whose ZooKeeper it is."""
    return lambda *arguments, **options: start("serve", "--zookeeper", zookeeper + chroot, *arguments, **options)


@pytest.fixture
def properties(tmp_path: Path, zookeeper: str, chroot: str) -> Callable[..., Path]:
    """Writes a server.properties for broker 1 on the tests' ZooKeeper; names are given with underscores for dots."""

    def write(**changes: object) -> Path:
        values = {
            "broker.id": 1,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "zookeeper.connect": f"{zookeeper}{chroot}",
            "log.dirs": tmp_path / f"data-{changes.get('broker_id', 1)}",
        }
        values.update({name.replace("_", "."): value for name, value in changes.items()})
        file = tmp_path / f"server-{len(list(tmp_path.glob('server-*')))}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        return file

    return write


@pytest.fixture(scope="session", params=["klamm", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.reference])])
def running_members(request: pytest.FixtureRequest, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolMembers]:
    made = ToolMembers(request.param, zookeeper, tmp_path_factory.mktemp(f"members-{request.param}"))
    yield made
    made.close()


@pytest.fixture
def members(running_members: ToolMembers) -> Iterator[ToolMembers]:
    """A test that fails leaves no reassignment and no throttle to the next one."""
    yield running_members
    left = running_members.tool("--list").stdout.splitlines()[1:]
    if left:
        names = [line.partition(":")[0].rpartition("-") for line in left]
        running_members.succeed("--cancel", "--reassignment-json-file", running_members.file({(t, int(p)): [0] for t, _, p in names}))
