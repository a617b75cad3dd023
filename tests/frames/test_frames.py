"""Frames that no client would send: Klamm responds as a real Kafka did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.frames.knowing import made_knowing
from klamm.tests.frames.recorded import FILE, names, told
from klamm.tests.frames.sending import SETTINGS
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree


@pytest.fixture
def frames_tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    made = Tree(zookeeper, chroot)
    yield made
    made.close()


def outcomes(broker: OwnedBroker) -> list[str]:
    try:
        sender = made_knowing(broker)
        made = list(told(sender, names()))
        sender.close()
    finally:
        broker.kill()
    return made


def expected() -> list[str]:
    lines = FILE.read_text(encoding="utf-8").splitlines(keepends=True)
    return ["".join(lines[at : at + 2]) for at in range(0, len(lines), 2)]


def test_responses_to_changed_frames_are_those_of_kafka(frames_tree: Tree, tmp_path: Path) -> None:
    assert outcomes(OwnedBroker(frames_tree, tmp_path, 0, **SETTINGS)) == expected()


@pytest.mark.slow
@pytest.mark.reference
def test_responses_of_kafka_to_changed_frames_are_those_that_were_recorded(frames_tree: Tree, tmp_path: Path, kafka_jars: Path) -> None:
    assert outcomes(KafkaBroker(kafka_jars, frames_tree, tmp_path, 0, **SETTINGS)) == expected()
