"""The cluster that the controller benchmark works on: N partitions on three fake brokers, and one real broker that controls them.

The tree is written to ZooKeeper in Kafka's format before the broker starts; the fakes are registered by sessions of the benchmark. While
`/controller` is held by the benchmark itself (as broker 999) the broker under test is idle: every round can begin with a fresh tree.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import socket
import struct
import time
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from kazoo.client import KazooClient

from klamm.benchmarks.processes import Failed, Process, compiled, free_port, klamm
from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.zk.layout import paths
from klamm.zk.layout import topics as topic_layout
from klamm.zk.layout import znodes as layout
from klamm.zk.session.requests import Multi, MultiRead, Operations, Znode

FAKES = (101, 102, 103)
SPARE = 104
"""A fake broker that has no replicas, and is registered only while replicas move to it."""
HOLDER = 999
LOGGED = "logged"
"""Klamm with `registerbroker.enable`: the controller keeps a metadata log."""
JOURNALED = "journaled"
"""Klamm with `klamm.journal.dir`."""
PER_TOPIC = 100
_CHUNK = 500
_JVM = "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent"

Partition = tuple[str, int]

NODES = topic_layout.TopicNodes()


class Session:
    """One ZooKeeper session; many operations go out in pipelined multis of 500."""

    def __init__(self, address: str, chroot: str) -> None:
        self.client = KazooClient(hosts=address + chroot, timeout=40)
        self.client.start(timeout=20)
        self.chroot, self.operations = chroot, Operations(chroot)

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def write(self, operations: list[bytes]) -> None:
        """All of them, in order; a failure raises."""
        waiting = []
        for at in range(0, len(operations), _CHUNK):
            waiting.append(self.client.handler.async_result())
            self.client._call(Multi(operations[at : at + _CHUNK]), waiting[-1])
        for result in waiting:
            failure = result.get(120)
            if failure is not None:
                raise Failed(f"an own write failed: {failure!r}")

    def read(self, names: list[str]) -> list[Znode | None]:
        waiting = []
        for at in range(0, len(names), _CHUNK):
            waiting.append(self.client.handler.async_result())
            self.client._call(MultiRead(self.chroot, names[at : at + _CHUNK]), waiting[-1])
        return [node for result in waiting for node in result.get(120)]


class Counts(NamedTuple):
    """ZooKeeper's: transactions so far (a multi is one), requests so far, of all clients."""

    txns: int
    requests: int


