"""A journal of as many frames as are wanted, of a mixed load that breaks no rule: one run of a cluster of three brokers.

    python -m klamm.benchmarks.mixed_journal LAKE [--frames 1000000] [--seed 7]

A load of some 20,000 frames is recorded on a real cluster (`mixed_load.py`), which takes half a minute. What was journaled while it went on
comes again and again then, each time later, with other topics, groups, clients, producers and connections; the start of the cluster and its
shutdown stay at both ends. Names and ids are replaced by others of the same length in the bytes of the frames. Numbers of rows and of
connections, correlation ids of connections that live longer than a load, and the controller's numbers of events go on. The same recording
gives the same bytes.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from klamm.benchmarks.mixed_load import MARK, PRODUCERS, Recorded, record
from klamm.journal.columns import Direction
from klamm.journal.disk import SEGMENT_S
from klamm.journal.reading import open_segment, segments
from klamm.journal.segments import ENCODED, OpenSegment, Segment, disk_schema, node_folder
from klamm.protocol.nouns import id_of, id_text

RECORDED_FRAMES = 20_000
BATCH_ROWS = 1_000
PRODUCERS_OF_A_LOAD = 1 << 16
MOST_LOADS = 1 << len(MARK) // 2
"""The number of texts with the hash of `MARK`, which is that of loads too."""

_TABLES = ("frames", "events")
_NAMES = ("client_id", "topic", "topic_id", "input", "output", "frame")
"""Columns with names and ids in them."""
_CORRELATION = {Direction.REQUEST_IN: 8, Direction.REQUEST_OUT: 8, Direction.RESPONSE_OUT: 4, Direction.RESPONSE_IN: 4}
"""Where a frame has its correlation id."""


def write(lake: Path, frames: int, seed: int) -> int:
    """Write a journal of about this number of frames to a lake; returns the number that it has."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(Path(folder), min(frames, RECORDED_FRAMES), seed)
        return multiply(Path(folder), recorded, lake, frames)


def multiply(source: Path, recorded: Recorded, lake: Path, frames: int) -> int:
    """Write a recorded load to a lake as often as it takes to have about this number of frames; returns the number that there are."""
    found = segments(source)
    journals = [_Journal([one for one in found if one.node == node], recorded) for node in sorted({one.node for one in found})]
    times = max(1, round(frames / sum(journal.load["frames"].num_rows for journal in journals)))
    if times > MOST_LOADS:
        raise SystemExit(f"there are names for {MOST_LOADS} loads, and {times} would be needed")
    topic_ids = sorted({topic_id for journal in journals for topic_id in journal.topic_ids})
    producers = sorted({producer for journal in journals for producer in journal.producers})
    loads = [_Load(number, _replacements(number, topic_ids, producers)) for number in range(times)]
    return sum(journal.write(lake, loads) for journal in journals)


class _Load(NamedTuple):
    """A load with a number, from 0. That with 0 is as it was recorded."""

    number: int
    replaced: list[tuple[bytes, bytes]]
    """Names and ids of the recording, and what stands in their place, which has the same length."""


