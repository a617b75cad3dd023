"""A listener with SASL gives every client, polite or hostile, what Apache Kafka 3.9.1 gave (`exchanges.recorded`)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.server.broker_server import BrokerServer
from klamm.tests.harness.waits import eventually
from klamm.tests.security import exchanges
from klamm.tests.server import brokers

LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret" user_="empty";'
USERS = ("alice", "al,i=ce")
DELAY_MS = 600
"""Long enough to tell a response that was held back from one that comes late on a busy machine."""

Request = messages.AlterUserScramCredentialsRequest


def properties() -> dict[str, object]:
    """Those of the broker whose exchanges were recorded."""
    of_listeners = {
        f"listener.name.{listener}.{mechanism}.sasl.jaas.config": jaas
        for listener in ("sasl", "short")
        for mechanism, jaas in {"plain": PLAIN, "scram-sha-256": SCRAM, "scram-sha-512": SCRAM, "oauthbearer": OAUTH}.items()
    }
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "connection.failed.authentication.delay.ms": DELAY_MS,
        "listener.name.short.connections.max.reauth.ms": 3000,
    } | of_listeners


async def store_users(broker: BrokerServer) -> None:
    """Give the users their credentials; returns when the broker knows them."""
    digests = {1: "sha256", 2: "sha512"}
    upsertions = [
        Request.ScramCredentialUpsertion(
            user, mechanism, 4096, b"salt", hashlib.pbkdf2_hmac(digest, exchanges.PASSWORD.encode(), b"salt", 4096)
        )
        for user in USERS
        for mechanism, digest in digests.items()
    ]
    response = await brokers.request(broker, 51, 0, Request(deletions=[], upsertions=upsertions))
    assert {row.error_code for row in response.results} == {0}
    await eventually(lambda: broker.listeners.users.find("SCRAM-SHA-512", USERS[-1]) is not None, "the users are known")


@pytest.fixture
async def ports(zookeeper: str, chroot: str) -> AsyncIterator[Mapping[str, int]]:
    """The ports of a broker by listener."""
    settings: Any = {name.replace(".", "_"): value for name, value in properties().items()}
    broker = brokers.node(zookeeper + chroot, 0, **settings)
    await broker.start()
    await brokers.knows(broker, 0)
    await store_users(broker)
    yield {listener.name: listener.port for listener in broker.listeners}
    await broker.close()


def test_every_exchange_is_recorded() -> None:
    assert exchanges.recorded().keys() == exchanges.EXCHANGES.keys()


async def test_clients_get_what_kafka_gave_them(ports: Mapping[str, int]) -> None:
    differing = {}
    turn = asyncio.Semaphore(8)

    async def tell(name: str) -> None:
        async with turn:
            lines = await exchanges.told(ports, name, DELAY_MS / 2000)
        if lines != exchanges.recorded()[name]:
            differing[name] = lines

    await asyncio.gather(*map(tell, exchanges.EXCHANGES))
    assert differing == {}
