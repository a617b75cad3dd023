"""Two workers of Kafka Connect, exactly once: lines of a file become records and lines of another file; a worker is killed."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.harness.members import Members
from klamm.tests.harness.ports import free_ports
from klamm.tests.mixed.applications.application import KINDS, Application, of_java, properties_file, running, three_brokers

TOPIC = "lines"
WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
SETTINGS = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "exactly.once.source.support": "enabled",
    "offset.flush.interval.ms": "500",
    "session.timeout.ms": "10000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "1000",
} | {
    f"{kind}.storage.{name}": value
    for kind in ("config", "offset", "status")
    for name, value in (("topic", f"connect-{kind}"), ("replication.factor", "3"))
}
READER = {
    "connector.class": "FileStreamSource",
    "topic": TOPIC,
    "exactly.once.support": "requested",
    "topic.creation.default.partitions": "1",
    "topic.creation.default.replication.factor": "3",
}
WRITER = {"connector.class": "FileStreamSink", "topics": TOPIC, "consumer.override.isolation.level": "read_committed"}

pytestmark = [pytest.mark.slow, pytest.mark.reference]


class Worker:
    """A worker, and its REST interface at `port`."""

    def __init__(self, application: Application, port: int) -> None:
        self.application = application
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer, decoded; None if it has none or the worker cannot answer now."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.loads(answer.read() or b"null")
        except OSError:
            return None

    def until_told(self, method: str, path: str, body: object = None) -> Any:
        """Ask until there is an answer with something in it."""
        return self.application.until(lambda: self.ask(method, path, body), f"{method} {path}")

    def until_state(self, name: str, *states: str) -> None:
        """Wait until a connector and its tasks have these states."""

        def look() -> bool:
            status = self.ask("GET", f"/connectors/{name}/status") or {"connector": {"state": "?"}, "tasks": []}
            return (status["connector"]["state"], *(task["state"] for task in status["tasks"])) == states

        self.application.until(look, f"{name} is {states}")


def started(stack: ExitStack, members: Members, folder: Path) -> list[Worker]:
    """Two workers that answer."""
    found = []
    for number, port in enumerate(free_ports(2), 1):
        settings = SETTINGS | {"bootstrap.servers": members.bootstrap(), "listeners": f"http://127.0.0.1:{port}"}
        command = of_java(WORKER, properties_file(folder / f"worker-{number}.properties", settings))
        found.append(Worker(stack.enter_context(running(command, folder / f"worker-{number}.txt")), port))
    for worker in found:
        worker.until_told("GET", "/")
    return found


def has(file: Path, lines: list[str]) -> Callable[[], bool]:
    """Whether a file has all of these lines."""
    return lambda: file.exists() and set(lines) <= set(file.read_text(encoding="utf-8").splitlines())


@KINDS
def test_each_line_arrives_once_though_a_worker_is_killed(new_members: Callable[..., Members], of_klamm: int, tmp_path: Path) -> None:
    members = three_brokers(new_members, of_klamm)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.touch()
    lines = [f"line {number}" for number in range(1000)]
    with ExitStack() as stack:
        first, second = started(stack, members, tmp_path)
        second.until_told("POST", "/connectors", {"name": "reader", "config": READER | {"file": str(source)}})
        second.until_told("POST", "/connectors", {"name": "writer", "config": WRITER | {"file": str(sink)}})
        for part in (lines[:500], lines[500:]):
            with source.open("a", encoding="utf-8") as stream:
                stream.writelines(f"{line}\n" for line in part)
            second.application.until(has(sink, part), f"{part[0]} to {part[-1]} in the sink")
            first.application.stop()
        assert list(dict.fromkeys(sink.read_text(encoding="utf-8").splitlines())) == lines
        for name in ("reader", "writer"):
            second.until_state(name, "RUNNING", "RUNNING")
            second.ask("PUT", f"/connectors/{name}/stop")
            second.until_state(name, "STOPPED")
        read = {"partition": {"filename": str(source)}, "offset": {"position": source.stat().st_size}}
        assert second.until_told("GET", "/connectors/reader/offsets") == {"offsets": [read]}
        (written,) = second.until_told("GET", "/connectors/writer/offsets")["offsets"]
        assert written["partition"] == {"kafka_topic": TOPIC, "kafka_partition": 0}
        assert written["offset"]["kafka_offset"] >= len(lines)
        for name in ("reader", "writer"):
            second.until_told("DELETE", f"/connectors/{name}/offsets")
            assert second.until_told("GET", f"/connectors/{name}/offsets") == {"offsets": []}
