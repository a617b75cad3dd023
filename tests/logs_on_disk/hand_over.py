"""A broker's folder and properties, taken over by a broker of the other kind, under producers and a reader."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from klamm.chaos.clients.producers import Producing
from klamm.chaos.clients.reading import Reading, read_all
from klamm.chaos.histories.history import Verdict, judge
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker, wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.ports import free_port
from klamm.tests.logs_on_disk.kafka_tools import complaints

TOPIC, PARTITIONS = "handed", 3


class FolderHandOver:
    """One broker id, one folder, one server.properties; the broker is of this kind or that."""

    def __init__(self, members: Members, jars: Path) -> None:
        self.members, self.jars = members, jars
        self.port = free_port()
        self.kinds: dict[bool, OwnedBroker] = {}
        self.complaints: list[str] = []
        self.rounds: list[str] = []
        self.errors: Counter[str] = Counter()
        self.fatal: list[str] = []

    def start(self, *, klamm: bool) -> None:
        """The broker of this kind takes the folder."""
        members = self.members
        if klamm not in self.kinds:
            settings = members.settings_of(1) | {
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "log_dirs": f"{members.folder}/data-a,{members.folder}/data-b",
            }
            if klamm:
                self.kinds[klamm] = OwnedBroker(members.tree, members.folder, 1, **settings)
            else:
                self.kinds[klamm] = KafkaBroker(self.jars, members.tree, members.folder, 1, **settings)
        members.brokers[1] = self.kinds[klamm]
        members.start(1)

    def end(self, *, in_order: bool) -> None:
        """Stop or kill the broker; its files are looked at by Kafka's tool after a stop in order."""
        broker = self.members.brokers[1]
        if in_order:
            broker.stop()
            self.complaints += complaints(self.jars, [self.members.folder / "data-a", self.members.folder / "data-b"])
        else:
            broker.kill()
        wait_for(lambda: self.members.tree.broker_epoch(1) == -1, "the broker is gone from ZooKeeper")

    def run(self, rounds: int, seed: int, records_of_a_round: int = 1000) -> Verdict:
        """Hand the folder over so many times; the verdict about what the producers were told."""
        chance = random.Random(seed)
        self.start(klamm=bool(seed % 2))
        self.members.create(TOPIC, [[1]] * PARTITIONS, {"segment.bytes": "50000", "index.interval.bytes": "500"})
        bootstrap = f"127.0.0.1:{self.port}"
        kinds = {"idempotent": True, "plain": False}
        producers = [Producing(bootstrap, TOPIC, PARTITIONS, name, idempotent=kind).start() for name, kind in kinds.items()]
        reading = Reading(bootstrap, TOPIC, PARTITIONS).start()
        klamm = bool(seed % 2)
        for _ in range(rounds):
            self._until_written(producers, records_of_a_round)
            in_order = chance.random() < 0.5
            self.end(in_order=in_order)
            self.rounds.append(f"{'klamm' if klamm else 'kafka'} {'stopped' if in_order else 'killed'}")
            klamm = not klamm
            self.start(klamm=klamm)
        self._until_written(producers, records_of_a_round)
        for producer in producers:
            producer.finish()
        logs = read_all(bootstrap, TOPIC, PARTITIONS)
        reading.finish(logs)
        self.end(in_order=True)
        self.errors = Counter(error for producer in producers for sent in producer.sent for error in sent.errors.values())
        self.fatal = [text for producer in producers for text in producer.fatal]
        return judge([sent for producer in producers for sent in producer.sent], logs, reading.logs)

    def _until_written(self, producers: list[Producing], more: int) -> None:
        marks = [producer.acknowledged + more for producer in producers]
        wait_for(lambda: all(p.acknowledged >= mark for p, mark in zip(producers, marks, strict=True)), f"{more} more records of each", 90)
