"""What a journal costs its broker: CPU per frame, and how much later the event loop comes to its work at 50,000 frames a second.

    python -m klamm.benchmarks.journal [--frames 300000] [--seconds 6] [--rounds 3] [--rate 50000] [--only hot|paced] [--json FILE]

`hot`: requests and responses of 300 connections are given to the journal as fast as it takes them. `loop us` is the CPU time of the calling
thread for a frame, `total us` that of the process, the thread that writes included; both are without what the same loop costs without a
journal. Every so many frames the loop waits until the disk has caught up, as a broker's loop has other work to do too.

`paced`: an event loop (uvloop) gets 50 frames a millisecond. `lag` is how late a timer of one millisecond runs, with a journal and
without, in turn, each in a process of its own; CPU is that of the whole process, in percent of one core. `loop us` is again that of the
loop's thread: more than in a burst, since the caches are cold after each sleep.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

from klamm.journal.connection import ConnectionJournal
from klamm.journal.writer import JournalWriter
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind, NoSink

CONNECTIONS = 300
CATCH_UP_FRAMES = 16_384


def exchanges() -> list[tuple[bytes, bytes]]:
    """Requests with their responses, as clients of a cluster send them: 20 small ones to a Produce and a Fetch."""
    topic = messages.MetadataRequest.MetadataRequestTopic(name="orders")
    described = messages.MetadataResponse(
        brokers=[messages.MetadataResponse.MetadataResponseBroker(node_id=n, host="10.0.0.1", port=9092) for n in range(3)],
        cluster_id="abcdefghijklmnopqrstuv", controller_id=1,
    )
    bodies: list[tuple[int, int, Any, Any]] = [
        (ApiKey.METADATA, 12, messages.MetadataRequest(topics=[topic]), described),
        (ApiKey.HEARTBEAT, 4, messages.HeartbeatRequest(group_id="g", member_id="m" * 36), messages.HeartbeatResponse()),
        (ApiKey.API_VERSIONS, 2, messages.ApiVersionsRequest(), messages.ApiVersionsResponse()),
        (ApiKey.LIST_OFFSETS, 7, messages.ListOffsetsRequest(), messages.ListOffsetsResponse()),
    ]
    data = messages.ProduceRequest.PartitionProduceData(index=0, records=b"r" * 1024)
    produced = messages.ProduceRequest(acks=1, topic_data=[messages.ProduceRequest.TopicProduceData(name="orders", partition_data=[data])])
    fetched = messages.FetchResponse.FetchableTopicResponse(
        topic="orders", partitions=[messages.FetchResponse.PartitionData(records=b"r" * 2048)]
    )
    few: list[tuple[int, int, Any, Any]] = [
        (ApiKey.PRODUCE, 7, produced, messages.ProduceResponse()),
        (ApiKey.FETCH, 11, messages.FetchRequest(), messages.FetchResponse(responses=[fetched])),
    ]
    return [
        (
            messages.encode_request(key, version, number, "bench", messages.encode(request, version)),
            messages.encode_response(key, version, number, messages.encode(response, version)),
        )
        for number, (key, version, request, response) in enumerate(bodies * 5 + few)
    ]


def connections(writer: JournalWriter | None) -> list[Any]:
    """Sinks of connections, with a journal or without."""
    if writer is None:
        return [NoSink() for _ in range(CONNECTIONS)]
    infos = (ConnectionInfo(1, f"c{n}", ConnectionKind.ACCEPTED, f"10.0.0.1:{n}", "PLAINTEXT") for n in range(CONNECTIONS))
    return [writer.connection(info) for info in infos]


def pairs(sinks: list[Any]) -> Iterator[tuple[ConnectionJournal, bytes, bytes]]:
    """Who gets which request and response, without end."""
    for sink, (request, response) in zip(itertools.cycle(sinks), itertools.cycle(exchanges()), strict=True):
        yield sink, request, response


def hot(frames: int, journaled: bool) -> dict[str, float]:
    """CPU seconds of the calling thread and of the process for so many frames."""
    with tempfile.TemporaryDirectory() as lake:
        writer = JournalWriter(Path(lake), "bench", 1) if journaled else None
        work = list(itertools.islice(pairs(connections(writer)), CATCH_UP_FRAMES // 2))
        loop_s, before = 0.0, time.process_time()
        for _ in range(0, frames, CATCH_UP_FRAMES):
            began = time.thread_time()
            for sink, request, response in work:
                sink.received(request)
                sink.sent(response)
            loop_s += time.thread_time() - began
            while writer is not None and writer.frames:
                time.sleep(0.001)
        if writer is not None:
            writer.close()
        written = sum(path.stat().st_size for path in Path(lake).rglob("*.arrows*"))
        done = -(-frames // CATCH_UP_FRAMES) * CATCH_UP_FRAMES
        return {"loop_us": loop_s / done * 1e6, "total_us": (time.process_time() - before) / done * 1e6, "bytes": written / done}


async def paced(seconds: float, rate: int, journaled: bool) -> dict[str, float]:
    """Lag of the loop in milliseconds, and CPU in percent of a core."""
    with tempfile.TemporaryDirectory() as lake:
        writer = JournalWriter(Path(lake), "bench", 1) if journaled else None
        source = pairs(connections(writer))
        lags: list[float] = []
        sent = 0
        clock = time.perf_counter
        began, before, of_loop = clock(), time.process_time(), time.thread_time()
        while (now := clock()) < began + seconds:
            due = int((now - began) * rate / 2)
            for sink, request, response in itertools.islice(source, due - sent):
                sink.received(request)
                sink.sent(response)
            sent = due
            asked = clock()
            await asyncio.sleep(0.001)
            lags.append((clock() - asked - 0.001) * 1000)
        cpu = (time.process_time() - before) / seconds * 100
        of_loop = (time.thread_time() - of_loop) / seconds * 100
        ended = writer is not None and writer.has_ended
        if writer is not None:
            await asyncio.to_thread(writer.close)
    lags.sort()
    return {
        "p50_ms": lags[len(lags) // 2], "p99_ms": lags[len(lags) * 99 // 100], "max_ms": lags[-1], "cpu": cpu, "loop_cpu": of_loop,
        "rate": sent * 2 / seconds, "ended": float(ended),
    }


def in_turn(rounds: int, *arguments: str) -> tuple[dict[str, float], dict[str, float]]:
    """Medians of runs without and with a journal, each in a process of its own."""
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(rounds):
        for journaled in (False, True):
            command = [sys.executable, "-m", "klamm.benchmarks.journal", *arguments, "--child", "with" if journaled else "without"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[journaled].append(json.loads(done.stdout))
    plain, kept = ({name: statistics.median(run[name] for run in runs) for name in runs[0]} for runs in found.values())
    return plain, kept


def main(arguments: list[str] | None = None) -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frames", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("hot", "paced"))
    parser.add_argument("--child", choices=("with", "without"), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if options.child is not None:
        journaled = options.child == "with"
        if options.only == "hot":
            print(json.dumps(hot(options.frames, journaled)))
        else:
            print(json.dumps(uvloop.run(paced(options.seconds, options.rate, journaled))))
        return
    results: dict[str, Any] = {}
    show: Callable[..., None] = print
    if options.only != "paced":
        plain, kept = in_turn(options.rounds, "--only", "hot", "--frames", str(options.frames))
        results["hot"] = {"without": plain, "with": kept}
        loop_us, total_us = kept["loop_us"] - plain["loop_us"], kept["total_us"] - plain["total_us"]
        show(f"hot     loop {loop_us:.2f} us a frame, total {total_us:.2f} us, {kept['bytes']:.0f} bytes", flush=True)
    if options.only != "hot":
        plain, kept = in_turn(options.rounds, "--only", "paced", "--seconds", str(options.seconds), "--rate", str(options.rate))
        results["paced"] = {"without": plain, "with": kept}
        for name, run in (("without", plain), ("with", kept)):
            show(
                f"paced   {name:8} {run['rate']:7,.0f} frames/s  lag p50 {run['p50_ms']:.2f}  p99 {run['p99_ms']:.2f}"
                f"  max {run['max_ms']:.1f} ms  CPU {run['cpu']:.0f} %", flush=True,
            )
        loop_us = (kept["loop_cpu"] - plain["loop_cpu"]) / 100 / options.rate * 1e6
        show(f"paced   loop {loop_us:.2f} us a frame")
    if options.json is not None:
        options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
