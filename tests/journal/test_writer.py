"""A writer numbers rows without gaps, matches responses to requests, flushes, rolls, seals, and goes on after a restart."""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klamm.journal import batches, disk, reading
from klamm.journal.columns import Direction, Flag
from klamm.journal.connection import RECORDS_KEPT
from klamm.journal.segments import SEAL, OpenSegment
from klamm.journal.writer import JournalRefused, JournalWriter
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.exchanges.connections import ConnectionKind, ControllerEvent
from klamm.protocol.primitives import FEW_TAGS, skip_tags, write_uvarint
from klamm.tests.harness.waits import wait_for
from klamm.tests.journal.journaled_world import JournaledWorld, asked, rows
from klamm.tests.journal.writing import TinyJournal, simple_exchange

METADATA_RESPONSE = messages.encode(messages.MetadataResponse(cluster_id="c", controller_id=1), 12)


def answered(corr: int = 1) -> bytes:
    return messages.encode_response(ApiKey.METADATA, 12, corr, METADATA_RESPONSE)


def seqs(lake: Path) -> list[int]:
    return sorted(row["seq"] for table in ("frames", "events") for row in rows(lake, table))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[JournaledWorld]:
    writer = JournalWriter(tmp_path, "r", 1)
    yield JournaledWorld(tmp_path, writer)
    writer.close()


