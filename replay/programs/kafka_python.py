"""Runs a release of kafka-python, whose folder is in `RELEASE`."""

import json
import os
import sys
import time

sys.path.insert(0, os.environ["RELEASE"])
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

env, task, topic, place = os.environ, os.environ["TESTCASE"], os.environ["TOPIC"], int(os.environ["PARTITION"])
config = {name.replace(".", "_"): value for name, value in (line.split("=", 1) for line in env["CONFIG"].splitlines())}
config = {name: int(value) if value.isdigit() else value for name, value in config.items() if name != "enable_idempotence"}
config |= {"bootstrap_servers": env["BOOTSTRAP"].split(","), "enable_auto_commit": False}


def tell(partition, offset, value):
    print(json.dumps({"partition": partition, "offset": offset, "value": value}), flush=True)


if task == "produce":
    del config["enable_auto_commit"]
    producer = KafkaProducer(**config)
    for number in range(int(env["RECORDS"])):
        at = producer.send(topic, str(number).encode(), partition=place).get(30)
        tell(at.partition, at.offset, str(number))
        time.sleep(int(env["PAUSE_MS"]) / 1000)
    producer.close()
else:
    config["request_timeout_ms"] = 11_000
    consumer, value = KafkaConsumer(group_id=env["GROUP"] if task == "group" else None, **config), b""
    consumer.subscribe([topic]) if task == "group" else consumer.assign([TopicPartition(topic, place)])
    task == "group" or consumer.seek(TopicPartition(topic, place), int(env["OFFSET"]))
    while value != b"end":
        for records in consumer.poll(100).values():
            for each in records:
                value = each.value
                tell(each.partition, each.offset, value.decode())
    task == "group" and consumer.commit()
    consumer.close()
