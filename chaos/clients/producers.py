"""Producers that go on while a cluster has trouble, and keep what came of every record. Each has a thread of its own and acks=all."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from klamm.chaos.clients.client_thread import ClientThread
from klamm.chaos.histories.history import Sent

FLUSH_S = 60.0
STATISTICS_MS = 500
QUIET_S = 0.02
"""Between two batches of a producer."""
SOON = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 5000, "log_level": 0}
"""A client that finds a new leader soon, and says nothing."""


_NOBODY = logging.getLogger("klamm.chaos.clients")
_NOBODY.addHandler(logging.NullHandler())
_NOBODY.propagate = False
SILENT: dict[str, object] = {**SOON, "logger": _NOBODY}
"""The same, and not even fatal errors are printed: what came of each call is kept."""


class LoadHangs(Exception):
    """A client does not end although it was told to. The message is one line."""


class Gaps:
    """The longest time in which no record of a partition was acknowledged, while producers wrote to all of them."""

    def __init__(self, partitions: int, waited_s: Callable[[], float]) -> None:
        """`waited_s` says how long the cluster has waited for a CPU so far."""
        self._waited_s = waited_s
        self._last = [(time.monotonic(), waited_s())] * partitions
        self.longest_s = [0.0] * partitions
        self.longest_working_s = [0.0] * partitions
        """The same, without the time in which the cluster waited for a CPU."""

    def acknowledged(self, partition: int) -> None:
        """A record was acknowledged now."""
        now, waited_s = time.monotonic(), self._waited_s()
        last, waited_before_s = self._last[partition]
        gap_s = now - last
        self.longest_s[partition] = max(self.longest_s[partition], gap_s)
        self.longest_working_s[partition] = max(self.longest_working_s[partition], gap_s - (waited_s - waited_before_s))
        self._last[partition] = now, waited_s


class Producing(ClientThread):
    """A producer; `sent` is what came of it, one entry for each producer id it was given.

    Producers that are not idempotent keep one request in flight to a broker.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, *, idempotent: bool, batch: int = 10, record_bytes: int = 0,
        quiet_s: float = QUIET_S, gaps: Gaps | None = None,
    ) -> None:
        """`record_bytes` is how long a record's value is at least, `quiet_s` the time between two batches. `gaps` hears of each
        acknowledgement.
        """
        super().__init__(name)
        self.record_bytes, self.quiet_s, self.gaps = record_bytes, quiet_s, gaps
        self.topic, self.partitions, self.idempotent, self.batch = topic, partitions, idempotent, batch
        self._settings: dict[str, object] = {
            **SILENT,
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "acks": "all",
            "enable.idempotence": idempotent,
            "message.timeout.ms": 600_000,
            "batch.size": 250_000,  # fits into the smallest segments of these topics, also after a pause
            "linger.ms": 5,
            "socket.timeout.ms": 10_000,
            "retry.backoff.ms": 50,
            "statistics.interval.ms": STATISTICS_MS if idempotent else 0,
        }
        if not idempotent:
            self._settings["max.in.flight.requests.per.connection"] = 1
        self._statistics = 0
        self.sent: list[Sent] = []
        self.fatal: list[str] = []
        """Errors after which librdkafka refuses to go on with a producer id."""
        self.unknown_topic = 0
        """How often there was no such topic: a broker that has just started serves clients before the controller tells it what there is."""

    def finish(self) -> None:
        """Send no more, and wait until all has come to an end. Raises LoadHangs."""
        if not self.ends(FLUSH_S + 30):
            raise LoadHangs(f"producer {self.name} does not end")

    @property
    def acknowledged(self) -> int:
        """Number of records."""
        return sum(len(sent.offsets) for sent in self.sent)

    def _work(self) -> None:
        while not self._stopped.is_set():
            sent = self._new_sent(f"{self.name}.{len(self.sent)}")
            self.sent.append(sent)
            self._live(sent)

    def _new_sent(self, name: str) -> Sent:
        return Sent(name, self.partitions, self.idempotent)

    def _record(self, sent: Sent, number: int) -> tuple[bytes | None, bytes | None]:
        """Key and value."""
        return None, padded(sent.value(number), self.record_bytes)

    def _live(self, sent: Sent) -> None:
        """As long as one producer goes on."""
        producer = Producer({**self._settings, "stats_cb": partial(self._told_statistics, sent)})
        failed = threading.Event()
        try:
            while not self._stopped.is_set() and not failed.is_set():
                for _ in range(self.batch):
                    if not self._send(producer, sent, failed):
                        break
                producer.poll(0)
                self._stopped.wait(self.quiet_s)
            producer.flush(FLUSH_S)
            self._last_statistics(producer)
        except (KafkaException, SystemError) as fatal:  # the latter if callbacks run while the former is raised
            self.fatal.append(str(fatal.__cause__ or fatal))

    def _told_statistics(self, sent: Sent, text: str) -> None:
        self._statistics += 1
        sent.epochs = max(sent.epochs, epochs_of(text))

    def _last_statistics(self, producer: Producer) -> None:
        """Wait until librdkafka has said something since now."""
        before, until = self._statistics, time.monotonic() + FLUSH_S
        while self.idempotent and self._statistics == before and time.monotonic() < until:
            producer.poll(STATISTICS_MS / 1000)

    def _send(self, producer: Producer, sent: Sent, failed: threading.Event) -> bool:
        number = sent.count

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                sent.offsets[number] = -1 if offset is None else offset
                if self.gaps is not None:
                    self.gaps.acknowledged(sent.partition(number))
                return
            sent.errors[number] = error.name()
            if error.fatal():
                self.fatal.append(str(error))
                failed.set()

        try:
            key, value = self._record(sent, number)
            producer.produce(self.topic, value, key, partition=sent.partition(number), on_delivery=told)
        except BufferError:
            return False
        except KafkaException as refused:
            if refused.args[0].code() == KafkaError._UNKNOWN_TOPIC:
                self.unknown_topic += 1
                return False
            self.fatal.append(str(refused))
            failed.set()
            return False
        sent.count += 1
        return True


def epochs_of(statistics: str) -> int:
    """How many producer ids and epochs a client of librdkafka was given, or gave itself, by what it says of itself. librdkafka raises the
    epoch of an idempotent producer without asking anybody, and does not count that in `epoch_cnt`.
    """
    said = json.loads(statistics).get("eos", {})
    return int(max(said.get("epoch_cnt", 0), said.get("producer_epoch", -1) + 1))


def padded(value: str, size: int) -> bytes:
    """The value with spaces behind it, `size` bytes at least; `keep` of `reading.py` takes them off."""
    return value.encode().ljust(size)
