"""What histories of tests have besides the load of `klamm chaos`: producers of records with keys, a topic that is filled at once."""

from __future__ import annotations

import os
import secrets
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from klamm.chaos.clients.producers import FLUSH_S, SOON, Producing, padded
from klamm.chaos.clients.reading import to_the_end
from klamm.chaos.histories.history import Sent
from klamm.tests.histories.keyed import KeyedSent

LONG_S = float(os.environ.get("KLAMM_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("KLAMM_CHAOS_SEED", secrets.randbelow(1_000_000)))


class KeyedProducing(Producing):
    """A producer of records with keys, one in five a tombstone; idempotent, so that a key's records stay in order."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str, keys: int) -> None:
        super().__init__(bootstrap, topic, partitions, name, idempotent=True)
        self.keys = keys

    def _new_sent(self, name: str) -> KeyedSent:
        return KeyedSent(name, self.partitions, idempotent=True, keys=self.keys)

    def _record(self, sent: Sent, number: int) -> tuple[bytes | None, bytes | None]:
        assert isinstance(sent, KeyedSent)
        key, value = sent.record(number)
        return key.encode(), None if value is None else value.encode()

    def keyed(self) -> list[KeyedSent]:
        """What was sent, by each producer id."""
        return [sent for sent in self.sent if isinstance(sent, KeyedSent)]


def fill(bootstrap: str, topic: str, partitions: int, name: str, records: int, record_bytes: int) -> Sent:
    """Write so many records as fast as they are acknowledged by all replicas; every one is."""
    sent = Sent(name, partitions, idempotent=True)
    settings = {**SOON, "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 20, "batch.size": 100_000}
    producer = Producer(settings)

    def told(number: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        sent.offsets[number] = -1 if offset is None else offset

    for number in range(records):
        value = padded(sent.value(number), record_bytes)
        while True:
            try:
                producer.produce(topic, value, partition=sent.partition(number), on_delivery=partial(told, number))
                break
            except BufferError:
                producer.poll(0.1)
        sent.count += 1
        producer.poll(0)
    assert producer.flush(FLUSH_S) == 0
    assert len(sent.offsets) == records
    return sent


def last_values(bootstrap: str, topic: str, partitions: int, within_s: float = 120) -> tuple[dict[str, str | None], int]:
    """The last value of each key of a compacted topic whose producers have ended, None after a tombstone; and how many records it has."""
    last: dict[str, str | None] = {}
    count = 0
    for message in to_the_end(bootstrap, topic, partitions, within_s):
        key, value = message.key(), message.value()
        assert key is not None
        last[bytes(key).decode()] = None if value is None else bytes(value).decode()
        count += 1
    return last, count
