"""OAUTHBEARER (RFC 7628): the exchange, and unsecured tokens, JSON Web Tokens with `alg` none whose claims are believed. As in Apache Kafka
these are the default, and for tests only: a client may claim to be any user. `signed_tokens.py` has the others.

A token that does not hold gets a status in JSON, and the client has to send one byte 1 before it gets the error. The checks are those of
`OAuthBearerSaslServer` and `OAuthBearerUnsecuredValidatorCallbackHandler` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from klamm.protocol.errors import RemoteProtocolError
from klamm.server.security.sasl.exchange import AuthenticationFailed, InvalidCredentials

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_BEARER = re.compile(r"\s*bearer +([-_.a-zA-Z0-9]+)\s*", re.IGNORECASE)
_INVALID = '{"status":"invalid_token"}'
_OPTION = "unsecuredValidator"


class OAuthExchange:
    """The exchange with one client. `claims_of` returns the user of a token and its end in milliseconds since 1970, None if the token does
    not hold; it may raise MustWait.
    """

    def __init__(self, claims_of: Callable[[str], tuple[str, int] | None]) -> None:
        self.is_complete = self.is_by_token = False
        self.user = ""
        self.expires_ms: int | None = None
        self._claims_of = claims_of
        self._refusal = ""

    def evaluate(self, token: bytes) -> bytes:
        """An empty response, or the status of a token that does not hold."""
        if self._refusal and token == b"\x01":
            raise AuthenticationFailed(self._refusal)
        self._refusal = ""
        message = _FIRST.fullmatch(token.decode("utf-8", "replace"))
        if message is None:
            raise InvalidCredentials("the message of the client is invalid")
        pairs = dict(pair.partition("=")[::2] for pair in message["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise InvalidCredentials("the message of the client has no bearer token")
        claims = self._claims_of(bearer[1])
        if claims is None:
            self._refusal = _INVALID
            return _INVALID.encode()
        user, expires_ms = claims
        if message["authzid"] and message["authzid"] != user:
            what = f"({message['authzid']}) that is different from the token's principal name ({user})"
            raise AuthenticationFailed(f"Authentication failed: Client requested an authorization id {what}")
        self.user, self.expires_ms, self.is_complete = user, expires_ms, True
        return b""


class UnsecuredTokens:
    """Believes the claims of tokens. `options` are those of the JAAS text; `now_ms` is the wall time."""

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        self._options, self._now_ms = options, now_ms

    def __call__(self, text: str) -> tuple[str, int] | None:
        """User and end of a token, in milliseconds since 1970; None if it does not hold."""
        parts = text.split(".")
        if len(parts) != 3:
            return None
        try:
            header, claims = (_decoded(part) for part in parts[:2])
        except ValueError:
            return None
        if "alg" not in header:
            raise RemoteProtocolError("the header of a token has no algorithm")
        user = claims.get(self._option("PrincipalClaimName", "sub"))
        ends, begins = claims.get("exp"), claims.get("iat")
        if header["alg"] != "none" or parts[2] or not isinstance(user, str) or not user.strip():
            return None
        if not is_number(ends) or not (begins is None or is_number(begins)):
            return None
        skew_ms, now_ms = int(self._option("AllowableClockSkewMs", "0")), self._now_ms()
        if ends * 1000 <= now_ms - skew_ms or (begins is not None and (begins * 1000 > now_ms + skew_ms or ends < begins)):
            return None
        return user, int(ends * 1000)

    def _option(self, name: str, default: str) -> str:
        return self._options.get(_OPTION + name, default)


def check_options(options: Mapping[str, str]) -> None:
    """Raises ValueError for options that are invalid or not supported."""
    skew = options.get(f"{_OPTION}AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise ValueError(f"{_OPTION}AllowableClockSkewMs is not a number of milliseconds")
    scope = f"{_OPTION}RequiredScope"
    if scope in options:
        raise ValueError(f"{scope} is not supported")


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a claim is a number that Apache Kafka reads as such."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**53


def _decoded(part: str) -> Mapping[str, Any]:
    """A part of a token. Raises ValueError."""
    try:
        decoded = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, UnicodeDecodeError, RecursionError) as problem:
        raise ValueError(str(problem)) from None
    if not isinstance(decoded, dict):
        raise ValueError("not an object")
    return decoded
