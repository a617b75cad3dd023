"""Segments are put into a lake once, whatever happens to the shipper, and the pipeline finds their rows there."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from klamm.journal.reading import early_ends, is_written, node_folders, retained_to, segments
from klamm.journal.segments import ENDED, SHIPPED
from klamm.journal.writer import JournalWriter
from klamm.pipeline.compact import purge
from klamm.pipeline.lake.bronze import KILLED, convert_all, pending
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.store import Store
from klamm.pipeline.ship import Shipper
from klamm.pipeline.shipped import packed, put, waiting
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.lakes_by_hand import to_silver

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal of one broker with two segments of frames and one of events: five rows."""
    here = tmp_path / "here"
    with TinyJournal(here) as journal:
        journal.event("timer")
        simple_exchange(journal)
        journal.roll()
        simple_exchange(journal)
    return here


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The lake that gets the segments."""
    return tmp_path / "there"


def rows(lake: Path) -> int:
    return sum(one.rows for one in waiting(lake, ()))


def test_a_shipped_segment_is_what_the_driver_would_have_made_of_it(folder: Path, there: Path) -> None:
    assert Shipper(folder, str(there)).send() == 3
    converted = convert_all(folder, pending(folder, ()), lambda _: None)
    assert sorted(waiting(there, ())) == sorted(converted)
    commits, own = Commits(there), Commits(folder)
    commits.add(waiting(there, commits))
    own.add(converted)
    assert (commits.rows, waiting(there, commits)) == ({"frames": 4, "events": 1}, [])
    assert commits.journals == own.journals


def test_segments_that_wait_for_their_commit_survive_a_purge_of_bronze(folder: Path, there: Path) -> None:
    with TinyJournal(there, "earlier") as journal:
        journal.event("timer")
    to_silver(there, "0")
    Shipper(folder, str(there)).send()
    assert purge(there) == 1
    assert rows(there) == 5


def test_what_is_there_is_not_sent_again_not_even_by_another_shipper(folder: Path, there: Path) -> None:
    first = Shipper(folder, str(there))
    assert (first.send(), first.send(), first.left()) == (3, 0, "")
    assert Shipper(folder, f"{there}/").send() == 0
    assert Shipper(folder, str(there.with_name("other"))).send() == 3


def test_a_shipper_that_was_killed_before_it_noted_a_segment_finds_it_there(folder: Path, there: Path) -> None:
    one = pending(folder, ())[0]
    put(Store(there), one, packed(one))
    assert Shipper(folder, str(there)).send() == 3
    assert rows(there) == 5
    notes = next(folder.rglob(SHIPPED))
    notes.write_text(notes.read_text()[:-5])  # a torn line
    shipper = Shipper(folder, str(there))
    assert (shipper.send(), shipper.left(), rows(there)) == (1, "", 5)


def test_a_file_that_a_power_failure_emptied_is_named_and_the_others_are_found(
    folder: Path, there: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Shipper(folder, str(there)).send()
    damaged = min(there.rglob("frames-*.parquet"))
    damaged.write_bytes(b"")
    next(folder.rglob(SHIPPED)).unlink()
    assert (rows(there), rows(there)) == (3, 3)
    assert caplog.text.count(f"{damaged} is damaged (") == 1
    shipper = Shipper(folder, str(there))
    assert shipper.send() == 3 and shipper.left() == "1 segment cannot be sent as they are"


def test_rows_of_a_journal_that_began_again_are_refused_and_named(
    folder: Path, there: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Shipper(folder, str(there)).send()
    with TinyJournal(tmp_path / "again", ts_ns=1) as journal:
        journal.event("timer")
    shipper = Shipper(tmp_path / "again", str(there))
    shipper.send()
    assert "has rows of another process of broker 1 in this run" in caplog.text
    assert shipper.left() == "1 segment cannot be sent as they are"
    assert (shipper.send(), rows(there)) == (0, 5)


def test_segments_are_removed_after_the_time_to_keep_but_the_newest_stays(folder: Path, there: Path) -> None:
    times = [one.path.stat().st_mtime_ns for one in segments(folder)]
    Shipper(folder, str(there), HOUR_NS, lambda: min(times) + HOUR_NS - 1).send()
    assert len(segments(folder)) == 3
    shipper = Shipper(folder, str(there), HOUR_NS, lambda: max(times) + HOUR_NS)
    shipper.send()
    left = segments(folder)
    assert [(one.table, one.first_seq) for one in left] == [("events", 1), ("frames", 4)]
    assert retained_to(left[0].path.parent) == 3
    assert (shipper.send(), shipper.left(), rows(there)) == (0, "", 5)
    writer = JournalWriter(folder, "r", 1)
    assert (writer.seq, writer.process) == (6, 2)
    writer.close()


def test_nothing_is_removed_that_is_not_there(folder: Path, there: Path) -> None:
    there.touch()
    shipper = Shipper(folder, str(there / "lake"), 0)
    with pytest.raises(PipelineFailed, match="Not a directory"):
        shipper.send()
    assert len(segments(folder)) == 3
    assert shipper.left().startswith(f"3 segments in {folder} to be sent, the first is ")
    there.unlink()
    assert (shipper.send(), shipper.left()) == (3, "")


def test_segments_of_a_killed_broker_are_sealed_and_sent(tmp_path: Path, there: Path) -> None:
    journal = TinyJournal(tmp_path)
    journal.event("timer")
    simple_exchange(journal)
    journal.kill()
    Shipper(tmp_path, str(there)).send()
    assert sorted((one.table, one.rows, one.torn) for one in waiting(there, ())) == [("events", 1, KILLED), ("frames", 2, KILLED)]


def test_the_segment_that_a_broker_writes_waits_until_it_is_sealed(tmp_path: Path, there: Path) -> None:
    writer = JournalWriter(tmp_path, "r", 1)
    writer.event("timer")
    writer.wake()
    assert is_written(tmp_path / "journal/run=r/node=1")
    assert Shipper(tmp_path, str(there)).send() == 0
    writer.close()
    assert Shipper(tmp_path, str(there)).send() == 1


def test_a_failure_of_the_place_is_one_line_and_so_is_its_end(folder: Path, there: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    shipper = Shipper(folder, str(there / "lake"))
    there.touch()
    waits: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            if len(waits) == 4:
                there.unlink()
            return len(waits) == 6

    shipper.follow(Stop(), 1.0)
    assert waits == [1, 2, 4, 8, 1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        f"{there}/lake: Not a directory; segments wait in {folder}, and are tried again", f"{there}/lake works again; 3 segments sent",
    ]


def test_the_reason_why_a_journal_ended_early_is_sent_and_named_where_it_arrives(folder: Path, there: Path) -> None:
    (node,) = node_folders(folder)
    (node / f"{ENDED}1").write_text('{"reason": "No space left on device"}')
    (node / f"{ENDED}2").write_text(" " * 1024)
    shipper = Shipper(folder, str(there))
    assert (shipper.send(), shipper.send()) == (3, 0)
    sent = there / node.relative_to(folder)
    assert early_ends(sent) == {1: "No space left on device"} and not (sent / f"{ENDED}2").exists()
    assert Shipper(folder, str(there)).send() == 0
