"""The log of a lake: which folders and files are parts of a table.

This is all that says whether a part is valid. Who writes parts or reads tables calls `append`, `replace`, `drop` and `entries`, and asks
for the files of a part here. How the log is stored is known to nobody else.

Each table has a file `_manifest.jsonl` with one JSON object per line. A line is written after the files that it names, so a folder without
a line was left by a killed run. A later line for the same run and batch replaces the earlier one, so a batch that is repeated counts once.
A line may also drop other batches: compaction replaces many parts by one in a single line. A torn last line is ignored, because its batch
will be repeated.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.machine.replaced_file import replacing
from klamm.pipeline.lake.folder import LAYERS

if TYPE_CHECKING:
    from pyarrow import parquet

NAME = "_manifest.jsonl"
LINES = 100
"""Lines of a manifest that may be replaced by others before it is written again."""
DELTA_LOG = "_delta_log"
"""Delta's log of a published table (`pipeline/lake/delta.py`)."""


class Entry(NamedTuple):
    """A part of a table: `path` is a folder or a file, relative to the lake; `table` is as `silver/messages`.

    `first_ts_ns` and `last_ts_ns` are the least and the greatest `ts_ns` of its rows; None if the table has no such column, or if an
    older Klamm wrote the part.
    """

    table: str
    run: str
    batch: str
    path: str
    rows: int
    first_ts_ns: int | None = None
    last_ts_ns: int | None = None


class Footers(NamedTuple):
    """What the ends of a part's files say: its rows, and the bounds of their `ts_ns` as `Entry` has them."""

    rows: int = 0
    first_ts_ns: int | None = None
    last_ts_ns: int | None = None


def append(lake: Path, entries: Sequence[Entry]) -> None:
    """Add parts to their tables. All their files are complete."""
    by_table: dict[str, list[Entry]] = {}
    for entry in entries:
        by_table.setdefault(entry.table, []).append(entry)
    for table, added in by_table.items():
        _append(lake, table, [_as_object(entry) for entry in added])


def replace(lake: Path, entry: Entry, dropped: Iterable[Entry]) -> None:
    """Replace parts of a table by one part, in one step. The files of the replaced parts stay until `sweep`."""
    _append(lake, entry.table, [_as_object(entry) | {"drop": [[gone.run, gone.batch] for gone in dropped]}])


def drop(lake: Path, table: str, dropped: Iterable[Entry]) -> None:
    """Remove parts from their table. Their files stay until `sweep`."""
    _append(lake, table, [{"drop": [[gone.run, gone.batch] for gone in dropped]}])


def entries(lake: Path, table: str, runs: Collection[str] | None = None) -> list[Entry]:
    """The parts of a table, of all runs or of these, in the order in which they were last written."""
    path = lake / table / NAME
    try:
        status = path.stat()
    except FileNotFoundError:
        return []
    parts = _parts(path, (status.st_ino, status.st_size, status.st_mtime_ns))
    return [entry for entry in parts if runs is None or entry.run in runs]


@lru_cache(maxsize=64)
def _parts(path: Path, _version: tuple[int, ...]) -> tuple[Entry, ...]:
    """The parts that this version of a manifest names."""
    latest: dict[tuple[str, str], Entry] = {}
    for line in path.read_bytes().splitlines():
        try:
            change = json.loads(line)
            dropped = change.pop("drop", ())
            entry = Entry(**change) if change else None
        except (ValueError, TypeError, AttributeError):
            continue
        for run, batch in dropped:
            latest.pop((run, batch), None)
        if entry is not None:
            latest.pop((entry.run, entry.batch), None)
            latest[entry.run, entry.batch] = entry
    return tuple(latest.values())


def files(lake: Path, table: str, runs: Collection[str] | None = None) -> list[Path]:
    """The valid Parquet files of a table, for any reader of Parquet."""
    return [file for entry in entries(lake, table, runs) if entry.rows for file in part_files(lake, entry)]


def rows(lake: Path, table: str, runs: Collection[str] | None = None) -> int:
    """The rows of all parts of a table, as its manifest counts them."""
    return sum(entry.rows for entry in entries(lake, table, runs))


def rows_by_run(lake: Path, table: str) -> Counter[str]:
    """The rows of each run in a table, as its manifest counts them."""
    counts: Counter[str] = Counter()
    for entry in entries(lake, table):
        counts[entry.run] += entry.rows
    return counts


def tables(lake: Path) -> list[str]:
    """The tables that ever had a part."""
    return sorted(str(path.parent.relative_to(lake)) for layer in LAYERS for path in (lake / layer).glob(f"*/{NAME}"))


