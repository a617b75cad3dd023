"""Journals read straight into Spark as bronze has them, for tests of what comes after bronze."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from klamm.journal import reading
from klamm.pipeline.lake.tables import BRONZE, ddl


def bronze(spark: Any, lake: Path) -> tuple[Any, Any]:
    """The frames and the events of all journals of a lake, each as a DataFrame with the columns of bronze."""
    found = []
    for table in BRONZE:
        folder = lake / "for_tests" / table.name
        folder.mkdir(parents=True)
        for number, segment in enumerate(each for each in reading.segments(lake) if each.table == table.name):
            batches = list(reading.open_segment(segment.path))
            if batches:
                rows = pa.Table.from_batches(batches)
                rows = rows.append_column("segment", pa.array([segment.path.name] * rows.num_rows))
                pa.parquet.write_table(rows, folder / f"{number}.parquet")
        found.append(spark.read.schema(ddl(table.columns)).parquet(str(folder)))
    frames, events = found
    return frames, events
