"""Fixtures for a folder of stories: all of them, told to Klamm and told to a real Kafka. The folder's conftest imports what is here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.tests.reference.jars import jars
from klamm.tests.stories.both.library import Library
from klamm.tests.stories.both.stage import Target
from klamm.tests.stories.both.story_file import read_all

__all__ = ["pytest_generate_tests", "told_to_kafka", "told_to_klamm"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each story beside the test's file, in the order of the files."""
    if "story_id" in metafunc.fixturenames:
        folder = metafunc.definition.path.parent
        metafunc.parametrize("story_id", [story.id for file in read_all(folder) for story in file.stories])


@pytest.fixture(scope="module")
def told_to_klamm(request: pytest.FixtureRequest, zookeeper: str, writing: str) -> Iterator[Library]:
    library = Library(request.path.parent, zookeeper, Target("klamm"), writing)
    yield library
    library.close()


@pytest.fixture(scope="module")
def told_to_kafka(request: pytest.FixtureRequest, zookeeper: str, writing: str) -> Iterator[Library]:
    library = Library(request.path.parent, zookeeper, Target("kafka", jars()), writing)
    yield library
    library.close()
