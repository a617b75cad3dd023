"""An adapter of librdkafka (confluent-kafka) for `klamm conform --client`. It takes the names of configs as they are."""

import sys

import task
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

config = task.config | {"bootstrap.servers": task.bootstrap, "log_level": 4}
config["socket.timeout.ms"] = config["request.timeout.ms"]
config["topic.metadata.refresh.interval.ms"] = config.get("metadata.max.age.ms", "300000")
REBALANCES = KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID

def delivered(error, at):
    task.failed.append(error) if error else task.tell(at.partition(), at.offset(), at.value())

def produce(producer, number):
    for at, value in enumerate(task.values(number)):
        producer.produce(task.topic, value, partition=task.partition, on_delivery=delivered)
        task.pause() if at else producer.flush()
        producer.poll(0)
    producer.flush()

if task.name in ("produce", "transaction"):
    task.transact(Producer(config), produce)
elif task.name in ("consume", "group"):
    consumer, ended = Consumer(config | {"group.id": task.group}), False
    place = TopicPartition(task.topic, task.partition, task.offset)
    consumer.assign([place]) if task.name == "consume" else consumer.subscribe([task.topic])
    while not ended:
        read = [each for each in consumer.consume(100, 0.1) if not each.error()]
        ended = True in [task.tell(each.partition(), each.offset(), each.value()) for each in read]
        try:
            read and task.name == "group" and consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in REBALANCES:
                raise
    consumer.close()
else:
    import confluent_admin
    confluent_admin.call(config)
sys.exit(str(task.failed[0]) if task.failed else 0)
