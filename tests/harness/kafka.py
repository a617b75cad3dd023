"""Broker processes of both kinds, started from the same properties: a real Kafka, and a `klamm broker` beside it.

Both are owned: they die with the test process, however that ends (see `klamm.zk.embedded.owned_process`). They are started, stopped
(SIGTERM), killed (SIGKILL), frozen and thawed alike, so a story need not know which kind it has. Ready means: registered anew in
ZooKeeper, and naming itself and a controller in a Metadata answer.

A real one is a small JVM: little heap, the first compiler, the simplest collector. Its log is `folder/broker-ID/log`, over all its
lives; a line is `[time] LEVEL text (logger)`, the stack of an exception follows its line.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from klamm.machine.java import find_java
from klamm.protocol import messages
from klamm.tests.harness import waits
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.process import KlammBroker
from klamm.tests.harness.tree import Tree
from klamm.zk.embedded.owned_process import OwnedProcess

SMALL: dict[str, object] = {
    "num.network.threads": 2,
    "num.io.threads": 4,
    "num.replica.fetchers": 1,
    "num.recovery.threads.per.data.dir": 1,
    "background.threads": 2,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.index.size.max.bytes": 65536,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.cleaner.io.buffer.size": 65536,
    "controlled.shutdown.max.retries": 3,
    "controlled.shutdown.retry.backoff.ms": 500,
}
"""What keeps a real broker small; a Klamm broker takes it too."""

JVM = ("-Xms96m", "-Xmx384m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
_LOG4J = """log4j.rootLogger={level}, F
log4j.appender.F=org.apache.log4j.FileAppender
log4j.appender.F.File={file}
log4j.appender.F.layout=org.apache.log4j.PatternLayout
log4j.appender.F.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.state.change.logger={state_changes}
log4j.logger.org.reflections=ERROR
log4j.logger.kafka=INHERITED
log4j.logger.kafka.controller=INHERITED
"""
_LINE = re.compile(r"^\[[^\]]+\] (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (.*)$")
_LOGGER = re.compile(r" \(([\w.$]+)\)$")
START_S = 90.0
WITHIN_S = 45.0
"""How long something may take on a busy machine with several JVMs. A test that passes seldom waits that long."""
T = TypeVar("T")


def wait_for(look: Callable[[], T | None], what: str, within_s: float = WITHIN_S) -> T:
    """Block until `look` gives something true, which is returned. What is not there yet may raise AssertionError."""
    return waits.wait_for(look, what, within_s)


def request(port: int, message: Any, version: int, timeout_s: float = 30) -> Any:
    """Send one request on a connection of its own and return the decoded answer; OSError when there is none."""
    name = type(message).__name__.removesuffix("Request")
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(messages.encode_request(KEYS[name], version, 1, "test", messages.encode(message, version)))
        with connection.makefile("rb") as stream:
            head = stream.read(4)
            if len(head) < 4:
                raise ConnectionResetError("closed by the peer")
            payload = stream.read(struct.unpack(">i", head)[0])
    _, offset = messages.decode_response_header(KEYS[name], version, payload)
    return messages.decode(f"{name}Response", version, payload, offset)[0]


class LogLine(NamedTuple):
    """One entry of a real broker's log, continuation lines included."""

    level: str
    text: str
    logger: str
    more: tuple[str, ...]

    @property
    def exception(self) -> str:
        """Class of the exception that was logged with it, '' when none was."""
        return self.more[0].partition(":")[0].strip() if self.more else ""


def java_command(jars: Path, *arguments: str, flags: Sequence[str] = JVM) -> list[str]:
    """A command that runs a class of Kafka's jars; `arguments` are the class and its own."""
    return [str(find_java().launcher), *flags, "-cp", f"{jars}{os.sep}*", *arguments]


