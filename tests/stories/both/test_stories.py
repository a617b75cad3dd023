"""Stories that were recorded from a real Kafka, told to Klamm; and, the long way, told to a real Kafka again."""

from __future__ import annotations

import asyncio

import pytest

from klamm.tests.stories.both.conftest import HERE, Library
from klamm.tests.stories.both.story_file import read_all
from klamm.tests.stories.both.telling import record, replay

ENOUGH = 60


async def test_klamm_does_what_kafka_did(klamm_library: Library, story_id: str) -> None:
    await tell(klamm_library, story_id)


@pytest.mark.slow
@pytest.mark.reference
async def test_kafka_does_what_it_did(kafka_library: Library, story_id: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--record", default=False):
        await write_down(kafka_library, story_id)
    else:
        await tell(kafka_library, story_id)


async def tell(library: Library, story_id: str) -> None:
    file, story = library.by_id[story_id]
    stage = await asyncio.to_thread(library.grounds(file).stage)
    try:
        await replay(story, stage)
    finally:
        await stage.close()


async def write_down(library: Library, story_id: str) -> None:
    """Record one story; its file is signed when all its stories have been recorded in this run."""
    file, story = library.by_id[story_id]
    stage = await asyncio.to_thread(library.grounds(file).stage)
    signed = file.is_recorded()
    try:
        outcomes = await record(story, stage)
    finally:
        await stage.close()
    changed = [scene.outcome for scene in story.scenes] != outcomes
    for scene, outcome in zip(story.scenes, outcomes, strict=True):
        scene.outcome = outcome
    library.recorded[file.path.stem] = library.recorded.get(file.path.stem, 0) + 1
    if signed or library.recorded[file.path.stem] == len(file.stories):
        file.recorded = file.signature("Apache Kafka 3.9.1")
    if changed or file.is_recorded():
        file.path.write_text(file.text(), encoding="utf-8")


def test_every_story_was_recorded_as_it_stands() -> None:
    files = read_all(HERE)
    assert [file.path.name for file in files if not file.is_recorded()] == []
    assert sum(len(file.stories) for file in files) >= ENOUGH


def test_files_are_written_as_they_are_read() -> None:
    for file in read_all(HERE):
        assert file.text() == file.path.read_text(encoding="utf-8"), file.path.name
