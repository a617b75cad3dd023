"""What Kafka's own tools print of transactions: open, committed, hanging; and what its console and performance tools do with them.

`tool_answers.txt` is what they print of Apache Kafka 3.9.1; `python -m klamm.tests.transactions.tool_tale --record` writes it again. The
method is that of `klamm.tests.groups.tool_tale`. There is one broker, so that ids are the same each time.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from klamm.protocol import messages
from klamm.tests.groups.tool_tale import Masks, record, told
from klamm.tests.harness.batches import T, records_of
from klamm.tests.harness.kafka import request, wait_for
from klamm.tests.harness.members import Members
from klamm.tests.reference.tools import Tools

FILE = Path(__file__).with_name("tool_answers.txt")
BROKERS = (1,)
SETTINGS: dict[str, Any] = {
    "transaction_state_log_num_partitions": 1,
    "transaction_partition_verification_enable": "false",
    "offsets_topic_num_partitions": 1,
}
TIMEOUT_S = 30
HANGING_ID = 900_000
"""A producer id that no coordinator knows."""
MASKS: Masks = (
    (re.compile(r"\b\d{13}\s+\d+\b"), "<time> <duration>"),
    (re.compile(r"\b\d{13}\b"), "<time>"),
    (re.compile(r"\b\d+\.\d+\b|\b\d+ ms\b"), "<number>"),
    (re.compile(r"= \d+, 99th = \d+, 99.9th = \d+|Percentiles: 50th.*"), "<percentiles>"),
    (re.compile(r"^\[[^\]]+\] "), "[<time>] "),
    (re.compile(r"^\d+ +<number>$"), "<latency>"),
    (re.compile(r"\s+"), " "),
)
OPEN = (
    "list", "describe --transactional-id open", "describe --transactional-id done", "describe --transactional-id unheard-of",
    "describe-producers --topic orders --partition 0", "describe-producers --topic orders --partition 0 --broker-id 1",
    "find-hanging", "find-hanging --partition 0", "find-hanging --topic orders",
    "find-hanging --topic orders --partition 0 --max-transaction-timeout 30", "find-hanging --broker-id 1",
    "find-hanging --topic orders --max-transaction-timeout 0", "abort --topic orders --partition 0 --start-offset 77",
)
ABORTED = (
    "abort --topic orders --partition 0 --start-offset 3", "find-hanging --topic orders", "describe-producers --topic orders --partition 0",
)
CONSUMED = "--topic orders --partition 0 --offset earliest --timeout-ms 5000 --isolation-level"


def tell(members: Members) -> list[str]:
    """The lines."""
    tools = Tools(members.jars, members.folder, members.bootstrap())
    members.create("orders", [[1]])
    members.create("measured", [[1]])
    lines = ["# the console producer; a transaction that is committed, one that hangs, one that is open"]
    lines += told(tools, "--topic orders", "kafka-console-producer", MASKS, stdin="plain\n")
    begun(members, "done", "committed").commit_transaction(TIMEOUT_S)
    ends = Consumer({"bootstrap.servers": members.bootstrap(), "group.id": "ends"})
    wait_for(lambda: ends.get_watermark_offsets(TopicPartition("orders", 0))[1] == 3, "two records and a marker are in the partition")
    ends.close()
    hang(members, minutes=20)
    producer = begun(members, "open", "open")
    lines += [line for command in OPEN for line in of_transactions(tools, command)]
    lines += consumed(tools)
    lines.append("# the hanging one is aborted, the open one is committed")
    lines += [line for command in ABORTED for line in of_transactions(tools, command)]
    producer.commit_transaction(TIMEOUT_S)
    lines += consumed(tools)
    lines.append("# the console consumer as a group: it goes on where it ended")
    group = "--topic orders --group console --timeout-ms 5000 --isolation-level read_committed"
    lines += told(tools, f"{group} --from-beginning", "kafka-console-consumer", MASKS)
    lines += told(tools, "--topic orders", "kafka-console-producer", MASKS, stdin="more\n")
    lines += told(tools, group, "kafka-console-consumer", MASKS)
    lines.append("# performance tools")
    perf = "--topic measured --num-records 50 --record-size 100 --throughput 100 --producer-props bootstrap.servers=ADDRESS"
    for more in ("", " --transactional-id perf --transaction-duration-ms 100"):
        lines += told(tools, perf + more, "kafka-producer-perf-test", MASKS)
    lines += told(tools, "describe --transactional-id perf", "kafka-transactions", MASKS)[:2]
    latency = told(tools, "ADDRESS latency 20 all 100", "kafka-e2e-latency", MASKS)
    return lines + latency


def of_transactions(tools: Tools, command: str) -> list[str]:
    """What kafka-transactions prints. What describe-producers prints after a time is an offset."""
    return told(tools, command, "kafka-transactions", MASKS[1:] if command.startswith("describe-producers") else MASKS)


def begun(members: Members, transactional_id: str, text: str) -> Producer:
    """A producer with an open transaction that has a record in partition 0."""
    config = {"bootstrap.servers": members.bootstrap(), "transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
    producer = Producer({**config, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", text.encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def hang(members: Members, minutes: int) -> None:
    """A record of a transaction that no coordinator knows, as if some time ago: the broker does not verify transactions."""
    kind = messages.ProduceRequest
    batch = f"pid={HANGING_ID}/3/0,tx(hanging@{time.time_ns() // 1_000_000 - T - minutes * 60_000})"
    topic = kind.TopicProduceData(name="orders", partition_data=[kind.PartitionProduceData(index=0, records=records_of([batch]))])
    message = kind(transactional_id="hanging", acks=-1, timeout_ms=10_000, topic_data=[topic])
    assert request(members.brokers[1].port, message, 9).responses[0].partition_responses[0].error_code == 0


def consumed(tools: Tools) -> list[str]:
    """What the console consumer reads of the partition."""
    levels = ("read_committed", "read_uncommitted")
    return [line for level in levels for line in told(tools, f"{CONSUMED} {level}", "kafka-console-consumer", MASKS)]


if __name__ == "__main__":
    record(FILE, BROKERS, SETTINGS, tell)
