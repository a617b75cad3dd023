"""The folder and the properties of a broker go from Klamm to Apache Kafka and back, stopped in order or killed; nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.tests.harness.members import Members
from klamm.tests.logs_on_disk.hand_over import FolderHandOver


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("seed", [1, 2])
def test_folder_is_handed_over_and_nothing_is_lost(members: Callable[..., Members], kafka_jars: Path, seed: int) -> None:
    story = FolderHandOver(members(), kafka_jars)
    verdict = story.run(rounds=6, seed=seed)
    print(story.rounds, story.errors, story.fatal, verdict.text())
    assert verdict.faults == {}, (story.rounds, verdict.text())
    assert story.complaints == []
    assert verdict.acknowledged >= 6 * 1000