@pytest.mark.parametrize("pieces", [1, 3, 10_000])
def test_frames_cut_anywhere_are_whole_rows(world: JournaledWorld, pieces: int) -> None:
    connection = world.connection()
    data = asked(7) + asked(8)
    step = max(1, len(data) // pieces)
    for start in range(0, len(data), step):
        connection.received(data[start : start + step])
    connection.sent(answered(7) + answered(8))
    found = world.frames()
    assert [(row["seq"], row["dir"], row["correlation_id"], row["cause_seq"]) for row in found] == [
        (2, 0, 7, None), (3, 0, 8, None), (4, 1, 7, 2), (5, 1, 8, 3)
    ]
    assert [row["frame"] for row in found] == [asked(7), asked(8), answered(7), answered(8)]
    first = found[0]
    assert (first["kind"], first["listener"], first["peer"], first["peer_id"]) == ("accepted", "PLAINTEXT", "10.0.0.1:5", None)
    assert (first["principal"], first["client_id"], first["client_sw"]) == ("User:ANONYMOUS", "cli", None)
    assert {(row["api_key"], row["api_version"], row["flags"]) for row in found} == {(3, 12, 0)}
    assert first["latency_ns"] is None
    assert all(row["latency_ns"] >= 0 for row in found[2:])
    assert abs(first["ts_ns"] - time.time_ns()) < 60e9
    assert seqs(world.lake) == [1, 2, 3, 4, 5]


def test_a_response_out_of_order_finds_its_request_and_one_to_nothing_is_unmatched(world: JournaledWorld) -> None:
    connection = world.connection()
    connection.received(asked(1) + asked(2))
    connection.sent(answered(2))
    connection.sent(answered(3))
    connection.sent(answered(1))
    found = world.frames()[2:]
    assert [(row["cause_seq"], row["api_key"], row["flags"]) for row in found] == [(3, 3, 0), (None, None, Flag.UNMATCHED), (2, 3, 0)]


def test_requests_that_we_send_have_their_batch_as_cause(world: JournaledWorld) -> None:
    channel = world.connection(ConnectionKind.CHANNEL, peer_id=4)
    channel.sent(asked(5), ControllerEvent(9, 77))
    assert world.writer.response_seq(4) is None
    for byte in answered(5):
        channel.received(bytes([byte]))
    assert world.writer.response_seq(4) == 3
    sent, got = world.frames()
    assert (sent["dir"], sent["cause_seq"], sent["kind"], sent["peer_id"]) == (Direction.REQUEST_OUT, 77, "channel", 4)
    assert (got["dir"], got["cause_seq"], got["principal"]) == (Direction.RESPONSE_IN, sent["seq"], None)


def test_the_row_of_an_open_request_is_found_by_connection_and_correlation_id(world: JournaledWorld) -> None:
    connection = world.connection(name="x")
    connection.received(asked(5) + asked(5) + asked(6))
    assert (world.writer.request_seq("x", 5), world.writer.request_seq("x", 6)) == (3, 4)
    assert (world.writer.request_seq("x", 7), world.writer.request_seq("y", 5)) == (None, None)


def test_client_software_counts_from_the_request_that_names_it(world: JournaledWorld) -> None:
    connection = world.connection()
    body = messages.encode(messages.ApiVersionsRequest(client_software_name="lib", client_software_version="1.2"), 3)
    connection.received(asked(1, None) + messages.encode_request(ApiKey.API_VERSIONS, 3, 2, "other", body) + asked(3, ""))
    found = [(row["client_id"], row["client_sw"]) for row in world.frames()]
    assert found == [(None, None), ("other", "lib/1.2"), ("", "lib/1.2")]


def test_the_refusal_of_an_unknown_version_of_api_versions_is_a_row_of_version_0(world: JournaledWorld) -> None:
    connection = world.connection()
    connection.received(messages.encode_request(ApiKey.API_VERSIONS, 4, 1, "c", b"\1\1\0"))
    connection.sent(messages.encode_response(ApiKey.API_VERSIONS, 0, 1, messages.encode(messages.ApiVersionsResponse(error_code=35), 0)))
    assert [row["api_version"] for row in world.frames()] == [4, 0]


def produce(acks: int, version: int, records: bytes, client: str = "p") -> bytes:
    partition = messages.ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = messages.ProduceRequest.TopicProduceData(name="t" * 249, partition_data=[partition])
    message = messages.ProduceRequest(acks=acks, timeout_ms=1, topic_data=[topic])
    return messages.encode_request(ApiKey.PRODUCE, version, 1, client, messages.encode(message, version))


@pytest.mark.parametrize("version", [3, 8, 9, 11])
def test_a_produce_request_without_acks_waits_for_no_response(world: JournaledWorld, version: int) -> None:
    connection = world.connection()
    connection.received(produce(0, version, b""))
    connection.received(produce(1, version, b""))
    connection.sent(messages.encode_response(ApiKey.PRODUCE, version, 1, messages.encode(messages.ProduceResponse(), version)))
    found = world.frames()
    assert [row["flags"] for row in found] == [Flag.NO_RESPONSE, 0, 0]
    assert found[2]["cause_seq"] == found[1]["seq"]


@pytest.mark.parametrize("piece", [1_000_000, 700, 4096])
@pytest.mark.parametrize("version", [7, 11])
def test_records_are_cut_and_all_before_them_decodes(world: JournaledWorld, version: int, piece: int) -> None:
    connection = world.connection()
    frame = produce(-1, version, b"\0" * 61 + b"secret of a record" * 3000)
    for start in range(0, len(frame), piece):
        connection.received(frame[start : start + piece])
    connection.received(asked(2))
    cut, after = world.frames()
    assert cut["frame"] == frame[:RECORDS_KEPT]
    assert frame.index(b"\0" * 61) + 61 < RECORDS_KEPT
    assert cut["flags"] == Flag.CUT
    assert after["frame"] == asked(2)


def fetched(records: bytes) -> bytes:
    data = messages.FetchResponse.PartitionData(partition_index=0, high_watermark=5, records=records)
    response = messages.FetchResponse(responses=[messages.FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])])
    return messages.encode_response(ApiKey.FETCH, 12, 1, messages.encode(response, 12))


