"""Members of a consumer group that read and commit while a cluster has trouble, and keep what they got and what was committed."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from klamm.chaos.clients.client_thread import ClientThread
from klamm.chaos.clients.contact import STATISTICS_MS, Contact
from klamm.chaos.clients.producers import SILENT
from klamm.chaos.clients.reading import place_of
from klamm.chaos.histories.group_history import Commit, Delivery, Start

SESSION_MS = 6000
POLL_INTERVAL_MS = 45_000
"""A JoinGroup waits no longer."""
COMMIT_EVERY_S = 0.3
COMMIT_S = 60.0
"""A commit has ended by then."""
CLOSE_S = 60.0


def member_settings(bootstrap: str, client_id: str, group: str) -> dict[str, object]:
    """The configs of librdkafka that each member of a group has. Offsets are committed by the member; none may be lost."""
    return {
        **SILENT, "bootstrap.servers": bootstrap, "client.id": client_id, "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "error", "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 100,
        "socket.timeout.ms": 10_000, "max.poll.interval.ms": POLL_INTERVAL_MS, "statistics.interval.ms": STATISTICS_MS,
    }


LostOffset = Callable[[str, int, str], None]
"""Called with the client id of a member that has lost its offset, the partition, and the reason."""


class Member(ClientThread):
    """One member. `deliveries` and `commits` are in the order in which they came."""

    def __init__(self, bootstrap: str, topic: str, group: str, name: str, strategy: str, reset: LostOffset) -> None:
        """The group has committed offsets of all partitions. `reset` is called if a member loses its offset."""
        super().__init__(name)
        self._reset = reset
        self.deliveries: list[Delivery] = []
        self.commits: list[Commit] = []
        self.starts: list[Start] = []
        self.assignments = 0
        """How often it was given partitions."""
        self.contact = Contact()
        self.errors: list[str] = []
        self._topic = topic
        self._settings = member_settings(bootstrap, name, group)
        self._settings |= {"partition.assignment.strategy": strategy, "on_commit": self._committed, **self.contact.callbacks}
        self._next: dict[int, int] = {}
        self._commits_from_s = 0.0
        """There is no other commit before this time."""
        self._assigned_s: dict[int, float] = {}
        self._places: Counter[int] = Counter()

    @property
    def hangs(self) -> bool:
        """Whether it goes on no more, because librdkafka has lost its brokers."""
        return self.works and self.contact.is_lost_for_good

    def leave(self) -> bool:
        """Commit, leave the group and wait until that is done. Returns whether it is: librdkafka may hang, but only if it has lost its
        brokers (`contact`).
        """
        return self.ends(CLOSE_S)

    def _work(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        committed_at = time.monotonic()
        while not self._stopped.is_set():
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is not None:
                    self._failed(consumer, message, error)
                    continue
                self.contact.made()
                partition, offset, value = place_of(message)
                self.deliveries.append(Delivery(partition, offset, value, self._places[partition]))
                self._next[partition] = offset + 1
                if partition in self._assigned_s:
                    self.starts.append(Start(partition, offset, self._assigned_s.pop(partition)))
            if time.monotonic() - committed_at > COMMIT_EVERY_S:
                self._commit(consumer)
                committed_at = time.monotonic()
        self._commit(consumer)
        consumer.close()

    def _failed(self, consumer: Consumer, message: Message, error: KafkaError) -> None:
        """A member that loses its offset goes on where it was."""
        self.errors.append(error.name())
        partition = message.partition()
        if error.code() != KafkaError._AUTO_OFFSET_RESET or partition is None:
            return
        self._reset(self.name, partition, error.str())
        self._places[partition] += 1
        with contextlib.suppress(KafkaException):
            place = TopicPartition(self._topic, partition, self._next.get(partition, OFFSET_INVALID))
            consumer.seek(place if place.offset >= 0 else consumer.committed([place], 5)[0])

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += bool(partitions)
        self._places.update(partition.partition for partition in partitions)
        self._assigned_s |= {partition.partition: time.monotonic() for partition in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit(consumer)
        self._lost(consumer, partitions)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._next.pop(partition.partition, None)
            self._assigned_s.pop(partition.partition, None)

    def _commit(self, consumer: Consumer) -> None:
        """Begin to commit what was delivered, unless a commit is under way: a repeated older one could overtake the next.

        A commit that waits may never return while the group rebalances, because the rebalance waits for this thread.
        """
        if self._next and time.monotonic() > self._commits_from_s:
            self._commits_from_s = time.monotonic() + COMMIT_S
            with contextlib.suppress(KafkaException):
                offsets = [TopicPartition(self._topic, p, offset) for p, offset in self._next.items()]
                consumer.commit(offsets=offsets, asynchronous=True)

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """What came of a commit."""
        now = time.monotonic()
        self._commits_from_s = 0.0
        for row in partitions:
            failed = error if error is not None else row.error
            if failed is not None:
                self.errors.append(str(failed))
            self.commits.append(Commit(row.partition, row.offset, None if failed is not None else now))
