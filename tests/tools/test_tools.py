"""Kafka's own tools and its Java AdminClient: what they print of Klamm is what they printed of a real Kafka."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from klamm.tests.stories.both.library import Library
from klamm.tests.stories.both.story_file import read_all
from klamm.tests.tools.tool_words import masked, outcome

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


def test_ids_addresses_and_times_are_masked_and_texts_of_errors_stay() -> None:
    printed = (
        "Topic: t\tTopicId: AbCdEfGhIjKlMnOpQrStUg\tPartitionCount: 1\n\n"
        "Error while executing topic command : Topic 't' is there.\n"
        "[2026-01-02 03:04:05,678] ERROR org.apache.kafka.common.errors.TopicExistsException: Topic 't' is there.\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "127.0.0.1:40123 (id: 0 rack: null)\n"
        "log.dirs=/a/folder/broker-0/data\n"
    )
    assert masked(printed, Path("/a/folder")) == [
        "Topic: t\tTopicId: <id>\tPartitionCount: 1",
        "Error while executing topic command : Topic 't' is there.",
        "[<time>] ERROR org.apache.kafka.common.errors.TopicExistsException: Topic 't' is there.",
        "<address> (id: 0 rack: null)",
        "log.dirs=<folder>/broker-0/data",
    ]


def test_failures_of_partitions_are_sorted() -> None:
    printed = "Error completing b-0: z\nError completing a-0: z\nz\na\n\tSuppressed: B\n\tSuppressed: A\n"
    assert masked(printed, HERE) == ["Error completing a-0: z", "Error completing b-0: z", "z", "a", "\tSuppressed: A", "\tSuppressed: B"]


def test_an_outcome_has_code_output_and_complaints() -> None:
    assert outcome(subprocess.CompletedProcess([], 1, "done\n", "\noh\n"), HERE) == "exit 1\ndone\nstderr:\noh"
    assert outcome(subprocess.CompletedProcess([], 0, "", ""), HERE) == "exit 0"
