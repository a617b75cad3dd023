"""Which tables a report shows: those of the lake, or those of the journal."""

from __future__ import annotations

import html
import os
import shutil
from pathlib import Path

import pytest

from klamm.journal.columns import Direction
from klamm.journal.reading import segments
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.bronze import convert_all, pending
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.tables import BRONZE
from klamm.pipeline.report import charts, facts
from klamm.pipeline.report.reading import FRAMES
from klamm.pipeline.report.source import NothingToReport, source
from klamm.pipeline.report.write import report
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import START_NS, TinyJournal
from klamm.tests.pipeline.leader_rows import leader
from klamm.tests.pipeline.report import lakes


def exchanges(lake: Path, run: str, count: int, node: int = 1, client_id: str = "app") -> None:
    with TinyJournal(lake, run, node) as journal:
        client = journal.connection(8, kind="accepted", client_id=client_id, client_sw="librdkafka/2")
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
        assert given.engine == "from the tables of the lake"
        assert given.notes == [f"run r: 6 frames are not in the tables: klamm pipeline run {tmp_path}"]


def test_a_long_journal_without_tables_is_left_to_the_pipeline(tmp_path: Path) -> None:
    exchanges(tmp_path, "r", 3)
    with pytest.raises(NothingToReport, match=r"^6 frames, and a report without tables has at most 5: "), source(tmp_path, limit=5):
        pass


def test_frames_that_are_not_in_the_tables_are_named_where_the_journal_has_lost_older_ones(tmp_path: Path) -> None:
    exchanges(tmp_path, "r", 3)
    lakes.write_bronze(tmp_path, "r")
    (segment,) = segments(tmp_path)
    segment.path.unlink()
    exchanges(tmp_path, "r", 4, node=2)
    with source(tmp_path) as given:
        assert given.engine == "from the tables of the lake"
        assert given.notes == [f"run r: 8 frames are not in the tables: klamm pipeline run {tmp_path}"]
        assert facts.collect(given).notes == given.notes


def test_rows_that_a_journal_lacks_are_named_on_the_page(tmp_path: Path) -> None:
    for node in (1, 2):
        exchanges(tmp_path, "r", 3, node)
    torn = next(segment.path for segment in segments(tmp_path) if segment.node == 2)
    os.truncate(torn, torn.stat().st_size - 700)
    made = report(tmp_path)
    (note,) = made.notes
    assert note.startswith(f"run r: rows of node=2/{torn.name} are lost: ")
    assert html.escape(note) in made.page


def test_a_journal_without_a_whole_frame_is_not_called_absent(tmp_path: Path) -> None:
    exchanges(tmp_path, "r", 1)
    (segment,) = segments(tmp_path)
    segment.path.write_bytes(b"no segment")
    with pytest.raises(NothingToReport, match=r"^no journal of .* has a whole frame$"), source(tmp_path):
        pass


@pytest.mark.parametrize("place", ["VEGA", "SPECS", "BODY", "ELSE"])
def test_a_client_that_is_called_like_a_place_of_the_page_is_a_client(tmp_path: Path, place: str) -> None:
    exchanges(tmp_path, "r", 1, client_id="{{" + place + "}}")
    page = report(tmp_path).page
    assert "{{" + place + "}}" in page and page.count('<script id="specs"') == 1
    assert page.rindex("</section>") < page.index('<script id="specs" type="application/json">{"') < page.index("vega")


def test_text_that_is_no_unicode_is_shown_too(tmp_path: Path) -> None:
    """JSON of events may have half of a surrogate pair."""
    with TinyJournal(tmp_path, "r", 1) as journal:
        client = journal.connection(8, kind="accepted", client_id="app")
        asked = journal.request(client, ApiKey.METADATA, 11, messages.MetadataRequest())
        journal.event("fault_injected", input='{"name": "F-\\ud800", "delay_ms": 5}', cause=asked)
        journal.response(client, asked, messages.MetadataResponse())
    assert "F-\\ud800: delay_ms=5" in report(tmp_path).page.encode().decode()


def test_a_lake_without_bronze_is_told_why_it_has_no_report(tmp_path: Path) -> None:
    exchanges(tmp_path, "r", 3)
    commits = Commits(tmp_path)
    commits.add(convert_all(tmp_path, pending(tmp_path, commits), lambda _: None))
    for table in BRONZE:
        delta_log.drop(tmp_path, table.path, delta_log.entries(tmp_path, table.path))
    with pytest.raises(NothingToReport, match=r"at most 5: klamm pipeline compact --purge deleted its bronze$"), source(tmp_path, limit=5):
        pass
    shutil.rmtree(tmp_path / "journal")
    with pytest.raises(NothingToReport, match=r"has no frames any more, .* --purge deleted its bronze, and its journal is gone$"):
        source(tmp_path).__enter__()


def test_the_latest_run_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    for run in ("b", "a"):
        exchanges(tmp_path, run, 1)
    with source(tmp_path) as given:
        assert (given.tables.run, given.runs) == ("a", ["b", "a"])
    with source(tmp_path, "b") as given:
        assert given.tables.run == "b"


def test_responses_with_the_same_errors_are_one_line_with_the_first_of_them(tmp_path: Path) -> None:
    with TinyJournal(tmp_path, "r", 1) as journal:
        client = journal.connection(8, kind="accepted", client_id="app", client_sw="librdkafka/2")
        responses = []
        for code in (5, 3, 5, 5):
            asked = journal.request(client, ApiKey.METADATA, 11, messages.MetadataRequest())
            topic = messages.MetadataResponse.MetadataResponseTopic(error_code=code, name="t")
            responses.append(journal.response(client, asked, messages.MetadataResponse(topics=[topic])))
    with source(tmp_path) as given:
        (found,) = facts.collect(given).sent.clients
    assert [(error.responses, error.errors) for error in found.shown] == [(3, "LEADER_NOT_AVAILABLE"), (1, "UNKNOWN_TOPIC_OR_PARTITION")]
    assert [error.response.seq for error in found.shown] == responses[:2]
    assert (found.errors, found.left) == (4, 0)


@pytest.mark.parametrize("stops", [True, False])
def test_the_end_of_leaders_is_before_the_cluster_was_stopped(tmp_path: Path, stops: bool) -> None:
    """Broker 1 alone is left when it was; not so where a broker came again."""
    with TinyJournal(tmp_path, "r", 1) as journal:
        peer = journal.connection(8, kind="accepted", client_id="2")
        for to, epoch, at_ns in ((2, 0, 10), (1, 1, 1_000_000_000)):
            sent_at = START_NS + at_ns
            journal.request(7, ApiKey.UPDATE_METADATA, 8, leader(to, epoch), dir=Direction.REQUEST_OUT, kind="channel", ts_ns=sent_at)
        request = messages.ControlledShutdownRequest(broker_id=2, broker_epoch=1)
        journal.request(peer, ApiKey.CONTROLLED_SHUTDOWN, 3, request, ts_ns=START_NS + 900_000_000)
        journal.event("broker_down", broker=2, ts_ns=START_NS + 1_100_000_000)
        if not stops:
            journal.event("broker_up", broker=2, ts_ns=START_NS + 1_200_000_000)
        journal.event("controller_resigned", ts_ns=START_NS + 2_000_000_000)
    with source(tmp_path) as given:
        collected = facts.collect(given)
    at_end = {row["leader"]: row["partitions"] for row in charts.balance(collected) if row["when"] == "at the end"}
    assert at_end == ({"1": 0, "2": 1} if stops else {"1": 1, "2": 0})