def _replacements(number: int, topic_ids: Sequence[str], producers: Sequence[int]) -> list[tuple[bytes, bytes]]:
    mark = "".join("BB" if number >> place & 1 else "Aa" for place in range(len(MARK) // 2))
    first = PRODUCERS + number * PRODUCERS_OF_A_LOAD
    pairs = [(MARK.encode(), mark.encode()), (PRODUCERS.to_bytes(8)[:6], first.to_bytes(8)[:6])]
    pairs += [(str(producer).encode(), str(producer - PRODUCERS + first).encode()) for producer in producers]
    for text in topic_ids:
        old = id_of(text)
        new = (int.from_bytes(old) ^ number << 64).to_bytes(16)
        pairs += [(old, new), (text.encode(), id_text(new).encode())]
    return pairs


class _Journal:
    """What one broker journaled: the rows before the load, those of the load, and those after it."""

    def __init__(self, found: Sequence[Segment], recorded: Recorded) -> None:
        self._run, self._node = found[0].run, found[0].node
        self._period_ns = recorded.ended_ns - recorded.began_ns
        self._before, self.load, self._after = {}, {}, {}
        for table in _TABLES:
            readers = [open_segment(one.path) for one in found if one.table == table]
            rows = pa.Table.from_batches([batch for reader in readers for batch in reader]).sort_by("seq").combine_chunks()
            self._metadata = readers[0].metadata
            times = rows["ts_ns"].to_numpy()
            first, last = np.searchsorted(times, (recorded.began_ns, recorded.ended_ns))
            self._before[table], self.load[table], self._after[table] = rows[:first], rows[first:last], rows[last:]
        self._shifts = _Shifts.of(self._before, self.load, self._period_ns)

    @property
    def topic_ids(self) -> set[str]:
        """Of the topics that the load made."""
        return set(self.load["events"].filter(pc.equal(self.load["events"]["kind"], "topic_added"))["topic_id"].to_pylist())

    @property
    def producers(self) -> set[int]:
        """The producer ids that events of the load name."""
        texts = [text for name in ("input", "output") for text in self.load["events"][name].to_pylist() if text is not None]
        numbers = {int(number) for text in texts for number in re.findall(r"\d{19}", text)}
        return {number for number in numbers if 0 <= number - PRODUCERS < PRODUCERS_OF_A_LOAD}

    def write(self, lake: Path, loads: Sequence[_Load]) -> int:
        """Write the segments of so many loads; returns the number of frames."""
        written = 0
        for table in _TABLES:
            parts = [(self._before[table], loads[0]), *((self.load[table], load) for load in loads), (self._after[table], loads[-1])]
            segment, began_ns = None, 0
            for rows, load in parts:
                for batch in _with_names(self._shifts.applied(rows, load.number), load).to_batches(BATCH_ROWS):
                    ns = batch.column("ts_ns")[0].as_py()
                    if segment is not None and ns - began_ns > SEGMENT_S * 1e9:
                        segment.seal()
                        segment = None
                    if segment is None:
                        segment, began_ns = self._opened(lake, table, batch), ns
                    segment.write(_as_on_disk(batch, table, self._metadata))
                    written += batch.num_rows if table == "frames" else 0
            if segment is not None:
                segment.seal()
        return written

    def _opened(self, lake: Path, table: str, batch: pa.RecordBatch) -> OpenSegment:
        folder = node_folder(lake, self._run, self._node)
        folder.mkdir(parents=True, exist_ok=True)
        return OpenSegment(folder, table, batch.column("seq")[0].as_py(), disk_schema(table, self._metadata))


class _Shifts(NamedTuple):
    """What each load adds to the numbers of the one before it."""

    first_seq: int
    """The first row of a load. Causes before it stay."""
    seqs: int
    ns: int
    last_connection: int
    """The last connection that was opened before the load; these stay."""
    connections: int
    correlations: dict[int, int]
    """Connection that was opened before the load → its requests in a load."""
    controller_events: int

    @classmethod
    def of(cls, before: dict[str, pa.Table], load: dict[str, pa.Table], ns: int) -> _Shifts:
        """Those of a recording."""
        last = pc.max(before["events"]["conn_id"]).as_py()
        frames = load["frames"]
        requests = frames.filter(pc.and_(pc.less_equal(frames["conn_id"], last), pc.is_in(frames["dir"], pa.array([0, 2], pa.int8()))))
        counted = requests.group_by("conn_id").aggregate([("correlation_id", "min"), ("correlation_id", "max")]).to_pylist()
        return cls(
            min(table["seq"][0].as_py() for table in load.values()),
            sum(table.num_rows for table in load.values()),
            ns,
            last,
            pc.max(load["events"]["conn_id"]).as_py() - last,
            {row["conn_id"]: row["correlation_id_max"] - row["correlation_id_min"] + 1 for row in counted},
            pc.sum(pc.equal(load["events"]["kind"], "controller_event")).as_py(),
        )

    def applied(self, rows: pa.Table, times: int) -> pa.Table:
        """The rows as they are after so many loads."""
        if not times:
            return rows
        rows = _added(rows, "seq", times * self.seqs)
        rows = _added(rows, "cause_seq", times * self.seqs, pc.greater_equal(rows["cause_seq"], self.first_seq))
        rows = _added(rows, "ts_ns", times * self.ns)
        rows = _added(rows, "mono_ns", times * self.ns)
        if "frame" in rows.column_names:
            rows = self._correlated(rows, times)
        else:
            rows = _replaced(rows, "input", pa.array(self._numbered(rows, times), pa.string()))
        return _added(rows, "conn_id", times * self.connections, pc.greater(rows["conn_id"], self.last_connection))

    def _correlated(self, rows: pa.Table, times: int) -> pa.Table:
        """Frames of connections that live longer than a load, with their next correlation ids."""
        added = np.array([self.correlations.get(connection, 0) * times for connection in rows["conn_id"].to_pylist()])
        chosen = np.flatnonzero(added)
        frames = rows["frame"].combine_chunks()
        ids, directions, data = rows["correlation_id"].to_pylist(), rows["dir"].to_pylist(), bytearray(frames.buffers()[2])
        offsets = np.frombuffer(frames.buffers()[1], np.int32)[frames.offset :]
        for row in chosen:
            at = offsets[row] + _CORRELATION[directions[row]]
            data[at : at + 4] = (ids[row] + int(added[row])).to_bytes(4)
        buffers = [None, frames.buffers()[1], pa.py_buffer(data)]
        rows = _replaced(rows, "frame", pa.Array.from_buffers(frames.type, len(frames), buffers, 0, frames.offset))
        return _replaced(rows, "correlation_id", pc.add(rows["correlation_id"], pa.array(added, pa.int32())))

    def _numbered(self, rows: pa.Table, times: int) -> Iterator[str | None]:
        """The input of events, where those of the controller have their next numbers."""
        for kind, text in zip(rows["kind"].to_pylist(), rows["input"].to_pylist(), strict=True):
            if kind == "controller_event":
                yield re.sub(r'(?<=^\{"number":)\d+', lambda number: str(int(number[0]) + times * self.controller_events), text)
            else:
                yield text


def _replaced(rows: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)


def _added(rows: pa.Table, name: str, number: int, where: pa.ChunkedArray | None = None) -> pa.Table:
    """The rows with so much more in a column; with `where` only in those rows."""
    more = pc.add(rows[name], number)
    return _replaced(rows, name, more if where is None else pc.if_else(pc.fill_null(where, False), more, rows[name]))


def _with_names(rows: pa.Table, load: _Load) -> pa.Table:
    """The rows with the names and ids of a load."""
    for name in _NAMES:
        if name in rows.column_names and load.number and rows.num_rows:
            column = rows[name].combine_chunks()
            validity, offsets, data = column.buffers()
            content = b"" if data is None else data.to_pybytes()
            for old, new in load.replaced:
                content = content.replace(old, new)
            buffers = [validity, offsets, pa.py_buffer(content)]
            rows = _replaced(rows, name, pa.Array.from_buffers(column.type, len(column), buffers, offset=column.offset))
    return rows


def _as_on_disk(batch: pa.RecordBatch, table: str, metadata: dict[str, str]) -> pa.RecordBatch:
    schema = disk_schema(table, metadata)
    columns = [
        batch.column(field.name).dictionary_encode().cast(field.type) if field.name in ENCODED[table] else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a journal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("lake", type=Path)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args(arguments)
    print(f"{write(chosen.lake, chosen.frames, chosen.seed):,} frames")


if __name__ == "__main__":
    main()
