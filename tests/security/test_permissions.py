"""Every API, with no permission and with each that counts: Klamm responds as a real Kafka did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.security.permissions import FILE, SETTINGS, made_with


@pytest.fixture
def tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    made = Tree(zookeeper, chroot)
    yield made
    made.close()


@pytest.mark.slow
def test_responses_without_permissions_are_those_of_kafka(tree: Tree, tmp_path: Path) -> None:
    assert made_with(OwnedBroker(tree, tmp_path, 0, **SETTINGS), tree).split("\n\n") == FILE.read_text(encoding="utf-8").split("\n\n")


@pytest.mark.slow
@pytest.mark.reference
def test_responses_of_kafka_are_those_that_were_recorded(tree: Tree, tmp_path: Path, kafka_jars: Path) -> None:
    made = made_with(KafkaBroker(kafka_jars, tree, tmp_path, 0, **SETTINGS), tree)
    assert made.split("\n\n") == FILE.read_text(encoding="utf-8").split("\n\n")
