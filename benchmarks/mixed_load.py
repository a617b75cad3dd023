"""A mixed load on a cluster of three brokers with a journal: producers, consumers in groups, transactions, and an admin client.

What the load makes is gone when it ends: it deletes its groups and topics, and takes its configs back. So the cluster is as it was before,
but for ids and counters, and the same load may come again (`mixed_journal.py`). All names that it uses contain `MARK`, and its producer ids
begin at `PRODUCERS`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient

from klamm.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType
from klamm.admin.topics import NewTopic
from klamm.benchmarks.processes import klamm
from klamm.zk.layout.paths import PRODUCER_IDS
from klamm.zk.layout.znodes import ProducerIdBlock, encode_producer_ids

MARK = "AaAaAaAaAaAa"
"""In the name of each topic, group, client and transactional id. In place of it may stand any other row of `Aa` and `BB`: all these have
the same hash in Java, so groups and transactions have the same coordinator."""

PRODUCERS = 0x2AC6_E1B4_0000_0000
"""The first producer id."""

BROKERS = 3
FRAMES_A_ROUND = 84
"""About: of all clients together, and of the brokers that follow."""

ORDERS, PAYMENTS, VIEWS = f"orders-{MARK}", f"payments-{MARK}", f"views-{MARK}"
CONFIGS = {
    "offsets.topic.replication.factor": 1,  # else followers fetch them for ever, and their offsets rise from one load to the next
    "transaction.state.log.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 100,
    "auto.create.topics.enable": "false",
}


class Recorded(NamedTuple):
    """When the load began, and when all of it was over: wall clocks in ns. Before, between and after them nothing is in progress."""

    began_ns: int
    ended_ns: int


def record(lake: Path, frames: int, seed: int) -> Recorded:
    """Serve a cluster with a journal and load it, so that about this number of frames are journaled meanwhile."""
    with _served(lake) as servers:
        with Consumer({"bootstrap.servers": servers, "group.id": "first"}) as first:
            first.committed([TopicPartition("none", 0)], 30)  # which makes both internal topics, with the next line
        Producer({"bootstrap.servers": servers, "transactional.id": "first"}).init_transactions(30)
        _quiet()
        began_ns = time.time_ns()
        Load(servers, seed, max(1, frames // FRAMES_A_ROUND)).run()
        _quiet()
        return Recorded(began_ns, time.time_ns())


def _quiet() -> None:
    """Wait until requests in progress have ended; the longest are those of followers, half a second."""
    time.sleep(1.5)


@contextmanager
def _served(lake: Path) -> Iterator[str]:
    """A cluster with a journal. Yields its bootstrap servers."""
    configs = [text for key, value in CONFIGS.items() for text in ("--config", f"{key}={value}")]
    command = klamm("serve", "--brokers", str(BROKERS), "--port", "0", "--json", "--journal", str(lake), *configs)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as cluster:
        assert cluster.stdout is not None
        try:
            said = json.loads(cluster.stdout.readline())
            zookeeper = KazooClient(said["zookeeper"])
            zookeeper.start()
            zookeeper.set(PRODUCER_IDS, encode_producer_ids(ProducerIdBlock(1, PRODUCERS - 1000, PRODUCERS - 1)))
            zookeeper.stop()
            zookeeper.close()
            yield said["bootstrap_servers"]
        finally:
            cluster.send_signal(signal.SIGTERM)


class Load:
    """One load: so many rounds of each client, drawn from a seed."""

    def __init__(self, servers: str, seed: int, rounds: int) -> None:
        self._servers, self._seed, self._rounds = servers, seed, rounds
        self._producing = threading.Event()
        self._producing.set()

    def run(self) -> None:
        """From the creation of topics to their deletion. Raises what a client raises."""
        with AdminClient(self._servers) as admin:
            topics = [
                NewTopic(ORDERS, 6, BROKERS), NewTopic(PAYMENTS, 4, 2), NewTopic(VIEWS, 2, BROKERS, {"cleanup.policy": "compact"}),
            ]
            admin.create_topics(topics).all()
            self._all_at_once(admin)
            admin.delete_groups([f"{group}-{MARK}" for group in ("billing", "audit", "ledger")]).all()
            admin.delete_topics([topic.name for topic in topics]).all()

    def _all_at_once(self, admin: AdminClient) -> None:
        producers: list[Callable[[Random], None]] = [
            lambda random: self._produce(random, ORDERS, {"acks": "all", "enable.idempotence": True}),
            lambda random: self._produce(random, VIEWS, {"acks": "1", "compression.type": "zstd"}),
            self._pay,
            lambda random: self._administer(random, admin),
        ]
        consumers: list[Callable[[Random], None]] = [
            lambda random: self._consume(random, "billing", [ORDERS, VIEWS]),
            lambda random: self._consume(random, "billing", [ORDERS, VIEWS]),
            lambda random: self._consume(random, "audit", [PAYMENTS]),
            self._come_and_go,
        ]
        with ThreadPoolExecutor(len(producers) + len(consumers)) as threads:
            randoms = [Random(f"{self._seed} {number}") for number in range(len(producers) + len(consumers))]
            consuming = [threads.submit(work, random) for work, random in zip(consumers, randoms, strict=False)]
            producing = [threads.submit(work, random) for work, random in zip(producers, reversed(randoms), strict=False)]
            try:
                for done in producing:
                    done.result()
            finally:
                self._producing.clear()
            for done in consuming:
                done.result()

    def _client(self, name: str) -> dict[str, str | int]:
        return {"bootstrap.servers": self._servers, "client.id": f"{name}-{MARK}"}

    def _produce(self, random: Random, topic: str, settings: dict[str, str | bool]) -> None:
        producer = Producer({**self._client(f"{topic.partition('-')[0]}-producer"), **settings, "linger.ms": 1})
        for _ in range(self._rounds):
            for _ in range(random.randint(1, 8)):
                producer.produce(topic, random.randbytes(random.randint(20, 400)), key=str(random.randrange(1000)))
            producer.flush()

    def _pay(self, random: Random) -> None:
        """Transactions that read orders and write payments, with the offsets of what they read. One of ten is aborted."""
        producer = Producer({**self._client("payer"), "transactional.id": f"payer-{MARK}", "linger.ms": 1})
        producer.init_transactions(30)
        with self._consumer("ledger", "payer") as orders:
            orders.subscribe([ORDERS])
            for _ in range(max(1, self._rounds // 2)):
                read = orders.consume(5, 0.5)
                producer.begin_transaction()
                for record in read:
                    producer.produce(PAYMENTS, (record.value() or b"")[:100], key=record.key())
                if random.random() < 0.1:
                    producer.abort_transaction(30)
                else:
                    if read:
                        producer.send_offsets_to_transaction(orders.position(orders.assignment()), orders.consumer_group_metadata(), 30)
                    producer.commit_transaction(30)

    def _consumer(self, group: str, name: str) -> Consumer:
        settings: dict[str, str | int | bool] = {
            "group.id": f"{group}-{MARK}", "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 250,
            "heartbeat.interval.ms": 250, "isolation.level": "read_committed",
        }
        return Consumer({**self._client(name), **settings})

    def _consume(self, random: Random, group: str, topics: list[str], polls: int | None = None) -> None:
        """A member of a group, for so many polls, or as long as there are producers."""
        with self._consumer(group, f"{group}-{random.randrange(4)}") as consumer:
            consumer.subscribe(topics)
            while self._producing.is_set() if polls is None else (polls := polls - 1) >= 0:
                read = consumer.consume(20, 0.1)
                if read and random.random() < 0.3:
                    consumer.commit(asynchronous=False)

    def _come_and_go(self, random: Random) -> None:
        """A member that joins a group again and again: each time the group rebalances."""
        while self._producing.is_set():
            self._consume(random, "billing", [ORDERS, VIEWS], 30)

    def _administer(self, random: Random, admin: AdminClient) -> None:
        """Questions, and changes that move leaders and replicas."""
        topic, broker = ConfigResource(ResourceType.TOPIC, ORDERS), ConfigResource(ResourceType.BROKER, "1")
        questions: list[Callable[[], object]] = [
            admin.describe_cluster,
            lambda: admin.describe_topics([ORDERS, PAYMENTS]).all(),
            lambda: admin.describe_configs([topic, broker]).all(),
            lambda: admin.list_offsets({(ORDERS, 0): OffsetSpec.LATEST, (PAYMENTS, 1): OffsetSpec.EARLIEST}).all(),
            lambda: admin.list_groups().all(),
            lambda: admin.describe_groups([f"billing-{MARK}"]).all(),
            lambda: admin.list_group_offsets([f"billing-{MARK}"]).all(),
            lambda: admin.describe_log_dirs().all(),
            admin.list_partition_reassignments,
        ]
        for number in range(max(1, self._rounds // 4)):
            random.choice(questions)()
            if number % 8 == 1:
                self._move(random, admin)
            if number % 8 == 5:
                admin.incremental_alter_configs({topic: {"retention.ms": str(random.randrange(10**7, 10**8))}}).all()

    def _move(self, random: Random, admin: AdminClient) -> None:
        """Reassign a partition of payments to two other brokers, wait until it is there, and elect its preferred leader."""
        partition = random.randrange(4)
        admin.alter_partition_reassignments({(PAYMENTS, partition): random.sample(range(1, BROKERS + 1), 2)}).all()
        while admin.list_partition_reassignments([(PAYMENTS, partition)]):
            time.sleep(0.05)
        admin.elect_preferred_leaders([(PAYMENTS, partition)])
