"""Masks secrets, which must never be written: SASL tokens, passwords in configs, HMACs of delegation tokens, salted passwords.

Each byte of a secret becomes `*`, so the frame keeps its length and can be decoded. If a frame of such an API cannot be decoded, everything
after its header is masked. The value of a config is kept only if its name is in `public`: unknown configs are masked too.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError

_BROKER_LOGGER = 8

Mask = Callable[[Any, Set[str]], Any]


def _text(value: str | None) -> str | None:
    return None if value is None else "*" * len(value.encode())


def _stars(value: bytes) -> bytes:
    return b"*" * len(value)


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


def _everything(message: Any, public: Set[str]) -> Any:
    raise LocalProtocolError("it contains another request")


REQUESTS: dict[int, Mask] = {
    ApiKey.SASL_AUTHENTICATE: _sasl_request, ApiKey.ALTER_CONFIGS: _configs, ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.RENEW_DELEGATION_TOKEN: _hmac, ApiKey.EXPIRE_DELEGATION_TOKEN: _hmac, ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _scram,
    ApiKey.ENVELOPE: _everything, ApiKey.CREATE_TOPICS: _topics,
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


def _masked(frame: bytes, key: int, version: int | None, public: Set[str]) -> bytes:
    start = 12 if version is None else 8
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
        if len(body) == end - (start - 4):
            return frame[:start] + body + b"*" * (len(frame) - start - len(body))
    except (RemoteProtocolError, LocalProtocolError, KeyError, ValueError, AttributeError, TypeError):  # mask everything
        pass
    return frame[:start] + b"*" * max(0, len(frame) - start)