class Fakes:
    """The compiled fake brokers, one process for all."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.process = Process([compiled("fakes/fakes.c"), ",".join(map(str, (*FAKES, SPARE)))], folder / "fakes.log")
        self.ports = {int(broker): int(port) for broker, port in self.process.answer().items()}

    def ask(self, command: str) -> Any:
        self.process.say(command)
        return self.process.answer()

    def stats(self) -> dict[int, dict[str, list[float]]]:
        """By broker and kind of request: [frames, states, bytes, time of the last answer]."""
        answer = self.ask("stats")
        bad = [text for text in (values.pop("bad") for values in answer.values()) if text]
        if bad:
            raise Failed(f"a fake broker could not read {bad[0]}")
        return {int(broker): values for broker, values in answer.items()}

    def not_told(self, expected: Iterable[tuple[Partition, LeaderAndIsr]], lisr: Iterable[int], umr: Iterable[int]) -> str:
        """What these brokers were not told of the expected leaders and epochs; empty when all is well."""
        file = self.folder / "expected"
        file.write_text("".join(f"{t} {p} {s.leader} {s.leader_epoch}\n" for (t, p), s in expected))
        wrong = self.ask(f"check {file}")
        missing = [f"{wrong[str(b)][0]} by LeaderAndIsr to {b}" for b in lisr if wrong[str(b)][0]]
        missing += [f"{wrong[str(b)][1]} by UpdateMetadata to {b}" for b in umr if wrong[str(b)][1]]
        return "not told: " + ", ".join(missing) if missing else ""


def broker_command(target: str, kafka_jars: str | None, partitions: int, folder: pathlib.Path) -> list[str]:
    """How to start the broker under test; its properties file is appended."""
    if target in ("klamm", LOGGED, JOURNALED):
        return klamm("broker")
    heap = "4g" if partitions > 20_000 else "1g"
    log4j = folder / "log4j.properties"
    appender = "log4j.appender.o"
    lines = ("log4j.rootLogger=WARN, o", f"{appender}=org.apache.log4j.ConsoleAppender", f"{appender}.layout=org.apache.log4j.SimpleLayout")
    log4j.write_text("\n".join(lines))
    return [
        "java",
        f"-Xms{heap}",
        f"-Xmx{heap}",
        *_JVM.split(),
        f"-Dlog4j.configuration=file:{log4j}",
        "-cp",
        f"{kafka_jars}/*",
        "kafka.Kafka",
    ]


class ControlledCluster:
    """See above. `replicas` and `topic_ids` are those of the tree as written."""

    def __init__(self, address: str, target: str, kafka_jars: str | None, partitions: int, folder: pathlib.Path) -> None:
        self.target, self.folder, self.address = target, folder, address
        folder.mkdir(parents=True)
        self.chroot = f"/{target}-{uuid.uuid4().hex[:6]}"
        root = Session(address, "")
        root.client.create(self.chroot, b"")
        root.close()
        self.admin = Session(address, self.chroot)
        self.topics = [f"bench-{i:05d}" for i in range(max(1, partitions // PER_TOPIC))]
        self._per = min(partitions, PER_TOPIC)
        self.keys: list[Partition] = [(t, p) for t in self.topics for p in range(self._per)]
        self.state_paths = [paths.state_path(t, p) for t, p in self.keys]
        self.replicas = self._first_replicas()
        self.topic_ids = {t: bytes([1, *os.urandom(15)]) for t in self.topics}
        self.fakes = Fakes(folder)
        self.sessions: dict[int, Session] = {}
        self.epochs: dict[int, int] = {}
        self._command = broker_command(target, kafka_jars, partitions, folder)
        self.server: Process | None = None
        self.port = 0

    @property
    def broker(self) -> Process:
        assert self.server is not None
        return self.server

    def close(self) -> None:
        if self.server is not None:
            self.server.stop(gently=False)
        for session in [*self.sessions.values(), self.admin]:
            session.close()
        self.fakes.process.stop(gently=False)

    # the tree

    def load(self) -> None:
        """Write everything but brokers; `/controller` is held."""
        for path in ("/brokers/ids", "/brokers/topics", "/config/topics", "/admin/delete_topics", "/config/changes"):
            self.admin.client.ensure_path(path)
        self.admin.client.create("/controller_epoch", b"1")
        make, nodes, states = self.admin.operations, [], []
        for topic in self.topics:
            nodes.append(make.create(paths.config_path("topics", topic), layout.encode_config({})))
            nodes.append(make.create(paths.topic_path(topic), self._topic_node(topic)))
            nodes.append(make.create(paths.partitions_path(topic), None))
        for (topic, p), path in zip(self.keys, self.state_paths, strict=True):
            nodes.append(make.create(paths.partition_path(topic, p), None))
            states.append(make.create(path, self._first_state(topic, p)))
        self.admin.write(nodes)
        self.admin.write(states)
        self.hold()

    def _first_replicas(self) -> dict[Partition, tuple[int, ...]]:
        return {(t, p): tuple(FAKES[(p + k) % 3] for k in range(3)) for t, p in self.keys}

    def _topic_node(self, topic: str) -> bytes:
        return topic_layout.encode_topic(self.topic_ids[topic], {p: Assignment(self.replicas[topic, p]) for p in range(self._per)})

    def _first_state(self, topic: str, partition: int) -> bytes:
        replicas = self.replicas[topic, partition]
        return topic_layout.encode_state(LeaderAndIsr(replicas[0], 0, replicas, controller_epoch=1))

    def reset(self) -> None:
        """Topics and states as after `load`, topics made since removed, the spare broker too; while the controller is held."""
        if self.admin.client.exists(paths.broker_path(SPARE)):
            self.leave(SPARE)
        for topic in set(self.admin.client.get_children("/brokers/topics")) - set(self.topics):
            self.admin.client.delete(f"/brokers/topics/{topic}", recursive=True)
        make = self.admin.operations
        self.replicas = self._first_replicas()
        self.admin.write([make.set_data(paths.topic_path(topic), self._topic_node(topic), -1) for topic in self.topics])
        self.admin.write([make.set_data(path, self._first_state(*key), -1) for path, key in zip(self.state_paths, self.keys, strict=True)])

    def hold(self) -> None:
        """Take `/controller`, as another broker would."""
        client = self.admin.client
        epoch, stat = client.get("/controller_epoch")
        multi = client.transaction()
        if client.exists("/controller"):
            multi.delete("/controller")
        multi.create("/controller", layout.encode_controller(HOLDER, int(time.time() * 1000)), ephemeral=True)
        multi.set_data("/controller_epoch", str(int(epoch) + 1).encode(), version=stat.version)
        failed = [r for r in multi.commit() if isinstance(r, Exception)]
        if failed:
            raise Failed(f"could not take /controller: {failed}")

    def states(self, keys: list[Partition] | None = None) -> tuple[list[LeaderAndIsr], float]:
        """Present states, and the time of the last write among them."""
        found = self.admin.read(self.state_paths if keys is None else [paths.state_path(t, p) for t, p in keys])
        states = [NODES.decode_state(node.data, node.version) if node is not None else None for node in found]
        if None in states:
            raise Failed(f"{states.count(None)} of {len(states)} states are missing")
        return [s for s in states if s is not None], max(node.mtime_ms for node in found if node is not None) / 1000

    def counts(self) -> Counts:
        """What ZooKeeper has done so far."""
        host, _, port = self.address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(b"srvr")
            text = connection.makefile("rb").read().decode()
        zxid, received = re.search(r"Zxid: 0x([0-9a-f]+)", text), re.search(r"Received: (\d+)", text)
        assert zxid is not None and received is not None, text
        return Counts(int(zxid[1], 16) & 0xFFFFFFFF, int(received[1]))

    # brokers

    def register(self, broker: int) -> None:
        """A fake broker appears."""
        session = self.sessions.get(broker) or Session(self.address, self.chroot)
        self.sessions[broker] = session
        port, path = self.fakes.ports[broker], paths.broker_path(broker)
        node: dict[str, Any] = {
            "version": 5,
            "host": "127.0.0.1",
            "port": port,
            "jmx_port": -1,
            "timestamp": "1700000000000",
            "features": {},
        }
        node |= {"endpoints": [f"PLAINTEXT://127.0.0.1:{port}"], "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}}
        session.client.create(path, json.dumps(node).encode(), ephemeral=True)
        self.epochs[broker] = session.client.exists(path).czxid

    def leave(self, broker: int) -> None:
        """A fake broker's session ends."""
        self.fakes.ask(f"drop {broker}")
        self.sessions[broker].client.delete(paths.broker_path(broker))

    def start(self) -> None:
        """Start the broker under test, number 0, and wait until it is registered and answers."""
        self.port = free_port()
        settings = {
            "broker.id": 0,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": self.address + self.chroot,
            "log.dirs": self.folder / "data",
            "auto.leader.rebalance.enable": "false",
            "auto.create.topics.enable": "false",
            "controlled.shutdown.enable": "false",
        }
        if self.target == LOGGED:
            settings["registerbroker.enable"] = "true"
        if self.target == JOURNALED:
            settings["klamm.journal.dir"] = self.folder / "lake"
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.server = Process([*self._command, str(file)], self.folder / "broker.log")
        end = time.monotonic() + 120
        while self.admin.client.exists(paths.broker_path(0)) is None or not self._answers():
            if not self.server.alive() or time.monotonic() > end:
                raise Failed(f"the {self.target} broker did not start: {self.server.tail()}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with Connection(self.port, 5) as connection:
                connection.send(struct.pack(">hhih", 18, 0, 0, -1))
                connection.receive()
                return True
        except (OSError, Failed):
            return False


class Connection:
    """A blocking Kafka connection; payloads go without their length."""

    def __init__(self, port: int, timeout_s: float) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._file = self._socket.makefile("rb", buffering=1 << 18)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, payload: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(payload)) + payload)

    def receive(self) -> bytes:
        head = self._file.read(4)
        if len(head) < 4:
            raise Failed("the broker closed the connection")
        return self._file.read(int(struct.unpack(">i", head)[0]))
