"""From the journal to bronze and on: one million frames by default, and how long `klamm pipeline run` takes.

A journal of one broker is written: segments of Metadata requests and their responses. Wall time, and CPU of this process, which bears a
busy machine better. `--run` runs the command on the same lake.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.segments import OpenSegment, disk_schema
from klamm.pipeline.lake.bronze import convert_here, pending
from klamm.pipeline.lake.commits import Commits
from klamm.tests.journal.writing import TinyJournal, simple_exchange

BATCH = 500
SEGMENT = 200_000


def write(lake: Path, frames: int) -> None:
    """The journal: the same exchanges again and again, each time on another connection and later, so no rule is violated."""
    with TinyJournal(lake / "one") as tiny:
        for _ in range(BATCH // 2):
            simple_exchange(tiny)
    with pa.ipc.open_stream(tiny.last("frames").read_bytes()) as stream:
        batch, metadata = stream.read_next_batch(), {key.decode(): value.decode() for key, value in stream.schema.metadata.items()}
    schema = disk_schema("frames", metadata)
    folder = lake / "lake" / "journal" / "run=r" / "node=1"
    folder.mkdir(parents=True)
    segment: OpenSegment | None = None
    times = batch.column("ts_ns").to_pylist()
    for number, first in enumerate(range(1, frames + 1, BATCH)):
        if segment is None:
            segment = OpenSegment(folder, "frames", first, schema)
        later = {"seq": first - 1, "cause_seq": first - 1, "conn_id": number, "ts_ns": number * (times[-1] - times[0] + 1_000_000)}
        segment.write(_shifted(batch, later))
        if (first + BATCH - 1) % SEGMENT == 0:
            segment.seal()
            segment = None
    if segment is not None:
        segment.seal()


def _shifted(batch: pa.RecordBatch, by: dict[str, int]) -> pa.RecordBatch:
    """The rows with so much more in these columns."""
    for name, more in by.items():
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, batch.schema.field(index), pc.add(batch.column(index), pa.scalar(more, batch.column(index).type)))
    return batch


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--run", action="store_true", help="run `klamm pipeline run` too")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), chosen.frames)
        lake = Path(folder) / "lake"
        found = pending(lake, set())
        size = sum(segment.path.stat().st_size for segment in found)
        print(f"{chosen.frames:,} frames, {size >> 20} MB in {len(found)} segments")
        wall, cpu = time.monotonic(), time.process_time()
        converted = convert_here(lake, found, lambda _: None)
        Commits(lake).add(converted)
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        bronze = sum((lake / one.path).stat().st_size for one in converted)
        print(
            f"bronze, one process: {wall:.2f} s, {cpu:.2f} s of CPU, {bronze >> 20} MB, {chosen.frames / cpu:,.0f} frames a second of CPU"
        )
        if chosen.run:
            wall = time.monotonic()
            subprocess.run([sys.executable, "-m", "klamm", "pipeline", "run", str(lake)], check=True)
            print(f"klamm pipeline run, bronze being there: {time.monotonic() - wall:.1f} s")


if __name__ == "__main__":
    main()
