"""The administrative tasks of the adapter of librdkafka."""

from typing import Any

import task
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec


def call(config):
    """Do the task."""
    admin, part = AdminClient(config), TopicPartition(task.topic, task.partition)
    calls: dict[str, Any] = {
        "create-topic": lambda: admin.create_topics([NewTopic(task.topic, 1, 1)]),
        "delete-topic": lambda: admin.delete_topics([task.topic]),
        "add-partitions": lambda: admin.create_partitions([NewPartitions(task.topic, 3)]),
        "elect-leaders": lambda: {0: admin.elect_leaders(ElectionType.PREFERRED, [part])},
        "describe-broker": lambda: admin.describe_configs([ConfigResource("broker", task.env["BROKER"])]),
        "delete-group": lambda: admin.delete_consumer_groups([task.group]),
        "list-offsets": lambda: admin.list_offsets({part: OffsetSpec.for_timestamp(int(task.env["TIMESTAMP"]))}),
    }
    task.supports(*calls)
    (answer,) = [future.result(30) for future in calls[task.name]().values()]
    if task.name == "list-offsets":
        task.tell(task.partition, answer.offset, "")
