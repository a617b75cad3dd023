"""Fixtures for stories of tools: both kinds of brokers, and Kafka's jars for the tools themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.reference.jars import jars
from klamm.tests.stories.both.library import Library
from klamm.tests.stories.both.stage import Target
from klamm.tests.stories.both.story_file import read_all
from klamm.tests.tools import tool_words

HERE = Path(__file__).parent

assert tool_words.TOOLS  # importing it enters its words


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each story, in the order of the files."""
    if "story_id" in metafunc.fixturenames:
        metafunc.parametrize("story_id", [story.id for file in read_all(HERE) for story in file.stories])


@pytest.fixture(scope="module")
def told_to_klamm(zookeeper: str, writing: str) -> Iterator[Library]:
    library = Library(HERE, zookeeper, Target("klamm"), writing)
    yield library
    library.close()


@pytest.fixture(scope="module")
def told_to_kafka(zookeeper: str, writing: str) -> Iterator[Library]:
    library = Library(HERE, zookeeper, Target("kafka", jars()), writing)
    yield library
    library.close()
