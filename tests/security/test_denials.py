"""What ACLs deny is logged, as by the authorizer of Apache Kafka 3.9.1; what is allowed or only looked at is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.security.denials import FILE, logged_by
from klamm.tests.security.permissions import SETTINGS


@pytest.fixture
def tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    made = Tree(zookeeper, chroot)
    yield made
    made.close()


def recorded() -> list[str]:
    return FILE.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_denials_are_logged_as_by_kafka(tree: Tree, tmp_path: Path) -> None:
    broker = OwnedBroker(tree, tmp_path, 0, **SETTINGS)
    lines = logged_by(broker, tree, tmp_path / "broker-0/log-1").splitlines()
    assert set(lines) ^ set(recorded()) == set()


@pytest.mark.slow
@pytest.mark.reference
def test_denials_of_kafka_are_those_that_were_recorded(tree: Tree, tmp_path: Path, kafka_jars: Path) -> None:
    broker = KafkaBroker(kafka_jars, tree, tmp_path, 0, **SETTINGS)
    assert logged_by(broker, tree, broker.kafka_log).splitlines() == recorded()
