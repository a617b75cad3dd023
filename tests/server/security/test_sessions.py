"""Sessions of authenticated clients: two limits at once, tokens that end, other users, credentials that are taken away."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, cast

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.security.secret_texts import new_bytes
from klamm.seams.clock import Clock
from klamm.server.ground.background import BackgroundTasks
from klamm.server.listeners.authenticator import SaslAuthenticator, SaslMechanism, SaslSettings
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.requests.context import CloseConnection
from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.security.delegation_tokens import DelegationTokens
from klamm.server.security.sasl.scram_credentials import MECHANISMS, ScramCredentials, credential_text
from klamm.tests.services import broker_config
from klamm.zk.session.session import ZkSession

HOUR_MS = 3_600_000
MAX_RECEIVE_BYTES = 1 << 20


class TokenExchange:
    """A client that is authenticated by one token, which is the user's name, with a credential that ends at a time."""

    is_by_token = False

    def __init__(self, expires_ms: int | None) -> None:
        self.is_complete = False
        self.user = ""
        self.expires_ms = expires_ms

    def evaluate(self, token: bytes) -> bytes:
        self.is_complete, self.user = True, token.decode()
        return b""


class Behind:
    """What an authenticated client reaches."""

    def begin(self, *_: Any) -> bytes:
        return b"served"


class Connection:
    """Takes note of who has authenticated."""

    def __init__(self) -> None:
        self.users: list[tuple[str, bool]] = []

    def authenticated(self, principal: Any, mechanism: str, *, has_lifetime: bool, by_token: bool) -> None:
        self.users.append((principal.name, has_lifetime))


class Client:
    """One connection to a listener with one mechanism, on a clock that the test drives."""

    def __init__(self, *, max_reauth_ms: int = 0, expires_in_ms: int | None = None) -> None:
        self.clock = DrivenClock()
        ends_ms = None if expires_in_ms is None else self.clock.now_ms() + expires_in_ms
        mechanism = SaslMechanism("OWN", lambda: TokenExchange(ends_ms), max_reauth_ms)
        self.connection = Connection()
        settings = SaslSettings((mechanism,), MAX_RECEIVE_BYTES, 0.0)
        self.authenticator = SaslAuthenticator(cast(Any, Behind()), settings, self.connection, cast(Clock, self.clock))
        self.peer = Peer("SASL", "127.0.0.1", ResponseCache())

    def ask(self, key: ApiKey, version: int, message: Any) -> Any:
        payload = messages.encode_request(key, version, 1, "c", messages.encode(message, version))[4:]
        return self.authenticator.begin(self.peer, payload)

    def authenticate(self, user: str = "alice") -> Any:
        """The response to SaslAuthenticate; a coroutine if it is held back."""
        self.ask(ApiKey.SASL_HANDSHAKE, 1, messages.SaslHandshakeRequest(mechanism="OWN"))
        answer = self.ask(ApiKey.SASL_AUTHENTICATE, 2, messages.SaslAuthenticateRequest(auth_bytes=user.encode()))
        if not isinstance(answer, bytes):
            return answer
        return messages.decode("SaslAuthenticateResponse", 2, answer, messages.decode_response_header(36, 2, answer[4:])[1] + 4)[0]

    def metadata(self) -> Any:
        return self.ask(ApiKey.METADATA, 9, messages.MetadataRequest(topics=None))


@pytest.mark.parametrize(
    ("limits", "lifetime_ms"),
    [
        ({"max_reauth_ms": HOUR_MS, "expires_in_ms": 10_000}, 10_000), ({"max_reauth_ms": 10_000, "expires_in_ms": HOUR_MS}, 10_000),
        ({"max_reauth_ms": 10_000}, 10_000), ({"expires_in_ms": 10_000}, 10_000), ({"expires_in_ms": -5000}, 0), ({}, 0),
    ],
)
async def test_a_session_lasts_as_long_as_the_shorter_of_its_limits(limits: Mapping[str, int], lifetime_ms: int) -> None:
    client = Client(**limits)
    assert client.authenticate().session_lifetime_ms == lifetime_ms
    assert client.connection.users == [("alice", bool(limits))]