@pytest.mark.parametrize("kind", [ConnectionKind.ACCEPTED, ConnectionKind.TO_LEADER])
@pytest.mark.parametrize("piece", [1_000_000, 1000])
def test_fetched_records_are_cut_in_both_directions(world: JournaledWorld, kind: ConnectionKind, piece: int) -> None:
    connection = world.connection(kind)
    request = messages.encode_request(ApiKey.FETCH, 12, 1, "c", messages.encode(messages.FetchRequest(), 12))
    response = fetched(b"x" * 50_000)
    if kind is ConnectionKind.ACCEPTED:
        connection.received(request)
        connection.sent(response)
    else:
        connection.sent(request)
        for start in range(0, len(response), piece):
            connection.received(response[start : start + piece])
    found = world.frames()
    assert (found[1]["frame"], found[1]["flags"]) == (response[:RECORDS_KEPT], Flag.CUT)


@pytest.mark.parametrize(("frames", "kept"), [("full", 10**6), ("headers", 17), (40, 40), (0, 17)])
def test_frames_are_kept_as_the_config_says(tmp_path: Path, frames: str | int, kept: int) -> None:
    world = JournaledWorld(tmp_path, JournalWriter(tmp_path, "r", 1, frames=frames))
    connection = world.connection()
    frame = produce(1, 7, b"x" * 5000, client="abc")
    for start in range(0, len(frame), 2000):
        connection.received(frame[start : start + 2000])
    response = messages.encode_response(ApiKey.PRODUCE, 7, 1, messages.encode(messages.ProduceResponse(), 7) + bytes(100))
    connection.sent(response)
    found = world.frames()
    assert [row["frame"] for row in found] == [frame[:kept], response[: 8 if kept == 17 else kept]]
    assert [row["flags"] for row in found] == [Flag.CUT if frames != "full" else 0] * 2


@pytest.mark.parametrize(
    ("data", "nulls"),
    [(b"\xff\xff\xff\xf0rest", True), (b"\0\0\0\4abcd", True), (b"\0\0\0\0", True), (b"GET / HTTP/1.1", True), (asked()[:20], True)],
)
def test_bytes_that_are_no_request_are_rows_without_a_key(world: JournaledWorld, data: bytes, nulls: bool) -> None:
    connection = world.connection()
    connection.received(data)
    connection.closed("us", "bad")
    (row,) = world.frames()
    assert row["frame"] == data
    assert (row["api_key"], row["api_version"], row["correlation_id"]) == (None, None, None)
    assert [event["output"] for event in rows(world.lake, "events")][-1] == '{"by":"us","reason":"bad"}'


def test_rows_are_on_disk_a_moment_later_without_closing(world: JournaledWorld) -> None:
    world.connection().received(asked())
    wait_for(lambda: len(rows(world.lake)) == 1, "the rows are on disk")
    assert not reading.segments(world.lake)[0].sealed


def test_whoever_makes_the_marker_gets_sealed_segments(world: JournaledWorld) -> None:
    connection = world.connection()
    connection.received(asked())
    assert reading.ask_to_seal(world.lake) == []
    assert all(segment.sealed for segment in reading.segments(world.lake))
    connection.received(asked(2))
    assert len(world.frames()) == 2
    assert not list(world.lake.rglob(SEAL))


def test_segments_roll_by_size_and_age_and_keep_every_row(world: JournaledWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "SEGMENT_BYTES", 20_000)
    connections = [world.connection(name=str(n)) for n in range(5)]
    for n in range(1000):
        connections[n % 5].received(asked(n))
        if n % 100 == 0:
            wait_for(lambda: not world.writer.frames, "no frame is kept")
    monkeypatch.setattr(disk, "SEGMENT_S", 0.0)
    wait_for(lambda: all(segment.sealed for segment in reading.segments(world.lake)), "all segments are sealed")
    assert len(reading.segments(world.lake)) > 3
    assert [row["correlation_id"] for row in world.frames()] == list(range(1000))
    assert seqs(world.lake) == list(range(1, 1006))


def test_a_journal_that_is_closed_has_sealed_its_segments(world: JournaledWorld) -> None:
    world.connection().received(asked())
    world.writer.close()
    assert [(segment.table, segment.sealed) for segment in reading.segments(world.lake)] == [("events", True), ("frames", True)]
    assert [reader.torn for reader in readers(world.lake)] == [None, None]


