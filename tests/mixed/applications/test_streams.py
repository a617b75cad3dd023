"""Kafka Streams, exactly once, while an instance is replaced and the controller is killed: `Words.java`. Then the application is reset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.tests.harness.kafka import java_command
from klamm.tests.harness.members import Members
from klamm.tests.harness.waits import wait_for
from klamm.tests.mixed.applications.application import KINDS, of_java, running, three_brokers

LINES = 2000
RESETTER = "org.apache.kafka.tools.StreamsResetter"
WORDS = ("red", "green", "blue", "yellow", "black", "white", "grey")

pytestmark = [pytest.mark.slow, pytest.mark.reference]


def shown(values: dict[str, object]) -> str:
    """A map as Java prints it."""
    return "{" + ", ".join(f"{key}={values[key]}" for key in sorted(values)) + "}"


@KINDS
def test_each_word_is_counted_once_though_the_controller_is_killed(
    new_members: Callable[..., Members], of_klamm: int, kafka_jars: Path, tmp_path: Path
) -> None:
    members = three_brokers(new_members, of_klamm)
    folder = tmp_path / "application"
    folder.mkdir()
    with running(of_java("Words.java", members.bootstrap(), str(folder), str(LINES)), tmp_path / "words.txt") as words:
        words.says("* half")
        killed = members.controller()
        killed.kill()
        (folder / "go").touch()
        said = words.lines()
    counts = Counter(WORDS[each] for number in range(LINES) for each in (number % 7, number * number % 7))
    assert said == [
        "* half",
        f"* counts {shown(dict(counts))} of {2 * LINES}",
        f"* named {shown({word: word.upper() for word in counts})} of {2 * LINES}",
        f"* stores {shown(dict(counts))}",
        "* purged",
        "* left",
        "* words-again-repartition [cleanup.policy=delete, message.timestamp.type=CreateTime, retention.ms=-1, segment.bytes=52428800]",
        "* words-counts-changelog [cleanup.policy=compact, message.timestamp.type=CreateTime]",
        "* words-words-repartition [cleanup.policy=delete, message.timestamp.type=CreateTime, retention.ms=-1, segment.bytes=52428800]",
    ]
    members.start(killed.id)
    arguments = ["--bootstrap-server", members.bootstrap(), "--application-id", "words", "--input-topics", "lines", "--force"]
    with running(java_command(kafka_jars, RESETTER, *arguments), tmp_path / "reset.txt") as resetter:
        resetter.ends()
    offsets = [line for line in resetter.text().splitlines() if line.startswith("Topic: lines")]
    assert sorted(offsets) == [f"Topic: lines Partition: {partition} Offset: 0" for partition in range(3)]
    left = ["__consumer_offsets", "__transaction_state", "counts", "lines", "named", "names"]
    wait_for(lambda: sorted(members.tree.children("/brokers/topics")) == left, "internal topics deleted")
