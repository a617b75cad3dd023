"""Kafka's own tools for security: what they print of Klamm is what they printed of a real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.tests.stories.both.library import Library
from klamm.tests.stories.both.story_file import read_all

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.reference
async def test_tools_show_of_klamm_what_they_showed_of_kafka(told_to_klamm: Library, story_id: str) -> None:
    await told_to_klamm.tell(story_id)


@pytest.mark.slow
@pytest.mark.reference
async def test_tools_show_of_kafka_what_they_showed_before(told_to_kafka: Library, story_id: str) -> None:
    await told_to_kafka.tell(story_id)


def test_every_story_was_recorded_as_it_stands() -> None:
    assert [file.path.name for file in read_all(HERE) if not file.is_recorded()] == []


def test_files_are_written_as_they_are_read() -> None:
    for file in read_all(HERE):
        assert file.text() == file.path.read_text(encoding="utf-8"), file.path.name
