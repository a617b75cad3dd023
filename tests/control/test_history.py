"""What is remembered of requests: bytes in any pieces, old ones forgotten, large ones cut."""

from __future__ import annotations

import random
from typing import Any

import pytest

from klamm.control import history
from klamm.control.bodies import checked_filter
from klamm.control.history import Exchange, History, as_json
from klamm.control.refusal import Refused
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind

INFO = ConnectionInfo(1, "c", ConnectionKind.ACCEPTED, "127.0.0.1:1")


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def request(number: int, client: str = "x") -> bytes:
    return messages.encode_request(ApiKey.METADATA, 9, number, client, messages.encode(messages.MetadataRequest(topics=None), 9))


def response(number: int) -> bytes:
    return messages.encode_response(ApiKey.METADATA, 9, number, messages.encode(messages.MetadataResponse(controller_id=7), 9))


def pieces(data: bytes, dice: random.Random) -> list[bytes]:
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(20)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def test_requests_and_responses_find_each_other_in_any_pieces() -> None:
    for seed in range(50):
        dice, kept = random.Random(seed), History()
        sink = kept.connection(INFO)
        for piece in pieces(b"".join(request(number) for number in range(10)), dice):
            sink.received(piece)
        for piece in pieces(b"".join(response(number) for number in range(7)), dice):
            sink.sent(piece)
        shown = [as_json(exchange) for exchange in kept.newest(api="Metadata", client_id="x")]
        assert [each["correlation_id"] for each in shown] == list(range(9, -1, -1))
        assert [each["response"] and each["response"]["controller_id"] for each in shown] == [None] * 3 + [7] * 7
        assert kept.total == 10


def test_of_two_requests_with_one_number_the_older_gets_the_first_response() -> None:
    kept = History()
    sink = kept.connection(INFO)
    sink.received(request(1, "first") + request(1, "second"))
    sink.sent(response(1))
    assert {each.client_id: each.response is not None for each in kept.newest()} == {"first": True, "second": False}


def test_old_requests_are_forgotten_by_number_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_REQUESTS", 100)
    kept = History()
    sink = kept.connection(INFO)
    for number in range(250):
        sink.received(request(number))
        if number % 2:
            sink.sent(response(number))
    assert [each.correlation_id for each in kept.newest()] == list(range(249, 149, -1)) and kept.total == 250
    size = len(request(0))
    monkeypatch.setattr(history, "MAX_BYTES", 20 * size)
    for number in range(1000):
        sink.received(request(number))
    found = [each.correlation_id for each in kept.newest()]
    assert found == list(range(999, 999 - len(found), -1)) and 0 < len(found) <= 20
    assert kept.total == 1250


def test_of_a_large_request_only_the_head_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LARGEST", 1000)
    kept = History()
    sink = kept.connection(INFO)
    large = request(1, "x" * 5000)
    for start in range(0, len(large), 64):
        sink.received(large[start : start + 64])
    sink.received(request(2, "small"))
    (shown,) = [as_json(each) for each in kept.newest(client_id="small")]
    assert shown["correlation_id"] == 2 and kept.total == 2


def test_bytes_that_are_no_request_are_no_exchange() -> None:
    kept = History()
    sink = kept.connection(INFO)
    sink.received(framed(b"") + framed(b"\0") + framed(b"GET / HTTP/1.1"))
    sink.sent(framed(b"x"))
    assert all(as_json(each)["request"] is None for each in kept.newest())


def error_response(number: int) -> bytes:
    kind = messages.MetadataResponse
    body = messages.encode(kind(controller_id=7, topics=[kind.MetadataResponseTopic(error_code=3, name="t")]), 9)
    return messages.encode_response(ApiKey.METADATA, 9, number, body)


def test_errors_outlive_successes_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_REQUESTS", 100)
    monkeypatch.setattr(history, "MAX_ERRORS", 3)
    kept = History()
    sink = kept.connection(INFO)
    for number in range(400):
        sink.received(request(number))
        sink.sent(error_response(number) if number < 50 and number % 10 == 0 else response(number))
    assert [each.correlation_id for each in kept.newest(error="any")] == [40, 30, 20]
    assert [each.correlation_id for each in kept.newest(error="UNKNOWN_TOPIC_OR_PARTITION", after=31)] == [40]
    assert [each.correlation_id for each in kept.newest()] == [*range(399, 299, -1), 40, 30, 20]
    monkeypatch.setattr(history, "MAX_BYTES", 20 * len(request(0)))
    for number in range(400, 500):
        sink.received(request(number))
    assert [each.correlation_id for each in kept.newest(error="any")] == [40, 30, 20], "nobody read the requests that came since"
    monkeypatch.setattr(history, "MAX_ERROR_BYTES", 1)
    again = Exchange(99, 0, 1, "p", request(99)[4:])
    again.response = error_response(99)[4:]
    kept.take([again, *(Exchange(number, 0, 1, "p", request(number)[4:]) for number in range(1000, 1200))])
    assert not list(kept.newest(error="any")), "neither number nor bytes may grow"


def test_a_response_with_a_number_that_is_used_again_is_not_that_of_a_forgotten_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 20 * len(request(0)))
    kept = History()
    sink = kept.connection(INFO)
    sink.received(request(7, "forgotten"))
    assert [each.correlation_id for each in kept.newest()] == [7]
    for number in range(100, 200):
        sink.received(request(number))
    sink.received(request(7, "again"))
    sink.sent(response(7))
    assert [(each.client_id, each.response is not None) for each in kept.newest(client_id="again")] == [("again", True)]
    assert not list(kept.newest(client_id="forgotten"))


