"""The gold tables of verdicts: one part per run, replaced when all rules judge the run again.

Of a run that was cut (`pipeline/lake/windows.py`) there is a part for each time it was, which is final, and the part of the rows behind the
last place, which is replaced. A final part says up to which place its rows were judged.

Each file has a stamp of the rows that were judged and of the code that judged them. While the stamp is valid, verdicts are read from the
file instead of judging again. Violations after the first `KEPT` of a rule in a part are counted but not stored.

The counts of the rules are written last of all gold of a run. Their file also says which rows of silver the other tables were made of: so
gold that a killed run did not make, or did not finish, is known as old (`old_gold`), also if `check` judges the run in the meantime.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake import table_parts as parts
from klamm.pipeline.lake.column_types import arrow_schema
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import RULE_STATS, SILVER, VERDICTS, Table
from klamm.pipeline.lake.windows import Closed, Cut, Window, is_valid
from klamm.pipeline.rules.runner import Judgement, Row, Stat, Verdict, together
from klamm.pipeline.spark.cluster import code_digest

BATCH = "rules"
"""The batch of the part that is replaced; those of final parts have a number behind it."""

STAMP = b"klamm.judged"
CLOSED = b"klamm.closed"
MADE_OF = b"klamm.made_of"

TABLES = (VERDICTS, RULE_STATS)


class Final(NamedTuple):
    """What a final part of the verdicts on a run says."""

    code: str
    """Digest of the code that judged."""
    closed: Closed


def write_judgement(lake: Lake, judgement: Judgement, runs: Sequence[str], *, with_gold: bool) -> list[Entry]:
    """Write gold/verdicts and gold/rule_stats of the runs in place of what was there; their entries in the log. A few rows of each run, so
    the driver writes them. `with_gold`: the other tables of gold have been made of the same rows."""
    entries, stamps, rows = [], _stamps(lake, runs), _silver(lake, runs) if with_gold else _gold_made_of(lake, runs)
    for run in runs:
        entries += _write(lake, run, BATCH, judgement.of(run, run), None, {STAMP: stamps[run], MADE_OF: rows.get(run, "")})
    delta_log.append(lake, TABLES, entries)
    drop_parts(lake, TABLES, runs, behind=None)
    return entries


def write_window(lake: Lake, judgement: Judgement, window: Window) -> None:
    """The same of the parts of one window of a run, whose gold has been made."""
    entries: list[Entry] = []
    for part in window.parts:
        stamps = (_stamps(lake, [window.run]), _silver(lake, [window.run]))
        judged, made_of = (stamp[window.run] for stamp in stamps)
        about = {CLOSED: _text(window.closing)} if part.is_final else {STAMP: judged, MADE_OF: made_of}
        entries += _write(lake, window.run, part.batch(BATCH), judgement.of(window.run, part.name), part.since_ns, about)
    delta_log.append(lake, TABLES, entries)


def last_closed(lake: Lake, run: str) -> Closed | None:
    """Up to where verdicts on a run are final; None if no part is, or none that this code judged and that no row came too late for."""
    code = code_digest()
    for final in reversed(_finals(lake, run)):
        if final.code == code and is_valid(lake, run, final.closed):
            return final.closed
    return None


def drop_parts(lake: Lake, tables: Iterable[Table], runs: Collection[str], behind: Closed | None) -> None:
    """Remove the final parts of these tables of gold behind a place, or all."""
    for table in tables:
        gone = [
            entry
            for entry in delta_log.entries(lake, table.path, runs)
            if (number := entry.batch.rpartition("-")[2]).isdigit() and (behind is None or int(number) > behind.until.ns)
        ]
        if gone:
            delta_log.drop(lake, table.path, gone)


def old_gold(lake: Lake, runs: Collection[str] | None = None) -> list[str]:
    """The runs, of all in silver or of these, whose gold was not made of the rows that silver has now: it lacks some, or is missing.

    Of the newest commits, also if the version of the lake that is read is an older one: a run that was killed has not named its own.
    """
    with delta_log.newest_version(lake):
        silver = _silver(lake, runs)
        made_of = _gold_made_of(lake, silver)
    return sorted(run for run, rows in silver.items() if made_of.get(run) != rows)


def old_gold_notes(lake: Lake, runs: Collection[str] | None = None) -> list[str]:
    """A line for each of these runs, or of all, whose gold is old."""
    return [f"run {run}: gold is older than silver, it is made again by klamm pipeline run {lake}" for run in old_gold(lake, runs)]


def read_judgement(lake: Lake, runs: Sequence[str]) -> Judgement | None:
    """The stored verdicts on these runs, if they are still valid: no rows were added, and Klamm's code is the same."""
    code, stamps = code_digest(), _stamps(lake, runs)
    found = []
    current = {entry.run for entry in delta_log.entries(lake, RULE_STATS.path, runs) if entry.batch == BATCH}
    for table in TABLES:
        for entry in delta_log.entries(lake, table.path, runs):
            part = _read(lake, entry)
            if part is None or not (_says(part, STAMP) == stamps[entry.run] if entry.batch == BATCH else _code(part) == code):
                return None
            rows = part.to_pylist()
            found.append(
                Judgement([], [Verdict(**row | {"evidence": [Row(**each) for each in row["evidence"]]}) for row in rows])
                if table is VERDICTS
                else Judgement([Stat(*(row[name] for name in Stat._fields)) for row in rows], [])
            )
    judgement = together(found)
    is_whole = {one[:2] for one in judgement.stats if one.violated} <= {(one.run_id, one.rule) for one in judgement.verdicts}
    return judgement if current == set(runs) and is_whole else None


