"""The folder and the properties of a broker go from Klamm to Apache Kafka and back, stopped in order or killed; nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.harness.tree import Tree
from klamm.tests.logs_on_disk.hand_over import HandOver
from klamm.tests.mixed.members import Members
from klamm.tests.reference.jars import NoJars, jars


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of the real Kafka's jars, fetched when it is missing."""
    try:
        return jars()
    except NoJars as problem:
        pytest.fail(str(problem), pytrace=False)


@pytest.fixture
def members(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Callable[..., Members]]:
    made: list[Members] = []

    def make(settings_of: Callable[[int], dict[str, Any]] = lambda _: {}) -> Members:
        made.append(Members(Path(), Tree(zookeeper, chroot), tmp_path, settings_of))
        return made[-1]

    yield make
    for members in made:
        members.close()
        members.tree.close()


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("seed", [1, 2])
def test_folder_is_handed_over_and_nothing_is_lost(members: Callable[..., Members], kafka_jars: Path, seed: int) -> None:
    story = HandOver(members(), kafka_jars)
    verdict = story.run(rounds=6, seed=seed)
    print(story.rounds, story.errors, story.fatal, verdict.text())
    assert verdict.faults == {}, (story.rounds, verdict.text())
    assert story.complaints == []
    assert verdict.acknowledged >= 6 * 400
