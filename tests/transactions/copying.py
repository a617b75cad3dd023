"""A copier as a process of its own: `python -m klamm.tests.transactions.copying SERVERS`.

It copies the topic `in` to `out` in transactions, offsets included, and writes a line after each of them. In its seventh transaction it
crashes, and after any error it ends: the next process with the same ids takes over.
"""

from __future__ import annotations

import os
import signal
import sys

from confluent_kafka import Consumer, Producer

GROUP = "copy"
TRANSACTIONAL_ID = "copier"
TRANSACTION_MS = 10_000
AT_ONCE = 200
CRASHES_IN = 7
REQUEST_S = 20


def copy(servers: str) -> None:
    """Until it crashes. Raises KafkaException."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "session.timeout.ms": 6000, "log_level": 0,
        }
    )
    config = {"bootstrap.servers": servers, "transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": TRANSACTION_MS}
    producer = Producer({**config, "log_level": 0})
    producer.init_transactions(60)
    consumer.subscribe(["in"])
    committed = 0
    while True:
        messages = [message for message in consumer.consume(AT_ONCE, 0.5) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", key=message.key(), value=message.value(), partition=message.partition() or 0)
        positions = [position for position in consumer.position(consumer.assignment()) if position.offset >= 0]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), REQUEST_S)
        if committed == CRASHES_IN - 1:
            producer.flush(REQUEST_S)
            os.kill(os.getpid(), signal.SIGKILL)
        producer.commit_transaction(REQUEST_S)
        committed += 1
        print(len(messages), flush=True)


if __name__ == "__main__":
    copy(sys.argv[1])
