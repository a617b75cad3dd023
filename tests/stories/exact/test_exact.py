"""Answers that were recorded from a real Kafka field by field, asked of Klamm; and, the long way, of a real Kafka again."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.tests.stories.both.library import Library
from klamm.tests.stories.both.story_file import read_all

HERE = Path(__file__).parent


async def test_klamm_answers_what_kafka_answered(told_to_klamm: Library, story_id: str) -> None:
    await told_to_klamm.tell(story_id)


@pytest.mark.slow
@pytest.mark.reference
async def test_kafka_answers_it_again(told_to_kafka: Library, story_id: str) -> None:
    await told_to_kafka.tell(story_id)


def test_every_story_was_recorded_as_it_stands() -> None:
    assert [file.path.name for file in read_all(HERE) if not file.is_recorded()] == []


def test_files_are_written_as_they_are_read() -> None:
    for file in read_all(HERE):
        assert file.text() == file.path.read_text(encoding="utf-8"), file.path.name
