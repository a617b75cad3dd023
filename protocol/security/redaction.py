"""Masks secrets, which must never be written or shown: SASL tokens, passwords in configs, HMACs of delegation tokens, salted passwords,
secrets of brokers that register with the controller.

Each byte of a secret becomes `*`, so the frame keeps its length and can be decoded. If a frame of such an API cannot be decoded, everything
after its header is masked. The value of a config is kept only if its name is in `public`: unknown configs are masked too.

Whatever keeps or shows frames goes through this module: journals, and the history of requests of the control API.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Set
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError

LARGEST_CHECKED = 64 << 10
"""A larger frame that may be a SASL token is taken for one."""

_BROKER_LOGGER = 8
_MECHANISM = re.compile("[A-Z0-9_-]{1,20}")
"""What a name of a SASL mechanism looks like (RFC 4422, 3.1)."""
_CLIENT_ID = 14
"""Where the text of the client id begins in a frame."""

Mask = Callable[[Any, Set[str]], Any]


def _text(value: str | None) -> str | None:
    return None if value is None else "*" * len(value.encode())


def _stars(value: bytes) -> bytes:
    return b"*" * len(value)


def shown_mechanism(name: str) -> str:
    """How the SASL mechanism that a client requests is shown: a text that is not the name of any may be a password at the wrong place."""
    return repr(name) if _MECHANISM.fullmatch(name) else f"of {len(name)} characters that are no name"


def _handshake(request: Any, public: Set[str]) -> Any:
    """A text that is not the name of any mechanism may be a password at the wrong place."""
    return request if _MECHANISM.fullmatch(request.mechanism) else request._replace(mechanism=_text(request.mechanism))


def _sasl_request(request: Any, public: Set[str]) -> Any:
    return request._replace(auth_bytes=_stars(request.auth_bytes))


def _sasl_response(response: Any, public: Set[str]) -> Any:
    return response._replace(auth_bytes=_stars(response.auth_bytes), error_message=_text(response.error_message))


def _configs(request: Any, public: Set[str]) -> Any:
    return request._replace(
        resources=[
            resource._replace(configs=[c if c.name in public else c._replace(value=_text(c.value)) for c in resource.configs])
            if resource.resource_type != _BROKER_LOGGER
            else resource
            for resource in request.resources
        ]
    )


def _topics(request: Any, public: Set[str]) -> Any:
    return request._replace(
        topics=[
            topic._replace(configs=[c if c.name in public else c._replace(value=_text(c.value)) for c in topic.configs])
            for topic in request.topics
        ]
    )


def _hmac(message: Any, public: Set[str]) -> Any:
    return message._replace(hmac=_stars(message.hmac))


def _hmacs(response: Any, public: Set[str]) -> Any:
    return response._replace(tokens=[token._replace(hmac=_stars(token.hmac)) for token in response.tokens])


def _scram(request: Any, public: Set[str]) -> Any:
    masked = [each._replace(salt=_stars(each.salt), salted_password=_stars(each.salted_password)) for each in request.upsertions]
    return request._replace(upsertions=masked)


def _broker_secret(request: Any, public: Set[str]) -> Any:
    return request._replace(secret=_stars(request.secret))


def _everything(message: Any, public: Set[str]) -> Any:
    raise LocalProtocolError("it contains another request")


REQUESTS: dict[int, Mask] = {
    ApiKey.SASL_HANDSHAKE: _handshake, ApiKey.SASL_AUTHENTICATE: _sasl_request, ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs, ApiKey.RENEW_DELEGATION_TOKEN: _hmac, ApiKey.EXPIRE_DELEGATION_TOKEN: _hmac,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _scram, ApiKey.ENVELOPE: _everything, ApiKey.CREATE_TOPICS: _topics,
    ApiKey.REGISTER_BROKER: _broker_secret, ApiKey.METADATA_FETCH: _broker_secret,
}
RESPONSES: dict[int, Mask] = {
    ApiKey.SASL_AUTHENTICATE: _sasl_response, ApiKey.CREATE_DELEGATION_TOKEN: _hmac, ApiKey.DESCRIBE_DELEGATION_TOKEN: _hmacs,
    ApiKey.ENVELOPE: _everything,
}


def masked_request(frame: bytes, key: int, public: Set[str]) -> bytes:
    """A complete frame of one of `REQUESTS`, with masked secrets."""
    return _masked(frame, key, None, public)


def masked_response(frame: bytes, key: int, version: int, public: Set[str]) -> bytes:
    """A complete frame of one of `RESPONSES`, with masked secrets."""
    return _masked(frame, key, version, public)


class SaslGuard:
    """Says what may be kept of the requests of one connection whose client may authenticate with SASL.

    Before the authentication is complete, a frame may be a bare token, also where no token is expected: clients under development send
    them early, late and cut short. Afterwards a frame of an unknown API or version may still be one. A connection without SASL is like an
    authenticated one until its client sends a SaslHandshake.
    """

    __slots__ = ("_has_sasl", "is_on")

    def __init__(self, has_sasl: bool) -> None:
        self._has_sasl = has_sasl
        self.is_on = has_sasl
        """Whether each request must be shown to `kept`."""

    def authenticated(self) -> None:
        """The authentication is complete. A SaslHandshake begins the next one."""
        self.is_on = False

    def handshake(self) -> None:
        """A SaslHandshake was received."""
        self._has_sasl = self.is_on = True

    def may_be_token(self, key: int, version: int) -> bool:
        """Whether a frame that begins like a request of this API and version may be a SASL token."""
        return self.is_on or (self._has_sasl and not _is_known(key, version))

    def kept(self, frame: bytes) -> bytes | None:
        """What may be kept of a complete frame that may be a token: a frame that is a request beyond doubt as it is, of one that begins
        like a request the header, and everything else masked. None: nothing of it may be kept. That is so for a large frame too, which it
        would take long to decode: clients send none before they have authenticated.
        """
        if len(frame) > LARGEST_CHECKED:
            return None
        payload = frame[4:]
        try:
            header, start = messages.decode_request_header(payload)
            key, version = header.api_key, header.api_version
            if key != ApiKey.API_VERSIONS and not _is_known(key, version):
                return None
            if _is_known(key, version) and _is_exact(frame, header, start):
                return frame
        except (RemoteProtocolError, LocalProtocolError):
            return None
        return _without_body(frame, start + 4)


def _is_known(key: int, version: int) -> bool:
    api = APIS.get(key)
    return api is not None and api.min_version <= version <= api.last_version


def _is_exact(frame: bytes, header: messages.RequestHeader, start: int) -> bool:
    """Whether a frame is exactly what its request is encoded to: there are neither surplus bytes nor unknown fields in it."""
    key, version = header.api_key, header.api_version
    try:
        message, _ = messages.decode(f"{APIS[key].name}Request", version, frame, start + 4)
        again = messages.encode_request(key, version, header.correlation_id, header.client_id, messages.encode(message, version))
        return again[4:] == frame[4:]
    except (RemoteProtocolError, LocalProtocolError, ValueError, struct.error):
        return False


def _masked(frame: bytes, key: int, version: int | None, public: Set[str]) -> bytes:
    """A frame with masked secrets. A response has the `version` of its request; a request says its own."""
    is_request = version is None
    start = 12 if is_request else 8
    try:
        payload = frame[4:]
        if version is None:
            header, start = messages.decode_request_header(payload)
            version, mask, name = header.api_version, REQUESTS[key], f"{APIS[key].name}Request"
        else:
            _, start = messages.decode_response_header(key, version, payload)
            mask, name = RESPONSES[key], f"{APIS[key].name}Response"
        start += 4
        message, end = messages.decode(name, version, payload, start - 4)
        body = messages.encode(mask(message, public), version)
        if len(body) == end - (start - 4) and not (is_request and _has_tags(frame, start)):
            return frame[:start] + body + b"*" * (len(frame) - start - len(body))
    except Exception:  # noqa: BLE001, S110 whatever is wrong with it, everything is masked
        pass
    return _without_body(frame, start) if is_request else frame[:start] + b"*" * max(0, len(frame) - start)


def _client_id_end(frame: bytes) -> int:
    """Where the client id of a request ends."""
    return _CLIENT_ID + max(int.from_bytes(frame[_CLIENT_ID - 2 : _CLIENT_ID], "big", signed=True), 0)


def _has_tags(frame: bytes, start: int) -> bool:
    """Whether the header of a request whose body begins at `start` has tagged fields: more than their number, which is 0."""
    return start > _client_id_end(frame) + 1


def _without_body(frame: bytes, start: int) -> bytes:
    """A request whose body begins at `start`, with the body masked, and with it the tagged fields of the header."""
    if _has_tags(frame, start):
        start = _client_id_end(frame)
    return frame[:start] + b"*" * max(0, len(frame) - start)
