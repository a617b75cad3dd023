"""Tests of a client: one that any cluster can run, and one that needs Klamm, because a request has to fail."""

import uuid

from kafka import KafkaConsumer, KafkaProducer


def test_a_record_is_read(bootstrap_servers):
    topic = f"orders-{uuid.uuid4().hex}"
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send(topic, b"record").get(30)
    with KafkaConsumer(topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        assert next(consumer).value == b"record"


def test_a_producer_tries_again(klamm):
    topic = klamm.create_topic(klamm.topic_name("orders"))
    klamm.fault(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", first=1)
    with KafkaProducer(bootstrap_servers=klamm.bootstrap_servers) as producer:
        assert producer.send(topic, b"record").get(30).offset == 0
    assert [request.error for request in klamm.requests(api="Produce", topic=topic)] == ["NOT_LEADER_OR_FOLLOWER", None]
