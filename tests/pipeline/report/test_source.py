"""Which tables a report shows: those of the lake, or those of the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.journal.columns import Direction
from klamm.pipeline.report import facts
from klamm.pipeline.report.reading import FRAMES
from klamm.pipeline.report.source import NothingToReport, source
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import TinyJournal
from klamm.tests.pipeline.report import lakes


def exchanges(lake: Path, run: str, count: int) -> None:
    with TinyJournal(lake, run, 1) as journal:
        client = journal.connection(8, kind="accepted", client_id="app", client_sw="librdkafka/2")
        for _ in range(count):
            asked = journal.request(client, ApiKey.METADATA, 11, messages.MetadataRequest())
            journal.response(client, asked, messages.MetadataResponse())


def test_without_tables_the_report_is_made_of_the_journal(tmp_path: Path) -> None:
    exchanges(tmp_path, "r", 3)
    with source(tmp_path) as given:
        collected = facts.collect(given)
    assert (given.engine, given.runs, given.notes) == ("from the journal, by DuckDB", ["r"], [])
    assert collected.counts["frames"] == 6
    assert [(row["client"], row["requests"]) for row in collected.matrix] == [("librdkafka/2", 3)]
    assert {rule.rule for rule in collected.rules if rule.checked} >= {"W-01"}


def test_frames_of_the_journal_are_read_whole_where_a_row_is_shown(tmp_path: Path) -> None:
    exchanges(tmp_path, "r", 3)
    with source(tmp_path) as given:
        rows = given.tables.where(FRAMES, node_id=[1], dir=[Direction.RESPONSE_OUT])
        assert len(rows) == 3 and all(row["frame"] for row in rows)
        assert given.tables.where(FRAMES, node_id=[2]) == given.tables.where(FRAMES, node_id=[]) == []


def test_tables_that_lack_frames_are_shown_where_the_journal_is_too_long_and_that_is_said(tmp_path: Path) -> None:
    exchanges(tmp_path, "r", 3)
    lakes.write_bronze(tmp_path, "r")
    with source(tmp_path) as given:
        assert given.engine == "from the journal, by DuckDB", "no commit says that bronze is whole"
    with source(tmp_path, limit=5) as given:
        assert given.engine == "from the tables of the lake, by Spark"
        assert given.notes == [f"run r: 6 frames are not in the tables: klamm pipeline run {tmp_path}"]


def test_a_long_journal_without_tables_is_left_to_the_pipeline(tmp_path: Path) -> None:
    exchanges(tmp_path, "r", 3)
    with pytest.raises(NothingToReport, match=r"^6 frames, and a report without tables has at most 5: "), source(tmp_path, limit=5):
        pass


def test_the_latest_run_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    for run in ("b", "a"):
        exchanges(tmp_path, run, 1)
    with source(tmp_path) as given:
        assert (given.tables.run, given.runs) == ("a", ["b", "a"])
    with source(tmp_path, "b") as given:
        assert given.tables.run == "b"
