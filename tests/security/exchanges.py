"""Exchanges of hostile and polite clients with a SASL listener: what a client sends, and what it gets, as lines of text.

`exchanges.recorded` has the lines that Apache Kafka 3.9.1 gave. Nonces, salts and signatures are masked, so that the lines are the same
each time.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.tests.harness.client import KEYS

RECORDED = Path(__file__).parent / "exchanges.recorded"
PASSWORD = "alice-secret"
WITHIN_S = 15.0
DELAY_S = 0.06
"""What comes later than this after the last frame was held back: the delay of failed authentication is 100 ms by default."""

_MASKED = (
    (re.compile(rb"r=[^,]+"), b"r=<nonce>"), (re.compile(rb"s=[^,]+"), b"s=<salt>"), (re.compile(rb"v=[^,]+"), b"v=<signature>"),
)
_LIFETIME = re.compile(r"session_lifetime_ms=[1-9]\d*")


class Wire:
    """One connection of a test client; `lines` has what happened."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
        self.lines: list[str] = []
        self._delay_s = delay_s
        self._reader, self._writer = reader, writer
        self._sent_at = 0.0
        self._number = 0

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._sent_at = time.monotonic()
        self._writer.write(data)

    def token(self, data: bytes) -> None:
        """Send a frame without a header."""
        self.raw(len(data).to_bytes(4, "big") + data)

    def send(self, message: Any, version: int, body: bytes | None = None) -> None:
        """Send a request; `body` takes the place of its encoded body."""
        key = KEYS[type(message).__name__.removesuffix("Request")]
        self._number += 1
        self.raw(messages.encode_request(key, version, self._number, "test", messages.encode(message, version) if body is None else body))

    async def frame(self) -> bytes | None:
        """The next frame, None when the broker has closed the connection."""
        try:
            async with asyncio.timeout(WITHIN_S):
                return await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ask(self, message: Any, version: int, response_version: int | None = None) -> Any:
        """Send a request, write its response down, and return it; None without one."""
        self.send(message, version)
        return await self.answer(type(message).__name__.removesuffix("Request"), version if response_version is None else response_version)

    async def answer(self, name: str, version: int) -> Any:
        payload = await self.frame()
        if payload is None:
            self.lines.append(f"{name} v{version}: closed {self._when()}")
            return None
        _, offset = messages.decode_response_header(KEYS[name], version, payload)
        try:
            response, _ = messages.decode(f"{name}Response", version, payload, offset)
        except RemoteProtocolError as error:
            self.lines.append(f"{name} v{version}: {payload!r} {error}")
            return None
        self.lines.append(f"{name} v{version}: {_shown(response)} {self._when()}")
        return response

    async def answer_token(self) -> bytes | None:
        """A frame without a header."""
        payload = await self.frame()
        self.lines.append(f"token: closed {self._when()}" if payload is None else f"token: {_masked(payload)!r} {self._when()}")
        return payload

    async def end(self) -> None:
        """Write down whether the broker closes the connection."""
        payload = await self.frame()
        self.lines.append(f"closed {self._when()}" if payload is None else f"unexpected {payload!r}")

    def _when(self) -> str:
        return "later" if time.monotonic() - self._sent_at > self._delay_s else "at once"

    def close(self) -> None:
        self._writer.close()


def _masked(data: bytes) -> bytes:
    for pattern, text in _MASKED:
        data = pattern.sub(text, data)
    return data


def _shown(response: Any) -> str:
    if type(response).__name__ == "ApiVersionsResponse":
        return f"error_code={response.error_code} apis={'some' if response.api_keys else 'none'}"
    fields = response._replace(auth_bytes=_masked(response.auth_bytes)) if hasattr(response, "auth_bytes") else response
    return _LIFETIME.sub("session_lifetime_ms=<some>", repr(fields))


Exchange = Callable[[Wire], Awaitable[None]]
EXCHANGES: dict[str, tuple[str, Exchange]] = {}
"""By name: the listener, and what the client does."""


def exchange(listener: str = "SASL") -> Callable[[Exchange], Exchange]:
    def enter(function: Exchange) -> Exchange:
        EXCHANGES[getattr(function, "__name__", "")] = listener, function
        return function

    return enter


Handshake, Authenticate = messages.SaslHandshakeRequest, messages.SaslAuthenticateRequest
VERSIONS = messages.ApiVersionsRequest(client_software_name="test", client_software_version="1")
METADATA = messages.MetadataRequest(topics=[])
GOOD = f"\0alice\0{PASSWORD}".encode()


