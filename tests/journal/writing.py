"""Writes any journal, also wrong ones: rows with chosen columns, gaps, clocks that jump, bytes that are no frame, torn segments.

    with TinyJournal(lake, "r", 1) as journal:
        asked = journal.request(7, ApiKey.METADATA, 12, messages.MetadataRequest())
        journal.response(7, asked, messages.MetadataResponse())
        journal.skip(3)                                              # three rows are missing
        journal.event("decision", topic="t", partition=0, input={…}, output={"write": …})

Every method takes any column of its table by name, which replaces what it would have written. Rows go through the journal's own segment
writer. `seq` and `ts_ns` go on from the row before: one up, and `step_ns` up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from klamm.journal.columns import Direction, Flag
from klamm.journal.segments import OpenSegment, disk_schema, node_folder, segment_metadata, table_schema
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey

START_NS = 1_700_000_000_000_000_000


class TinyJournal:
    """The journal of one process of one broker. `conn` is any number; the defaults of its columns can be set by `connection`."""

    def __init__(self, lake: Path, run: str = "r", node: int = 1, *, process: int = 1, seq: int = 1, ts_ns: int = START_NS) -> None:
        self.folder = node_folder(lake, run, node)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.next_seq = seq
        self.now_ns = ts_ns
        self.step_ns = 1_000_000
        self._start_ns = ts_ns
        self._where = {"run_id": run, "node_id": node, "process": process}
        self._metadata = segment_metadata(run, node, process, ts_ns, "0")
        self._rows: dict[str, list[dict[str, Any]]] = {"frames": [], "events": []}
        self._open: dict[str, OpenSegment] = {}
        self._last: dict[str, Path] = {}
        self._connections: dict[int, dict[str, Any]] = {}
        self._by_seq: dict[int, dict[str, Any]] = {}
        self._correlation_id = 0

    def __enter__(self) -> TinyJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- rows

    def connection(self, conn: int, **columns: Any) -> int:
        """Set columns of all frames of a connection: `kind`, `peer`, `peer_id`, `listener`, `client_id`, …; returns `conn`."""
        self._connections[conn] = {**self._connections.get(conn, {}), **columns}
        return conn

    def request(
        self, conn: int, key: int, version: int, message: Any, *, dir: int = Direction.REQUEST_IN, corr: int | None = None,
        cause: int | None = None, **columns: Any,
    ) -> int:
        """A request; its `seq`. `message` is a message, or the bytes of a body. Correlation ids count up where none is given."""
        if corr is None:
            self._correlation_id += 1
            corr = self._correlation_id
        client_id = columns.get("client_id", self._connections.get(conn, {}).get("client_id", "tiny"))
        body = message if isinstance(message, bytes) else messages.encode(message, version)
        frame = columns.pop("frame", None)
        if frame is None:
            frame = messages.encode_request(key, version, corr, client_id, body)
        own = {"api_key": int(key), "api_version": version, "correlation_id": corr, "client_id": client_id, "cause_seq": cause}
        return self._frame(conn, dir, frame, own, columns)

    def response(self, conn: int, request_seq: int, message: Any, **columns: Any) -> int:
        """The response to a request of this journal; its `seq`. `message` is a message, or the bytes of a body."""
        asked = self._by_seq[request_seq]
        key, version = columns.get("api_key", asked["api_key"]), columns.get("api_version", asked["api_version"])
        corr = columns.get("correlation_id", asked["correlation_id"])
        body = message if isinstance(message, bytes) else messages.encode(message, version)
        frame = columns.pop("frame", None)
        if frame is None:
            frame = messages.encode_response(key, version, corr, body)
        answers = Direction.RESPONSE_OUT if asked["dir"] == Direction.REQUEST_IN else Direction.RESPONSE_IN
        own = {
            "api_key": int(key), "api_version": version, "correlation_id": corr, "client_id": asked["client_id"], "cause_seq": request_seq,
            "latency_ns": self.now_ns - asked["ts_ns"],
        }
        return self._frame(conn, columns.pop("dir", answers), frame, own, columns)

    def raw(self, conn: int, dir: int, data: bytes, **columns: Any) -> int:
        """A row with these bytes, which need be no frame; its `seq`. All columns that come from a header are null where not given."""
        return self._frame(conn, dir, data, {}, columns)

    def cut(self, keep: int, **columns: Any) -> int:
        """The last frame row once more, but of its bytes only the first `keep`, in its place; its `seq`."""
        row = self._rows["frames"][-1]
        row.update({"frame": row["frame"][:keep], "flags": row["flags"] | Flag.CUT, **columns})
        return int(row["seq"])

    def event(self, kind: str, *, input: Any = None, output: Any = None, cause: int | None = None, **columns: Any) -> int:
        """An event; its `seq`. `input` and `output` are values, or text that is JSON already."""
        row: dict[str, Any] = {column.name: None for column in table_schema("events")}
        row |= {"kind": kind, "cause_seq": cause, "input": _json(input), "output": _json(output)}
        return self._add("events", row, columns)

    def time_of(self, seq: int) -> int:
        """The `ts_ns` of a frame."""
        return int(self._by_seq[seq]["ts_ns"])

    def skip(self, rows: int = 1) -> None:
        """Use up so many numbers without a row."""
        self.next_seq += rows

    # --- files

    def batch(self) -> None:
        """Write the rows so far as one batch of each table."""
        for table, rows in self._rows.items():
            if rows:
                schema = disk_schema(table, self._metadata)
                if table not in self._open:
                    self._open[table] = OpenSegment(self.folder, table, rows[0]["seq"], schema)
                self._open[table].write(_batch(rows, table, schema))
                self._rows[table] = []

    def roll(self) -> None:
        """Seal the open segments; the next rows begin others."""
        self.batch()
        for table, segment in self._open.items():
            self._last[table] = segment.seal()
        self._open = {}

    def close(self) -> None:
        """Write and seal everything."""
        self.roll()

    def kill(self, torn: int = 0) -> None:
        """End as a process that is killed: what was written stays open, and `torn` bytes are cut off the end of each file."""
        self.batch()
        for segment in self._open.values():
            segment.abandon()
            with open(segment.path, "r+b") as file:
                file.truncate(max(0, segment.path.stat().st_size - torn))
        self._open = {}

    def last(self, table: str = "frames") -> Path:
        """The segment that was sealed last."""
        return self._last[table]

    def _frame(self, conn: int, dir: int, frame: bytes, own: dict[str, Any], columns: dict[str, Any]) -> int:
        row: dict[str, Any] = {column.name: None for column in table_schema("frames")}
        ours = dir in (Direction.REQUEST_OUT, Direction.RESPONSE_IN)
        row |= {
            "conn_id": conn, "dir": int(dir), "kind": "channel" if ours else "accepted", "listener": None if ours else "PLAINTEXT",
            "peer": f"127.0.0.1:{40_000 + conn}", "flags": 0, "frame": frame,
        }
        return self._add("frames", {**row, **self._connections.get(conn, {}), **own}, columns)

    def _add(self, table: str, row: dict[str, Any], columns: dict[str, Any]) -> int:
        unknown = columns.keys() - row.keys()
        if unknown:
            raise TypeError(f"{table} has no column {', '.join(sorted(unknown))}")
        row |= {**self._where, "seq": self.next_seq, "ts_ns": self.now_ns, "mono_ns": self.now_ns - self._start_ns, **columns}
        self._rows[table].append(row)
        self._by_seq[row["seq"]] = row
        self.next_seq = row["seq"] + 1
        self.now_ns += self.step_ns
        return int(row["seq"])


def simple_exchange(journal: TinyJournal, conn: int = 1) -> tuple[int, int]:
    """A Metadata request and its response: (seq, seq)."""
    asked = journal.request(conn, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None))
    return asked, journal.response(conn, asked, messages.MetadataResponse(cluster_id="c", controller_id=1))


def _batch(rows: list[dict[str, Any]], table: str, schema: pa.Schema) -> pa.RecordBatch:
    plain = pa.RecordBatch.from_pylist(rows, schema=table_schema(table))
    arrays = [
        plain.column(field.name).dictionary_encode() if pa.types.is_dictionary(field.type) else plain.column(field.name) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _json(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
