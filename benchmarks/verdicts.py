"""From a journal to tables, verdicts and a report: how long `klamm pipeline run`, `check` and `klamm report` take, each in its own process.

    python -m klamm.benchmarks.verdicts [--frames 10000] [--copies 1]

A cluster of three brokers is served, and a client produces and consumes one record after the other until the journal has about so many
frames; a million take three minutes. With `--copies` the journal is that of so many runs: 20,000 frames and 50 copies are a million too,
in many small files. Wall time. `klamm pipeline warm` before it halves the start of Spark.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from klamm.journal.reading import segments
from klamm.journal.segments import OpenSegment

KLAMM = (sys.executable, "-m", "klamm")
FRAMES_A_RECORD = 13
"""That journals of three brokers have for a record that is produced with acks=all and fetched, requests and responses."""


def journal(lake: Path, frames: int) -> None:
    """Serve a cluster and use it."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    options = ["--brokers", "3", "--port", "0", "--json", "--topic", "orders:6:3", "--journal", str(lake)]
    with subprocess.Popen([*KLAMM, "serve", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as cluster:
        assert cluster.stdout is not None
        servers = json.loads(cluster.stdout.readline())["bootstrap_servers"]
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "verdicts", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        )
        consumer.assign([TopicPartition("orders", index, 0) for index in range(6)])
        for _ in range(frames // FRAMES_A_RECORD):
            producer.produce("orders", b"x" * 100)
            producer.flush()
            consumer.poll(0.005)
        consumer.close()
        del producer
        cluster.send_signal(signal.SIGTERM)


def copy(lake: Path, copies: int) -> None:
    """Give the journal to more runs."""
    for segment in list(segments(lake)):
        with pa.ipc.open_stream(segment.path.read_bytes()) as stream:
            batches, schema = list(stream), stream.schema
        for number in range(1, copies):
            run = f"{segment.run}-{number}"
            folder = lake / "journal" / f"run={run}" / f"node={segment.node}"
            folder.mkdir(parents=True, exist_ok=True)
            of_run = schema.with_metadata({**(schema.metadata or {}), b"run_id": run.encode()})
            copied = OpenSegment(folder, segment.table, segment.first_seq, of_run)
            index = schema.get_field_index("run_id")
            for batch in batches:
                named = pa.array([run] * batch.num_rows, pa.string()).dictionary_encode().cast(schema.field(index).type)
                copied.write(batch.set_column(index, schema.field(index), named))
            copied.seal()


def timed(*command: str) -> None:
    """Run a command of Klamm and print its time, and the last line that it prints."""
    begun = time.monotonic()
    done = subprocess.run([*KLAMM, *command], capture_output=True, text=True, check=False)
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    print(f"klamm {command[0]} {command[1]}: {time.monotonic() - begun:.1f} s: {said[-1] if said else ''}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--copies", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        journal(lake, chosen.frames)
        copy(lake, chosen.copies)
        timed("pipeline", "run", str(lake))
        timed("pipeline", "check", str(lake))
        timed("report", str(lake), "-o", str(Path(folder) / "report.html"))


if __name__ == "__main__":
    main()
