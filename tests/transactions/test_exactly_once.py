"""A copy with transactions loses and doubles nothing while brokers are killed and copiers crash.

A copier is a process that its supervisor kills when it makes no progress: that is one more crash, which the test wants. librdkafka may
wait for ever in `send_offsets_to_transaction` after a broker was restarted (docs/compatibility.md). The brokers may not: the coordinator
must then have aborted the transaction, and the next copier must make progress.
"""

from __future__ import annotations

import itertools
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import klamm
from klamm.admin import AdminClient, AdminError, TransactionState
from klamm.testing import BlockingCluster
from klamm.tests.harness.waits import wait_for
from klamm.tests.transactions.copying import TRANSACTIONAL_ID

PARTITIONS = 4
RECORDS = 6_000
WITHIN_S = 400.0
ENDS_WITHIN_S = 60.0
PATIENCE_S = 12.0
"""How long a copier may take to commit something after a broker came back, before the next one is killed: on a busy machine it needs more
than a moment."""
SILENT_S = 8.0
"""After so long without records the consumer of the reader is replaced."""
HANGS_AFTER = 4
"""A copier that has committed nothing while so many brokers were killed hangs: each of them was killed, so that no request of it is open
any more, and its transaction has timed out."""
CONFIG = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "1500",
    "min.insync.replicas": "2",
}
ENDED = {TransactionState.EMPTY, TransactionState.COMPLETE_ABORT, TransactionState.COMPLETE_COMMIT}


@pytest.fixture
def cluster() -> Iterator[BlockingCluster]:
    with klamm.Cluster(brokers=3, config=CONFIG, topics=[f"in:{PARTITIONS}:3", f"out:{PARTITIONS}:3"]) as cluster:
        yield cluster


def fill(cluster: BlockingCluster) -> None:
    """Write the numbers from 0 up into `in`."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("in", key=str(number), value=str(number), partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


@dataclass
class Progress:
    """What the threads of the test know of each other."""

    transactions: int = 0
    kills: int = 0
    over: threading.Event = field(default_factory=threading.Event)


class Killer(threading.Thread):
    """Kills one broker after the other, and starts it again."""

    def __init__(self, cluster: BlockingCluster, progress: Progress) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._progress = progress
        self._before = -1
        """How many transactions were committed when the last broker came back."""

    def run(self) -> None:
        for broker_id in itertools.cycle((1, 2, 3)):
            if self._progress.over.wait(3) or self._is_over_before_a_commit():
                return
            self._cluster.kill_broker(broker_id, expire=False)
            self._progress.kills += 1
            self._progress.over.wait(1)
            self._before = self._progress.transactions
            self._cluster.start_broker(broker_id)

    def _is_over_before_a_commit(self) -> bool:
        """Wait until the copier has committed something, and for `PATIENCE_S` at most. Whether the test is over."""
        end = time.monotonic() + PATIENCE_S
        while self._progress.transactions == self._before and time.monotonic() < end:
            if self._progress.over.wait(0.1):
                return True
        return False


class Supervisor(threading.Thread):
    """Starts a copier whenever there is none, and kills one that hangs."""

    def __init__(self, cluster: BlockingCluster, progress: Progress) -> None:
        super().__init__(daemon=True)
        self._servers = cluster.bootstrap_servers
        self._progress = progress
        self.lives = 0
        self.hung = 0
        self.last_error = ""
        self.fault: str | None = None
        """What the brokers did wrong."""

    def run(self) -> None:
        hung_before = False
        while not self._progress.over.is_set() and self.fault is None:
            self.lives += 1
            before = self._progress.transactions
            hangs = self._copier_hangs()
            self.hung += hangs
            if hangs and hung_before and self._progress.transactions == before:
                self.fault = "a copier makes no progress, and its successor does not either"
            hung_before = hangs

    def _copier_hangs(self) -> bool:
        """Run a copier to its end. Whether it had to be killed."""
        command = [sys.executable, "-m", "klamm.tests.transactions.copying", self._servers]
        said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            reader = threading.Thread(target=_read, args=(process, said), daemon=True)
            reader.start()
            try:
                return self._followed(said)
            finally:
                process.kill()
                reader.join()
                assert process.stderr is not None
                self.last_error = (process.stderr.read().splitlines() or [self.last_error])[-1]

    def _followed(self, said: queue.SimpleQueue[str | None]) -> bool:
        """Count its transactions until it ends or hangs. Whether it hangs."""
        kills = self._progress.kills
        while not self._progress.over.is_set():
            try:
                line = said.get(timeout=0.5)
            except queue.Empty:
                if self._progress.kills - kills >= HANGS_AFTER:
                    self._judge_brokers()
                    return True
                continue
            if line is None:
                return False
            kills = self._progress.kills
            self._progress.transactions += 1
        return False

    def _judge_brokers(self) -> None:
        """The transaction of a copier that hangs has ended, and its coordinator says so."""
        try:
            wait_for(lambda: self._state() in ENDED, "the transaction of a copier that hangs has ended", ENDS_WITHIN_S)
        except AssertionError as fault:
            self.fault = str(fault)

    def _state(self) -> TransactionState | None:
        """None while no coordinator responds."""
        try:
            with AdminClient(self._servers) as admin:
                return admin.describe_transactions([TRANSACTIONAL_ID])[TRANSACTIONAL_ID].state
        except AdminError:
            return None


def _read(process: subprocess.Popen[str], said: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        said.put(line)
    said.put(None)


class Reader:
    """Reads what is committed in `out`. A consumer may drop all brokers as a producer does: a silent one is replaced."""

    def __init__(self, cluster: BlockingCluster) -> None:
        self.copies: Counter[int] = Counter()
        self._servers = cluster.bootstrap_servers
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        self._open()

    def _open(self) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": self._servers, "group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition("out", partition, offset) for partition, offset in self._next.items()])
        self._heard = time.monotonic()

    def read(self) -> int:
        """Read what has come; how many different numbers there are."""
        while messages := [message for message in self._consumer.consume(1000, 0.2) if message.error() is None]:
            self._heard = time.monotonic()
            self.copies.update(int(message.value() or b"") for message in messages)
            self._next.update((message.partition() or 0, (message.offset() or 0) + 1) for message in messages)
        if time.monotonic() - self._heard > SILENT_S:
            self.close()
            self._open()
        return len(self.copies)

    def close(self) -> None:
        threading.Thread(target=self._consumer.close, daemon=True).start()


@pytest.mark.slow
def test_every_record_is_copied_once_while_brokers_are_killed_and_copiers_crash(cluster: BlockingCluster) -> None:
    fill(cluster)
    progress = Progress()
    killer, supervisor, reader = Killer(cluster, progress), Supervisor(cluster, progress), Reader(cluster)
    supervisor.start()
    killer.start()
    try:
        wait_for(lambda: supervisor.fault is not None or reader.read() == RECORDS, "all records are copied", WITHIN_S)
    finally:
        progress.over.set()
        killer.join(60)
        supervisor.join(60)
        print(f"{supervisor.lives} copiers, {supervisor.hung} hung, {progress.transactions} transactions, {progress.kills} kills")
        print(f"last error of a copier: {supervisor.last_error}")
    assert supervisor.fault is None
    reader.read()
    reader.close()
    assert set(reader.copies.values()) == {1}
    assert len(reader.copies) == RECORDS
    assert supervisor.lives > 3
    assert progress.kills > 0
