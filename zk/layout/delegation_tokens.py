"""Paths and bytes of the znodes of delegation tokens: `/delegation_token/tokens/<id>`, and the notifications of their changes.

The HMAC of a token is not stored: each broker makes it from the id and its secret key. Recorded from Apache Kafka 3.9.1
(`tests/security/token_tale.recorded`).
"""

from __future__ import annotations

from klamm.protocol.security.delegation_tokens import TokenInformation
from klamm.zk.layout.json_values import INT64, Unreadable, json_text, parse_json
from klamm.zk.layout.paths import desanitize, sanitize

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
CHANGE_NAME = "token_change_"
STARTUP_PATHS = (CHANGES, TOKENS)
VERSION = 3
WITH_REQUESTER = 3
"""The first version that names the requester beside the owner."""


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: TokenInformation) -> bytes:
    """The bytes of a token's znode."""
    return json_text({
        "issueTimestamp": token.issued_ms,
        "renewers": list(map(sanitize, token.renewers)),
        "tokenRequester": sanitize(token.requester),
        "tokenId": token.id,
        "owner": sanitize(token.owner),
        "expiryTimestamp": token.expires_ms,
        "maxTimestamp": token.max_ms,
        "version": VERSION,
    })


def decode_token(data: bytes | None) -> TokenInformation:
    """The token of a znode. Raises Unreadable."""
    try:
        content = parse_json(data)
        version = content["version"]
        if type(version) is not int or not 0 < version <= VERSION:
            raise ValueError(f"version {version!r}")
        owner = _principal(content["owner"])
        return TokenInformation(
            id=str(content["tokenId"]),
            owner=owner,
            requester=_principal(content["tokenRequester"]) if version >= WITH_REQUESTER else owner,
            renewers=tuple(map(_principal, content["renewers"])),
            issued_ms=_time(content["issueTimestamp"]),
            max_ms=_time(content["maxTimestamp"]),
            expires_ms=_time(content["expiryTimestamp"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{(data or b'')[:200]!r} is not a delegation token: {error}") from None


def _principal(text: str) -> str:
    principal = desanitize(text)
    if ":" not in principal:
        raise ValueError(f"{principal!r} is not a principal")
    return principal


def _time(value: object) -> int:
    if type(value) is not int or value not in INT64:
        raise ValueError(f"{value!r} is not a time")
    return value