async def plain(wire: Wire, token: bytes, version: int = 2) -> None:
    """A handshake and one token of PLAIN."""
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    await wire.ask(Authenticate(auth_bytes=token), version)


class Scram:
    """The client's side of RFC 5802, with the parts that a test may change."""

    def __init__(self, digest: str, user: str = "alice", password: str = PASSWORD, gs2: str = "n,,") -> None:
        self.digest, self.password, self.gs2 = digest, password, gs2
        self.bare = f"n={user},r=nonce"

    def first(self) -> bytes:
        return (self.gs2 + self.bare).encode()

    def final(self, challenge: bytes, channel: str = "biws", nonce: str | None = None) -> bytes:
        server = challenge.decode()
        given, salt, iterations = (part[2:] for part in server.split(",", 2))
        without_proof = f"c={channel},r={given if nonce is None else nonce}"
        signed = f"{self.bare},{server},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self.digest, self.password.encode(), base64.b64decode(salt), int(iterations))
        key = hmac.digest(salted, b"Client Key", self.digest)
        signature = hmac.digest(hashlib.new(self.digest, key).digest(), signed, self.digest)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        return f"{without_proof},p={proof}".encode()


async def scram(wire: Wire, client: Scram, version: int = 2, **final: Any) -> None:
    await wire.ask(Handshake(mechanism=f"SCRAM-SHA-{client.digest[3:]}"), 1)
    challenge = await wire.ask(Authenticate(auth_bytes=client.first()), version)
    if challenge is not None and not challenge.error_code:
        await wire.ask(Authenticate(auth_bytes=client.final(challenge.auth_bytes, **final)), version)


async def _after(wire: Wire) -> None:
    """A normal request, which an authenticated client may send."""
    await wire.ask(VERSIONS, 3)


@exchange()
async def plain_is_let_in(wire: Wire) -> None:
    await wire.ask(VERSIONS, 3)
    await plain(wire, GOOD)
    await _after(wire)


@exchange()
async def plain_in_version_0(wire: Wire) -> None:
    await plain(wire, GOOD, 0)
    await _after(wire)


@exchange()
async def plain_without_a_header(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 0)
    wire.token(GOOD)
    await wire.answer_token()
    await _after(wire)


@exchange()
async def plain_without_a_header_and_wrong(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 0)
    wire.token(b"\0alice\0wrong")
    await wire.answer_token()


def _plain(name: str, token: bytes) -> None:
    async def wrong(wire: Wire) -> None:
        await plain(wire, token)
        await wire.end()

    EXCHANGES[f"plain_{name}"] = "SASL", wrong


_plain("with_a_wrong_password", b"\0alice\0wrong")
_plain("of_an_unknown_user", b"\0nobody\0wrong")
_plain("without_a_user", b"\0\0wrong")
_plain("without_a_password", b"\0alice\0")
_plain("for_another", f"bob\0alice\0{PASSWORD}".encode())
_plain("in_two_parts", b"alice\0wrong")
_plain("in_four_parts", b"a\0b\0c\0d")
_plain("in_six_parts", b"a\0b\0c\0d\0e\0f")
_plain("that_is_empty", b"")
_plain("that_is_not_text", b"\0\xff\xfe\0\xff")


@exchange()
async def plain_for_itself(wire: Wire) -> None:
    await plain(wire, f"alice\0alice\0{PASSWORD}".encode())
    await _after(wire)


@exchange()
async def scram_256_is_let_in(wire: Wire) -> None:
    await scram(wire, Scram("sha256"))
    await _after(wire)


@exchange()
async def scram_512_is_let_in(wire: Wire) -> None:
    await scram(wire, Scram("sha512"), 1)
    await _after(wire)


@exchange()
async def scram_of_an_escaped_name(wire: Wire) -> None:
    await scram(wire, Scram("sha256", "al=2Ci=3Dce"))
    await _after(wire)


@exchange()
async def scram_without_a_header(wire: Wire) -> None:
    client = Scram("sha256")
    await wire.ask(Handshake(mechanism="SCRAM-SHA-256"), 0)
    wire.token(client.first())
    challenge = await wire.answer_token()
    assert challenge is not None
    wire.token(client.final(challenge))
    await wire.answer_token()
    await _after(wire)


@exchange()
async def scram_without_a_header_and_wrong(wire: Wire) -> None:
    client = Scram("sha256", password="wrong")
    await wire.ask(Handshake(mechanism="SCRAM-SHA-256"), 0)
    wire.token(client.first())
    challenge = await wire.answer_token()
    assert challenge is not None
    wire.token(client.final(challenge))
    await wire.answer_token()


