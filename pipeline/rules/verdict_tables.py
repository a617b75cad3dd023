"""The gold tables of verdicts: what the rules said, one part for each run, replaced when all rules judge the run again.

Each file carries a stamp of what was judged and of what judged it. While the stamp fits, the judgement is read back in place of judging
again: it is complete, but for the violations behind the first `KEPT` of a rule, which are counted only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from klamm.pipeline import manifest
from klamm.pipeline.cluster import code_digest
from klamm.pipeline.manifest import Entry
from klamm.pipeline.rules.runner import Judgement, Stat, Verdict
from klamm.pipeline.tables import RULE_STATS, SILVER, VERDICTS, Table

BATCH = "rules"
"""The batch of all parts: a run is judged as a whole."""

STAMP = b"klamm.judged"


def write_judgement(lake: Path, judgement: Judgement, runs: Sequence[str]) -> list[Entry]:
    """Write gold/verdicts and gold/rule_stats of the runs in place of what was there; the manifests' entries. A few rows of each run, so
    the driver writes them."""
    tables: tuple[tuple[Table, Sequence[tuple[object, ...]]], ...] = ((VERDICTS, judgement.verdicts), (RULE_STATS, judgement.stats))
    stamps = _stamps(lake, runs)
    entries = [_write(lake, table, run, [row for row in rows if row[0] == run], stamps[run]) for run in runs for table, rows in tables]
    manifest.append(lake, entries)
    return entries


def read_judgement(lake: Path, runs: Sequence[str]) -> Judgement | None:
    """What all rules said of these runs, if they would say the same now: no row was added since, and no code of Klamm differs."""
    stamps = _stamps(lake, runs)
    found: dict[Table, list[dict[str, object]]] = {}
    for table in (VERDICTS, RULE_STATS):
        files = {entry.run: lake / entry.path / "part-0.parquet" for entry in manifest.entries(lake, table.path, runs)}
        rows = [_read(files[run], stamps[run]) if run in files else None for run in runs]
        if any(part is None for part in rows):
            return None
        found[table] = [row for part in rows if part is not None for row in part]
    stats = [Stat(**row) for row in found[RULE_STATS]]  # type: ignore[arg-type]
    verdicts = [Verdict(**row) for row in found[VERDICTS]]  # type: ignore[arg-type]
    return Judgement(stats, verdicts)


def _stamps(lake: Path, runs: Sequence[str]) -> dict[str, str]:
    """Of each run: the rows that the rules see and the code that judges them, as one short text."""
    code = code_digest()
    rows = {table.path: manifest.rows_by_run(lake, table.path) for table in SILVER}
    return {
        run: hashlib.sha256(f"{code} {[(path, counts.get(run, 0)) for path, counts in rows.items()]}".encode()).hexdigest() for run in runs
    }


def _write(lake: Path, table: Table, run: str, rows: Iterable[tuple[object, ...]], stamp: str) -> Entry:
    records = [dict(zip(table.names, row, strict=True)) for row in rows]
    fields = [(column.name, _arrow_type(column.type)) for column in table.columns]
    folder = f"{table.path}/run={quote(run, safe='')}/batch={BATCH}"
    (lake / folder).mkdir(parents=True, exist_ok=True)
    path = lake / folder / "part-0.parquet"
    unfinished = path.with_name("._part-0.parquet")
    pq.write_table(pa.Table.from_pylist(records, schema=pa.schema(fields, {STAMP: stamp})), unfinished, compression="zstd")
    os.replace(unfinished, path)
    return Entry(table.path, run, BATCH, folder, len(records))


def _read(file: Path, stamp: str) -> list[dict[str, object]] | None:
    """The rows of a part that has this stamp."""
    try:
        table = pq.ParquetFile(file).read()
    except (OSError, pa.ArrowException):
        return None
    metadata = table.schema.metadata or {}
    return table.to_pylist() if metadata.get(STAMP) == stamp.encode() else None


def _arrow_type(name: str) -> pa.DataType:
    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "list<int64>": pa.list_(pa.int64())}
    return types[name]
