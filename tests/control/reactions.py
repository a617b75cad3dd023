"""How client libraries react to each effect of a fault on the first request of an API: writes docs/reactions.md.

    python -m klamm.tests.control.reactions [--client NAME] [API ...]

Rows of other clients and APIs stay as they are. Java runs the clients of Apache Kafka in one process (`Reactions.java`), the others get a
process for each cell.

Each line is a new client with time-outs of one or two seconds that does one thing: a producer sends a record and waits for its delivery; a
consumer of a group reads that record and commits. Requests of the API that the client made meanwhile are counted.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

from klamm.control.bodies import FaultBody, decode
from klamm.control.refusal import Refused
from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.loop_thread import LoopThread
from klamm.tests.harness.kafka import java_command
from klamm.tests.harness.names import unique_name
from klamm.tests.reference.jars import jars

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reactions.md"
LIMIT_S = 12.0
EFFECTS: dict[str, str] = {
    "error": '{"error": "%s"}',
    "delay 500 ms": '{"delay_ms": 500}',
    "drop": '{"drop": true}',
    "lose response": '{"lose_response": true}',
    "close before": '{"close": "before"}',
    "close amid": '{"close": "amid"}',
    "corrupt": '{"corrupt": true}',
    "truncate": '{"truncate": 6}',
    "correlation id": '{"correlation_id": 1000}',
    "throttle 300 ms": '{"throttle_time_ms": 300}',
}
APIS = {
    "ApiVersions": ("producer", "UNSUPPORTED_VERSION"),
    "Metadata": ("producer", "LEADER_NOT_AVAILABLE"),
    "InitProducerId": ("producer", "COORDINATOR_LOAD_IN_PROGRESS"),
    "Produce": ("producer", "NOT_LEADER_OR_FOLLOWER"),
    "FindCoordinator": ("consumer", "COORDINATOR_NOT_AVAILABLE"),
    "JoinGroup": ("consumer", "COORDINATOR_LOAD_IN_PROGRESS"),
    "SyncGroup": ("consumer", "REBALANCE_IN_PROGRESS"),
    "OffsetFetch": ("consumer", "NOT_COORDINATOR"),
    "ListOffsets": ("consumer", "NOT_LEADER_OR_FOLLOWER"),
    "Fetch": ("consumer", "NOT_LEADER_OR_FOLLOWER"),
    "OffsetCommit": ("consumer", "NOT_COORDINATOR"),
}


def confluent_producer(servers: str, name: str) -> str:
    producer = Producer(
        {"bootstrap.servers": servers, "client.id": name, "enable.idempotence": True, "socket.timeout.ms": 1000, "linger.ms": 0,
         "message.timeout.ms": int(LIMIT_S * 1000), "log_level": 0, "api.version.request.timeout.ms": 1000}
    )
    outcome: list[str] = []
    producer.produce("t", b"v", on_delivery=lambda error, _: outcome.append("done" if error is None else error.name()))
    producer.flush(LIMIT_S + 2)
    return outcome[0] if outcome else "waits"


def confluent_consumer(servers: str, name: str) -> str:
    consumer = Consumer(
        {"bootstrap.servers": servers, "client.id": name, "group.id": name, "auto.offset.reset": "earliest", "socket.timeout.ms": 1000,
         "enable.auto.commit": False, "log_level": 0, "api.version.request.timeout.ms": 1000}
    )
    try:
        consumer.subscribe(["t"])
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                consumer.commit(asynchronous=False)
                return "done"
        return "waits"
    except KafkaException as error:
        return str(error.args[0].name())
    finally:
        consumer.close()


def python_producer(servers: str, name: str) -> str:
    producer = None
    try:
        producer = KafkaProducer(
            bootstrap_servers=servers, client_id=name, request_timeout_ms=1500, max_block_ms=int(LIMIT_S * 1000), linger_ms=0,
            delivery_timeout_ms=int(LIMIT_S * 1000),
        )
        producer.send("t", b"v").get(LIMIT_S)
        return "done"
    except Exception as error:  # noqa: BLE001 the outcome is what is wanted
        return type(error).__name__
    finally:
        if producer is not None:
            producer.close(0.1)


def python_consumer(servers: str, name: str) -> str:
    consumer = None
    try:
        consumer = KafkaConsumer(
            "t", bootstrap_servers=servers, client_id=name, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False,
            request_timeout_ms=11_000, session_timeout_ms=10_000,
        )
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            if consumer.poll(200):
                consumer.commit()
                return "done"
        return "waits"
    except Exception as error:  # noqa: BLE001 the outcome is what is wanted
        return type(error).__name__
    finally:
        if consumer is not None:
            consumer.close(autocommit=False)


class JavaClients:
    """The clients of Apache Kafka, in a process that starts again after one that hangs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def work(self, act: str, servers: str, name: str) -> str:
        """What a client's work returns; "hangs" if it does not end."""
        process = self._process if self._process is not None else self._start()
        assert process.stdin is not None
        process.stdin.write(f"{act} {servers} {name}\n")
        process.stdin.flush()
        try:
            return self._lines.get(timeout=2 * LIMIT_S) or "fails"
        except queue.Empty:
            self.end()
            return "hangs"

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        command = java_command(jars("3.9.1"), str(Path(__file__).with_name("Reactions.java")))
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._process, self._lines = process, queue.Queue()
        threading.Thread(target=self._read, args=(process, self._lines), daemon=True).start()
        return process

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.strip())
        lines.put("")


