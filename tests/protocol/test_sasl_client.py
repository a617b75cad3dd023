"""Requests of the SASL exchange have the correlation ids that Kafka's clients set aside for it."""

from __future__ import annotations

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.messages import SASL_IDS, id_after
from klamm.protocol.security.sasl_client import BearerToken, Credentials, Tokens, authenticate

FIRST = 2_147_483_640
"""`SaslClientAuthenticator.MIN_RESERVED_CORRELATION_ID` of Apache Kafka 3.9.1."""


class Listener:
    """Answers each request, with a correlation id that is `wrong_by` too high."""

    def __init__(self, wrong_by: int = 0) -> None:
        self.ids: list[int] = []
        self._wrong_by = wrong_by

    async def send(self, frame: bytes) -> bytes:
        header, _ = messages.decode_request_header(frame[4:])
        self.ids.append(header.correlation_id)
        shakes = header.api_key == ApiKey.SASL_HANDSHAKE
        response = messages.SaslHandshakeResponse(mechanisms=["PLAIN"]) if shakes else messages.SaslAuthenticateResponse()
        body = messages.encode(response, header.api_version)
        return messages.encode_response(header.api_key, header.api_version, header.correlation_id + self._wrong_by, body)[4:]


async def test_the_exchange_of_sasl_has_the_reserved_correlation_ids() -> None:
    listener = Listener()
    await authenticate(listener.send, "1", Credentials("PLAIN", "admin", "secret"))
    assert listener.ids == [FIRST, FIRST + 1]


class TenTokens(BearerToken):
    """More tokens than there are reserved ids."""

    def tokens(self) -> Tokens:
        for number in range(10):
            yield b"%d" % number


async def test_a_long_exchange_begins_again_with_the_first_reserved_id() -> None:
    listener = Listener()
    await authenticate(listener.send, "1", TenTokens(""))
    assert listener.ids == [*range(FIRST, FIRST + 8), FIRST, FIRST + 1, FIRST + 2]


async def test_a_response_to_another_request_is_an_error() -> None:
    with pytest.raises(RemoteProtocolError, match=str(FIRST - 1)):
        await authenticate(Listener(-1).send, "1", Credentials("PLAIN", "admin", "secret"))


def test_other_requests_leave_the_reserved_ids_out() -> None:
    assert [id_after(number) for number in (-1, 0, FIRST - 2, FIRST - 1)] == [0, 1, FIRST - 1, 0]
    assert SASL_IDS.stop == 2**31
