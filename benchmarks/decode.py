"""How fast frames of a journal are decoded: in a loop, in Arrow batches, by a worker that writes the tables of silver, and by Spark's.

    python -m klamm.benchmarks.decode [--frames 1000000] [--cores 2] [--rounds 2] [--json FILE]

The frames are those that were recorded from clients, brokers and controllers of Apache Kafka (`tests/golden`), over and over, so they are
small and of many kinds; a third of them carry partition states. `loop`, `batches` and `task` run here, on one core, over a part of them;
Spark's workers do all. The rate of `task` is for a second of CPU, which bears a busy machine better.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet

from klamm.journal.columns import FRAMES
from klamm.pipeline.decode.batches import INPUT, decode_batch
from klamm.pipeline.decode.frame_decoder import decode_frame
from klamm.pipeline.lake.bronze import GROUP_ROWS
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.silver import Source, build_silver
from klamm.pipeline.silver_files import Piece, SilverTask, write_task
from klamm.pipeline.spark.session import open_session
from klamm.pipeline.spark.tasks import SparkWorkers
from klamm.tests.pipeline.decode.frame_samples import FrameSample, recorded

AIM_PER_CORE = 100_000
"""Frames a second that a worker of Spark makes into silver on one core."""
HERE = 50_000
"""Frames of `loop`, `batches` and `task`."""
FILES = 4


def rows(frames: list[FrameSample], first_seq: int) -> Any:
    """Frames as a table of bronze, on 300 connections of three brokers."""
    count = len(frames)
    seqs = range(first_seq, first_seq + count)
    values: dict[str, Any] = {
        "run_id": ["bench"] * count, "node_id": [seq % 3 for seq in seqs], "process": [1] * count, "seq": seqs,
        "ts_ns": [seq * 20_000 for seq in seqs], "mono_ns": [seq * 20_000 for seq in seqs], "conn_id": [seq % 300 for seq in seqs],
        "dir": [frame.dir for frame in frames], "kind": ["accepted"] * count, "listener": ["PLAINTEXT"] * count,
        "peer": [f"10.0.0.1:{40000 + seq % 300}" for seq in seqs], "client_id": [f"client-{seq % 50}" for seq in seqs],
        "client_sw": ["librdkafka/2.16.0"] * count, "api_key": [frame.key for frame in frames],
        "api_version": [frame.version for frame in frames], "correlation_id": seqs, "latency_ns": [300_000] * count, "flags": [0] * count,
        "frame": [frame.frame for frame in frames],
    }
    nothing = [None] * count
    arrays = [pa.array(values.get(column.name, nothing), arrow_type(column.type)) for column in FRAMES]
    table = pa.Table.from_arrays(arrays, names=[column.name for column in FRAMES])
    return table.append_column("segment", pa.array(["bench"] * count))


def mix(count: int) -> list[FrameSample]:
    """So many frames, the recorded ones in their order."""
    frames = recorded()
    return (frames * (count // len(frames) + 1))[:count]


def timed(run: Callable[[], Any], frames: int, rounds: int) -> dict[str, float]:
    """The best and the median rate of several runs, frames a second."""
    rates = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        rates.append(frames / (time.perf_counter() - start))
    return {"best": max(rates), "median": statistics.median(rates)}


def here(rounds: int) -> dict[str, dict[str, float]]:
    """What one core does without Spark."""
    frames = mix(HERE)
    batch = rows(frames[:10_000], 0).select(list(INPUT)).combine_chunks().to_batches()[0]
    results = {}

    def loop() -> None:
        for frame in frames:
            orjson.dumps(decode_frame(frame.dir, frame.key, frame.version, 0, frame.frame)[0])

    results["loop: decode and JSON"] = timed(loop, HERE, rounds + 1)
    results["batches: and flat rows, as Arrow"] = timed(lambda: decode_batch(batch), batch.num_rows, 3 * rounds)
    return results


def bronze(lake: Path, frames: int) -> list[Source]:
    """Files of bronze with so many frames."""
    folder, part = lake / "bronze", frames // FILES
    folder.mkdir(parents=True)
    for number in range(FILES):
        pa.parquet.write_table(rows(mix(part), number * part), folder / f"{number}.parquet", compression="zstd", row_group_size=GROUP_ROWS)
    return [Source("frames", "bench", f"bronze/{number}.parquet", part) for number in range(FILES)]


def of_a_worker(rounds: int) -> dict[str, float]:
    """The frames that one task makes into silver in a second of CPU."""
    rates = []
    with tempfile.TemporaryDirectory() as name:
        sources = bronze(Path(name), HERE)
        pieces = [Piece(source.table, source.run, source.path, None) for source in sources]
        for _ in range(rounds + 1):
            began = time.process_time()
            write_task(Path(name), "0", SilverTask(0, pieces))
            rates.append(HERE / (time.process_time() - began))
    return {"best": max(rates), "median": statistics.median(rates)}


def in_spark(frames: int, cores: int, rounds: int) -> dict[str, float]:
    """What Spark's workers do, all cores together."""
    with tempfile.TemporaryDirectory() as name:
        sources = bronze(Path(name), frames)
        spark = open_session(f"local[{cores}]", variables=os.environ)
        try:
            return timed(lambda: build_silver(SparkWorkers(spark), Path(name), sources, 0), frames, rounds)
        finally:
            spark.stop()


def main(arguments: list[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="Frames decoded in a second.")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the results here too")
    options = parser.parse_args(arguments)
    results = here(options.rounds) | {
        "task: all tables of silver, CPU": of_a_worker(options.rounds),
        "Spark: all tables of silver": in_spark(options.frames, options.cores, options.rounds),
    }
    print(f"{'':<36}{'best':>12}{'median':>12}   frames/s")
    for title, rates in results.items():
        print(f"{title:<36}{rates['best']:>12,.0f}{rates['median']:>12,.0f}")
    per_core = results["Spark: all tables of silver"]["best"] / options.cores
    print(f"\nmade into silver by Spark per core: {per_core:,.0f} frames/s; the aim is {AIM_PER_CORE:,}")
    if options.json is not None:
        options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
