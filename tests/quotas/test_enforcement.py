"""Quotas in force: throttle times to the millisecond, muted connections, refused mutations and connections. All on Apache Kafka too."""

from __future__ import annotations

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import OwnedBroker, wait_for
from klamm.tests.quotas.clients import API_VERSIONS, WINDOW_S, QuotaClient, create, fetch, produce, set_quotas, throttle_of, unique


def test_a_producer_above_its_rate_is_throttled_and_muted(broker: OwnedBroker) -> None:
    topic, name = unique("topic"), unique("producer")
    create(broker, topic)
    set_quotas(broker, {"client-id": name}, producer_byte_rate=1000)
    with QuotaClient(broker, name) as client:
        assert client.ask(produce(topic, 2_000), 9).throttle_time_ms == 0
        assert client.throttle_ms() == 0
    name = unique("producer")
    set_quotas(broker, {"client-id": name}, producer_byte_rate=1000)
    with QuotaClient(broker, name) as client, QuotaClient(broker, name) as other:
        response = client.ask(produce(topic, 10_900), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert response.throttle_time_ms == throttle_of(client.sent, 1000) > 900
        client.send(API_VERSIONS, 3)
        assert other.throttle_ms() == 0
        client.receive("ApiVersions", 3)
    name = unique("producer")
    set_quotas(broker, {"client-id": name}, producer_byte_rate=1000)
    with QuotaClient(broker, name) as client:
        throttled_ms = client.ask(produce(topic, 10_900), 9).throttle_time_ms
        assert client.seconds_until_served() >= (throttled_ms - 50) / 1000


def test_a_producer_without_acks_is_muted_without_a_response(broker: OwnedBroker) -> None:
    topic, name = unique("topic"), unique("producer")
    create(broker, topic)
    set_quotas(broker, {"client-id": name}, producer_byte_rate=1000)
    with QuotaClient(broker, name) as client:
        client.send(produce(topic, 10_900, acks=0), 9)
        assert client.seconds_until_served() >= (throttle_of(client.sent, 1000) - 50) / 1000


def test_a_rate_of_0_throttles_requests_and_no_bytes(broker: OwnedBroker) -> None:
    topic, name = unique("topic"), unique("client")
    create(broker, topic)
    set_quotas(broker, {"client-id": name}, producer_byte_rate=0)
    with QuotaClient(broker, name) as client:
        assert client.ask(produce(topic, 100), 9).throttle_time_ms == 0
    set_quotas(broker, {"client-id": name}, producer_byte_rate=None, request_percentage=0)
    with QuotaClient(broker, name) as client:
        assert client.ask(produce(topic, 100), 9).throttle_time_ms == 1000
        assert client.seconds_until_served() >= 0.95


def test_request_time_throttles_for_one_sample_at_most(broker: OwnedBroker) -> None:
    name = unique("client")
    set_quotas(broker, {"client-id": name}, request_percentage=0.000001)
    for message, version in ((API_VERSIONS, 3), (requests.metadata([]), 9), (requests.create_topic("no topic", [[0]]), 7)):
        with QuotaClient(broker, name) as client:
            assert client.ask(message, version).throttle_time_ms == 1000
    set_quotas(broker, {"client-id": name}, request_percentage=None)
    with QuotaClient(broker, name) as client:
        assert client.throttle_ms() == 0


def test_a_consumer_above_its_rate_gets_no_records(broker: OwnedBroker) -> None:
    topic, name = unique("topic"), unique("consumer")
    create(broker, topic)
    with QuotaClient(broker, "unlimited") as client:
        client.ask(produce(topic, 11_000), 9)
        whole = client.ask(fetch(topic), 4)
        assert whole.throttle_time_ms == 0
        size = client.received
    set_quotas(broker, {"client-id": name}, consumer_byte_rate=1000)
    with QuotaClient(broker, name) as client:
        throttled = client.ask(fetch(topic), 4)
        assert (throttled.throttle_time_ms, throttled.responses) == (throttle_of(size, 1000), [])
        assert client.seconds_until_served() >= (throttled.throttle_time_ms - 50) / 1000
    set_quotas(broker, {"client-id": name}, consumer_byte_rate=2000)
    with QuotaClient(broker, name) as client:
        within = client.ask(fetch(topic), 4)
        assert within.throttle_time_ms == 0
        assert client.received == size


def test_a_throttled_fetch_leaves_its_session_as_it_was(broker: OwnedBroker) -> None:
    topic, name = unique("topic"), unique("consumer")
    create(broker, topic)
    with QuotaClient(broker, name) as client:
        begun = client.ask(fetch(topic, epoch=0), 11)
        assert begun.session_id != 0
        client.ask(produce(topic, 11_000), 9)
        set_quotas(broker, {"client-id": name}, consumer_byte_rate=1000)
        throttled = client.ask(fetch(topic, session_id=begun.session_id, epoch=1, partitions=False), 11)
        assert throttled.throttle_time_ms > 0
        assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, begun.session_id, [])
        set_quotas(broker, {"client-id": name}, consumer_byte_rate=None)
        after = client.ask(fetch(topic, session_id=begun.session_id, epoch=2, partitions=False), 11)
        assert (after.error_code, after.throttle_time_ms) == (0, 0)
        assert after.responses[0].partitions[0].high_watermark == 1
        assert after.responses[0].partitions[0].records
    set_quotas(broker, {"client-id": name}, consumer_byte_rate=1000)
    with QuotaClient(broker, name) as client:
        assert client.ask(fetch(topic, epoch=0), 11).session_id == 0


