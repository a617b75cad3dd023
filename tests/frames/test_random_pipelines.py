"""Random requests on one connection, sent without waiting: responses and logs are those of one request after the other.

The seeds are the same for a Kafka broker. More of them:

    KLAMM_PIPELINES=500 .venv/bin/python -m pytest -n 0 tests/frames -k pipelines
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from klamm.tests.cli.running import Running
from klamm.tests.frames.pipelined_requests import SETTINGS
from klamm.tests.frames.random_pipelines import Place, all_wrong_outcomes
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree

TURNS = 40
FEW = range(6)
MANY = range(int(os.environ.get("KLAMM_PIPELINES", "40")))


@contextmanager
def alone(broker: OwnedBroker) -> Iterator[Place]:
    try:
        broker.start()
        yield Place(broker.port, broker.port, (broker.id,))
    finally:
        broker.kill()


@contextmanager
def served(folder: Path, zookeeper: str, brokers: int, *options: object) -> Iterator[Place]:
    """The first broker of a cluster; each broker has all partitions."""
    configs = [part for name, value in SETTINGS.items() for part in ("--config", f"{name.replace('_', '.')}={value}")]
    run = Running(folder, "serve", "--port", 0, "--json", "--zookeeper", zookeeper, "--brokers", brokers, *configs, *options)
    try:
        ready = run.ready()
        ports = {row["id"]: row["port"] for row in ready["brokers"]}
        yield Place(next(iter(ports.values())), ports[ready["controller_id"]], tuple(ports))
    finally:
        run.kill()


def test_random_pipelines_have_the_outcome_of_one_request_after_the_other(own_tree: Tree, tmp_path: Path) -> None:
    with alone(OwnedBroker(own_tree, tmp_path, 0, **SETTINGS)) as place:
        assert all_wrong_outcomes(place, TURNS, FEW) == []


@pytest.mark.slow
def test_many_random_pipelines_with_files(own_tree: Tree, tmp_path: Path) -> None:
    with alone(OwnedBroker(own_tree, tmp_path, 0, **SETTINGS)) as place:
        assert all_wrong_outcomes(place, TURNS, MANY) == []


@pytest.mark.slow
@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("kind", ["in memory", "with files", "processes"])
def test_many_random_pipelines_in_clusters(kind: str, brokers: int, zookeeper: str, chroot: str, tmp_path: Path) -> None:
    options = {"in memory": (), "with files": ("--data-dir", tmp_path / "data"), "processes": ("--processes",)}[kind]
    with served(tmp_path, zookeeper + chroot, brokers, *options) as place:
        assert all_wrong_outcomes(place, TURNS, MANY) == []


@pytest.mark.slow
@pytest.mark.reference
def test_random_pipelines_have_this_outcome_in_kafka(own_tree: Tree, tmp_path: Path, kafka_jars: Path) -> None:
    with alone(KafkaBroker(kafka_jars, own_tree, tmp_path, 0, **SETTINGS)) as place:
        assert all_wrong_outcomes(place, TURNS, MANY) == []
