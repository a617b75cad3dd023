"""An adapter of librdkafka (confluent-kafka) for `klamm conform --client`. It takes the names of configs as they are."""

import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec

env, task, topic, place = os.environ, os.environ["TESTCASE"], os.environ["TOPIC"], int(os.environ["PARTITION"])
config: Any = dict(line.split("=", 1) for line in env["CONFIG"].splitlines()) | {"bootstrap.servers": env["BOOTSTRAP"]}
config |= {"socket.timeout.ms": config["request.timeout.ms"], "group.id": env["GROUP"], "log_level": 4}
if "metadata.max.age.ms" in config:
    config["topic.metadata.refresh.interval.ms"] = config["metadata.max.age.ms"]
pad, pause = int(env["SIZE"]), int(env["PAUSE_MS"]) / 1000
failed: list[Any] = []

def tell(error, message):
    if error:
        return failed.append(error)
    offset = -1 if message.offset() is None else message.offset()
    print(f'{{"partition": {message.partition()}, "offset": {offset}, "value": "{message.value().decode()}"}}', flush=True)

def produce(producer, first):
    for number in range(first, first + int(env["RECORDS"])):
        producer.produce(topic, str(number).ljust(pad, "."), partition=place, on_delivery=tell)
        producer.flush() if number == first else time.sleep(pause)
        producer.poll(0)
    producer.flush()

if task == "produce":
    produce(Producer(config), 0)
elif task == "transaction":
    producer = Producer(config)
    producer.init_transactions()
    for number in range(int(env["TRANSACTIONS"])):
        producer.begin_transaction()
        produce(producer, number * int(env["RECORDS"]))
        producer.commit_transaction() if env["END"] == "commit" else producer.abort_transaction()
elif task in ("consume", "group"):
    consumer, ended = Consumer(config), False
    consumer.assign([TopicPartition(topic, place, int(env["OFFSET"]))]) if task == "consume" else consumer.subscribe([topic])
    while not ended:
        messages = [message for message in consumer.consume(100, 0.1) if not message.error()]
        for message in messages:
            tell(None, message)
            ended = ended or message.value() == b"end"
        if messages and task == "group":
            consumer.commit(asynchronous=False)
    consumer.close()
else:
    admin, part = AdminClient(config), TopicPartition(topic, place)
    calls: Any = {
        "create-topic": lambda: admin.create_topics([NewTopic(topic, 1, 1)]),
        "delete-topic": lambda: admin.delete_topics([topic]),
        "add-partitions": lambda: admin.create_partitions([NewPartitions(topic, 3)]),
        "elect-leaders": lambda: {0: admin.elect_leaders(ElectionType.PREFERRED, [part])},
        "describe-broker": lambda: admin.describe_configs([ConfigResource("broker", env["BROKER"])]),
        "delete-group": lambda: admin.delete_consumer_groups([env["GROUP"]]),
        "list-offsets": lambda: admin.list_offsets({part: OffsetSpec.for_timestamp(int(env["TIMESTAMP"]))}),
    }
    for future in calls[task]().values() if task in calls else sys.exit(127):
        answer = future.result(30)
    if task == "list-offsets":
        print(f'{{"partition": {place}, "offset": {answer.offset}, "value": ""}}')
sys.exit(str(failed[0]) if failed else 0)
