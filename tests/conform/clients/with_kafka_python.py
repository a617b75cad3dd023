"""An adapter of kafka-python for `klamm conform --client`."""

import os
import sys
import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import CommitFailedError

env, task, topic, place = os.environ, os.environ["TESTCASE"], os.environ["TOPIC"], int(os.environ["PARTITION"])
config: Any = {name.replace(".", "_"): value for name, value in (line.split("=", 1) for line in env["CONFIG"].splitlines())}
if config.keys() & {"partition_assignment_strategy"} and config.pop("partition_assignment_strategy") != "range":
    sys.exit(127)
config = {name: int(value) if value.isdigit() and name != "acks" else value for name, value in config.items()}
config |= {name: config[name] == "true" for name in ("enable_idempotence", "enable_auto_commit") if name in config}
config |= {"acks": int(config["acks"])} if config.get("acks", "all") != "all" else {}

def tell(partition, offset, value):
    print(f'{{"partition": {partition}, "offset": {offset}, "value": "{value}"}}', flush=True)

def produce(producer, first):
    sent = []
    for number in range(first, first + int(env["RECORDS"])):
        value = str(number).ljust(int(env["SIZE"]), ".")
        sent.append(producer.send(topic, value.encode(), partition=place))
        sent[-1].add_callback(lambda at, value=value: tell(at.partition, at.offset, value))
        sent[0].get(60) if number == first else time.sleep(int(env["PAUSE_MS"]) / 1000)
    for each in sent:
        each.get(60)

if task not in ("produce", "transaction", "consume", "group"):
    sys.exit(127)
if task in ("produce", "transaction"):
    producer = KafkaProducer(bootstrap_servers=env["BOOTSTRAP"].split(","), **config)
    producer.init_transactions() if task == "transaction" else None
    for number in range(int(env["TRANSACTIONS"])):
        producer.begin_transaction() if task == "transaction" else None
        produce(producer, number * int(env["RECORDS"]))
        if task == "transaction":
            producer.commit_transaction() if env["END"] == "commit" else producer.abort_transaction()
    producer.close(10)
else:
    group = env["GROUP"] if task == "group" else None
    consumer, ended = KafkaConsumer(bootstrap_servers=env["BOOTSTRAP"].split(","), group_id=group, **config), False
    consumer.subscribe([topic]) if group else consumer.assign([TopicPartition(topic, place)])
    group or consumer.seek(TopicPartition(topic, place), int(env["OFFSET"]))
    while not ended:
        records = [each for batch in consumer.poll(100).values() for each in batch]
        for each in records:
            tell(each.partition, each.offset, each.value.decode())
            ended = ended or each.value == b"end"
        try:
            consumer.commit() if group and records else None
        except CommitFailedError:
            pass  # the group rebalances: the next poll joins it again
    consumer.close()
