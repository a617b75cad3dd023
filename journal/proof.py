"""Proves of each broker's journal that no row is missing: frames and events together have the numbers 1, 2, 3, … without a gap.

It also checks that process numbers increase by one, that segment names have their first row number, that rows belong to their folder, and
that there are no foreign files. A segment without an end mark belongs to a killed or running process. Its rows up to the last complete
batch are used; a row that was lost there shows as a gap, unless it was the last one. If a journal ended early because the disk was full or
failed, a file in its folder says so.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from klamm.journal.reading import SegmentReader, early_ends, is_written, open_segment, retained_to
from klamm.journal.segments import Segment, is_part, journal_folder, segment_of

SHOWN = 1_000
"""Maximum number of problems that are listed for one broker. Others are only counted."""
TRIES = 5

_Number = tuple[int, int, int, str]
"""seq, process, ts_ns and the table of one row."""


@dataclass
class Proof:
    """The result for one broker in one run."""

    run: str
    broker: int
    frames: int = 0
    events: int = 0
    processes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    is_written: bool = False
    """A broker is still writing, so rows may follow."""
    problems: list[str] = field(default_factory=list)
    """Missing or impossible rows, one line each."""
    more_problems: int = 0
    notes: list[str] = field(default_factory=list)
    """Remarks that do not mean that a row is missing."""

    @property
    def rows(self) -> int:
        """Number of frames and events."""
        return self.frames + self.events

    def problem(self, line: str) -> None:
        """Add a problem. If there are too many, only the number increases."""
        if len(self.problems) < SHOWN:
            self.problems.append(line)
        else:
            self.more_problems += 1

    def note(self, line: str) -> None:
        """Add a note, unless there are too many."""
        if len(self.notes) < SHOWN:
            self.notes.append(line)


def verify(lake: Path, runs: frozenset[str] | None = None, nodes: frozenset[int] | None = None) -> tuple[list[Proof], list[Path]]:
    """A proof for each broker of each run, and the foreign files. Running writers are not affected."""
    folders: dict[tuple[str, int], Path] = {}
    foreign: list[Path] = []
    for path in _files(journal_folder(lake)):
        segment = segment_of(path)
        in_folder = segment_of(path.with_name("frames-00000000000000000001.arrows"))
        if segment is not None:
            folders[segment.run, segment.node] = path.parent
        elif in_folder is not None and is_part(path):
            folders.setdefault((in_folder.run, in_folder.node), path.parent)
        else:
            foreign.append(path)
    chosen = [
        (run, node, folder) for (run, node), folder in sorted(folders.items())
        if (runs is None or run in runs) and (nodes is None or node in nodes)
    ]
    return [_proof(run, node, folder) for run, node, folder in chosen], foreign


def _files(folder: Path) -> Iterator[Path]:
    for where, inner, names in os.walk(folder):
        inner.sort()
        yield from (Path(where, name) for name in sorted(names))


def _proof(run: str, node: int, folder: Path) -> Proof:
    """The proof of one broker. While it writes, its two files cannot be read at the same instant, so a gap must still be there when they
    are read again.
    """
    proof = _one_pass(run, node, folder)
    for _ in range(TRIES):
        if not (proof.is_written and proof.problems):
            break
        again = _one_pass(run, node, folder)
        if again.problems == proof.problems:
            break
        proof = again
    return proof


def _one_pass(run: str, node: int, folder: Path) -> Proof:
    proof = Proof(run, node, is_written=is_written(folder))
    expected, process, last_ts = 1, 0, 0
    retained = retained_to(folder)
    last_of: dict[int, int] = {}
    found = (segment for path in sorted(folder.iterdir()) if (segment := segment_of(path)) is not None)
    streams: dict[str, list[Segment]] = {"frames": [], "events": []}
    for segment in found:
        streams[segment.table].append(segment)
    for seq, number, ts_ns, table in heapq.merge(*(_numbers(proof, parts) for parts in streams.values())):
        if table == "frames":
            proof.frames += 1
        else:
            proof.events += 1
        previous = expected - 1
        if seq > max(expected, retained + 1):
            expected = max(expected, retained + 1)
            missing = f"seq {expected}" if seq == expected + 1 else f"seq {expected} to {seq - 1} ({seq - expected} rows)"
            where = f"between process {process} and {number}" if process and number != process else f"in process {number}"
            proof.problem(f"{missing} missing, {where}")
        elif seq < expected:
            proof.problem(f"seq {seq} in {table} is not above seq {expected - 1}")
        expected = max(expected, seq + 1)
        last_of[number] = max(seq, last_of.get(number, 0))
        if number != process:
            if number != process + 1 and previous >= retained:
                proof.problem(f"seq {seq}: process {number} after process {process}")
            process = number
            proof.processes += 1
        elif ts_ns < last_ts:
            proof.note(f"seq {seq}: the clock went back by {(last_ts - ts_ns) / 1e9:.6f} s")
        last_ts = ts_ns
        proof.first_ns = ts_ns if proof.first_ns is None else min(proof.first_ns, ts_ns)
        proof.last_ns = ts_ns if proof.last_ns is None else max(proof.last_ns, ts_ns)
    for number, reason in early_ends(folder).items():
        last = max((seq for of, seq in last_of.items() if of <= number), default=0)
        proof.problem(f"seq {last + 1} and all later rows of process {number} missing, its journal ended early: {reason}")
    return proof


def _numbers(proof: Proof, parts: list[Segment]) -> Iterator[_Number]:
    """The numbers of each row of one table, in the order of the files."""
    for segment in parts:
        reader = _open(segment.path)
        if reader is None:
            proof.problem(f"{segment.path.name} is gone")
            continue
        first = True
        for batch in reader:
            if not batch.num_rows:
                continue
            if first and (start := batch.column("seq")[0].as_py()) != segment.first_seq:
                proof.problem(f"{segment.path.name} begins with seq {start}")
            first = False
            columns = [batch.column(name) for name in ("seq", "process", "ts_ns")]
            foreign = {(row["run_id"], row["node_id"]) for row in _pairs(batch)} - {(segment.run, segment.node)}
            for run, node in sorted(foreign, key=str)[:3]:
                proof.problem(f"{segment.path.name} has rows of broker {node} of run {run}")
            if any(column.null_count for column in columns):
                proof.problem(f"{segment.path.name} has rows without seq, process or time")
                continue
            for seq, number, ts_ns in zip(*(column.to_pylist() for column in columns), strict=True):
                yield seq, number, ts_ns, segment.table
        if reader.torn is not None and not (proof.is_written and not segment.sealed):
            proof.note(f"{segment.path.name} is damaged, its whole batches were read: {reader.torn}")


def _pairs(batch: pa.RecordBatch) -> list[dict[str, object]]:
    table = pa.Table.from_batches([batch.select(["run_id", "node_id"])])
    rows: list[dict[str, object]] = table.group_by(["run_id", "node_id"]).aggregate([]).to_pylist()
    return rows


def _open(path: Path) -> SegmentReader | None:
    for candidate in (path, path.with_name(path.name.removesuffix(".open"))):
        try:
            return open_segment(candidate)
        except FileNotFoundError:
            continue
    return None