@pytest.mark.parametrize(
    "limits", [{"max_reauth_ms": HOUR_MS, "expires_in_ms": 10_000}, {"expires_in_ms": 10_000}, {"max_reauth_ms": 10_000}]
)
async def test_a_request_behind_the_end_of_a_session_closes_the_connection(limits: Mapping[str, int]) -> None:
    client = Client(**limits)
    client.authenticate()
    await client.clock.advance(9.9)
    assert client.metadata() == b"served"
    await client.clock.advance(0.2)
    with pytest.raises(CloseConnection, match="has ended"):
        client.metadata()


async def test_a_token_that_is_over_but_not_deleted_serves_no_request() -> None:
    client = Client(expires_in_ms=-5000)
    client.authenticate()
    await client.clock.advance(0.001)
    with pytest.raises(CloseConnection, match="has ended"):
        client.metadata()


async def test_a_client_that_prolongs_its_session_has_the_limit_of_frames_that_it_had_before() -> None:
    """As in Kafka (`SaslServerAuthenticator.authenticate`), whose limit is `sasl.server.max.receive.size` again after the handshake."""
    client = Client(max_reauth_ms=HOUR_MS)
    client.authenticate()
    await client.clock.advance(2)
    client.ask(ApiKey.SASL_HANDSHAKE, 1, messages.SaslHandshakeRequest(mechanism="OWN"))
    large = messages.SaslAuthenticateRequest(auth_bytes=b"alice" + bytes(MAX_RECEIVE_BYTES))
    refused = asyncio.ensure_future(client.ask(ApiKey.SASL_AUTHENTICATE, 2, large))
    await asyncio.sleep(0)
    await client.clock.advance(1)
    with pytest.raises(CloseConnection, match="larger than"):
        await refused


async def test_a_user_whose_name_differs_in_case_does_not_prolong_a_session() -> None:
    client = Client(max_reauth_ms=HOUR_MS)
    client.authenticate("alice")
    await client.clock.advance(2)
    refused = asyncio.ensure_future(client.authenticate("Alice"))
    await asyncio.sleep(0)
    await client.clock.advance(1)
    with pytest.raises(CloseConnection, match="Cannot change principals"):
        await refused
    assert client.connection.users == [("alice", True)]


def test_a_credential_that_is_taken_away_is_gone() -> None:
    users = ScramCredentials()
    texts = {each.name: credential_text(each, b"salt", hashlib.sha256(b"x").digest(), 4096) for each in MECHANISMS.values()}
    users.set("u", texts)
    assert all(users.find(name, "u") for name in texts)
    first, second = texts
    users.set("u", {second: texts[second]})
    assert (users.find(first, "u"), users.find(second, "u") is None) == (None, False)
    users.set("u", {})
    assert [users.find(name, "u") for name in texts] == [None, None]


async def test_no_delegation_token_lives_longer_than_the_broker_lets_it(zookeeper: str, chroot: str) -> None:
    session = ZkSession(zookeeper + chroot, 6000)
    await session.start(10_000)
    clock, background = DrivenClock(), BackgroundTasks()
    config = broker_config(delegation_token_max_lifetime_ms=5000, delegation_token_expiry_time_ms=3000)
    tokens = DelegationTokens(config, new_bytes().hex(), session, clock)
    try:
        await tokens.start(background.start)
        for asked_ms, longest_ms in ((-1, 5000), (0, 5000), (4000, 4000), (5001, 5000), (HOUR_MS, 5000)):
            token = (await tokens.create("User:a", "User:a", (), asked_ms)).information
            assert (token.max_ms - token.issued_ms, token.expires_ms - token.issued_ms) == (longest_ms, min(3000, longest_ms)), asked_ms
    finally:
        await background.close()
        await session.stop()


@pytest.mark.parametrize(
    ("host", "shown"), [("::ffff:10.0.0.5", "10.0.0.5"), ("10.0.0.5", "10.0.0.5"), ("::1", "0:0:0:0:0:0:0:1")]
)
def test_acls_name_a_client_of_ipv4_by_its_address_of_ipv4(host: str, shown: str) -> None:
    assert Peer("PLAINTEXT", host, ResponseCache()).java_host == shown
