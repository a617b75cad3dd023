"""Quotas of users who authenticate: which of all stored quotas counts, and who shares its rate. All on Apache Kafka too."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.kafka import OwnedBroker
from klamm.tests.quotas.clients import QuotaClient, create, produce, set_quotas, throttle_of, unique
from klamm.tests.quotas.conftest import USERS

USER, CLIENT = "user", "client-id"
DEFAULT = None
ORDER: tuple[dict[str, str | None], ...] = (
    {USER: "u", CLIENT: "c"}, {USER: "u", CLIENT: DEFAULT}, {USER: "u"}, {USER: DEFAULT, CLIENT: "c"}, {USER: DEFAULT, CLIENT: DEFAULT},
    {USER: DEFAULT}, {CLIENT: "c"}, {CLIENT: DEFAULT},
)
"""The entities in the order in which their quotas count; `u` and `c` stand for a user and a client."""
SIZE = 10_000


def bound_of(rank: int) -> int:
    """A quota that tells the rank of its entity, and is exceeded by one request."""
    return 1000 - 20 * rank


def logged_in(broker: OwnedBroker, user: str, client_id: str) -> QuotaClient:
    """A client that has authenticated as this user."""
    client = QuotaClient(broker, client_id, port=int(broker.address("SASL").rpartition(":")[2]))
    assert client.ask(messages.SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert client.ask(messages.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-secret".encode()), 2).error_code == 0
    return client


def throttled(broker: OwnedBroker, user: str, client_id: str, topic: str) -> tuple[int, int]:
    """The throttle time of one Produce, and the size of its request."""
    with logged_in(broker, user, client_id) as client:
        response: Any = client.ask(produce(topic, SIZE), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        return response.throttle_time_ms, client.sent


def test_the_most_specific_quota_counts_and_users_come_before_clients(broker: OwnedBroker) -> None:
    topic = unique("topic")
    create(broker, topic)
    users = dict(zip(range(len(ORDER) + 1), USERS, strict=False))
    counted: list[int | None] = []
    stored: list[dict[str, str | None]] = []
    try:
        for first in range(len(ORDER) + 1):
            user, client = users[first], unique("client")
            for rank, entity in enumerate(ORDER):
                named = {kind: name and {"u": user, "c": client}[name] for kind, name in entity.items()}
                if rank >= first:
                    set_quotas(broker, named, producer_byte_rate=bound_of(rank))
                    stored.append(named)
                elif "u" not in entity.values() and "c" not in entity.values():
                    set_quotas(broker, named, producer_byte_rate=None)
            throttle_ms, size = throttled(broker, user, client, topic)
            expected = throttle_of(size, bound_of(first)) if first < len(ORDER) else 0
            counted.append(first if throttle_ms == expected else None)
    finally:
        for entity in stored:
            set_quotas(broker, entity, producer_byte_rate=None)
    assert counted == list(range(len(ORDER) + 1))


def test_clients_of_a_user_share_its_rate_and_users_of_the_default_have_their_own(broker: OwnedBroker) -> None:
    topic = unique("topic")
    create(broker, topic)
    one, two, three = USERS[-3:]
    try:
        set_quotas(broker, {USER: one}, producer_byte_rate=1500)
        set_quotas(broker, {USER: DEFAULT}, producer_byte_rate=1500)
        assert throttled(broker, one, unique("client"), topic)[0] == 0
        assert throttled(broker, one, unique("client"), topic)[0] > 0
        for user in (two, three):
            assert throttled(broker, user, "client", topic)[0] == 0
        assert throttled(broker, two, "another", topic)[0] > 0
        set_quotas(broker, {USER: DEFAULT}, producer_byte_rate=None)
        assert throttled(broker, two, "client", topic)[0] == 0
    finally:
        set_quotas(broker, {USER: one}, producer_byte_rate=None)
        set_quotas(broker, {USER: DEFAULT}, producer_byte_rate=None)


def test_a_user_is_only_throttled_from_its_authentication_on(broker: OwnedBroker) -> None:
    user = USERS[0]
    set_quotas(broker, {USER: user}, request_percentage=0)
    try:
        with logged_in(broker, user, "client") as client:
            assert client.throttle_ms() == 1000
        with logged_in(broker, USERS[1], "client") as client:
            assert client.throttle_ms() == 0
        with QuotaClient(broker, "client") as client:
            assert client.throttle_ms() == 0
    finally:
        set_quotas(broker, {USER: user}, request_percentage=None)
