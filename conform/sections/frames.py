"""Section 1: frames and headers."""

from __future__ import annotations

import struct

from klamm.conform.case import Section, expect
from klamm.conform.connection import CLIENT_ID, decoded, expect_error
from klamm.conform.lab import Lab
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

SECTION = Section(1, "frames", "Frames and headers")
GUIDE = "Kafka protocol guide"
BROKER = "Apache Kafka: SocketServer closes the connection of a request that it cannot parse"
VERSIONS = messages.ApiVersionsRequest()


def _head(key: int, version: int, correlation_id: int = 1, client_id: bytes | None = b"x") -> bytes:
    """Request header 1."""
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", key, version, correlation_id) + name


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


async def _is_closed(lab: Lab, frame: bytes, what: str) -> None:
    """The server closes the connection of this frame, and goes on to serve others."""
    payload = await (await lab.connect()).raw(frame)
    expect(payload is None, f"{what} got a response of {len(payload or b'')} bytes, where the connection should be closed")
    expect_error((await (await lab.connect()).ask(VERSIONS, 0)).error_code, ErrorCode.NONE, what="another connection")


async def _client_id(lab: Lab, client_id: str | None) -> None:
    response = await (await lab.connect()).ask(VERSIONS, 0, client_id)
    expect_error(response.error_code, ErrorCode.NONE)


@SECTION.must(1, "The client id of a request may be null.", f"{GUIDE}: client_id is NULLABLE_STRING")
async def null_client_id(lab: Lab) -> None:
    await _client_id(lab, None)


@SECTION.must(2, "The client id of a request may be empty.", f"{GUIDE}: client_id is NULLABLE_STRING")
async def empty_client_id(lab: Lab) -> None:
    await _client_id(lab, "")


@SECTION.must(3, "A client id may have 1,000 bytes.", f"{GUIDE}: a string has at most 32,767 bytes")
async def long_client_id(lab: Lab) -> None:
    await _client_id(lab, "x" * 1000)


@SECTION.must(4, "A client id may have characters that are not ASCII.", f"{GUIDE}: strings are UTF-8")
async def client_id_of_unicode(lab: Lab) -> None:
    await _client_id(lab, "Größe-測試-🙂")


@SECTION.should(5, "A client id that is not UTF-8 does not end the connection.", "Apache Kafka: invalid bytes are replaced")
async def client_id_not_utf8(lab: Lab) -> None:
    payload = await (await lab.connect()).raw(_framed(_head(ApiKey.API_VERSIONS, 0, 1, b"\xff\xfe")))
    expect(payload is not None, "the connection was closed")


@SECTION.must(6, "The response has the correlation id of the request, whatever number that is.", f"{GUIDE}: correlation_id")
async def correlation_ids(lab: Lab) -> None:
    connection = await lab.connect()
    for number in (0, 1, -1, 2**31 - 1, -(2**31)):
        payload = await connection.raw(_framed(_head(ApiKey.API_VERSIONS, 0, number)))
        expect(payload is not None, f"no response to correlation id {number}")
        got = struct.unpack_from(">i", payload or bytes(4))[0]
        expect(got == number, f"correlation id {got} in place of {number}")


@SECTION.must(7, "A frame may arrive byte by byte.", f"{GUIDE}: a request is a size and as many bytes")
async def byte_by_byte(lab: Lab) -> None:
    connection = await lab.connect()
    sent = connection.frame(VERSIONS, 0)
    for at in range(len(sent.frame)):
        await connection.write(sent.frame[at : at + 1])
    await connection.receive(sent)


@SECTION.must(8, "Two frames may arrive at once.", f"{GUIDE}: requests of a connection are answered in order")
async def two_at_once(lab: Lab) -> None:
    connection = await lab.connect()
    first, second = connection.frame(VERSIONS, 0), connection.frame(VERSIONS, 0)
    await connection.write(first.frame + second.frame)
    await connection.receive(first)
    await connection.receive(second)


@SECTION.must(9, "A negative length closes the connection.", "Apache Kafka: NetworkReceive refuses sizes below 0")
async def negative_length(lab: Lab) -> None:
    await _is_closed(lab, struct.pack(">i", -1), "length -1")


@SECTION.must(10, "The smallest length closes the connection.", "Apache Kafka: NetworkReceive refuses sizes below 0")
async def smallest_length(lab: Lab) -> None:
    await _is_closed(lab, struct.pack(">i", -(2**31)), "length -2147483648")


@SECTION.should(11, "A length of 2 GB closes the connection at once.", "Apache Kafka: socket.request.max.bytes")
async def largest_length(lab: Lab) -> None:
    await _is_closed(lab, struct.pack(">i", 2**31 - 1), "length 2147483647")


@SECTION.must(12, "An empty frame closes the connection.", BROKER)
async def empty_frame(lab: Lab) -> None:
    await _is_closed(lab, _framed(b""), "an empty frame")


@SECTION.must(13, "A header that is cut short closes the connection.", BROKER)
async def cut_header(lab: Lab) -> None:
    await _is_closed(lab, _framed(struct.pack(">hh", ApiKey.API_VERSIONS, 0)), "half a header")


