"""Watches the cluster during a run: controllers and their epochs, leaders and their epochs, in-sync replicas."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from klamm.control.client import ControlClient, ControlFailed
from klamm.control.json_object import JsonObject

LOOK_S = 0.5
Found = Callable[[str, str], None]
"""Called with the rule and what violates it."""


class ClusterHistory:
    """What was seen of a cluster so far; `found` is called for each violation, once for the same text."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._told: set[str] = set()
        self._controllers: dict[int, int] = {}
        self._leaders: dict[tuple[str, int, int], int] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._strange_isr: dict[tuple[str, int], tuple[object, ...]] = {}
        self._last_leaders: dict[tuple[str, int], int] = {}
        self.elections = 0
        """How often a partition got another leader."""

    @property
    def controllers(self) -> int:
        """How many terms of controllers there were."""
        return len(self._controllers)

    def event(self, kind: str, data: JsonObject) -> None:
        """An event of the control API: `TermBegan` and `StatesChanged` count."""
        if kind != "change":
            return
        if data["change"] == "TermBegan":
            self._controller(data["controller_id"], data["controller_epoch"])
        elif data["change"] == "StatesChanged":
            for row in data["partitions"]:
                if "leader" in row:
                    self._leader(row["topic"], row["partition"], row["leader"], row["leader_epoch"])

    def topic(self, shown: JsonObject) -> None:
        """A topic as ZooKeeper has it, read after all topics that were given before."""
        name = shown["name"]
        for row in shown["partitions"]:
            stored = row["zookeeper"]
            if "leader_epoch" not in stored:
                continue
            key, epoch = (name, row["partition"]), stored["leader_epoch"]
            if epoch < self._epochs.get(key, -1):
                self._violated("leader epoch fell", f"{name}-{row['partition']} has leader epoch {epoch} after {self._epochs[key]}")
            self._epochs[key] = epoch
            self._isr(key, stored)

    def _controller(self, broker: int, epoch: int) -> None:
        other = self._controllers.setdefault(epoch, broker)
        if other != broker:
            self._violated("two controllers", f"brokers {other} and {broker} are both controller with epoch {epoch}")

    def _leader(self, topic: str, partition: int, leader: int, epoch: int) -> None:
        if leader < 0:
            return
        other = self._leaders.setdefault((topic, partition, epoch), leader)
        if other != leader:
            said = f"brokers {other} and {leader} both lead {topic}-{partition} with leader epoch {epoch}"
            self._violated("two leaders", said)
        self.elections += self._last_leaders.get((topic, partition), leader) != leader
        self._last_leaders[topic, partition] = leader

    def _isr(self, key: tuple[str, int], stored: JsonObject) -> None:
        """A replica in the ISR that is not assigned, seen twice: assignment and ISR are read one after the other."""
        strange = set(stored["isr"]) - set(stored["replicas"])
        seen = (stored["isr"], stored["replicas"], stored["leader_epoch"], stored["partition_epoch"])
        if strange and self._strange_isr.get(key) == seen:
            said = f"{key[0]}-{key[1]} has ISR {stored['isr']}, its replicas are {stored['replicas']}"
            self._violated("ISR outside of the assignment", said)
        self._strange_isr[key] = seen if strange else ()

    def _violated(self, rule: str, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._found(rule, text)


class Watch:
    """Two threads that keep a `ClusterHistory`."""

    def __init__(self, api: ControlClient, topics: tuple[str, ...], history: ClusterHistory) -> None:
        self._api, self._topics, self.history = api, topics, history
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True) for name, work in (("events", self._follow), ("states", self._look))
        ]

    def start(self) -> None:
        """Begin to watch."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Look no more. The reader of events ends with the cluster."""
        self._stopped.set()
        self._threads[1].join()

    def _follow(self) -> None:
        number = 0
        while not self._stopped.is_set():
            try:
                for event in self._api.events(number):
                    number = event["number"]
                    with self._lock:
                        self.history.event(event["kind"], event["data"])
            except (ControlFailed, OSError, ValueError):
                time.sleep(LOOK_S)

    def _look(self) -> None:
        while not self._stopped.wait(LOOK_S):
            for name in self._topics:
                try:
                    shown = self._api.get("topics", name)
                except ControlFailed:
                    continue
                with self._lock:
                    self.history.topic(shown)