def part_files(lake: Path, entry: Entry) -> list[Path]:
    """The files of a part, as they are there."""
    return files_of(lake / entry.path)


def told(lake: Path, entry: Entry) -> Footers:
    """What the files of a part say."""
    return footers(lake / entry.path)


def footers(part: Path) -> Footers:
    """The rows of a part and their bounds. Only the ends of its files are read."""
    import pyarrow.parquet as pq

    return of_metadata([pq.read_metadata(file) for file in files_of(part)] if part.exists() else [])


def of_metadata(files: Sequence[parquet.FileMetaData]) -> Footers:
    """What these footers say together."""
    groups = [file.row_group(number) for file in files for number in range(file.num_row_groups)]
    bounds = [_bounds_of_time(group) for group in groups if group.num_rows]
    known = [bound for bound in bounds if bound is not None]
    first, last = (min(low for low, _ in known), max(high for _, high in known)) if known and len(known) == len(bounds) else (None, None)
    return Footers(sum(file.num_rows for file in files), first, last)


def together(told: Iterable[Footers]) -> Footers:
    """What the ends of several files say; the bounds are known if each file with rows has some."""
    filled = [one for one in told if one.rows]
    first, last = [one.first_ts_ns for one in filled], [one.last_ts_ns for one in filled]
    known = [(low, high) for low, high in zip(first, last, strict=True) if low is not None and high is not None]
    rows = sum(one.rows for one in filled)
    return Footers(rows, min(known)[0], max(high for _, high in known)) if known and len(known) == len(filled) else Footers(rows)


def with_bounds(lake: Path, entry: Entry) -> Entry:
    """The part with the bounds of its time: of its files, if an older Klamm wrote it."""
    if entry.last_ts_ns is not None or not entry.rows:
        return entry
    known = told(lake, entry)
    return entry._replace(first_ts_ns=known.first_ts_ns, last_ts_ns=known.last_ts_ns)


def _bounds_of_time(group: parquet.RowGroupMetaData) -> tuple[int, int] | None:
    """The least and the greatest `ts_ns` of a row group, as its statistics say."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "ts_ns":
            stated = column.statistics
            return (stated.min, stated.max) if stated is not None and stated.has_min_max else None
    return None


def sweep(lake: Path, table: str) -> list[Path]:
    """Remove files that belong to no part, and folders without files; return the files. Only while nobody reads or writes the table."""
    folder = lake / table
    parts = [lake / entry.path for entry in entries(lake, table)]
    valid = {path for path in parts if path.is_file()}
    within = {path for path in parts if path not in valid}
    removed = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path != folder / NAME and path not in valid and not within.intersection(path.parents)
        and path.relative_to(folder).parts[0] != DELTA_LOG
    ]
    for path in removed:
        path.unlink()
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        if path not in within and not any(path.iterdir()):
            path.rmdir()
    return removed


def rewrite(lake: Path, table: str) -> None:
    """Rewrite the manifest, with one line per valid part. Only while nobody writes the table."""
    path = lake / table / NAME
    with replacing(path) as temporary:
        temporary.write_text("".join(_line(_as_object(entry)) for entry in entries(lake, table)), encoding="utf-8")


def tidy(lake: Path, table: str) -> None:
    """Rewrite the manifest if most of its lines are not valid any more. Only while nobody writes the table."""
    path = lake / table / NAME
    if path.exists() and path.read_bytes().count(b"\n") > 2 * len(entries(lake, table)) + LINES:
        rewrite(lake, table)


def files_of(part: Path) -> list[Path]:
    """A file, or the Parquet files of a folder. Names that begin with `_` or `.` are left out, as Spark's readers do."""
    if part.is_file():
        return [part]
    return sorted(file for file in part.rglob("*.parquet") if all(name[0] not in "_." for name in file.relative_to(part).parts))


def _as_object(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in entry._asdict().items() if value is not None}


def _line(change: dict[str, Any]) -> str:
    return json.dumps(change, separators=(",", ":")) + "\n"


def _append(lake: Path, table: str, changes: Sequence[dict[str, Any]]) -> None:
    """Append a line in one write, by one process at a time. If the last line is torn, it is ended first."""
    (lake / table).mkdir(parents=True, exist_ok=True)
    with (lake / table / NAME).open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
        data = (b"\n" if torn else b"") + "".join(map(_line, changes)).encode()
        if file.write(data) != len(data):
            raise OSError(f"{lake / table / NAME}: not all of a line could be written")
