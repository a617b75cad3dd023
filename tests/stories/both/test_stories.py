"""Stories that were recorded from a real Kafka, told to Klamm; and, the long way, told to a real Kafka again."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.tests.stories.both.library import Library
from klamm.tests.stories.both.story_file import read_all

HERE = Path(__file__).parent
ENOUGH = 60


async def test_klamm_does_what_kafka_did(told_to_klamm: Library, story_id: str) -> None:
    await told_to_klamm.tell(story_id)


@pytest.mark.slow
@pytest.mark.reference
async def test_kafka_does_it_again(told_to_kafka: Library, story_id: str) -> None:
    await told_to_kafka.tell(story_id)


def test_every_story_was_recorded_as_it_stands() -> None:
    files = read_all(HERE)
    assert [file.path.name for file in files if not file.is_recorded()] == []
    assert sum(len(file.stories) for file in files) >= ENOUGH


def test_files_are_written_as_they_are_read() -> None:
    for file in read_all(HERE):
        assert file.text() == file.path.read_text(encoding="utf-8"), file.path.name