def readers(lake: Path) -> list[reading.SegmentReader]:
    """Of all segments, read to their end."""
    opened = [reading.open_segment(segment.path) for segment in reading.segments(lake)]
    for reader in opened:
        assert list(reader)
    return opened


def test_a_writer_goes_on_where_the_one_before_was_killed(world: JournaledWorld) -> None:
    world.connection().received(asked())
    wait_for(lambda: len(rows(world.lake)) == 1, "the rows are on disk")
    copy = world.lake / "copy"
    folder = copy / "journal" / "run=r" / "node=1"
    folder.mkdir(parents=True)
    for segment in reading.segments(world.lake):  # as kill -9 leaves it
        (folder / segment.path.name).write_bytes(segment.path.read_bytes() + b"\xff\xff\xff\xfftorn")
    again = JournaledWorld(copy, JournalWriter(copy, "r", 1))
    assert (again.writer.process, again.writer.seq) == (2, 3)
    assert [(segment.first_seq, segment.sealed) for segment in reading.segments(copy)] == [(1, True), (2, True)]
    again.connection().received(asked(2))
    assert [(row["process"], row["seq"]) for row in again.frames()] == [(1, 2), (2, 4)]
    assert seqs(copy) == [1, 2, 3, 4]


@pytest.mark.parametrize("table", ["frames", "events"])
def test_a_process_begins_behind_all_rows_although_the_newest_segment_has_none(tmp_path: Path, table: str) -> None:
    with TinyJournal(tmp_path, process=4) as before:
        before.event("timer")
        simple_exchange(before)
        before.event("timer")
        simple_exchange(before)
    (before.folder / f"{table}-00000000000000000099.arrows").write_bytes(bytes(500))  # as a machine that crashed leaves it
    writer = JournalWriter(tmp_path, "r", 1)
    assert (writer.process, writer.seq) == (5, 7)
    writer.close()


def test_a_process_begins_behind_the_table_that_was_written_last(tmp_path: Path) -> None:
    with TinyJournal(tmp_path, "frames last") as journal:
        journal.event("timer")
        simple_exchange(journal)
    with TinyJournal(tmp_path, "events last", process=2) as journal:
        simple_exchange(journal)
        journal.event("timer")
        journal.batch()
        journal.event("timer")
    for run, expected in (("frames last", (2, 4)), ("events last", (3, 5))):
        writer = JournalWriter(tmp_path, run, 1)
        assert (writer.process, writer.seq) == expected
        writer.close()


def test_two_brokers_cannot_write_the_same_journal(world: JournaledWorld) -> None:
    with pytest.raises(JournalRefused, match="another broker 1 is writing its journal of run r"):
        JournalWriter(world.lake, "r", 1)
    JournalWriter(world.lake, "r", 2).close()
    JournalWriter(world.lake, "s", 1).close()


def test_a_folder_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalRefused, match=r"the journal cannot be written to .*file"):
        JournalWriter(tmp_path / "file", "r", 1)
    with pytest.raises(JournalRefused, match="cannot be the name of a run"):
        JournalWriter(tmp_path, "a/b", 1)