def test_the_response_to_a_forgotten_request_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_REQUESTS", 2)
    kept = History()
    sink = kept.connection(INFO)
    for number in range(5):
        sink.received(request(number))
    assert len(list(kept.newest())) == 2
    for number in range(3):
        sink.sent(response(number))
    assert [each.response for each in kept.newest()] == [None, None]
    assert kept._bytes == 2 * (len(request(0)) - 4)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"error": "NOT_LEADER"}, "there is no error 'NOT_LEADER'; did you mean NOT_LEADER_OR_FOLLOWER?"),
        ({"error": "-77"}, "there is no error code -77"),
        ({"error": "NONE"}, "NONE is not an error; 'any' is any error"),
        ({"broker": 7}, "there is no broker 7; the cluster has 1, 2, 3"),
        ({"api": "Produse"}, "there is no API 'Produse'; did you mean Produce?"),
    ],
)
def test_a_filter_that_can_match_nothing_is_refused(wanted: dict[str, Any], text: str) -> None:
    with pytest.raises(Refused) as refused:
        checked_filter(wanted, range(1, 4))
    assert str(refused.value) == text


def test_a_filter_may_name_an_error_by_its_number() -> None:
    wanted = {"error": "3", "broker": 3, "api": "3", "topic": None}
    assert checked_filter(wanted, range(1, 4)) == wanted | {"error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert checked_filter({"error": "any"}, [1]) == {"error": "any"}


def test_no_exchange_has_a_secret_whatever_shows_it() -> None:
    secret = "hunter2-password"
    kept = History()
    sink = kept.connection(ConnectionInfo(1, "c", ConnectionKind.ACCEPTED, "127.0.0.1:1", has_sasl=True))
    handshake, authenticate = messages.SaslHandshakeRequest(mechanism="PLAIN"), messages.SaslAuthenticateRequest(auth_bytes=secret.encode())
    altered = messages.IncrementalAlterConfigsRequest
    configs = [altered.AlterableConfig(name="ssl.key.password", value=secret), altered.AlterableConfig(name="retention.ms", value="7")]
    change = altered(resources=[altered.AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)])
    token = messages.CreateDelegationTokenResponse(token_id="t", hmac=secret.encode())
    bare = f"\0user\0{secret}".encode()
    sink.received(framed(bare) + _sent(ApiKey.SASL_HANDSHAKE, 1, 1, handshake) + _sent(ApiKey.SASL_AUTHENTICATE, 2, 2, authenticate))
    sink.authenticated("User:user", "PLAIN")
    sink.received(_sent(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 3, change) + framed(bare))
    sink.received(_sent(ApiKey.CREATE_DELEGATION_TOKEN, 2, 4, messages.CreateDelegationTokenRequest()))
    sink.sent(messages.encode_response(ApiKey.CREATE_DELEGATION_TOKEN, 2, 4, messages.encode(token, 2)))
    exchanges = list(kept.newest())
    assert [each.api for each in exchanges] == ["CreateDelegationToken", "IncrementalAlterConfigs", "SaslAuthenticate", "SaslHandshake"]
    for each in exchanges:
        shown = f"{each.request!r} {each.response!r} {each.decoded_request()} {each.decoded_response()} {as_json(each)}"
        assert secret not in shown and secret.encode().hex() not in shown, each.api
    decoded: Any = exchanges[1].decoded_request()
    assert [config.value for config in decoded.resources[0].configs] == ["*" * len(secret), "7"]
    assert as_json(exchanges[0])["response"]["hmac"] == "2a" * len(secret)
    assert kept.total == 6


def _sent(key: ApiKey, version: int, number: int, message: Any) -> bytes:
    return messages.encode_request(key, version, number, "x", messages.encode(message, version))


def test_an_authentication_whose_chunks_were_skipped_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 100)
    kept = History()
    sink = kept.connection(ConnectionInfo(1, "c", ConnectionKind.ACCEPTED, "127.0.0.1:1", has_sasl=True))
    surplus = framed(request(1)[4:] + b"surplus")
    sink.received(surplus)
    assert next(kept.newest()).decoded_request() is None, "bytes behind a request may be a password"
    sink.authenticated("User:user", "PLAIN")
    for _ in range(20):
        sink.received(surplus)
    assert all(each.decoded_request() is not None for each in kept.newest())


def test_a_request_whose_response_was_skipped_does_not_get_the_secret_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 4 * len(response(7)))
    kept = History()
    sink = kept.connection(INFO)
    sink.received(request(7))
    assert [each.correlation_id for each in kept.newest()] == [7]
    sink.sent(response(7))
    other = kept.connection(INFO)
    for number in range(8):
        other.sent(response(number))
    token = messages.CreateDelegationTokenResponse(token_id="t", hmac=b"hunter2-password")
    monkeypatch.setattr(history, "MAX_BYTES", 1 << 20)
    sink.received(_sent(ApiKey.CREATE_DELEGATION_TOKEN, 2, 7, messages.CreateDelegationTokenRequest()))
    sink.sent(messages.encode_response(ApiKey.CREATE_DELEGATION_TOKEN, 2, 7, messages.encode(token, 2)))
    (newest,) = kept.newest(api="CreateDelegationToken")
    assert newest.response is not None and b"hunter2" not in b"".join(each.response or b"" for each in kept.newest())