def test_fetches_of_a_consumer_are_no_larger_than_its_window(broker: OwnedBroker) -> None:
    topic, name = unique("topic"), unique("consumer")
    create(broker, topic)
    with QuotaClient(broker, "unlimited") as client:
        for _ in range(5):
            client.ask(produce(topic, 1_000), 9)
        client.ask(fetch(topic), 4)
        bound = client.received // 2 // WINDOW_S
    set_quotas(broker, {"client-id": name}, consumer_byte_rate=bound)
    with QuotaClient(broker, name) as client:
        assert client.ask(fetch(topic), 4).throttle_time_ms < 1000 < throttle_of(bound * 2 * WINDOW_S, bound)


@pytest.mark.parametrize("version", [4, 7])
def test_mutations_are_refused_or_throttled(broker: OwnedBroker, version: int) -> None:
    name, strict = unique("admin"), version >= 6
    set_quotas(broker, {"client-id": name}, controller_mutation_rate=1)
    with QuotaClient(broker, name) as client:
        first = client.ask(requests.create_topic(unique("topic"), [[0]] * 12), version)
        assert first.topics[0].error_code == 0
        assert (first.throttle_time_ms == 0) == strict
    with QuotaClient(broker, name) as client:
        second = client.ask(requests.create_topic(unique("topic"), [[0]] * 3), version)
        assert 0 < second.throttle_time_ms <= 4000
        assert second.topics[0].error_code == (ErrorCode.THROTTLING_QUOTA_EXCEEDED if strict else 0)
        assert second.topics[0].error_message is None
        assert client.seconds_until_served() >= (second.throttle_time_ms - 50) / 1000


def test_growth_is_refused_without_a_text(broker: OwnedBroker) -> None:
    name, topic = unique("admin"), unique("topic")
    create(broker, topic)
    set_quotas(broker, {"client-id": name}, controller_mutation_rate=1)
    with QuotaClient(broker, name) as client:
        assert client.ask(requests.create_partitions(topic, 20), 3).results[0].error_code == 0
        assert client.throttle_ms() == 0
    with QuotaClient(broker, name) as client:
        grown = client.ask(requests.create_partitions(topic, 30), 3).results[0]
        assert (grown.error_code, grown.error_message) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)


def test_deletions_are_refused_without_a_text(broker: OwnedBroker) -> None:
    name, topic = unique("admin"), unique("topic")
    create(broker, topic)
    set_quotas(broker, {"client-id": name}, controller_mutation_rate=1)
    with QuotaClient(broker, name) as client:
        assert client.ask(requests.create_partitions(topic, 20), 3).results[0].error_code == 0
    with QuotaClient(broker, name) as client:
        deleted = client.ask(requests.delete_topics(topic), 6).responses[0]
        assert (deleted.error_code, deleted.error_message) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)


def test_an_address_that_connects_too_often_is_not_served(broker: OwnedBroker) -> None:
    set_quotas(broker, {"ip": "127.0.0.3"}, connection_creation_rate=1)
    clients = [QuotaClient(broker, "client", "127.0.0.3") for _ in range(11)]
    assert [client.throttle_ms() for client in clients[:10]] == [0] * 10
    with pytest.raises(ConnectionError):
        clients[10].throttle_ms()
    with QuotaClient(broker, "client", "127.0.0.4") as other:
        assert other.throttle_ms() == 0
    set_quotas(broker, {"ip": "127.0.0.3"}, connection_creation_rate=None)
    with QuotaClient(broker, "client", "127.0.0.3") as again:
        assert again.throttle_ms() == 0
    for client in clients:
        client.__exit__()


def test_users_and_their_clients_have_quotas(broker: OwnedBroker) -> None:
    name = unique("client")
    set_quotas(broker, {"user": "ANONYMOUS", "client-id": name}, request_percentage=0)
    with QuotaClient(broker, name) as client, QuotaClient(broker, "other") as other:
        assert client.throttle_ms() == 1000
        assert other.throttle_ms() == 0
    set_quotas(broker, {"user": "ANONYMOUS", "client-id": name}, request_percentage=None)


def test_a_broker_that_starts_again_enforces_what_is_stored(broker: OwnedBroker) -> None:
    name = unique("client")
    set_quotas(broker, {"client-id": name}, request_percentage=0)
    broker.stop()
    broker.start()

    def throttled() -> bool:
        with QuotaClient(broker, name) as client:
            return client.throttle_ms() > 0

    wait_for(throttled, "the quota is enforced")


@pytest.mark.slow
@pytest.mark.reference
def test_brokers_of_klamm_and_of_kafka_enforce_what_the_other_stores(pair: tuple[OwnedBroker, OwnedBroker]) -> None:
    for storing, enforcing in (pair, pair[::-1]):
        name = "cli ent*" + unique("é")
        set_quotas(storing, {"user": "ANONYMOUS", "client-id": name}, seen_by=enforcing, request_percentage=0)
        with QuotaClient(enforcing, name) as client, QuotaClient(enforcing, "other") as other:
            assert client.throttle_ms() == 1000
            assert other.throttle_ms() == 0
        set_quotas(storing, {"user": "ANONYMOUS", "client-id": name}, seen_by=enforcing, request_percentage=None)
        with QuotaClient(enforcing, name) as client:
            assert client.throttle_ms() == 0
