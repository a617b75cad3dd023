"""Replicas move between Klamm brokers with their data, while clients write and read: in one process, in processes, on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import klamm
from klamm.tests.cli.running import Running
from klamm.tests.harness.members import Members, grave
from klamm.tests.harness.tree import Tree
from klamm.tests.moves.moving import Local, equal_on_disk
from klamm.tests.moves.there_and_back import SETTINGS, TOPIC, places, there_and_back, told_to

IDS = (1, 2, 3, 4)
SOME, MUCH = 2 << 20, 50 << 20
PROPERTIES = {name.replace("_", "."): value for name, value in SETTINGS.items()}


@pytest.fixture
def tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    made = Tree(zookeeper, chroot)
    yield made
    made.close()


def told_in_one_process(tree: Tree, size: int) -> None:
    with klamm.Cluster(brokers=len(IDS), config=PROPERTIES, zookeeper=tree.hosts):
        there_and_back(Local(tree), IDS, size, {})


def told_in_processes(new_members: Callable[..., Members], size: int) -> None:
    members = new_members(SETTINGS)
    members.klamm(*IDS)
    told_to(members, IDS, size)
    assert grave(members, *IDS) == []


def test_logs_in_memory_move_in_one_process_and_nothing_is_lost_or_twice(tree: Tree) -> None:
    told_in_one_process(tree, SOME)


@pytest.mark.slow
def test_logs_on_disk_move_between_processes_and_nothing_is_lost_or_twice(new_members: Callable[..., Members]) -> None:
    told_in_processes(new_members, SOME)


@pytest.mark.slow
def test_50_mb_in_memory_move_there_and_back(tree: Tree) -> None:
    told_in_one_process(tree, MUCH)


@pytest.mark.slow
def test_50_mb_on_disk_move_there_and_back(new_members: Callable[..., Members]) -> None:
    told_in_processes(new_members, MUCH)


@pytest.mark.slow
def test_50_mb_of_a_served_cluster_of_processes_move_there_and_back(tree: Tree, tmp_path: Path) -> None:
    options = [option for name, value in PROPERTIES.items() for option in ("--config", f"{name}={value}")]
    where = ["--zookeeper", tree.hosts, "--data-dir", tmp_path / "data", "--port", 0, "--json"]
    served = Running(tmp_path, "serve", "--processes", "--brokers", len(IDS), *where, *options)
    try:
        served.ready()
        data = {broker_id: tmp_path / "data" / f"broker-{broker_id}" for broker_id in IDS}
        there_and_back(Local(tree), IDS, MUCH, data)
    finally:
        served.process.terminate()
        served.process.wait(30)
    assert equal_on_disk(places(IDS)[0], data, TOPIC) > MUCH