def _scram(name: str, client: Scram, **final: Any) -> None:
    async def wrong(wire: Wire) -> None:
        await scram(wire, client, **final)
        await wire.end()

    EXCHANGES[f"scram_{name}"] = "SASL", wrong


_scram("with_a_wrong_password", Scram("sha256", password="wrong"))
_scram("of_an_unknown_user", Scram("sha256", "nobody"))
_scram("for_another", Scram("sha256", gs2="n,a=bob,"))
_scram("with_channel_binding", Scram("sha256", gs2="p=tls-unique,,"))
_scram("that_could_bind", Scram("sha256", gs2="y,,"))
_scram("with_a_bad_escape", Scram("sha256", "al=2cice"))
_scram("of_a_user_beyond_ascii", Scram("sha256", "\u00e4lice"))
_scram("with_another_nonce", Scram("sha256"), nonce="other")
_scram("with_a_bad_proof", Scram("sha512", password=""))


@exchange()
async def scram_for_itself(wire: Wire) -> None:
    await scram(wire, Scram("sha256", gs2="n,a=alice,"), channel="bixhPWFsaWNlLA==")
    await _after(wire)


@exchange()
async def scram_with_other_channel_data(wire: Wire) -> None:
    await scram(wire, Scram("sha256"), channel="YmFk")
    await _after(wire)


@exchange()
async def scram_with_an_extension(wire: Wire) -> None:
    client = Scram("sha256")
    client.bare += ",some=thing"
    await scram(wire, client)
    await _after(wire)


@exchange()
async def scram_that_is_not_a_message(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="SCRAM-SHA-256"), 1)
    await wire.ask(Authenticate(auth_bytes=b"\xff\x00"), 1)
    await wire.end()


@exchange()
async def scram_with_a_bad_final_message(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="SCRAM-SHA-256"), 1)
    await wire.ask(Authenticate(auth_bytes=b"n,,n=alice,r=nonce"), 1)
    await wire.ask(Authenticate(auth_bytes=b"c=biws"), 1)
    await wire.end()


@exchange()
async def an_unknown_mechanism(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="MD5"), 1)
    await wire.end()


@exchange()
async def an_unknown_mechanism_in_version_0(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism=""), 0)
    await wire.end()


@exchange()
async def gssapi_is_not_enabled(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="GSSAPI"), 1)
    await wire.end()


@exchange()
async def a_mechanism_in_lower_case(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="plain"), 1)
    await wire.end()


@exchange()
async def metadata_first(wire: Wire) -> None:
    await wire.ask(METADATA, 9)


@exchange()
async def metadata_behind_api_versions(wire: Wire) -> None:
    await wire.ask(VERSIONS, 3)
    await wire.ask(METADATA, 9)


