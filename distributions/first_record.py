"""Starts `klamm serve` of this environment, writes a record to it and reads it. `python first_record.py`, in an environment with Klamm.

Prints the folder of ZooKeeper's jars, the version of kafka-python, the topics that `klamm topics` lists, the record as kafka-python reads
it in a group, as `klamm consume` reads it, and the exit code of `klamm serve`, one per line. It is copied beside what is installed, so it
imports nothing of the checkout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import kafka
from kafka import KafkaConsumer, KafkaProducer

from klamm.zk.embedded.java import find_jars

PROGRAM = str(Path(sys.prefix, "bin", "klamm"))


def main() -> None:
    """Run one broker with the embedded ZooKeeper until the record was read."""
    (folder,) = {jar.parent for jar in find_jars()}
    command = [PROGRAM, "serve", "--brokers", "1", "--port", "0", "--json"]
    command += ["--config", "offsets.topic.replication.factor=1", "--config", "group.initial.rebalance.delay.ms=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdout is not None
        try:
            servers = json.loads(cluster.stdout.readline())["bootstrap_servers"]
            producer = KafkaProducer(bootstrap_servers=servers)
            producer.send("first", b"record").get(30)
            producer.close()
            consumer = KafkaConsumer("first", bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest")
            value = next(consumer).value.decode()
            consumer.close()  # commits
            rows = _klamm("topics", "list", "--exclude-internal", "--bootstrap-server", servers).splitlines()[1:]
            consumed = _klamm("consume", "first", "--exit-at-end", "--bootstrap-server", servers).strip()
        finally:
            cluster.terminate()
            code = cluster.wait(30)
    print(folder, kafka.__version__, *(row.split()[0] for row in rows), value, consumed, code, sep="\n")


def _klamm(*arguments: str) -> str:
    return subprocess.run([PROGRAM, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
