"""Random ACLs and requests of users: Klamm responds as a real Kafka did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.permissions.playing import settings
from klamm.tests.permissions.recorded import ALLOWED, DENIED, file_of, told


@pytest.fixture
def permissions_tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    made = Tree(zookeeper, chroot)
    yield made
    made.close()


def outcomes(broker: OwnedBroker, everyone: str) -> list[str]:
    """The steps that the file has, as this broker answered them."""
    numbers = {step.partition(" ")[0] for step in expected(everyone)}
    try:
        return [step for step in told(broker, everyone) if step.partition(" ")[0] in numbers]
    finally:
        broker.kill()


def expected(everyone: str) -> list[str]:
    lines = file_of(everyone).read_text(encoding="utf-8").splitlines(keepends=True)
    return ["".join(lines[at : at + 2]) for at in range(0, len(lines), 2)]


@pytest.mark.parametrize("everyone", [pytest.param(ALLOWED, marks=pytest.mark.slow), DENIED])
def test_responses_to_users_with_random_acls_are_those_of_kafka(permissions_tree: Tree, tmp_path: Path, everyone: str) -> None:
    assert outcomes(OwnedBroker(permissions_tree, tmp_path, 0, **settings(everyone == ALLOWED)), everyone) == expected(everyone)


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("everyone", [ALLOWED, DENIED])
def test_responses_of_kafka_to_users_with_random_acls_are_those_that_were_recorded(
    permissions_tree: Tree, tmp_path: Path, kafka_jars: Path, everyone: str
) -> None:
    broker = KafkaBroker(kafka_jars, permissions_tree, tmp_path, 0, **settings(everyone == ALLOWED))
    assert outcomes(broker, everyone) == expected(everyone)