def test_a_full_disk_ends_the_journal_with_one_line_and_keeps_what_was_whole(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connection = world.connection()
    connection.received(asked(1))
    wait_for(lambda: len(rows(world.lake)) == 1, "the rows are on disk")

    def full(self: Any, batch: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(OpenSegment, "write", full)
    with caplog.at_level(logging.ERROR):
        connection.received(asked(2))
        wait_for(lambda: world.writer.has_ended, "the writer ends")
    for corr in range(3, 2000):
        connection.received(asked(corr))
    assert [row["correlation_id"] for row in world.frames()] == [1]
    assert len([record for record in caplog.records if record.name.startswith("klamm.")]) == 1
    assert "has ended: No space left on device. The broker continues without it." in caplog.text
    assert not world.writer.frames
    assert reading.early_ends(world.lake / "journal" / "run=r" / "node=1") == {1: "No space left on device"}
    assert [segment.sealed for segment in reading.segments(world.lake)] == [True, True], "without their end marks"


def test_the_first_reason_of_an_early_end_counts(world: JournaledWorld, caplog: pytest.LogCaptureFixture) -> None:
    for reason in ("the first", "the second"):
        world.writer._disk.end(reason)
    world.writer.close()
    assert reading.early_ends(world.lake / "journal" / "run=r" / "node=1") == {1: "the first"}
    assert len(caplog.records) == 1


def test_a_dictionary_that_begins_anew_has_the_contexts_that_were_in_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "LARGEST_DICTIONARY", 3)
    of = {n: batches.ContextValues(n, "accepted", None, "h:1", None, None, f"client-{n}", None) for n in range(5)}
    contexts = batches.Contexts(of)
    for numbers in ([0, 1], [1, 0, 2], [2, 3, 0], [4, 4, 2], [0, 1, 2, 3, 4]):
        columns = contexts.columns(numbers)
        assert columns["client_id"].to_pylist() == [f"client-{n}" for n in numbers]
        assert columns["conn_id"].to_pylist() == numbers


def test_too_much_that_waits_for_a_slow_disk_ends_the_journal(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr("klamm.journal.writer.WAITING_ROWS", 3000)
    monkeypatch.setattr(OpenSegment, "write", lambda self, batch: goes_on.wait(30))
    connection = world.connection()
    for corr in range(10_000):
        connection.received(asked(corr))
    goes_on.set()
    assert world.writer.has_ended
    assert "the disk is too slow" in caplog.text
    world.writer.close()
    (reason,) = reading.early_ends(world.lake / "journal" / "run=r" / "node=1").values()
    assert reason.startswith("the disk is too slow: ")


def test_values_of_events_become_json_in_the_writer(world: JournaledWorld) -> None:
    class Rule(NamedTuple):
        name: str
        isr: frozenset[int]

    first = world.writer.event("decision", topic="t", partition=0, input=Rule("x", frozenset({3, 1})), output=lambda: {"a": b"\xff"})
    world.writer.event("timer", cause_seq=first, input='{"is": "json"}')
    world.writer.close()
    one, two = rows(world.lake, "events")
    assert (one["input"], one["output"]) == ('{"name":"x","isr":[1,3]}', '{"a":"_w"}')
    assert (one["topic"], one["partition"], one["broker"], one["run_id"], one["process"]) == ("t", 0, None, "r", 1)
    assert (two["input"], two["cause_seq"], two["output"]) == ('{"is": "json"}', first, None)


def test_a_client_that_changes_its_name_with_each_request_that_waits_does_no_harm(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LARGEST_DICTIONARY", 50)
    connection = world.connection()
    for corr in range(1000):
        connection.received(asked(corr, f"client-{corr}"))
    wait_for(lambda: len(rows(world.lake)) == 1000, "the rows are on disk")
    for corr in range(1000):
        connection.sent(answered(corr))
    connection.closed("peer")
    found = world.frames()
    assert not world.writer.has_ended
    assert [row["client_id"] for row in found] == [f"client-{corr}" for corr in range(1000)] * 2


def test_names_that_a_client_had_are_forgotten(world: JournaledWorld) -> None:
    connection = world.connection()
    for corr in range(1000):
        connection.received(asked(corr, f"client-{corr}"))
        connection.sent(answered(corr))
    wait_for(lambda: len(rows(world.lake)) == 2000, "the rows are on disk")
    wait_for(lambda: len(world.writer._disk._values) < 200, "the values are forgotten")  # behind the rows


def test_an_event_whose_json_cannot_be_made_says_so_and_harms_no_other(world: JournaledWorld) -> None:
    def fails() -> str:
        raise KeyError("gone")

    world.writer.event("decision", input=fails)
    world.writer.event("timer", topic="\ud800x", output='{"name":"\udfff"}')
    world.writer.event("timer", topic="t", output='{"name":"n"}')
    world.writer.close()
    bad, half, good = rows(world.lake, "events")
    assert bad["input"] == """{"unwritable":"KeyError: 'gone'"}"""
    assert (half["topic"], half["output"]) == ("?x", '{"name":"?"}')
    assert (good["topic"], good["output"]) == ("t", '{"name":"n"}')


def test_a_disk_that_hangs_does_not_fill_the_memory(world: JournaledWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(self: OpenSegment, batch: Any) -> None:
        hangs.set()
        goes_on.wait(30)

    monkeypatch.setattr("klamm.journal.writer.WAITING_ROWS", 3000)
    monkeypatch.setattr(OpenSegment, "write", hang)
    connection = world.connection()
    assert hangs.wait(10)
    for corr in range(50_000):
        connection.received(asked(corr))
        connection.sent(answered(corr))
    assert world.writer.has_ended
    assert len(world.writer.frames) < 1000
    goes_on.set()


def test_bodies_of_unfinished_frames_are_not_kept_where_only_headers_are(tmp_path: Path) -> None:
    world = JournaledWorld(tmp_path, JournalWriter(tmp_path, "r", 1, frames="headers"))
    connection = world.connection()
    connection.received(produce(1, 7, b"x" * 500, client="abc")[:400])
    connection.closed("peer")
    (row,) = world.frames()
    assert (row["frame"], row["flags"]) == (produce(1, 7, b"x" * 500, client="abc")[:12], Flag.CUT)


def test_acks_are_found_behind_tagged_fields_of_the_header(world: JournaledWorld) -> None:
    frame = produce(0, 9, b"")
    tagged = frame[4:15] + b"\x01\x05\x03abc" + frame[16:]
    connection = world.connection()
    connection.received(len(tagged).to_bytes(4, "big") + tagged)
    assert [row["flags"] for row in world.frames()] == [Flag.NO_RESPONSE]


@pytest.mark.parametrize(("key", "version", "tail"), [(0, 9, bytes(8)), (18, 3, b"\2a\0021\0")], ids=["Produce", "ApiVersions"])
def test_many_tagged_fields_of_a_header_are_not_looked_at_one_by_one(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch, key: int, version: int, tail: bytes
) -> None:
    """The journal sees frames on the event loop; their number of tagged fields has no limit."""
    skipped: list[int] = []

    def skip(data: bytes, position: int, *_: object) -> int:
        skipped.append(position)
        return skip_tags(data, position)

    monkeypatch.setattr("klamm.protocol.exchanges.exchanges.skip_tags", skip)
    monkeypatch.setattr("klamm.protocol.messages.skip_tags", skip)
    tags = 2 * FEW_TAGS
    payload = struct.pack(">hhihc", key, version, 7, 1, b"x") + write_uvarint(tags) + b"\1\0" * tags + tail
    connection = world.connection()
    connection.received(len(payload).to_bytes(4, "big") + payload)
    assert skipped == []
    assert [(row["correlation_id"], row["flags"] & Flag.NO_RESPONSE) for row in world.frames()] == [(7, 0)]


def test_events_do_not_wait_until_no_more_frames_come(world: JournaledWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = world.connection()
    corr = 0
    one_at_a_time = threading.Lock()
    written = OpenSegment.write

    def busy(self: OpenSegment, batch: Any) -> None:
        nonlocal corr
        with one_at_a_time:
            corr += 1
            connection.received(asked(corr))
        written(self, batch)

    wait_for(lambda: len(rows(world.lake, "events")) == 1, "the events are on disk")
    monkeypatch.setattr(OpenSegment, "write", busy)
    with one_at_a_time:
        connection.received(asked(0))
    wait_for(lambda: len(rows(world.lake)) > 1, "the rows are on disk")
    with one_at_a_time:
        world.writer.event("timer")
    wait_for(lambda: [row["kind"] for row in rows(world.lake, "events")] == ["conn_open", "timer"], "the events are on disk")
    monkeypatch.setattr(OpenSegment, "write", written)
    assert seqs_of(world) == list(range(1, corr + 4))


def seqs_of(world: JournaledWorld) -> list[int]:
    world.writer.close()
    return seqs(world.lake)
