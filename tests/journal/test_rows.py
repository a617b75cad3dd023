"""Rows are read in the order in which they were written, the last ones alone, and on from there while they are written."""

from __future__ import annotations

from pathlib import Path

from klamm.journal.live_segment import GrowingSegment
from klamm.journal.rows import Choice, Follower, Reading, Row
from klamm.journal.segments import segment_of
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import START_NS, TinyJournal, simple_exchange


def places(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row.columns["node_id"], row.columns["seq"]) for row in rows]


def two_brokers(lake: Path) -> None:
    first, second = TinyJournal(lake, node=1), TinyJournal(lake, node=2, ts_ns=START_NS + 500)
    for number in range(6):
        for journal in (first, second):
            simple_exchange(journal)
            journal.event("timer")
            journal.roll() if number % 2 else journal.batch()
    first.close()
    second.kill()


def test_rows_of_a_broker_are_in_order_and_brokers_by_time(tmp_path: Path) -> None:
    two_brokers(tmp_path)
    assert places(list(Reading(tmp_path, Choice()).rows())) == [(node, seq) for seq in range(1, 19) for node in (1, 2)]


def test_a_clock_that_jumps_back_does_not_change_the_order_of_a_broker(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        simple_exchange(journal)
        journal.event("timer")
        journal.now_ns = 5
        simple_exchange(journal)
    assert places(list(Reading(tmp_path, Choice()).rows())) == [(1, seq) for seq in range(1, 6)]


def test_the_last_rows_are_the_end_of_all_rows(tmp_path: Path) -> None:
    two_brokers(tmp_path)
    even = Choice(accepts=lambda row: row.columns["seq"] % 2 == 0)
    for choice in (Choice(), Choice(tables=("frames",)), Choice(brokers=frozenset({2})), even):
        rows = list(Reading(tmp_path, choice).rows())
        for count in range(len(rows) + 2):
            assert places(Reading(tmp_path, choice).last_rows(count)) == places(rows[max(0, len(rows) - count) :])


def test_runs_follow_each_other_as_they_began(tmp_path: Path) -> None:
    for run, start in (("a", START_NS + 10**12), ("b", START_NS)):
        with TinyJournal(tmp_path, run, ts_ns=start) as journal:
            simple_exchange(journal)
    assert [row.columns["run_id"] for row in Reading(tmp_path, Choice()).rows()] == ["b", "b", "a", "a"]
    assert [row.columns["run_id"] for row in Reading(tmp_path, Choice()).last_rows(3)] == ["b", "a", "a"]


def test_keys_and_clients_choose_frames(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        simple_exchange(journal)
        asked = journal.request(2, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest(), client_id="other", client_sw="soft/1")
        journal.event("timer")
    assert places(list(Reading(tmp_path, Choice(keys=frozenset({18}))).rows())) == [(1, asked), (1, asked + 1)]
    for pattern in ("oth*", "other", "soft/?"):
        assert places(list(Reading(tmp_path, Choice(clients=(pattern,), tables=("frames",))).rows())) == [(1, asked)]


def test_a_follower_goes_on_through_batches_rolls_processes_and_new_brokers(tmp_path: Path) -> None:
    journal = TinyJournal(tmp_path)
    simple_exchange(journal)
    journal.batch()
    reading = Reading(tmp_path, Choice())
    assert places(list(reading.rows())) == [(1, 1), (1, 2)]
    follower = Follower(tmp_path, Choice(), reading.reached)
    assert places(list(follower.poll())) == []
    simple_exchange(journal)
    journal.event("timer")
    assert places(list(follower.poll())) == []
    journal.batch()
    assert places(list(follower.poll())) == [(1, 3), (1, 4), (1, 5)]
    simple_exchange(journal)
    journal.roll()
    simple_exchange(journal)
    journal.roll()
    simple_exchange(journal)
    journal.batch()
    other = TinyJournal(tmp_path, node=2)
    simple_exchange(other)
    other.close()
    assert sorted(places(list(follower.poll()))) == [(1, 6), (1, 7), (1, 8), (1, 9), (1, 10), (1, 11), (2, 1), (2, 2)]
    journal.kill()
    with TinyJournal(tmp_path, process=2, seq=12) as journal:
        simple_exchange(journal)
    assert places(list(follower.poll())) == [(1, 12), (1, 13)]
    assert places(list(follower.poll())) == []
    follower.close()


def test_a_segment_that_grows_byte_by_byte_gives_each_batch_once_when_it_is_whole(tmp_path: Path) -> None:
    journal = TinyJournal(tmp_path / "whole")
    for number in range(3):
        journal.request(1, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None), client_id=f"client {number}")  # dictionaries change
        journal.batch()
    journal.close()
    data = journal.last().read_bytes()
    folder = tmp_path / "journal" / "run=r" / "node=1"
    folder.mkdir(parents=True)
    path = folder / "frames-00000000000000000001.arrows.open"
    path.touch()
    assert segment_of(path) is not None
    growing = GrowingSegment(path)
    seqs, clients = [], []
    with path.open("ab", buffering=0) as file:
        for start in range(0, len(data), 7):
            file.write(data[start : start + 7])
            for batch in growing.new_batches():
                seqs += batch.column("seq").to_pylist()
                clients += batch.column("client_id").to_pylist()
    assert (seqs, clients) == ([1, 2, 3], ["client 0", "client 1", "client 2"])
    assert growing.unread == 0
    growing.close()


def test_a_follower_passes_over_files_that_are_no_streams(tmp_path: Path) -> None:
    folder = tmp_path / "journal" / "run=r" / "node=1"
    folder.mkdir(parents=True)
    (folder / "frames-00000000000000000001.arrows.open").write_bytes(b"\xff\xff\xff\xff\x08\x00\x00\x00no arrow stream at all")
    (folder / "events-00000000000000000001.arrows").write_bytes(bytes(100))
    torn: list[str] = []
    follower = Follower(tmp_path, Choice(), {}, lambda segment, why: torn.append(segment.table))
    assert list(follower.poll()) == []
    with TinyJournal(tmp_path, seq=2) as journal:
        simple_exchange(journal)
        journal.event("timer")
    assert places(list(follower.poll())) == [(1, 2), (1, 3), (1, 4)]
    assert sorted(torn) == ["events", "frames"]
    follower.close()
