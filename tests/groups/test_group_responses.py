"""Klamm responds to requests of consumer groups as Apache Kafka 3.9.1 does: the tale of `group_tale.py`, chapter by chapter."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import klamm
from klamm.tests.groups.group_tale import CHAPTERS, KINDS, OPENING, answers, open_tale, tell, told_to_kafka
from klamm.tests.groups.telling import GroupGrounds


class Opened(NamedTuple):
    """A cluster with the topics of the tale; `opening` are the lines of the first chapter."""

    grounds: GroupGrounds
    opening: list[str]


@pytest.fixture(scope="module")
def opened(zookeeper: str, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """A cluster of the kind that the parameter names."""
    kind = KINDS[request.param]
    configs = {name: str(value) for name, value in kind.configs.items()}
    with klamm.Cluster(kind.brokers, zookeeper=f"{zookeeper}/tale-{uuid.uuid4().hex[:8]}", config=configs) as cluster:
        grounds = GroupGrounds({broker_id: (host, port) for broker_id, host, port in cluster.addresses})
        yield Opened(grounds, asyncio.run(open_tale(request.param, grounds)))


@pytest.mark.parametrize(("opened", "chapter"), [(kind, name) for name, (kind, _) in CHAPTERS.items()], indirect=["opened"])
def test_a_group_coordinator_responds_as_that_of_apache_kafka(opened: Opened, chapter: str) -> None:
    lines = opened.opening if chapter == OPENING else asyncio.run(tell(chapter, opened.grounds))
    assert lines == answers()[chapter]


def test_the_file_has_the_chapters_of_the_tale() -> None:
    assert list(answers()) == list(CHAPTERS)


@pytest.mark.slow
@pytest.mark.reference
def test_apache_kafka_responds_what_is_in_the_file(zookeeper: str, chroot: str, tmp_path: Path, kafka_jars: Path) -> None:
    assert told_to_kafka(zookeeper, chroot, tmp_path, kafka_jars, CHAPTERS) == answers()