class OwnedBroker(KlammBroker):
    """A `klamm broker` that dies with the test process."""

    def __init__(self, tree: Tree, folder: Path, broker_id: int, **properties: object) -> None:
        super().__init__(tree, folder, broker_id, **{name.replace(".", "_"): value for name, value in SMALL.items()} | properties)
        self.owned: OwnedProcess | None = None
        self.starts = 0

    def command(self, file: Path) -> list[str]:
        return [str(Path(sys.executable).parent / "klamm"), "broker", str(file)]

    def launch(self) -> OwnedBroker:
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        self.starts += 1
        self.log = self.folder / f"log-{self.starts}"
        self.owned = OwnedProcess(self.command(file), self.log)
        return self

    def start(self) -> OwnedBroker:
        """Start the process; returns when it is registered, listens, and there is a controller."""
        old = self.tree.broker_epoch(self.id)
        self.launch()
        self.wait(lambda: self.tree.broker_epoch(self.id) not in (-1, old) and self.listens() and self.knows_itself(), "ready", START_S)
        return self

    def knows_itself(self) -> bool:
        """Whether its Metadata names itself and a controller."""
        return {self.id} <= set(self.known()[0]) and self.known()[1] >= 0

    def known(self) -> tuple[list[int], int]:
        """Brokers and controller in its Metadata answer; ([], -1) when it does not answer."""
        try:
            answer = request(self.port, messages.MetadataRequest(topics=[]), 1)  # every release has version 1
        except OSError:
            return [], -1
        return [broker.node_id for broker in answer.brokers], answer.controller_id

    def address(self, listener: str) -> str:
        """`host:port` of one of its listeners."""
        return next(one.partition("://")[2] for one in str(self.settings["listeners"]).split(",") if one.startswith(f"{listener}://"))

    def pid(self) -> int:
        assert self.owned is not None, f"broker {self.id} was never started"
        return self.owned.pid

    def alive(self) -> bool:
        return self.owned is not None and self.owned.poll() is None

    def exit_code(self) -> int | None:
        return None if self.owned is None else self.owned.poll()

    def stop(self, within_s: float = 60) -> int:
        """SIGTERM; returns the exit code. A process that does not end in time is killed and fails the test."""
        self._signal(signal.SIGTERM)
        assert self.owned is not None
        try:
            return self.owned.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"broker {self.id} did not end within {within_s:.0f} s: {self.tail()}") from None

    def kill(self) -> None:
        """kill -9; its ZooKeeper session goes on until it expires."""
        if self.owned is not None:
            self.owned.stop()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        if self.alive():
            waits.wait_until_stopped(self.pid())

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive():
            os.kill(self.pid(), number)


class KafkaBroker(OwnedBroker):
    """A real Kafka broker, from a folder of jars."""

    def __init__(
        self,
        jars: Path,
        tree: Tree,
        folder: Path,
        broker_id: int,
        *,
        state_changes: str = "INFO",
        level: str = "INFO",
        **properties: object,
    ) -> None:
        """`state_changes` and `level` are log levels, of Kafka's state-change log and of everything else."""
        super().__init__(tree, folder, broker_id, **properties)
        self.jars = jars
        self.kafka_log = self.folder / "log"
        self.log4j = self.folder / "log4j.properties"
        self.log4j.write_text(_LOG4J.format(level=level, state_changes=state_changes, file=self.kafka_log))

    def command(self, file: Path) -> list[str]:
        return java_command(self.jars, "kafka.Kafka", str(file), flags=(*JVM, f"-Dlog4j.configuration=file:{self.log4j}"))

    def launch(self) -> KafkaBroker:
        super().launch()
        return self

    def tail(self) -> str:
        log = self.kafka_log.read_bytes()[-3000:].decode(errors="replace") if self.kafka_log.exists() else ""
        return log + super().tail()

    def lines(self, select: Callable[[LogLine], bool] = lambda _: True) -> list[LogLine]:
        """Its log so far, over all its lives."""
        found: list[LogLine] = []
        head: tuple[str, str, str] | None = None
        more: list[str] = []
        raw = self.kafka_log.read_text(errors="replace").splitlines() if self.kafka_log.exists() else []
        for line in [*raw, None]:
            begins = None if line is None else _LINE.match(line)
            if line is not None and begins is None:
                more.append(line)
                continue
            if head is not None:
                text = "\n".join((head[1], *more))
                named = _LOGGER.search(head[1]) or _LOGGER.search(text)
                found.append(LogLine(head[0], _LOGGER.sub("", head[1]), named[1] if named else "", tuple(more)))
            if begins is not None:
                head, more = (begins[1], begins[2], ""), []
        return [line for line in found if select(line)]

    def errors(self) -> list[LogLine]:
        """What it logged as an error."""
        return self.lines(lambda line: line.level in ("ERROR", "FATAL"))


def all_know(brokers: Sequence[OwnedBroker], within_s: float = WITHIN_S) -> None:
    """Wait until each of these names all of them, and one same controller, in its Metadata."""
    ids = {broker.id for broker in brokers}

    def look() -> bool:
        known = [broker.known() for broker in brokers]
        return all(ids == set(named) for named, _ in known) and len({c for _, c in known}) == 1 and known[0][1] >= 0

    wait_for(look, f"brokers {sorted(ids)} know each other", within_s)
