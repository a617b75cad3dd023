"""Requests find their responses, and no secret comes out."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.exchanges.exchanges import Exchanges, ExchangeSink
from klamm.tests.protocol.exchanges.odd_requests import many_tags

SECRET = b"hunter2-passw\xc3\xb6rd"


class Seen(ExchangeSink):
    """A sink that remembers everything. What it returns for a request is (API key, correlation id)."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, bool, bool]] = []
        self.responses: list[tuple[Any, int]] = []
        self.others: list[Any] = []
        self.frames: list[bytes] = []

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: object
    ) -> tuple[int, int]:
        self.frames.append(frame)
        self.requests.append((kind >> 16, correlation_id, has_response, is_masked))
        return kind >> 16, correlation_id

    def response(self, state: Any, frame: bytes, size: int, special: int) -> None:
        self.frames.append(frame)
        self.responses.append((state, special))

    def token(self, size: int, is_request: bool) -> None:
        self.others.append(("token", size, is_request))

    def unmatched(self, frame: bytes, correlation_id: int | None) -> None:
        self.frames.append(frame)
        self.others.append(("unmatched", correlation_id))

    def stray(self, data: bytes, is_request: bool) -> None:
        self.frames.append(data)
        self.others.append(("stray", len(data), is_request))


def request(key: int, version: int, message: Any, number: int = 1) -> bytes:
    return messages.encode_request(key, version, number, "c", messages.encode(message, version))


def response(key: int, version: int, message: Any, number: int = 1) -> bytes:
    return messages.encode_response(key, version, number, messages.encode(message, version))


METADATA = int(ApiKey.METADATA)


@pytest.mark.parametrize("is_ours", [False, True])
def test_a_response_belongs_to_the_oldest_request_with_its_number(is_ours: bool) -> None:
    seen = Seen()
    exchanges = Exchanges(seen, is_ours=is_ours)
    ask, answer = (exchanges.sent, exchanges.received) if is_ours else (exchanges.received, exchanges.sent)
    for number in (1, 2, 2, 3):
        ask(request(METADATA, 9, messages.MetadataRequest(topics=None), number))
    for number in (1, 3, 2, 2, 7):
        answer(response(METADATA, 9, messages.MetadataResponse(), number))
    answer(b"\0\0\0\1x")
    assert [asked for asked, _ in seen.responses] == [(METADATA, 1), (METADATA, 3), (METADATA, 2), (METADATA, 2)]
    assert seen.others == [("unmatched", 7), ("unmatched", None)] and not exchanges.waiting


@pytest.mark.parametrize("version", [2, 3, 8, 9, 11])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_produce_request_without_acks_waits_for_no_response(version: int, acks: int) -> None:
    seen = Seen()
    exchanges = Exchanges(seen)
    exchanges.received(request(ApiKey.PRODUCE, version, messages.ProduceRequest(acks=acks)))
    assert [each[2] for each in seen.requests] == [acks != 0] and len(exchanges.waiting) == (acks != 0)


def test_the_response_to_an_unsupported_version_of_api_versions_has_version_0() -> None:
    seen = Seen()
    exchanges = Exchanges(seen)
    exchanges.received(request(ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest()) * 2)
    exchanges.sent(response(ApiKey.API_VERSIONS, 0, messages.ApiVersionsResponse(error_code=35)))
    exchanges.sent(response(ApiKey.API_VERSIONS, 3, messages.ApiVersionsResponse()))
    assert [special for _, special in seen.responses] == [ApiKey.API_VERSIONS << 16, ApiKey.API_VERSIONS << 16 | 3]


