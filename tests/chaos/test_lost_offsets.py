"""Whether a response of the coordinator or librdkafka lost an offset is found in the requests of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import klamm.testing
from klamm.chaos.clients.producers import SILENT
from klamm.chaos.lost_offsets import is_lost_by_client
from klamm.control.client import ControlClient
from klamm.testing.blocking_cluster import BlockingCluster
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import wait_for

CONFIGS: dict[str, str | int | bool] = {
    "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1, "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
}


@pytest.fixture(scope="module")
def cluster(zookeeper: str) -> Iterator[BlockingCluster]:
    place = f"{zookeeper}/{unique_name('lost-offsets')}"
    with klamm.testing.Cluster(1, topics="t:2:1", zookeeper=place, control_port=0, config=CONFIGS) as one:
        yield one


def committed(cluster: BlockingCluster, client_id: str, partition: int) -> None:
    """Ask for the committed offset as a member of group g does."""
    settings = {**SILENT, "bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "client.id": client_id}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    try:
        consumer.committed([TopicPartition("t", partition)], timeout=2)
    except KafkaException:
        pass  # the offset is unstable for longer
    finally:
        consumer.close()


def test_an_offset_of_an_open_transaction_is_lost_by_the_client_and_one_that_is_not_there_is_not(cluster: BlockingCluster) -> None:
    api = ControlClient(str(cluster.control_url))
    producer = Producer({**SILENT, "bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"})
    group = Consumer({**SILENT, "bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], group.consumer_group_metadata(), 30)
    committed(cluster, "waits", 0)
    committed(cluster, "asks", 1)
    assert is_lost_by_client(api, "waits", 0)
    assert not is_lost_by_client(api, "waits", 1), "it did not ask for this partition"
    assert not is_lost_by_client(api, "asks", 1), "the coordinator told that there is none"
    assert not is_lost_by_client(api, "nobody", 0)
    producer.abort_transaction(30)
    wait_for(lambda: api.get("transactions")["transactions"][0]["state"] == "CompleteAbort", "no offset is unstable any more")
    committed(cluster, "waits", 0)
    assert not is_lost_by_client(api, "waits", 0), "the coordinator told later that there is none"
    group.close()
