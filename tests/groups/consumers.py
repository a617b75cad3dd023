"""Consumers as processes, and what is asked of a group from outside: its members, its state, its committed offsets."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from klamm.chaos.clients.producers import SOON
from klamm.protocol import messages
from klamm.protocol.hash_order import partition_for
from klamm.tests.harness.kafka import request, wait_for
from klamm.tests.harness.members import Members

OFFSETS_TOPIC = "__consumer_offsets"
SESSION_MS = 4000
WITHIN_S = 90.0
"""How long a group may take for a rebalance on a busy machine. A test that passes seldom waits that long."""


class ConsumerProcess:
    """One member (`consuming.py`, `kafkajs_consume.mjs`), and what it has said."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, *, library: str = "confluent", strategy: str = "range", instance: str | None = None,
        session_ms: int = SESSION_MS,
    ) -> None:
        """Start it."""
        self.name = f"{library} {instance or ''}"
        settings = json.dumps({
            "library": library, "bootstrap": bootstrap, "topic": topic, "group": group, "strategy": strategy, "instance": instance,
            "session_ms": session_ms,
        })
        command = [sys.executable, "-m", "klamm.tests.groups.consuming", settings]
        if library == "kafkajs":
            command = ["node", str(Path(__file__).with_name("kafkajs_consume.mjs")), str(Path(sys.prefix) / "node"), settings]
        self.assignments: list[list[int]] = []
        """What it was assigned, one after the other."""
        self.records: list[tuple[int, int, str]] = []
        self.errors: list[str] = []
        self.commits = 0
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if "assignment" in said:
                self.assignments.append(said["assignment"])
            self.records += [(partition, offset, text) for partition, offset, text in said.get("records", ())]
            self.commits += "committed" in said
            if "error" in said:
                self.errors.append(said["error"])

    @property
    def assignment(self) -> list[int]:
        """The partitions that it has now."""
        return self.assignments[-1] if self.assignments else []

    @property
    def texts(self) -> collections.Counter[str]:
        """The records that it has seen, with how often."""
        return collections.Counter(text for _, _, text in self.records)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._ended()

    def leave(self) -> None:
        """It leaves the group, a static member without LeaveGroup, and ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            assert self.process.wait(WITHIN_S) == 0, f"{self.name} ended with {self.process.returncode}; errors {self.errors[-3:]}"
        finally:
            self.kill()

    def _ended(self) -> None:
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class ConsumerGroup:
    """A topic and a group that reads it, with all processes that were its members. Ends them at the end of `with`."""

    def __init__(self, members: Members, topic: str, partitions: int, group: str) -> None:
        self.members, self.topic, self.partitions, self.group = members, topic, partitions, group
        self.processes: list[ConsumerProcess] = []
        self.written: list[str] = []
        ids = sorted(members.brokers)
        members.create(topic, [[*ids[p % len(ids) :], *ids[: p % len(ids)]] for p in range(partitions)], {"min.insync.replicas": "1"})

    def __enter__(self) -> ConsumerGroup:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.process.kill()
        for process in self.processes:
            process.process.wait()

    def start(self, **settings: Any) -> ConsumerProcess:
        """A new member; see `ConsumerProcess`."""
        self.processes.append(ConsumerProcess(self.members.bootstrap(), self.topic, self.group, **settings))
        return self.processes[-1]

    # records

    def write(self, count: int = 100) -> list[str]:
        """Write records, in turn to each partition; returns them."""
        texts = [f"{self.topic}-{len(self.written) + n}" for n in range(count)]
        failed: list[Any] = []
        config = {**SOON, "bootstrap.servers": self.members.bootstrap(), "acks": "all", "enable.idempotence": True, "retry.backoff.ms": 50}
        producer = Producer(config)
        for number, text in enumerate(texts):
            producer.produce(
                self.topic, text.encode(), partition=number % self.partitions,
                on_delivery=lambda error, _: None if error is None else failed.append(error),
            )
        assert producer.flush(WITHIN_S) == 0 and not failed, failed
        self.written += texts
        return texts

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Go on writing in a thread as long as the block runs. What is in `written` was acknowledged."""
        over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(self._write_until, over)
            try:
                yield
            finally:
                over.set()
            writer.result()

    def _write_until(self, over: threading.Event) -> None:
        while not over.is_set():
            self.write(5 * self.partitions)

    def goes_on(self) -> None:
        """While somebody writes: wait until a batch that begins after this moment is written, and until it is read."""
        mark = len(self.written) + 5 * self.partitions
        wait_for(lambda: len(self.written) > mark, f"{self.topic} is written", WITHIN_S)
        self.reads(list(self.written))

    def seen(self) -> collections.Counter[str]:
        """What all members together have seen."""
        return sum((each.texts for each in self.processes), collections.Counter())

    def reads(self, texts: Iterable[str], by: Sequence[ConsumerProcess] | None = None) -> None:
        """Wait until members have seen all of these."""
        wanted = set(texts)

        def look() -> bool:
            found = set().union(*(each.texts for each in (self.processes if by is None else by)))
            assert wanted <= found, f"{len(wanted - found)} of {len(wanted)} are missing; {self._errors()}"
            return True

        wait_for(look, f"{self.group} reads", WITHIN_S)

    def _errors(self) -> str:
        return f"errors {[each.errors[-3:] for each in self.processes]}"

    # assignments and the group's state

    def shared(self, *members: ConsumerProcess) -> None:
        """Wait until these have all partitions, each has some, and no partition has two."""

        def look() -> bool:
            parts = [each.assignment for each in members]
            assert all(parts) and sorted(p for part in parts for p in part) == list(range(self.partitions)), f"{parts}, {self._errors()}"
            return True

        wait_for(look, f"{self.group} is shared by {len(members)}", WITHIN_S)
        self.becomes("Stable", len(members))

    def becomes(self, state: str, count: int) -> Any:
        """Wait until the group is in a state with so many members; its description."""

        def look() -> Any:
            described = self.describe()
            assert (described.group_state, len(described.members)) == (state, count), described
            return described

        return wait_for(look, f"{self.group} is {state} with {count} members", WITHIN_S)

    def ask(self, message: Any, version: int) -> Any:
        """Ask the group's coordinator."""
        return request(self.members.brokers[self.coordinator()].port, message, version)

    def describe(self) -> Any:
        """DescribeGroups."""
        (described,) = self.ask(messages.DescribeGroupsRequest(groups=[self.group]), 5).groups
        return described

    def coordinator(self) -> int:
        """Wait until a running broker names a coordinator that runs; its id."""

        def look() -> int | None:
            found = self.coordinator_seen_by(self.members.running()[0].port)
            return found if found in {each.id for each in self.members.running()} else None

        return wait_for(look, f"a coordinator of {self.group}", WITHIN_S)

    def offsets_partition(self) -> int:
        """The partition of the offsets topic that the group belongs to."""
        return partition_for(self.group, len(self.members.tree.assignment(OFFSETS_TOPIC)))

    def coordinator_seen_by(self, port: int) -> int | None:
        """What one broker responds to FindCoordinator; None if it has none."""
        try:
            (answer,) = request(port, messages.FindCoordinatorRequest(coordinator_keys=[self.group]), 4).coordinators
        except OSError:
            return None
        return int(answer.node_id) if answer.error_code == 0 else None

    def committed(self) -> dict[int, int]:
        """Committed offsets by partition; {} while the coordinator does not give them."""
        group = messages.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=None)
        try:
            (answer,) = self.ask(messages.OffsetFetchRequest(groups=[group], require_stable=True), 8).groups
        except OSError:
            return {}
        rows = [row for topic in answer.topics if topic.name == self.topic for row in topic.partitions]
        return {row.partition_index: row.committed_offset for row in rows if row.error_code == 0} if answer.error_code == 0 else {}

    def all_is_committed(self) -> dict[int, int]:
        """Wait until the committed offsets are those behind all records; they are returned."""

        def look() -> dict[int, int]:
            offsets = self.committed()
            assert sum(offsets.values()) == len(self.written), f"{offsets}, {self._errors()}"
            return offsets

        return wait_for(look, f"{self.group} commits", WITHIN_S)

    def changes_hands(self, change: Callable[[], object]) -> None:
        """Do something by which another broker becomes the coordinator; wait until it is."""
        before = self.coordinator()
        change()
        wait_for(lambda: self.coordinator() != before, f"another coordinator of {self.group} than {before}", WITHIN_S)
