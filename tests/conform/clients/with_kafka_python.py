"""An adapter of kafka-python for `klamm conform --client`."""

from contextlib import suppress

import task
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.codec import has_lz4, has_snappy, has_zstd
from kafka.errors import CommitFailedError

task.supports("produce", "transaction", "consume", "group")
config, strategy = task.pythonic(), task.config.get("partition.assignment.strategy", "range")
config.pop("partition_assignment_strategy", None)
config["acks"] = int(config["acks"]) if config.get("acks", "all") != "all" else "all"
codecs = {"gzip": True, "snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd()}
if strategy != "range" or not codecs[task.config.get("compression.type") or task.env.get("CODEC") or "gzip"]:
    task.supports()

def produce(producer, number):
    sent = []
    for at, value in enumerate(task.values(number)):
        sent.append(producer.send(task.topic, value.encode(), partition=task.partition))
        sent[-1].add_callback(lambda to, value=value: task.tell(to.partition, to.offset, value))
        task.pause() if at else sent[0].get(60)
    for each in sent:
        each.get(60)

if task.name in ("produce", "transaction"):
    producer = KafkaProducer(**config)
    task.transact(producer, produce)
    producer.close(10)
else:
    config.pop("acks")
    part, is_member, ended = TopicPartition(task.topic, task.partition), task.name == "group", False
    consumer = KafkaConsumer(group_id=task.group if is_member else None, **config)
    consumer.subscribe([task.topic]) if is_member else [consumer.assign([part]), consumer.seek(part, task.offset)]
    while not ended:
        read = [each for batch in consumer.poll(100).values() for each in batch]
        ended = True in [task.tell(each.partition, each.offset, each.value) for each in read]
        with suppress(CommitFailedError):  # the group rebalances: the next poll joins it again
            read and is_member and consumer.commit()
    consumer.close()
