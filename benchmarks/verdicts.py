"""From a journal to tables, verdicts and a report: how long `klamm pipeline run`, `check` and `klamm report` take, each in its own process.

    python -m klamm.benchmarks.verdicts [--frames 10000] [--copies 1] [--only ApiVersions] [--journal LAKE]

A cluster of three brokers is served, and a client produces and consumes one record after the other until the journal has about so many
frames; a million take three minutes. With `--copies` the journal is that of so many runs: 20,000 frames and 50 copies are a million too,
in many small files. With `--only ApiVersions` clients send nothing else, 64 requests in flight on each of eight connections. With
`--journal` the journal is written to this folder, and nothing is timed. Wall time.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa

from klamm.journal.reading import segments
from klamm.journal.segments import OpenSegment

KLAMM = (sys.executable, "-m", "klamm")
FRAMES_A_RECORD = 13
"""That journals of three brokers have for a record that is produced with acks=all and fetched, requests and responses."""


CONNECTIONS, IN_FLIGHT = 8, 64
"""Of clients that send one kind of request."""


@contextmanager
def served(lake: Path) -> Iterator[str]:
    """A cluster of three brokers with a journal. Yields its bootstrap servers."""
    options = ["--brokers", "3", "--port", "0", "--json", "--topic", "orders:6:3", "--journal", str(lake)]
    with subprocess.Popen([*KLAMM, "serve", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as cluster:
        assert cluster.stdout is not None
        try:
            yield json.loads(cluster.stdout.readline())["bootstrap_servers"]
        finally:
            cluster.send_signal(signal.SIGTERM)


def journal(lake: Path, frames: int) -> None:
    """Serve a cluster and use it."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    with served(lake) as servers:
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


def api_versions_request(correlation_id: int) -> bytes:
    """ApiVersions v3, with its length."""
    body = struct.pack(">hhih4sx", 18, 3, correlation_id, 4, b"load") + b"\x06klamm\x041.0\x00"
    return struct.pack(">i", len(body)) + body


def api_versions_journal(lake: Path, frames: int) -> None:
    """Serve a cluster, and send it so many ApiVersions requests that they and their answers are the frames."""
    with served(lake) as servers, ExitStack() as stack:
        addresses = [address.rsplit(":", 1) for address in servers.split(",")]
        sockets, readers = [], []
        for number in range(CONNECTIONS):
            host, port = addresses[number % len(addresses)]
            sockets.append(stack.enter_context(socket.create_connection((host, int(port)))))
            readers.append(stack.enter_context(sockets[-1].makefile("rb", buffering=1 << 20)))
        for begin in range(0, frames // 2, CONNECTIONS * IN_FLIGHT):
            numbers = range(begin, min(begin + CONNECTIONS * IN_FLIGHT, frames // 2))
            for number, each in enumerate(sockets):
                each.sendall(b"".join(map(api_versions_request, numbers[number::CONNECTIONS])))
            for number, reader in enumerate(readers):
                for correlation_id in numbers[number::CONNECTIONS]:
                    answer = reader.read(int.from_bytes(reader.read(4), "big"))
                    assert struct.unpack_from(">ih", answer) == (correlation_id, 0), answer


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
    parser.add_argument("--only", choices=["ApiVersions"], help="send requests of this kind only")
    parser.add_argument("--journal", type=Path, metavar="LAKE", help="write the journal to this folder, and time nothing")
    chosen = parser.parse_args(arguments)
    record = api_versions_journal if chosen.only else journal
    if chosen.journal:
        record(chosen.journal, chosen.frames)
        copy(chosen.journal, chosen.copies)
        return
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        record(lake, chosen.frames)
        copy(lake, chosen.copies)
        timed("pipeline", "run", str(lake))
        timed("pipeline", "check", str(lake))
        timed("report", str(lake), "-o", str(Path(folder) / "report.html"))


if __name__ == "__main__":
    main()
