"""Fixtures for stories: the kind of broker they are told to, and the grounds that the stories of one file share.

`--record`, where this folder is named on the command line, tells the stories to a real Kafka and writes what it does into their files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.reference.jars import jars
from klamm.tests.stories.both.stage import Grounds, Target
from klamm.tests.stories.both.story_file import StoryFile, read_all

HERE = Path(__file__).parent
KLAMM, KAFKA = "klamm", "kafka"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", default=False, help="tell the stories to a real Kafka and write down what it does")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each story, in the order of the files."""
    if "story_id" in metafunc.fixturenames:
        metafunc.parametrize("story_id", [story.id for file in read_all(HERE) for story in file.stories])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Who records asks nobody but a real Kafka."""
    if config.getoption("--record", default=False):
        asked = [item for item in items if "kafka_library" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in asked])
        items[:] = asked


class Library:
    """All stories, and the grounds of the file whose stories are just told."""

    def __init__(self, zookeeper: str, target: Target) -> None:
        self.zookeeper, self.target = zookeeper, target
        self.files = {file.path.stem: file for file in read_all(HERE)}
        self.by_id = {story.id: (file, story) for file in self.files.values() for story in file.stories}
        self.recorded: dict[str, int] = {}
        self._open: Grounds | None = None

    def grounds(self, file: StoryFile) -> Grounds:
        if self._open is None or self._open.file is not file:
            self.close()
            self._open = Grounds(self.target, self.zookeeper, file)
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


@pytest.fixture(scope="module")
def klamm_library(zookeeper: str) -> Iterator[Library]:
    library = Library(zookeeper, Target(KLAMM))
    yield library
    library.close()


@pytest.fixture(scope="module")
def kafka_library(zookeeper: str) -> Iterator[Library]:
    library = Library(zookeeper, Target(KAFKA, jars()))
    yield library
    library.close()
