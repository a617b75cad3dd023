"""How fast frames of a journal are decoded: in a loop, in Arrow batches, in Spark, and into the tables of silver.

    python -m klamm.benchmarks.decode [--frames 1000000] [--cores 2] [--rounds 2] [--json FILE]

The frames are those that were recorded from clients, brokers and controllers of Apache Kafka (`tests/golden`), over and over, so they are
small and of many kinds; a third of them carry partition states. `loop` and `batches` run here, on one core, over a part of them; Spark
reads all from Parquet. `identity` hands each batch to a Python worker and back, without looking at it: nothing in Spark can be faster.
`a worker's CPU s` leaves out the JVM, and bears a busy machine better than rates do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.parquet

from klamm.journal.columns import FRAMES
from klamm.pipeline.decode.batches import DECODED, INPUT, decode_batch, decode_batches
from klamm.pipeline.decode.frame_decoder import decode_frame
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.tables import BRONZE, ddl
from klamm.pipeline.silver import build_silver, decode
from klamm.pipeline.spark.session import open_session
from klamm.tests.pipeline.decode.frame_samples import FrameSample, recorded

AIM_PER_CORE = 100_000
"""Frames a second that Spark decodes on one core."""
HERE = 50_000
"""Frames of `loop` and `batches`."""
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


def costed(folder: str, decode: Callable[[Any], Any], batches: Any) -> Any:
    """For mapInArrow: what `decode` makes of batches; leaves a file with the rows and the CPU seconds of this worker."""
    began, count = time.process_time(), 0
    for rows in decode(batches):
        count += rows.num_rows
        yield rows
    Path(folder, uuid4().hex).write_text(f"{count} {time.process_time() - began}")


def worker_rate(read: Any, folder: Path) -> float:
    """Frames that Python workers decode in a second of their CPU time, Arrow's transport on their side included."""
    folder.mkdir()
    _drop(read.select(*INPUT).mapInArrow(partial(costed, str(folder), decode_batches), DECODED))
    parts = [path.read_text().split() for path in folder.iterdir()]
    return sum(int(count) for count, _ in parts) / sum(float(seconds) for _, seconds in parts)


def identity(batches: Any) -> Any:
    """For mapInArrow: nothing."""
    yield from batches


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


def in_spark(frames: int, cores: int, rounds: int) -> dict[str, dict[str, float]]:
    """What Spark does, all cores together."""
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "bronze"
        folder.mkdir()
        part = frames // FILES
        for number in range(FILES):
            pa.parquet.write_table(rows(mix(part), number * part), folder / f"{number}.parquet", compression="zstd", row_group_size=100_000)
        frames = part * FILES
        spark = open_session(f"local[{cores}]", variables=os.environ)
        try:
            read = spark.read.schema(ddl(BRONZE[0].columns)).parquet(str(folder))
            ways: dict[str, Callable[[], Any]] = {
                "Spark: identity": lambda: _drop(read.mapInArrow(identity, read.schema)),
                "Spark: decode": lambda: _drop(decode(read)),
                "Spark: silver, VARIANT": lambda: build_silver(spark, Path(name), read, None, 0),
                "Spark: silver, JSON": lambda: build_silver(spark, Path(name), read, None, 0, variant=False),
            }
            for title, run in ways.items():
                results[title] = timed(run, frames, rounds)
            rates = [worker_rate(read, Path(name) / f"cost-{number}") for number in range(rounds)]
            results["Spark: decode, a worker's CPU s"] = {"best": max(rates), "median": statistics.median(rates)}
        finally:
            spark.stop()
    return results


def _drop(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def main(arguments: list[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="Frames decoded in a second.")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the results here too")
    options = parser.parse_args(arguments)
    results = here(options.rounds) | in_spark(options.frames, options.cores, options.rounds)
    print(f"{'':<36}{'best':>12}{'median':>12}   frames/s")
    for title, rates in results.items():
        print(f"{title:<36}{rates['best']:>12,.0f}{rates['median']:>12,.0f}")
    per_core, of_worker = results["Spark: decode"]["best"] / options.cores, results["Spark: decode, a worker's CPU s"]["best"]
    print(f"\ndecoded in Spark per core: {per_core:,.0f} frames/s, {of_worker:,.0f} in a worker's CPU second; the aim is {AIM_PER_CORE:,}")
    if options.json is not None:
        options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