def test_no_secret_comes_out_whole_in_pieces_or_cut_short() -> None:
    kind = messages.AlterConfigsRequest
    changes = kind(resources=[kind.AlterConfigsResource(2, "t", [kind.AlterableConfig("ssl.key.password", SECRET.decode())])])
    created = messages.CreateDelegationTokenResponse(hmac=SECRET)
    secret = request(ApiKey.RENEW_DELEGATION_TOKEN, 2, messages.RenewDelegationTokenRequest(hmac=SECRET), 5)
    for size in (1, 7, len(secret)):
        seen = Seen()
        exchanges = Exchanges(seen)
        data = secret + request(ApiKey.ALTER_CONFIGS, 2, changes, 6)
        data += request(ApiKey.CREATE_DELEGATION_TOKEN, 3, messages.CreateDelegationTokenRequest(), 7) * 2 + secret[:-1]
        for start in range(0, len(data), size):
            exchanges.received(data[start : start + size])
        answer = response(ApiKey.CREATE_DELEGATION_TOKEN, 3, created, 7)
        exchanges.sent(answer + answer[:-1])
        exchanges.closed()
        assert not [frame for frame in seen.frames if b"hunter2" in frame]
        assert (ApiKey.RENEW_DELEGATION_TOKEN, 5, True, True) in seen.requests


def test_a_response_with_a_secret_that_belongs_to_no_request_is_not_kept() -> None:
    seen = Seen()
    exchanges = Exchanges(seen)
    exchanges.received(request(ApiKey.CREATE_DELEGATION_TOKEN, 3, messages.CreateDelegationTokenRequest(), 7))
    exchanges.sent(response(ApiKey.CREATE_DELEGATION_TOKEN, 3, messages.CreateDelegationTokenResponse(hmac=SECRET), 8))
    assert not [frame for frame in seen.frames if SECRET in frame] and seen.others == [("unmatched", 8)]


def test_the_last_token_of_a_broker_is_not_kept_if_it_is_cut_short() -> None:
    seen = Seen()
    exchanges = Exchanges(seen, has_sasl=True)
    exchanges.received(request(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeRequest(mechanism="PLAIN")) + b"\0\0\0\5token")
    exchanges.guard.authenticated()
    exchanges.sent(response(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeResponse()) + b"\0\0\1\0" + SECRET)
    exchanges.closed()
    assert not [frame for frame in seen.frames if SECRET in frame] and seen.others[-1] == ("stray", 4, False)


def test_a_secret_is_not_taken_for_the_response_to_a_produce_request_with_the_same_number() -> None:
    seen = Seen()
    exchanges = Exchanges(seen)
    exchanges.received(many_tags(7) + request(ApiKey.CREATE_DELEGATION_TOKEN, 3, messages.CreateDelegationTokenRequest(), 7))
    exchanges.sent(response(ApiKey.CREATE_DELEGATION_TOKEN, 3, messages.CreateDelegationTokenResponse(hmac=SECRET), 7))
    assert len(seen.responses) == 1 and not [frame for frame in seen.frames if SECRET in frame]


def test_what_may_be_a_token_is_none_of_the_requests_and_its_answer_none_of_the_responses() -> None:
    seen = Seen()
    exchanges = Exchanges(seen, has_sasl=True)
    token = len(SECRET).to_bytes(4, "big") + SECRET
    exchanges.received(request(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeRequest(mechanism="PLAIN")) + token)
    exchanges.sent(response(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeResponse()) + b"\0\0\0\0")
    exchanges.guard.authenticated()
    exchanges.received(request(METADATA, 9, messages.MetadataRequest(topics=None), 2))
    exchanges.sent(response(METADATA, 9, messages.MetadataResponse(), 2))
    assert [each[0] for each in seen.requests] == [ApiKey.SASL_HANDSHAKE, METADATA] and len(seen.responses) == 2
    assert seen.others == [("token", len(token), True), ("token", 4, False)]


def test_a_large_frame_before_the_authentication_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the event loop long, and nothing that a client sends then is large."""
    seen = Seen()
    exchanges = Exchanges(seen, has_sasl=True)
    large = request(METADATA, 9, messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name="t" * 1000)] * 70))
    monkeypatch.delattr(messages, "decode")
    monkeypatch.delattr(messages, "decode_request_header")
    exchanges.received(large)
    assert not seen.requests and seen.others == [("token", len(large), True)]
