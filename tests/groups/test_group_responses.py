"""Klamm responds to requests of consumer groups as Apache Kafka 3.9.1 does: the tale of `group_tale.py`, chapter by chapter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import klamm
from klamm.journal.reading import segments
from klamm.tests.groups.group_tale import CHAPTERS, KINDS, OPENING, answers, open_tale, tell, told_to_kafka
from klamm.tests.groups.telling import GroupGrounds
from klamm.tests.harness.names import unique_name
from klamm.tests.pipeline.in_duckdb import judged, silver

RULES = ("G-01", "G-02", "G-03", "G-04", "G-05", "G-06", "W-01", "W-09", "W-11")
"""Rules about groups and about frames that the tale exercises; Apache Kafka's frames of the same tale obey them."""

told: set[str] = set()
"""The chapters that this process has told."""


class Opened(NamedTuple):
    """A cluster with the topics of the tale; `opening` are the lines of the first chapter."""

    grounds: GroupGrounds
    opening: list[str]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the clusters write their journals, each as a run of the name of its kind."""
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def opened(zookeeper: str, journal: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """A cluster of the kind that the parameter names."""
    kind = KINDS[request.param]
    configs = {name: str(value) for name, value in kind.configs.items()}
    configs |= {"klamm.journal.dir": str(journal), "klamm.journal.run": request.param}
    with klamm.Cluster(kind.brokers, zookeeper=f"{zookeeper}/{unique_name('tale')}", config=configs) as cluster:
        grounds = GroupGrounds({broker_id: (host, port) for broker_id, host, port in cluster.addresses})
        yield Opened(grounds, asyncio.run(open_tale(request.param, grounds)))


@pytest.mark.parametrize(("opened", "chapter"), [(kind, name) for name, (kind, _) in CHAPTERS.items()], indirect=["opened"], scope="module")
def test_a_group_coordinator_responds_as_that_of_apache_kafka(opened: Opened, chapter: str) -> None:
    lines = opened.opening if chapter == OPENING else asyncio.run(tell(chapter, opened.grounds))
    told.add(chapter)
    assert lines == answers()[chapter]


def test_no_rule_about_groups_is_violated_by_what_the_tale_had_from_the_first_cluster(journal: Path) -> None:
    """Each process judges what it told to the first cluster, once that has ended: the second may still be running.

    A process that told every chapter has exercised every rule.
    """
    if not [segment for segment in segments(journal) if segment.run == "small"]:
        pytest.skip("only a part of the tale was told")
    database = silver(journal)
    rows = [row for row in judged(database, RULES) if row["run_id"] == "three"]
    assert [(row["rule"], row["detail"]) for row in rows if row["detail"] is not None] == []
    if told == set(CHAPTERS):
        assert {row["rule"] for row in rows} == set(RULES)


def test_the_file_has_the_chapters_of_the_tale() -> None:
    assert list(answers()) == list(CHAPTERS)


@pytest.mark.slow
@pytest.mark.reference
def test_apache_kafka_responds_what_is_in_the_file(zookeeper: str, chroot: str, tmp_path: Path, kafka_jars: Path) -> None:
    assert told_to_kafka(zookeeper, chroot, tmp_path, kafka_jars, CHAPTERS) == answers()
