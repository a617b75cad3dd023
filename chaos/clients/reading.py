"""Readers without a group: one that reads along while records are written, and what reads everything at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from klamm.chaos.clients.client_thread import ClientThread
from klamm.chaos.clients.contact import STATISTICS_MS, Contact
from klamm.chaos.clients.producers import SILENT, LoadHangs

POLL_S = 0.1
READ_S = 120.0
MARKS_S = 60.0
CATCH_UP_S = 90.0
"""A reader without any progress for so long hangs."""
OF_STARTING_BROKERS = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
"""A broker that has just started serves clients before the controller tells it what there is."""
Logs = dict[int, list[tuple[int, str]]]
"""Partition → offsets and values."""


def reader(
    bootstrap: str,
    topic: str,
    partitions: int,
    more: Mapping[str, object],
    places: Mapping[int, int] | None = None,
    contact: Contact | None = None,
) -> Consumer:
    """A consumer without a group's protocol that begins at these places, or at the start of a partition. `contact` hears of its brokers.
    `more` are settings, with underscores for dots.
    """
    settings: dict[str, object] = {
        **SILENT, "bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error",
    }
    if contact is not None:
        settings |= {**contact.callbacks, "statistics.interval.ms": STATISTICS_MS}
    settings |= {name.replace("_", "."): value for name, value in more.items()}
    consumer = Consumer({**settings, "check.crcs": True, "fetch.wait.max.ms": 100})
    begin = places or {}
    consumer.assign([TopicPartition(topic, partition, begin.get(partition, OFFSET_BEGINNING)) for partition in range(partitions)])
    return consumer


class Reading(ClientThread):
    """A reader; `logs` is what it got, by partition. If its library loses its brokers, another consumer goes on at its places."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **more: object) -> None:
        """`more` as for `reader`."""
        super().__init__("reader")
        self.logs: Logs = {partition: [] for partition in range(partitions)}
        self.errors: list[str] = []
        """What it was told besides records, in order."""
        self._contact = Contact()
        self._reader = partial(reader, bootstrap, topic, partitions, more, contact=self._contact)

    @property
    def faults(self) -> list[str]:
        """Errors that no broker may give to a reader that asks for what is there; each once."""
        return sorted({f"the reader was told {error}" for error in self.errors if error not in OF_STARTING_BROKERS})

    def finish(self, up_to: Logs | None = None) -> None:
        """Wait for the last records of `up_to`, as long as others come and there are no `faults`; then read no more. Raises LoadHangs."""
        if up_to is not None:
            self._catch_up({partition: log[-1][0] for partition, log in up_to.items() if log})
        if not self.ends(30):
            raise LoadHangs("the reader does not end")

    def _catch_up(self, last: Mapping[int, int]) -> None:
        count, until = -1, 0.0
        while any(self._place(partition) <= offset for partition, offset in last.items()):
            if count != (count := sum(map(len, self.logs.values()))):
                until = time.monotonic() + CATCH_UP_S
            if time.monotonic() > until or self.faults or not self.works:
                return
            time.sleep(POLL_S)

    def _place(self, partition: int) -> int:
        """The offset behind the last record that it got."""
        return self.logs[partition][-1][0] + 1 if self.logs[partition] else 0

    def _work(self) -> None:
        while not self._stopped.is_set():
            self._contact.begun()
            consumer = self._reader(places={partition: self._place(partition) for partition, log in self.logs.items() if log})
            while not self._stopped.is_set() and not self._contact.is_lost_for_good:
                self._keep(consumer.consume(500, POLL_S))
            consumer.close()

    def _keep(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                self.errors.append(error.name())
            else:
                self._contact.made()
                keep(self.logs, message)


def keep(logs: Logs, message: Message) -> None:
    """Add a record to the logs."""
    partition, offset, value = place_of(message)
    logs[partition].append((offset, value))


def place_of(message: Message) -> tuple[int, int, str]:
    """Partition, offset and value, without the spaces behind it, of a record."""
    value, partition, offset = message.value(), message.partition(), message.offset()
    assert value is not None and partition is not None and offset is not None
    return partition, offset, bytes(value).decode().rstrip()


def read_all(bootstrap: str, topic: str, partitions: int, within_s: float = READ_S, **more: object) -> Logs:
    """All records of a topic whose producers have ended, from the start to the high watermark. `more` as for `reader`.

    Raises LoadHangs.
    """
    logs: Logs = {partition: [] for partition in range(partitions)}
    for message in to_the_end(bootstrap, topic, partitions, within_s, **more):
        keep(logs, message)
    return logs


def to_the_end(bootstrap: str, topic: str, partitions: int, within_s: float, **more: object) -> Iterator[Message]:
    """Every record from the start to the present high watermark. The last offsets of a compacted log may have no record.

    Raises LoadHangs.
    """
    consumer = reader(bootstrap, topic, partitions, {"enable_partition_eof": True, **more})
    try:
        ends = {p: _marks(consumer, topic, p)[1] for p in range(partitions)}
        until = time.monotonic() + within_s
        while ends:
            if time.monotonic() > until:
                raise LoadHangs(f"{topic} could not be read to its ends {ends} within {within_s:.0f} s")
            for message in consumer.consume(1000, POLL_S):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None and offset is not None
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF and offset >= ends.get(partition, offset + 1):
                    del ends[partition]
    finally:
        consumer.close()


def _marks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Log start offset and high watermark, once a leader can be asked. Raises LoadHangs."""
    until = time.monotonic() + MARKS_S
    while True:
        try:
            marks = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
        except KafkaException as failure:
            marks = None
            said = str(failure)
        else:
            said = "no response"
        if marks is not None:
            return int(marks[0]), int(marks[1])
        if time.monotonic() > until:
            raise LoadHangs(f"the ends of {topic}-{partition} cannot be read: {said}")
        time.sleep(POLL_S)
