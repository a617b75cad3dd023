"""A client authenticates at a broker: a handshake, then the tokens of PLAIN, SCRAM or OAUTHBEARER.

SaslHandshake has version 1, which all brokers since Kafka 1.0 have. Source: KIP-43, KIP-152, KIP-255, KIP-368.
"""

from __future__ import annotations

import hmac
import itertools
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.security.scram import SCRAM_DIGESTS, salted, scram_keys
from klamm.protocol.security.secret_texts import new_secret

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 1
"""Of SaslAuthenticate, at most: brokers before Kafka 2.2 have version 0, which does not say how long a session lasts."""

MECHANISMS = ("PLAIN", *SCRAM_DIGESTS, "OAUTHBEARER")
"""What a client can authenticate with."""

RENEWED_AT = 0.85
"""A connection is replaced after this part of the lifetime of its session."""

Send = Callable[[bytes], Awaitable[bytes]]
"""Sends a frame and returns the payload of its response. Raises OSError."""
Tokens = Generator[bytes, bytes, None]
"""Yields the tokens of a client, and is given the responses."""


class AuthenticationRefused(ConnectionError):
    """The broker did not accept this client; the text says why."""


class Credentials(NamedTuple):
    """A user and a password for a mechanism."""

    mechanism: str
    user: str
    password: str

    def tokens(self) -> Tokens:
        return _plain(self) if self.mechanism == "PLAIN" else _scram(self)


class BearerToken(NamedTuple):
    """A token of OAUTHBEARER, with the extensions of SASL that go with it."""

    token: str
    extensions: Mapping[str, str] = {}

    @property
    def mechanism(self) -> str:
        return "OAUTHBEARER"

    def tokens(self) -> Tokens:
        """RFC 7628. A broker that refuses the token says why, and fails the exchange after one more token."""
        pairs = [("auth", f"Bearer {self.token}"), *self.extensions.items()]
        reason = yield ("n,,\x01" + "".join(f"{key}={value}\x01" for key, value in pairs) + "\x01").encode()
        if reason:
            yield b"\x01"
            raise AuthenticationRefused(f"the token is refused: {reason.decode('utf-8', 'replace')}")


async def authenticate(
    send: Send, client_id: str, credentials: Credentials | BearerToken, version: int = AUTHENTICATE_VERSION
) -> float | None:
    """Authenticate on a new connection, with SaslAuthenticate of this version. Returns after how many seconds the connection should be
    replaced, because its session ends soon; None if it can stay.

    Raises AuthenticationRefused, OSError and RemoteProtocolError.
    """
    mechanism = credentials.mechanism
    ids = itertools.cycle(messages.SASL_IDS)
    handshake = messages.SaslHandshakeRequest(mechanism=mechanism)
    response = await _ask(send, client_id, ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, next(ids), handshake)
    if response.error_code:
        raise AuthenticationRefused(f"SASL mechanism {mechanism} is refused; the broker has {', '.join(response.mechanisms) or 'none'}")
    tokens = credentials.tokens()
    token = next(tokens)
    while True:
        request = messages.SaslAuthenticateRequest(auth_bytes=token)
        response = await _ask(send, client_id, ApiKey.SASL_AUTHENTICATE, version, next(ids), request)
        if response.error_code:
            raise AuthenticationRefused(response.error_message or f"error code {response.error_code}")
        try:
            token = tokens.send(bytes(response.auth_bytes))
        except StopIteration:
            lifetime_ms = response.session_lifetime_ms
            return lifetime_ms / 1000 * RENEWED_AT if lifetime_ms else None


async def _ask(send: Send, client_id: str, key: ApiKey, version: int, correlation_id: int, request: messages.Request[Any]) -> Any:
    frame = messages.encode_request(key, version, correlation_id, client_id, messages.encode(request, version))
    payload = await send(frame)
    got, offset = messages.decode_response_header(key, version, payload)
    if got != correlation_id:
        raise RemoteProtocolError(f"a response to request {got}; the request was {correlation_id}")
    return messages.decode(f"{messages.APIS[key].name}Response", version, payload, offset)[0]


def escaped(name: str) -> str:
    """A user name as it stands in a message of SCRAM."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _plain(credentials: Credentials) -> Tokens:
    yield f"\0{credentials.user}\0{credentials.password}".encode()


def _scram(credentials: Credentials) -> Tokens:
    """RFC 5802. The broker has to prove that it knows the credential."""
    digest = SCRAM_DIGESTS[credentials.mechanism]
    nonce = new_secret()
    bare = f"n={escaped(credentials.user)},r={nonce}"
    challenge = (yield f"n,,{bare}".encode()).decode("utf-8", "replace")
    fields = dict(part.partition("=")[::2] for part in challenge.split(","))
    try:
        salt, iterations = b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError):
        raise RemoteProtocolError("the SCRAM challenge is invalid") from None
    if not fields.get("r", "").startswith(nonce) or not 0 < iterations <= 1_000_000:
        raise RemoteProtocolError("the SCRAM challenge is invalid")
    unproven = f"c=biws,r={fields['r']}"
    signed = f"{bare},{challenge},{unproven}".encode()
    keys = scram_keys(digest, salted(digest, credentials.password.encode(), salt, iterations))
    signature = hmac.digest(keys.stored_key, signed, digest)
    proof = bytes(a ^ b for a, b in zip(keys.client_key, signature, strict=True))
    final = yield f"{unproven},p={b64encode(proof).decode()}".encode()
    expected = b"v=" + b64encode(hmac.digest(keys.server_key, signed, digest))
    if not hmac.compare_digest(final, expected):
        raise RemoteProtocolError("the broker does not know the credential")
