"""The gold tables of verdicts: what the rules said, one part for each run, replaced when all rules judge the run again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from klamm.pipeline import manifest
from klamm.pipeline.manifest import Entry
from klamm.pipeline.rules.runner import Judgement
from klamm.pipeline.tables import RULE_STATS, VERDICTS, Table

BATCH = "rules"
"""The batch of all parts: a run is judged as a whole."""


def write_judgement(lake: Path, judgement: Judgement, runs: Sequence[str]) -> list[Entry]:
    """Write gold/verdicts and gold/rule_stats of the runs in place of what was there; the manifests' entries. A few rows of each run, so
    the driver writes them."""
    tables: tuple[tuple[Table, Sequence[tuple[object, ...]]], ...] = ((VERDICTS, judgement.verdicts), (RULE_STATS, judgement.stats))
    entries = [_write(lake, table, run, [row for row in rows if row[0] == run]) for run in runs for table, rows in tables]
    manifest.append(lake, entries)
    return entries


def _write(lake: Path, table: Table, run: str, rows: Iterable[tuple[object, ...]]) -> Entry:
    records = [dict(zip(table.names, row, strict=True)) for row in rows]
    fields = [(column.name, _arrow_type(column.type)) for column in table.columns]
    folder = f"{table.path}/run={quote(run, safe='')}/batch={BATCH}"
    (lake / folder).mkdir(parents=True, exist_ok=True)
    path = lake / folder / "part-0.parquet"
    unfinished = path.with_name("._part-0.parquet")
    pq.write_table(pa.Table.from_pylist(records, schema=pa.schema(fields)), unfinished, compression="zstd")
    os.replace(unfinished, path)
    return Entry(table.path, run, BATCH, folder, len(records))


def _arrow_type(name: str) -> pa.DataType:
    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "list<int64>": pa.list_(pa.int64())}
    return types[name]