def _finals(lake: Lake, run: str) -> list[Final]:
    """The final parts of a run, in order."""
    found = []
    for entry in delta_log.entries(lake, RULE_STATS.path, {run}):
        part = None if entry.batch == BATCH else _read(lake, entry)
        if part is not None:
            text = json.loads(_says(part, CLOSED))
            seen, until = (Cut(ns, {int(node): seq for node, seq in seqs.items()}) for ns, seqs in (text["seen"], text["until"]))
            found.append(Final(text["code"], Closed(seen, until, text["rows"])))
    return sorted(found, key=lambda final: final.closed.until.ns)


def _text(closed: Closed) -> str:
    return json.dumps({"code": code_digest(), "seen": closed.seen, "until": closed.until, "rows": closed.rows})


def _code(part: pa.Table) -> str:
    text = _says(part, CLOSED)
    return str(json.loads(text)["code"]) if text else ""


def _says(part: pa.Table, key: bytes) -> str:
    return (part.schema.metadata or {}).get(key, b"").decode()


def _stamps(lake: Lake, runs: Sequence[str]) -> dict[str, str]:
    """Of each run: the rows that the rules see and the code that judges them, as one short text."""
    code, silver = code_digest(), _silver(lake, runs)
    return {run: _digest(f"{code} {silver.get(run)}") for run in runs}


def _silver(lake: Lake, runs: Collection[str] | None) -> dict[str, str]:
    """Of each run in silver: how many rows its tables have and of which time, as one short text. Merging parts does not change it."""
    found: dict[str, list[tuple[str, int, int | None, int | None]]] = {}
    for table in SILVER:
        files: dict[str, list[Entry]] = {}
        for entry in delta_log.entries(lake, table.path, runs):
            if entry.rows:
                files.setdefault(entry.run, []).append(entry)
        for run, some in files.items():
            firsts = [entry.first_ts_ns for entry in some if entry.first_ts_ns is not None]
            lasts = [entry.last_ts_ns for entry in some if entry.last_ts_ns is not None]
            rows = sum(entry.rows for entry in some)
            found.setdefault(run, []).append((table.path, rows, min(firsts, default=None), max(lasts, default=None)))
    return {run: _digest(str(tables)) for run, tables in found.items()}


def _gold_made_of(lake: Lake, runs: Collection[str]) -> dict[str, str]:
    """Of each run with gold: the rows of silver that it was made of, as `_silver` has them."""
    found = {}
    for entry in delta_log.entries(lake, RULE_STATS.path, runs):
        if entry.batch == BATCH:
            with suppress(OSError, ValueError, pa.ArrowException):
                about = opened(Store(lake).address(entry.path)).schema_arrow.metadata or {}
                found[entry.run] = about.get(MADE_OF, b"").decode()
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(lake: Lake, run: str, batch: str, judgement: Judgement, since_ns: int | None, about: dict[bytes, str]) -> list[Entry]:
    """Write a part of both tables; what is said `about` it is the metadata of its files. Verdicts without rows have no file."""
    entries = []
    for table, rows in judgement_rows(judgement, since_ns).items():
        is_empty = table is VERDICTS and not rows.num_rows
        nothing = Entry(table.path, run, batch, "", 0)
        entries.append(nothing if is_empty else parts.put(lake, table, run, batch, rows.replace_schema_metadata(about)))
    return entries


def judgement_rows(judgement: Judgement, since_ns: int | None = None) -> dict[Table, pa.Table]:
    """The rows of both tables; `since_ns` is where the window of the judgement begins, None for a whole run."""
    rows: tuple[tuple[Table, list[dict[str, object]]], ...] = (
        (VERDICTS, [one._asdict() | {"evidence": [row._asdict() for row in one.evidence]} for one in judgement.verdicts]),
        (RULE_STATS, [one._asdict() | {"window_ts_ns": since_ns} for one in judgement.stats]),
    )
    return {table: pa.Table.from_pylist(records, schema=arrow_schema(table.columns)) for table, records in rows}


def _read(lake: Lake, entry: Entry) -> pa.Table | None:
    """The rows of a part with what its file says about it; None if it cannot be read."""
    try:
        return opened(Store(lake).address(entry.path)).read()
    except (OSError, ValueError, pa.ArrowException):
        return None