JAVA = "Java 3.9.1"
CLIENTS: dict[str, dict[str, Callable[[str, str], str]]] = {
    "confluent-kafka": {"producer": confluent_producer, "consumer": confluent_consumer},
    "kafka-python": {"producer": python_producer, "consumer": python_consumer},
}


def new_cluster() -> SteeredCluster:
    """The cluster of all cells, which has not started."""
    config = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"}
    return SteeredCluster(1, control_port=None, config=config, topics=[SeedTopic("t", 1, 1)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", choices=[*CLIENTS, JAVA], action="append")
    parser.add_argument("apis", nargs="*")
    chosen = parser.parse_args()
    thread = LoopThread("cluster")
    cluster = new_cluster()
    thread.call(cluster.start())
    try:
        confluent_producer(cluster.bootstrap_servers, "first")
        confluent_consumer(cluster.bootstrap_servers, "first")
        rows = table()
        for client in chosen.client or [*CLIENTS, JAVA]:
            if client == JAVA:
                limited(client, "consumer", cluster.bootstrap_servers, "first-of-java")
            for api in chosen.apis or APIS:
                rows[api, client] = [reaction(thread, cluster, api, client, effect) for effect in EFFECTS]
                write(rows)
    finally:
        JAVA_CLIENTS.end()
        thread.call(cluster.stop())
        thread.close()


def write(rows: dict[tuple[str, str], list[str]]) -> None:
    """Write the page."""
    lines = ["| API | client | " + " | ".join(EFFECTS) + " |", "|---" * (len(EFFECTS) + 2) + "|"]
    keys = [(api, client) for api in APIS for client in (*CLIENTS, JAVA) if (api, client) in rows]
    lines += [f"| {api} | {client} | {' | '.join(rows[api, client])} |" for api, client in keys]
    PAGE.write_text(f"{HEAD}\n" + "\n".join(lines) + "\n")


def table() -> dict[tuple[str, str], list[str]]:
    """The rows of the page: (API, client) → a cell for each effect."""
    found = {}
    for line in PAGE.read_text().splitlines():
        api, client, *cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else ["", ""]
        if api in APIS:
            found[api, client] = cells
    return found


JAVA_CLIENTS = JavaClients()


def limited(client: str, act: str, servers: str, name: str) -> str:
    """What a client's work returns, in a process of its own; "hangs" if the client does not end."""
    if client == JAVA:
        return JAVA_CLIENTS.work(act, servers, name)
    command = [sys.executable, "-m", "klamm.tests.control.reactions", "--work", client, act, servers, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S)
    except subprocess.TimeoutExpired:
        return "hangs"
    return done.stdout.strip() or "fails"


def reaction(thread: LoopThread, cluster: SteeredCluster, api: str, client: str, effect: str) -> str:
    """What became of the client, and how many requests of the API it sent."""
    act, error = APIS[api]
    name = unique_name(client.partition(" ")[0])
    given = EFFECTS[effect] % error if effect == "error" else EFFECTS[effect]
    text = f'{{"filter": {{"api": "{api}", "client_id": "{name}"}}, "effect": {given}, "first": 1}}'

    async def fault() -> int | None:
        try:
            return int((await cluster.control.add_fault(decode(FaultBody, text.encode())))["id"])
        except Refused:
            return None

    async def count(number: int) -> tuple[int, int]:
        requests = (await cluster.control.requests(api=api, client_id=name, limit=1000))["requests"]
        hits = (await cluster.control.delete_fault(number))["faults"][0]["hits"]
        return len(requests), hits

    number = thread.call(fault())
    if number is None:
        return "-"
    begun = time.monotonic()
    outcome = limited(client, act, cluster.bootstrap_servers, name)
    spent = time.monotonic() - begun
    requests, hits = thread.call(count(number))
    shown = f"{outcome}, {spent:.1f} s, {requests}" if hits else "not requested"
    print(f"{api} {client} {effect}: {shown}", flush=True)
    return shown


HEAD = """<!-- Written by tests/control/reactions.py. -->

# How clients react to faults

Each cell is a new client whose first request of the API met the fault: what became of its work, after which time, and how many requests of
the API it sent. Time-outs of the clients are one to two seconds; the work is given up after twelve. "-": the API has no such field.
"fails": the client's process ended without an exception of Python. "waits": the client still tried. Java's clients are those of Apache
Kafka 3.9.1, in one process; a response that their network thread cannot read ends what this thread does, and a producer then times out.
"""

if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        _, _, library, work, address, client_id = sys.argv
        print(CLIENTS[library][work](address, client_id), flush=True)
        os._exit(0)
    main()


