"""Section 11: SASL and re-authentication. Most cases need --sasl-listener."""

from __future__ import annotations

import struct
from typing import Any

from klamm.conform.case import Absent, Broken, Section, expect
from klamm.conform.connection import CLIENT_ID, Connection, expect_error
from klamm.conform.lab import Lab, SaslPlace
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.security.sasl_client import AuthenticationRefused, Credentials, authenticate

SECTION = Section(11, "sasl", "SASL and re-authentication")
NONE = ErrorCode.NONE
VERSIONS = messages.ApiVersionsRequest()


def _place(lab: Lab) -> SaslPlace:
    if lab.sasl is None:
        raise Absent("--sasl-listener and --sasl-user are needed")
    return lab.sasl


async def _connect(lab: Lab) -> Connection:
    """A connection to the listener with SASL."""
    place = _place(lab)
    return await lab.connect((place.host, place.port))


async def _handshake(connection: Connection, mechanism: str, version: int = 1) -> Any:
    return await connection.ask(messages.SaslHandshakeRequest(mechanism=mechanism), version)


async def _authenticate(lab: Lab, connection: Connection, password: str | None = None) -> float | None:
    """Handshake and tokens; after how many seconds the connection should authenticate again. Raises AuthenticationRefused."""
    place = _place(lab)

    async def send(frame: bytes) -> bytes:
        payload = await connection.raw(frame, place.password.encode())
        if payload is None:
            raise Broken("the connection was closed during authentication")
        return payload

    return await authenticate(send, CLIENT_ID, Credentials(place.mechanism, place.user, password or place.password))


@SECTION.must(1, "SaslHandshake on a listener without SASL is ILLEGAL_SASL_STATE.", "KIP-43")
async def handshake_without_sasl(lab: Lab) -> None:
    response = await _handshake(await lab.connect(), "PLAIN", lab.version("SaslHandshake"))
    expect_error(response.error_code, ErrorCode.ILLEGAL_SASL_STATE)


@SECTION.must(2, "SaslAuthenticate on a listener without SASL is ILLEGAL_SASL_STATE.", "KIP-152")
async def authenticate_without_sasl(lab: Lab) -> None:
    request = messages.SaslAuthenticateRequest(auth_bytes=b"\0a\0b")
    response = await (await lab.connect()).ask(request, lab.version("SaslAuthenticate"))
    expect_error(response.error_code, ErrorCode.ILLEGAL_SASL_STATE)


@SECTION.must(3, "ApiVersions is answered before authentication.", "KIP-43")
async def versions_first(lab: Lab) -> None:
    expect_error((await (await _connect(lab)).ask(VERSIONS, 0)).error_code, NONE)


@SECTION.must(4, "Another request before authentication closes the connection.", "KIP-43")
async def other_first(lab: Lab) -> None:
    connection = await _connect(lab)
    await connection.send(messages.MetadataRequest(topics=[]), lab.version("Metadata", 8, 1))
    await connection.expect_closed("Metadata before authentication")


@SECTION.must(5, "An unknown mechanism is UNSUPPORTED_SASL_MECHANISM, with those of the server.", "KIP-43")
async def unknown_mechanism(lab: Lab) -> None:
    response = await _handshake(await _connect(lab), "NO-SUCH")
    expect_error(response.error_code, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    expect(_place(lab).mechanism in response.mechanisms, f"mechanisms {list(response.mechanisms)}")


@SECTION.must(6, "After authentication requests are answered.", "KIP-152")
async def authenticates(lab: Lab) -> None:
    connection = await _connect(lab)
    await _authenticate(lab, connection)
    await connection.ask(messages.MetadataRequest(topics=[]), lab.version("Metadata", 8, 1))


@SECTION.must(7, "A wrong password is SASL_AUTHENTICATION_FAILED.", "KIP-152")
async def wrong_password(lab: Lab) -> None:
    connection = await _connect(lab)
    try:
        await _authenticate(lab, connection, "not the password")
    except AuthenticationRefused:
        return
    raise Broken("the user was authenticated")


@SECTION.must(8, "After a failed authentication the connection is closed.", "KIP-152")
async def closed_after_failure(lab: Lab) -> None:
    connection = await _connect(lab)
    try:
        await _authenticate(lab, connection, "not the password")
    except AuthenticationRefused:
        await connection.expect_closed("after a failed authentication")


@SECTION.must(9, "SaslAuthenticate before the handshake closes the connection, or is an error.", "KIP-152")
async def no_handshake(lab: Lab) -> None:
    connection = await _connect(lab)
    sent = connection.frame(messages.SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 1)
    payload = await connection.raw(sent.frame)
    expect(payload is None or payload[4:6] != b"\0\0", "the user was authenticated")


@SECTION.must(10, "Tokens may follow a handshake of version 0 as frames of their own.", "KIP-43")
async def handshake_0(lab: Lab) -> None:
    place = _place(lab)
    if place.mechanism != "PLAIN":
        raise Absent("this case authenticates with PLAIN")
    connection = await _connect(lab)
    expect_error((await _handshake(connection, "PLAIN", 0)).error_code, NONE)
    token = f"\0{place.user}\0{place.password}".encode()
    payload = await connection.raw(struct.pack(">i", len(token)) + token, place.password.encode())
    expect(payload == b"", "the token was not accepted")
    expect_error((await connection.ask(VERSIONS, 0)).error_code, NONE)


@SECTION.must(11, "A connection may authenticate again.", "KIP-368")
async def again(lab: Lab) -> None:
    connection = await _connect(lab)
    if await _authenticate(lab, connection) is None:
        raise Absent("sessions of this listener do not end: connections.max.reauth.ms is 0")
    await _authenticate(lab, connection)
    await connection.ask(messages.MetadataRequest(topics=[]), lab.version("Metadata", 8, 1))


@SECTION.must(12, "Authentication again with a wrong password fails.", "KIP-368")
async def again_wrong(lab: Lab) -> None:
    connection = await _connect(lab)
    if await _authenticate(lab, connection) is None:
        raise Absent("sessions of this listener do not end: connections.max.reauth.ms is 0")
    try:
        await _authenticate(lab, connection, "not the password")
    except AuthenticationRefused:
        return
    raise Broken("the user was authenticated")


@SECTION.must(13, "A request other than SaslAuthenticate after the handshake ends the connection, if need be after an error.", "KIP-152")
async def between(lab: Lab) -> None:
    connection = await _connect(lab)
    expect_error((await _handshake(connection, _place(lab).mechanism)).error_code, NONE)
    payload = await connection.raw(connection.frame(messages.MetadataRequest(topics=[]), lab.version("Metadata", 8, 1)).frame)
    if payload is not None:
        await connection.expect_closed("Metadata between handshake and tokens")
