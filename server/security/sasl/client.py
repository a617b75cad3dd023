"""The authentication of this broker at another one: a handshake, then the tokens of PLAIN or SCRAM.

SaslHandshake has version 1 and SaslAuthenticate version 1, which all brokers since Kafka 2.2 have; ApiVersions is not sent.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.server.security.sasl.scram import escaped
from klamm.server.security.scram import MECHANISMS
from klamm.server.security.secret_texts import new_secret

VERSION = 1

Send = Callable[[bytes], Awaitable[bytes]]
"""Sends a frame and returns the payload of its response. Raises OSError."""
Tokens = Generator[bytes, bytes, None]
"""Yields the tokens of a client, and is given the responses."""


class Refused(ConnectionError):
    """The other broker did not accept this one; the text says why."""


class Credentials(NamedTuple):
    """A user and a password for a mechanism."""

    mechanism: str
    user: str
    password: str


async def authenticate(send: Send, client_id: str, credentials: Credentials) -> int:
    """Authenticate on a new connection. Returns the lifetime of the session in milliseconds, 0 if it has none.

    Raises Refused, OSError and RemoteProtocolError.
    """
    mechanism = credentials.mechanism
    handshake = messages.SaslHandshakeRequest(mechanism=mechanism)
    answer = await _ask(send, client_id, ApiKey.SASL_HANDSHAKE, handshake)
    if answer.error_code:
        raise Refused(f"SASL mechanism {mechanism} is refused; the other broker has {', '.join(answer.mechanisms) or 'none'}")
    tokens = _plain(credentials) if mechanism == "PLAIN" else _scram(credentials)
    token = next(tokens)
    while True:
        answer = await _ask(send, client_id, ApiKey.SASL_AUTHENTICATE, messages.SaslAuthenticateRequest(auth_bytes=token))
        if answer.error_code:
            raise Refused(answer.error_message or ErrorCode(answer.error_code).name)
        try:
            token = tokens.send(bytes(answer.auth_bytes))
        except StopIteration:
            return int(answer.session_lifetime_ms)


async def _ask(send: Send, client_id: str, key: ApiKey, request: messages.Request[Any]) -> Any:
    frame = messages.encode_request(key, VERSION, 0, client_id, messages.encode(request, VERSION))
    payload = await send(frame)
    _, offset = messages.decode_response_header(key, VERSION, payload)
    return messages.decode(f"{messages.APIS[key].name}Response", VERSION, payload, offset)[0]


def _plain(credentials: Credentials) -> Tokens:
    yield f"\0{credentials.user}\0{credentials.password}".encode()


def _scram(credentials: Credentials) -> Tokens:
    """RFC 5802. The other broker has to prove that it knows the credential."""
    digest = next(each.digest for each in MECHANISMS.values() if each.name == credentials.mechanism)
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
    salted = hashlib.pbkdf2_hmac(digest, credentials.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = yield f"{unproven},p={b64encode(proof).decode()}".encode()
    expected = b"v=" + b64encode(hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest))
    if not hmac.compare_digest(final, expected):
        raise RemoteProtocolError("the other broker does not know the credential")