@exchange()
async def metadata_behind_a_handshake(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    await wire.ask(METADATA, 9)
    await wire.end()


@exchange()
async def produce_behind_a_handshake(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    await wire.ask(messages.ProduceRequest(acks=0, topic_data=[]), 9)
    await wire.end()


@exchange()
async def api_versions_behind_a_handshake(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    await wire.ask(VERSIONS, 3)
    await wire.end()


@exchange()
async def a_second_handshake(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    await wire.end()


@exchange()
async def a_handshake_between_two_tokens(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="SCRAM-SHA-256"), 1)
    await wire.ask(Authenticate(auth_bytes=b"n,,n=alice,r=nonce"), 1)
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    await wire.end()


@exchange()
async def authenticate_first(wire: Wire) -> None:
    await wire.ask(Authenticate(auth_bytes=GOOD), 1)


@exchange()
async def authenticate_in_an_unknown_version(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    wire.token(b"\0\x24\0\x09\0\0\0\x07\xff\xff\0")
    await wire.end()


@exchange()
async def a_handshake_in_an_unknown_version(wire: Wire) -> None:
    wire.token(b"\0\x11\0\x05\0\0\0\x01\xff\xff")
    await wire.end()


@exchange()
async def api_versions_twice(wire: Wire) -> None:
    await wire.ask(VERSIONS, 3)
    await wire.ask(VERSIONS, 3)


@exchange()
async def api_versions_in_an_unknown_version(wire: Wire) -> None:
    wire.token(b"\0\x12\0\x63\0\0\0\x01\xff\xff\0")
    await wire.answer("ApiVersions", 0)
    await wire.ask(VERSIONS, 3)
    await wire.ask(VERSIONS, 3)


@exchange()
async def api_versions_with_a_bad_name(wire: Wire) -> None:
    wire.send(messages.ApiVersionsRequest(client_software_name="-", client_software_version="1"), 3)
    await wire.answer("ApiVersions", 3)
    await wire.ask(VERSIONS, 3)
    await plain(wire, GOOD)


@exchange()
async def an_empty_frame(wire: Wire) -> None:
    wire.token(b"")
    await wire.end()


@exchange()
async def a_token_of_kerberos_first(wire: Wire) -> None:
    wire.token(b"\x60\x82\x01\x00abcdef")
    await wire.end()


@exchange()
async def an_unknown_api_first(wire: Wire) -> None:
    wire.token(b"\x03\xe7\0\0\0\0\0\x01\xff\xff")
    await wire.end()


@exchange()
async def an_unknown_api_behind_a_handshake(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    wire.token(b"\x03\xe7\0\0\0\0\0\x01\xff\xff")
    await wire.end()


@exchange()
async def a_huge_frame(wire: Wire) -> None:
    wire.raw(b"\x3f\xff\xff\xff")
    await wire.end()


@exchange()
async def a_frame_above_the_limit(wire: Wire) -> None:
    wire.raw((524288 + 1).to_bytes(4, "big"))
    await wire.end()


@exchange()
async def a_huge_token(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    wire.raw(b"\x3f\xff\xff\xff")
    await wire.end()


@exchange()
async def a_negative_length(wire: Wire) -> None:
    wire.raw(b"\xff\xff\xff\xff")
    await wire.end()


@exchange()
async def a_bad_body(wire: Wire) -> None:
    wire.token(b"\0\x11\0\x01\0\0\0\x01\xff\xff\x7f\xff")
    await wire.end()


@exchange()
async def a_handshake_behind_the_authentication(wire: Wire) -> None:
    await plain(wire, GOOD)
    await plain(wire, GOOD)
    await _after(wire)


@exchange()
async def everything_at_once(wire: Wire) -> None:
    wire.send(Handshake(mechanism="PLAIN"), 1)
    wire.send(Authenticate(auth_bytes=GOOD), 1)
    wire.send(VERSIONS, 3)
    await wire.answer("SaslHandshake", 1)
    await wire.answer("SaslAuthenticate", 1)
    await wire.answer("ApiVersions", 3)


@exchange("SHORT")
async def a_session_is_prolonged(wire: Wire) -> None:
    await plain(wire, GOOD)
    await plain(wire, GOOD)
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    await _after(wire)


@exchange("SHORT")
async def a_session_in_version_0_ends_too(wire: Wire) -> None:
    await plain(wire, GOOD, 0)
    await asyncio.sleep(3.3)  # the session lasts three seconds, on the clock of the broker
    await _after(wire)


@exchange("SHORT")
async def a_session_ends(wire: Wire) -> None:
    await plain(wire, GOOD)
    await asyncio.sleep(3.3)
    await wire.ask(METADATA, 9)


@exchange("SHORT")
async def a_session_is_prolonged_behind_its_end(wire: Wire) -> None:
    await plain(wire, GOOD)
    await asyncio.sleep(3.3)
    await plain(wire, GOOD)
    await _after(wire)


@exchange("SHORT")
async def another_user_cannot_prolong_a_session(wire: Wire) -> None:
    await plain(wire, GOOD)
    await plain(wire, b"\0bob\0bob-secret")
    await wire.end()


@exchange("SHORT")
async def another_mechanism_cannot_prolong_a_session(wire: Wire) -> None:
    await plain(wire, GOOD)
    await wire.ask(Handshake(mechanism="SCRAM-SHA-256"), 1)
    await wire.ask(Authenticate(auth_bytes=b"n,,n=alice,r=nonce"), 2)
    await wire.end()


@exchange("SHORT")
async def an_unknown_mechanism_cannot_prolong_a_session(wire: Wire) -> None:
    await plain(wire, GOOD)
    await wire.ask(Handshake(mechanism="MD5"), 1)
    await wire.end()


@exchange("SHORT")
async def a_wrong_password_cannot_prolong_a_session(wire: Wire) -> None:
    await plain(wire, GOOD)
    await plain(wire, b"\0alice\0wrong")
    await wire.end()


@exchange("SHORT")
async def another_request_cannot_prolong_a_session(wire: Wire) -> None:
    await plain(wire, GOOD)
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    await wire.ask(METADATA, 9)
    await wire.end()


@exchange("SHORT")
async def a_session_with_headers_is_prolonged_in_version_0(wire: Wire) -> None:
    await plain(wire, GOOD)
    await wire.ask(Handshake(mechanism="PLAIN"), 0)
    wire.token(GOOD)
    await wire.answer_token()
    await _after(wire)


@exchange("SHORT")
async def a_session_with_headers_is_prolonged_in_version_0_by_a_request(wire: Wire) -> None:
    await plain(wire, GOOD)
    await wire.ask(Handshake(mechanism="PLAIN"), 0)
    await wire.ask(Authenticate(auth_bytes=GOOD), 2)
    await wire.end()


@exchange("SHORT")
async def a_session_in_version_0_is_prolonged_with_headers(wire: Wire) -> None:
    await wire.ask(Handshake(mechanism="PLAIN"), 0)
    wire.token(GOOD)
    await wire.answer_token()
    await plain(wire, GOOD)
    await _after(wire)


def unsecured(header: Mapping[str, object] | None = None, signature: str = "", **claims: object) -> str:
    """A token of user alice that lasts; a claim that is None is left out."""
    now = int(time.time())
    given = {"sub": "alice", "iat": now - 5, "exp": now + 100} | claims
    parts = header or {"alg": "none"}, {name: value for name, value in given.items() if value is not None}
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + f".{signature}"


def bearer(token: str, gs2: str = "n,,", more: str = "") -> bytes:
    return f"{gs2}\x01auth=Bearer {token}{more}\x01\x01".encode()


def _oauth(name: str, token: Callable[[], bytes]) -> None:
    async def act(wire: Wire) -> None:
        await wire.ask(Handshake(mechanism="OAUTHBEARER"), 1)
        response = await wire.ask(Authenticate(auth_bytes=token()), 2)
        if response is None or response.error_code:
            return
        if response.auth_bytes:
            await wire.ask(Authenticate(auth_bytes=b"\x01"), 2)
        else:
            await _after(wire)

    EXCHANGES[f"oauthbearer_{name}"] = "SASL", act


_oauth("is_let_in", lambda: bearer(unsecured()))
_oauth("that_has_expired", lambda: bearer(unsecured(exp=int(time.time()) - 100)))
_oauth("without_a_subject", lambda: bearer(unsecured(sub=None)))
_oauth("with_a_number_as_subject", lambda: bearer(unsecured(sub=5)))
_oauth("without_an_end", lambda: bearer(unsecured(exp=None)))
_oauth("with_a_text_as_end", lambda: bearer(unsecured(exp="x")))
_oauth("without_a_beginning", lambda: bearer(unsecured(iat=None)))
_oauth("of_the_future", lambda: bearer(unsecured(iat=int(time.time()) + 50)))
_oauth("that_is_signed", lambda: bearer(unsecured({"alg": "RS256"}, "abc")))
_oauth("that_should_be_signed", lambda: bearer(unsecured({"alg": "RS256"})))
_oauth("with_a_signature_too_many", lambda: bearer(unsecured(signature="abc")))
_oauth("without_an_algorithm", lambda: bearer("e30.e30."))
_oauth("that_is_no_token", lambda: bearer("abc"))
_oauth("in_two_parts", lambda: bearer("a.b"))
_oauth("that_is_no_message", lambda: b"x")
_oauth("that_is_empty", lambda: b"")
_oauth("without_a_bearer", lambda: b"n,,\x01\x01")
_oauth("for_itself", lambda: bearer(unsecured(), "n,a=alice,"))
_oauth("for_another", lambda: bearer(unsecured(), "n,a=bob,"))
_oauth("with_an_extension", lambda: bearer(unsecured(), more="\x01a=b"))
_oauth("with_two_bearers", lambda: bearer(unsecured(), more="\x01auth=x"))
_oauth("in_lower_case", lambda: bearer(unsecured()).replace(b"Bearer", b"bearer"))


async def connected(port: int) -> Wire:
    """A connection to a listener."""
    return Wire(*await asyncio.open_connection("127.0.0.1", port), DELAY_S)


async def told(ports: Mapping[str, int], name: str, delay_s: float = DELAY_S) -> list[str]:
    """The lines of one exchange with the broker at these ports. What comes later than `delay_s` was held back."""
    listener, act = EXCHANGES[name]
    wire = Wire(*await asyncio.open_connection("127.0.0.1", ports[listener]), delay_s)
    try:
        await act(wire)
    finally:
        wire.close()
    return wire.lines


def recorded() -> dict[str, list[str]]:
    """What Apache Kafka did, by the name of the exchange."""
    exchanges: dict[str, list[str]] = {}
    for block in RECORDED.read_text(encoding="utf-8").split("\n\n"):
        name, *lines = block.strip().splitlines()
        exchanges[name.removeprefix("== ")] = lines
    return exchanges


def written(exchanges: Mapping[str, list[str]]) -> str:
    """The text of a file of exchanges."""
    return "\n\n".join("\n".join((f"== {name}", *lines)) for name, lines in exchanges.items()) + "\n"
