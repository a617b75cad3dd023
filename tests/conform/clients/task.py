"""What the adapters in Python share: their task, which is in the environment, and what they print (docs/conform.md)."""

import os
import sys
import time
from typing import Any

env = os.environ
name, topic, group, bootstrap = env["TESTCASE"], env["TOPIC"], env["GROUP"], env["BOOTSTRAP"]
partition, offset, records = int(env["PARTITION"]), int(env["OFFSET"]), int(env["RECORDS"])
transactions, commits = int(env["TRANSACTIONS"]), env["END"] == "commit"
config = dict(line.split("=", 1) for line in env["CONFIG"].splitlines())
failed: list[Any] = []
RENAMED = {"sasl.username": "sasl_plain_username", "sasl.password": "sasl_plain_password"}


def supports(*names, without=()):
    """End with 127 if the task is none of these, or has one of these configs."""
    if name not in names or config.keys() & set(without):
        sys.exit(127)


def values(number):
    """The values of the transaction with this number."""
    return [str(each).ljust(int(env["SIZE"]), ".") for each in range(number * records, (number + 1) * records)]


def pause_s():
    return int(env["PAUSE_MS"]) / 1000


def pause():
    time.sleep(pause_s())


def tell(partition, offset, value):
    """A record was acknowledged or read. Returns whether it is the last one of a consumer."""
    value = value if isinstance(value, str) else value.decode()
    print(f'{{"partition": {partition}, "offset": {-1 if offset is None else offset}, "value": "{value}"}}', flush=True)
    return value == "end"


def pythonic():
    """The configs with the names and types of clients that are written in Python."""
    typed: dict[str, Any] = {"true": True, "false": False}
    given = {RENAMED.get(name, name.replace(".", "_")): typed.get(value, value) for name, value in config.items()}
    given = {name: int(value) if isinstance(value, str) and value.isdigit() else value for name, value in given.items()}
    return given | {"bootstrap_servers": bootstrap.split(",")}


def transact(producer, produce):
    """Produce the records, in transactions if that is the task, with a producer whose methods have Kafka's names."""
    if name == "transaction":
        producer.init_transactions()
    for number in range(transactions):
        if name == "transaction":
            producer.begin_transaction()
        produce(producer, number)
        if name == "transaction":
            producer.commit_transaction() if commits else producer.abort_transaction()
