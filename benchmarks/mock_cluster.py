"""librdkafka's mock cluster as a process: prints its broker addresses as one line of JSON, then serves until standard input ends.

The mock is a C event loop inside librdkafka, reached by the client option `test.mock.num.brokers`; one thread serves all of its brokers.
It makes a topic that is asked for, with four partitions on as many brokers as there are, up to three.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Producer


def main(brokers: int, topic: str) -> None:
    """Serve `brokers` mock brokers with one topic."""
    client = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": brokers, "log_level": 3})
    found = client.list_topics(topic, timeout=10)
    addresses = [f"{b.host}:{b.port}" for b in found.brokers.values()]
    print(json.dumps({"bootstrap_servers": ",".join(addresses)}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
