"""The gold tables of verdicts: one part per run, replaced when all rules judge the run again.

Each file has a stamp of the rows that were judged and of the code that judged them. While the stamp is valid, verdicts are read from the
file instead of judging again. Violations after the first `KEPT` of a rule are counted but not stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from klamm.machine.replaced_file import replacing
from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.manifest import Entry
from klamm.pipeline.lake.tables import RULE_STATS, SILVER, VERDICTS, Table
from klamm.pipeline.rules.runner import Judgement, Stat, Verdict
from klamm.pipeline.spark.cluster import code_digest

BATCH = "rules"
"""The batch of all parts, because a run is judged as a whole."""

FILE = "part-0.parquet"
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
    """The stored verdicts on these runs, if they are still valid: no rows were added, and Klamm's code is the same."""
    stamps = _stamps(lake, runs)
    stats, verdicts = (_read(lake, table, stamps) for table in (RULE_STATS, VERDICTS))
    if stats is None or verdicts is None:
        return None
    return Judgement([Stat(**row) for row in stats], [Verdict(**row) for row in verdicts])


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
    path = lake / folder / FILE
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(records, schema=pa.schema(fields, {STAMP: stamp})), temporary, compression="zstd")
    return Entry(table.path, run, BATCH, folder, len(records))


def _read(lake: Path, table: Table, stamps: Mapping[str, str]) -> list[dict[str, Any]] | None:
    """The rows of these runs; None where a run has no part with its stamp."""
    folders = {entry.run: lake / entry.path for entry in manifest.entries(lake, table.path, stamps)}
    rows: list[dict[str, Any]] = []
    for run, stamp in stamps.items():
        try:
            part = pq.ParquetFile(folders[run] / FILE).read() if run in folders else None
        except (OSError, pa.ArrowException):
            part = None
        if part is None or (part.schema.metadata or {}).get(STAMP) != stamp.encode():
            return None
        rows += part.to_pylist()
    return rows


def _arrow_type(name: str) -> pa.DataType:
    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "list<int64>": pa.list_(pa.int64())}
    return types[name]
