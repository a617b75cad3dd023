"""Produce 13 names topics by their ids: records for a topic that was deleted do not get into the one that was created in its place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

import klamm
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.record import Record, encode_batch
from klamm.testing import BlockingCluster
from klamm.tests.harness.client import Client

VERSION = 13


@pytest.fixture(scope="module")
def cluster(zookeeper: str) -> Iterator[BlockingCluster]:
    with klamm.Cluster(1, as_version="4.4", topics="t:1", zookeeper=f"{zookeeper}/topic-ids-{uuid4()}") as made:
        yield made


@pytest.fixture
async def client(cluster: BlockingCluster) -> AsyncIterator[Client]:
    made = Client("127.0.0.1", cluster.addresses[0][2])
    yield made
    await made.close()


async def produced(client: Client, topic_id: bytes) -> tuple[bytes, int]:
    kind = messages.ProduceRequest
    part = kind.PartitionProduceData(0, encode_batch([Record(0, 0, None, b"value", ())]))
    request = kind(None, -1, 5_000, [kind.TopicProduceData(topic_id=topic_id, partition_data=[part])])
    (topic,) = (await client.ask(request, VERSION)).responses
    return topic.topic_id, topic.partition_responses[0].error_code


async def id_of_topic(client: Client) -> bytes:
    (topic,) = (await client.ask(messages.MetadataRequest(topics=None), 13)).topics
    return topic.topic_id


async def test_an_id_that_the_log_does_not_have_is_unknown_whatever_the_metadata_says(client: Client) -> None:
    own, other = await id_of_topic(client), uuid4().bytes
    assert await produced(client, own) == (own, 0)
    kind = messages.UpdateMetadataRequest
    state = kind.UpdateMetadataPartitionState(partition_index=0, controller_epoch=1, leader=1, isr=[1], replicas=[1])
    brokers = [kind.UpdateMetadataBroker(1, endpoints=[kind.UpdateMetadataEndpoint(client.port, "127.0.0.1", "PLAINTEXT", 0)])]
    update = kind(1, False, 0, 1, -1, topic_states=[kind.UpdateMetadataTopicState("t", other, [state])], live_brokers=brokers)
    assert (await client.ask(update, 8)).error_code == 0
    assert await id_of_topic(client) == other
    assert await produced(client, other) == (other, ErrorCode.UNKNOWN_TOPIC_ID)