@SECTION.must(14, "An unknown API key closes the connection.", BROKER)
async def unknown_key(lab: Lab) -> None:
    await _is_closed(lab, _framed(_head(9999, 0)), "API key 9999")


@SECTION.must(15, "A negative API key closes the connection.", BROKER)
async def negative_key(lab: Lab) -> None:
    await _is_closed(lab, _framed(_head(-1, 0)), "API key -1")


@SECTION.must(16, "A version that the server does not have closes the connection, except for ApiVersions.", "KIP-511")
async def unknown_version(lab: Lab) -> None:
    await _is_closed(lab, _framed(_head(ApiKey.METADATA, 99) + b"\0" * 8), "Metadata 99")


@SECTION.must(17, "A negative version closes the connection.", BROKER)
async def negative_version(lab: Lab) -> None:
    await _is_closed(lab, _framed(_head(ApiKey.METADATA, -1) + b"\0" * 8), "Metadata -1")


@SECTION.must(18, "A body that is cut short closes the connection.", BROKER)
async def cut_body(lab: Lab) -> None:
    version = lab.version("Metadata", 4, 1)
    await _is_closed(lab, _framed(_head(ApiKey.METADATA, version) + struct.pack(">ih", 1, 5) + b"ab"), "a string cut short")


@SECTION.must(19, "An array that cannot be in the frame closes the connection.", BROKER)
async def huge_array(lab: Lab) -> None:
    version = lab.version("Metadata", 8, 1)
    await _is_closed(lab, _framed(_head(ApiKey.METADATA, version) + struct.pack(">i", 2**31 - 1)), "2147483647 topics")


@SECTION.must(20, "A null where the schema allows none closes the connection.", f"{GUIDE}: STRING is not nullable")
async def null_string(lab: Lab) -> None:
    version = lab.version("FindCoordinator", 2)
    await _is_closed(lab, _framed(_head(ApiKey.FIND_COORDINATOR, version) + b"\xff\xff" + b"\0" * (version > 0)), "a null key")


@SECTION.must(21, "A length of a compact string that cannot be in the frame closes the connection.", BROKER)
async def huge_compact_string(lab: Lab) -> None:
    version = lab.version("FindCoordinator", 3, 3)
    await _is_closed(lab, _framed(_head(ApiKey.FIND_COORDINATOR, version) + b"\0" + b"\xff\xff\xff\xff\x07"), "a string of 2 GB")


@SECTION.must(22, "Unknown tagged fields of the request header are skipped.", "KIP-482")
async def header_tags(lab: Lab) -> None:
    version = lab.version("Metadata", 12, 9)
    connection = await lab.connect()
    sent = connection.frame(messages.MetadataRequest(topics=[]), version)
    at = 4 + 8 + 2 + len(CLIENT_ID)
    payload = sent.frame[4:at] + b"\x02\x05\x01a\x64\x00" + sent.frame[at + 1 :]
    answer = await connection.raw(_framed(payload))
    expect(answer is not None, "the connection was closed")
    decoded(sent, answer or b"")


@SECTION.must(23, "The response of a flexible version has tagged fields in its header, and that of ApiVersions has none.", "KIP-511")
async def response_headers(lab: Lab) -> None:
    connection = await lab.connect()
    await connection.ask(VERSIONS._replace(client_software_name="conform", client_software_version="1"), lab.version("ApiVersions", 4, 3))
    await connection.ask(messages.MetadataRequest(topics=[]), lab.version("Metadata", 12, 9))


@SECTION.must(24, "A bad frame on one connection does not disturb another one.", "Apache Kafka: SocketServer")
async def others_go_on(lab: Lab) -> None:
    good, bad = await lab.connect(), await lab.connect()
    await good.ask(VERSIONS, 0)
    await bad.raw(_framed(_head(9999, 0)))
    await good.ask(VERSIONS, 0)


@SECTION.must(25, "A frame that never ends does not hold other connections.", "Apache Kafka: SocketServer")
async def unfinished_frame(lab: Lab) -> None:
    await (await lab.connect()).write(struct.pack(">i", 1000) + b"half")
    await (await lab.connect()).ask(VERSIONS, 0)


@SECTION.should(26, "A request of HTTP closes the connection.", "Apache Kafka: its first bytes are a length above socket.request.max.bytes")
async def http(lab: Lab) -> None:
    await _is_closed(lab, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP")


@SECTION.should(27, "A TLS handshake on a port without TLS closes the connection.", "Apache Kafka: its first bytes are a length of 352 MB")
async def tls(lab: Lab) -> None:
    await _is_closed(lab, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), "TLS")


@SECTION.must(28, "Requests that were whole before a bad frame get their responses.", "Apache Kafka: SocketServer")
async def good_before_bad(lab: Lab) -> None:
    connection = await lab.connect()
    sent = connection.frame(VERSIONS, 0)
    await connection.write(sent.frame)
    await connection.receive(sent)
    await connection.write(_framed(_head(9999, 0)))
    await connection.expect_closed("an unknown key")
