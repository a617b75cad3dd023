"""Batches of frames: as many rows come out as go in, with flat rows beside them, whatever the bytes are."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.journal.columns import FRAMES
from klamm.pipeline.decode import batches as decode_batches
from klamm.pipeline.decode.batches import INPUT, LISTS, OWN, decode_batch
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.tables import HEADER
from klamm.tests.pipeline.decode.frame_samples import FrameSample, recorded

DEFAULTS = {
    "run_id": "r", "node_id": 1, "process": 1, "ts_ns": 0, "mono_ns": 0, "conn_id": 1, "kind": "accepted", "peer": "h:1", "flags": 0,
}


def batch(rows: list[FrameSample]) -> Any:
    """A record batch of frames as Spark hands it to its workers."""
    own = [{"dir": row.dir, "api_key": row.key, "api_version": row.version, "frame": row.frame, "seq": n} for n, row in enumerate(rows)]
    types = {column.name: arrow_type(column.type) for column in FRAMES}
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(name, DEFAULTS.get(name)) for row in own], types[name]) for name in INPUT], names=list(INPUT)
    )


def test_a_batch_has_a_row_for_each_frame_in_the_columns_that_spark_is_told() -> None:
    rows = decode_batch(batch(recorded()))
    assert rows.num_rows == len(recorded())
    assert rows.schema.names == [*(column.name for column in HEADER), *(column.name for column in OWN), *LISTS]
    for column in (*HEADER, *OWN):
        assert rows.schema.field(column.name).type == arrow_type(column.type)
    rows.validate(full=True)
    assert rows.column("seq").to_pylist() == list(range(len(recorded())))
    assert set(rows.column("reason").to_pylist()) == {None}


def test_flat_rows_stand_beside_their_frame() -> None:
    found = 0
    for row in decode_batch(batch(recorded())).to_pylist():
        body = json.loads(row["body_json"])
        partitions = [state for topic in body.get("topicStates") or () for state in topic["partitionStates"]]
        if row["api_key"] in (4, 6) and row["dir"] == 2:
            assert [state["partition"] for state in row["states"]] == [state["partitionIndex"] for state in partitions]
            assert [state["isr"] for state in row["states"]] == [state["isr"] for state in partitions]
            found += len(partitions)
        if row["api_key"] not in (3, 4, 5, 6):
            assert row["states"] == row["brokers"] == []
    assert found > 500


def test_a_batch_with_many_bytes_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_batches, "BATCH_BYTES", 20_000)
    parts = list(decode_batches.decode_batches(iter([batch(recorded()), batch([])])))
    assert len(parts) > 10
    assert [seq for part in parts for seq in part.column("seq").to_pylist()] == list(range(len(recorded())))


def test_an_empty_batch_has_the_columns_of_any_other() -> None:
    assert decode_batch(batch([])).schema == decode_batch(batch(recorded()[:10])).schema


def test_a_body_that_no_variant_can_hold_is_left_out_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_batches, "MAX_BODY", 10)
    update = next(row for row in recorded() if row.key == 6 and row.dir == 2)
    (row,) = decode_batch(batch([update])).to_pylist()
    assert row["body_json"] is None and row["reason"] is None
    assert row["err"].startswith("left out: ")
    assert row["brokers"] != []


def test_what_rules_read_of_a_body_has_a_row_and_of_equal_responses_to_apiversions_only_the_first() -> None:
    told = next(row for row in recorded() if row.key == 18 and row.dir == 1 and row.version == 3)
    named = next(row for row in recorded() if row.key == 3 and row.dir == 0 and row.version >= 4 and json.loads(_body(row))["topics"])
    rows = decode_batch(batch([told._replace(frame=told.frame[:4] + bytes(3) + bytes([n]) + told.frame[8:]) for n in range(3)] + [named]))
    assert len({row["body_json"] for row in rows.to_pylist()[:3]}) == 1
    assert [len(row["fields"]) for row in rows.to_pylist()] == [1, 0, 0, 1]
    first, last = (row["fields"][0] for row in rows.to_pylist() if row["fields"])
    assert [[each["key"], each["low"], each["high"]] for each in first["advertised"]] == [
        [each["apiKey"], each["minVersion"], each["maxVersion"]] for each in json.loads(_body(told))["apiKeys"]
    ]
    assert last["names"] == [topic["name"] for topic in json.loads(_body(named))["topics"]]
    assert {name for name, value in last.items() if value is not None} == {"has_body", "names", "is_odd"}


def test_a_frame_of_which_only_the_header_was_kept_has_a_row_without_a_body() -> None:
    row = next(row for row in recorded() if row.key == 8 and row.dir == 0)
    cut = batch([row._replace(frame=row.frame[:14])])
    cut = cut.set_column(cut.schema.get_field_index("flags"), "flags", pa.array([2], pa.int32()))
    (decoded,) = decode_batch(cut).to_pylist()
    assert decoded["reason"] is None
    assert {name: value for name, value in decoded["fields"][0].items() if value is not None} == {"has_body": False}


def test_a_frame_that_the_journal_cut_anywhere_is_not_malformed() -> None:
    largest = {row[:2]: row for row in sorted(recorded(), key=lambda row: len(row.frame)) if len(row.frame) < 1200}
    rows = [row._replace(frame=row.frame[:size]) for row in largest.values() for size in range(14, len(row.frame), 3)]
    cut = batch(rows)
    cut = cut.set_column(cut.schema.get_field_index("flags"), "flags", pa.array([2] * len(rows), pa.int32()))
    decoded = decode_batch(cut)
    assert {(row["api_key"], row["detail"]) for row in decoded.to_pylist() if row["reason"] is not None} == set()


def _body(row: FrameSample) -> str:
    return decode_batch(batch([row])).to_pylist()[0]["body_json"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(range(2000)), st.integers(0, 400), st.integers(0, 255), st.integers(0, 31)), max_size=30))
def test_as_many_rows_come_out_as_go_in_whatever_the_bytes_are(changes: list[tuple[int, int, int, int]]) -> None:
    rows, flags = [], []
    for number, place, value, flag in changes:
        row = recorded()[number]
        frame = bytearray(row.frame)
        frame[place % len(frame)] = value
        rows.append(row._replace(frame=bytes(frame)))
        flags.append(flag if place % 3 else 0)
    given_rows = batch(rows)
    index = given_rows.schema.get_field_index("flags")
    given_rows = given_rows.set_column(index, "flags", pa.array(flags, pa.int32()))
    decoded = decode_batch(given_rows)
    decoded.validate(full=True)
    assert decoded.num_rows == len(rows)
    for row, out in zip(rows, decoded.to_pylist(), strict=True):
        assert (out["frame"] == row.frame) == (out["reason"] is not None)
        assert out["reason"] is None or out["body_json"] is None
