"""No secret is in any file of a journal, and what is masked still decodes."""

from __future__ import annotations

import threading
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from klamm.configs.tables.public_configs import public_configs
from klamm.journal.columns import Flag
from klamm.journal.segments import OpenSegment
from klamm.journal.writer import JournalWriter
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.exchanges.connections import ConnectionKind
from klamm.protocol.security import redaction
from klamm.tests.journal.journaled_world import JournaledWorld, asked, rows
from klamm.tests.protocol.exchanges.odd_requests import many_tags

SECRET = "hunter2-passwörd"


@pytest.fixture
def world(tmp_path: Path) -> JournaledWorld:
    return JournaledWorld(tmp_path, JournalWriter(tmp_path, "r", 1, frames="full", public_configs=public_configs()))


def is_written(lake: Path, secret: bytes = SECRET.encode()) -> bool:
    return any(secret in path.read_bytes() for path in lake.rglob("*") if path.is_file())


def request(key: ApiKey, version: int, message: Any) -> bytes:
    return messages.encode_request(key, version, 1, "c", messages.encode(message, version))


def response(key: ApiKey, version: int, message: Any) -> bytes:
    return messages.encode_response(key, version, 1, messages.encode(message, version))


def of(name: str, **fields: Any) -> Any:
    return getattr(messages, name)(**fields)


def altered(api: str, config: str, resource_type: int = 4) -> Any:
    top = getattr(messages, f"{api}Request")
    resource = top.AlterConfigsResource(
        resource_type=resource_type, resource_name="1", configs=[top.AlterableConfig(name=config, value=SECRET)]
    )
    return top(resources=[resource])


def upserted() -> Any:
    top = messages.AlterUserScramCredentialsRequest
    upsertion = top.ScramCredentialUpsertion(name="u", mechanism=1, iterations=4096, salt=SECRET.encode(), salted_password=SECRET.encode())
    return top(upsertions=[upsertion])


REQUESTS = [
    (ApiKey.SASL_AUTHENTICATE, 0, lambda: messages.SaslAuthenticateRequest(auth_bytes=SECRET.encode())),
    (ApiKey.SASL_AUTHENTICATE, 2, lambda: messages.SaslAuthenticateRequest(auth_bytes=SECRET.encode())),
    (ApiKey.ALTER_CONFIGS, 0, lambda: altered("AlterConfigs", "ssl.key.password")),
    (ApiKey.ALTER_CONFIGS, 2, lambda: altered("AlterConfigs", "listener.name.x.ssl.key.password")),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, lambda: altered("IncrementalAlterConfigs", "some.unknown.config")),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, lambda: altered("IncrementalAlterConfigs", "sasl.jaas.config")),
    (ApiKey.RENEW_DELEGATION_TOKEN, 2, lambda: messages.RenewDelegationTokenRequest(hmac=SECRET.encode())),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, 1, lambda: messages.ExpireDelegationTokenRequest(hmac=SECRET.encode())),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, lambda: altered("IncrementalAlterConfigs", "some.config", resource_type=32)),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, upserted),
    (ApiKey.SASL_HANDSHAKE, 1, lambda: messages.SaslHandshakeRequest(mechanism=SECRET)),
    (ApiKey.REGISTER_BROKER, 0, lambda: messages.RegisterBrokerRequest(secret=SECRET.encode())),
    (ApiKey.METADATA_FETCH, 0, lambda: messages.MetadataFetchRequest(secret=SECRET.encode())),
]


@pytest.mark.parametrize(("key", "version", "make"), REQUESTS, ids=lambda value: value.name if isinstance(value, ApiKey) else "")
@pytest.mark.parametrize("kind", [ConnectionKind.ACCEPTED, ConnectionKind.TO_CONTROLLER])
def test_secrets_in_requests_are_masked_and_the_frame_decodes(
    world: JournaledWorld, key: ApiKey, version: int, make: Any, kind: ConnectionKind
) -> None:
    connection = world.connection(kind)
    frame = request(key, version, make())
    assert SECRET.encode() in frame
    (connection.received if kind is ConnectionKind.ACCEPTED else connection.sent)(frame)
    (row,) = world.frames()
    assert not is_written(world.lake)
    assert row["flags"] == Flag.MASKED
    assert len(row["frame"]) == len(frame)
    header, start = messages.decode_request_header(row["frame"][4:])
    _, end = messages.decode(f"{APIS[key].name}Request", version, row["frame"][4:], start)
    assert (header.api_key, end) == (key, len(frame) - 4)


def test_a_request_that_was_masked_because_it_may_be_a_token_says_so(world: JournaledWorld) -> None:
    connection = world.connection(has_sasl=True)
    odd = messages.encode(messages.SaslAuthenticateRequest(auth_bytes=b"x"), 1) + SECRET.encode()
    connection.received(messages.encode_request(ApiKey.SASL_AUTHENTICATE, 1, 3, "c", odd))
    assert [row["flags"] for row in world.frames()] == [Flag.MASKED] and not is_written(world.lake)


def test_secrets_are_masked_by_the_thread_that_writes_however_large_the_request_is(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding 20,000 topics took the event loop half a second."""
    threads: list[str] = []
    mask = redaction.masked_request

    def masked(*args: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return mask(*args)

    monkeypatch.setattr(redaction, "masked_request", masked)
    kind = messages.CreateTopicsRequest
    configs = [[kind.CreatableTopicConfig(name, SECRET)] for name in ("retention.ms", "some.unknown.config")]
    large, small = (
        kind(topics=[kind.CreatableTopic(name="t", configs=each)] * count) for each, count in zip(configs, (5000, 1), strict=True)
    )
    connection = world.connection()
    connection.received(request(ApiKey.CREATE_TOPICS, 7, large))
    connection.received(request(ApiKey.CREATE_TOPICS, 7, small))
    rows = world.frames()
    assert [row["flags"] for row in rows] == [0, Flag.MASKED] and rows[0]["frame"] == request(ApiKey.CREATE_TOPICS, 7, large)
    assert threads == ["journal-1"] * 2 and SECRET.encode() not in rows[1]["frame"]


@pytest.mark.parametrize("name", ["retention.ms", "log.retention.ms", "leader.replication.throttled.rate"])
def test_values_of_known_configs_that_are_no_passwords_are_kept(world: JournaledWorld, name: str) -> None:
    world.connection().received(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, altered("IncrementalAlterConfigs", name)))
    (row,) = world.frames()
    assert (row["flags"], SECRET.encode() in row["frame"]) == (0, True)


def tokens() -> Any:
    token = messages.DescribeDelegationTokenResponse.DescribedDelegationToken(token_id="t", hmac=SECRET.encode())
    return messages.DescribeDelegationTokenResponse(tokens=[token])


RESPONSES = [
    (ApiKey.SASL_AUTHENTICATE, 1, lambda: messages.SaslAuthenticateResponse(auth_bytes=SECRET.encode(), error_message=SECRET)),
    (ApiKey.CREATE_DELEGATION_TOKEN, 2, lambda: messages.CreateDelegationTokenResponse(hmac=SECRET.encode())),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, tokens),
]


@pytest.mark.parametrize(("key", "version", "make"), RESPONSES, ids=lambda value: value.name if isinstance(value, ApiKey) else "")
def test_secrets_in_responses_are_masked(world: JournaledWorld, key: ApiKey, version: int, make: Any) -> None:
    connection = world.connection()
    connection.received(request(key, version, of(f"{APIS[key].name}Request")))
    frame = response(key, version, make())
    connection.sent(frame)
    row = world.frames()[1]
    assert not is_written(world.lake)
    assert (row["flags"], len(row["frame"])) == (Flag.MASKED, len(frame))
    payload = row["frame"][4:]
    messages.decode(f"{APIS[key].name}Response", version, payload, messages.decode_response_header(key, version, payload)[1])


@pytest.mark.parametrize("key", [ApiKey.SASL_AUTHENTICATE, ApiKey.ALTER_CONFIGS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.ENVELOPE])
@pytest.mark.parametrize("version", [0, 1, 99, -1])
def test_a_request_that_may_hold_a_secret_and_does_not_decode_is_masked_after_its_header(
    world: JournaledWorld, key: ApiKey, version: int
) -> None:
    world.connection().received(messages.encode_request(key, version, 1, "c", b"\xff\xff\x7f" + SECRET.encode()))
    (row,) = world.frames()
    assert not is_written(world.lake)
    assert (row["api_key"], row["flags"]) == (key, Flag.MASKED)


def test_surplus_bytes_behind_a_request_with_secrets_are_masked(world: JournaledWorld) -> None:
    message = messages.encode(messages.SaslAuthenticateRequest(auth_bytes=b"x"), 0) + SECRET.encode()
    world.connection().received(messages.encode_request(ApiKey.SASL_AUTHENTICATE, 0, 1, "c", message))
    world.frames()
    assert not is_written(world.lake)


@pytest.mark.parametrize(
    "token", [b"\0user\0" + SECRET.encode(), b"", SECRET.encode() * 300, b"n,,n=u,r=" + SECRET.encode(), b"ab" + SECRET.encode()]
)
@pytest.mark.parametrize("piece", [10**6, 5])
def test_tokens_after_a_handshake_of_version_0_are_never_written(world: JournaledWorld, token: bytes, piece: int) -> None:
    connection = world.connection()
    connection.received(request(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeRequest(mechanism="PLAIN")))
    connection.sent(response(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeResponse(mechanisms=["PLAIN"])))
    framed = len(token).to_bytes(4, "big") + token
    for start in range(0, len(framed), piece):
        connection.received(framed[start : start + piece])
    connection.sent(framed)
    connection.received(asked(9))
    found = world.frames()[2:]
    assert not is_written(world.lake)
    assert [row["dir"] for row in found] == [0, 1, 0]
    assert [bool(row["flags"] & Flag.RAW_TOKEN) for row in found] == [True, True, False]
    assert (found[0]["frame"], found[0]["api_key"]) == (framed[:4], None)
    assert found[2]["api_key"] == ApiKey.METADATA


def test_an_unfinished_request_with_a_secret_is_not_written_when_the_connection_ends(world: JournaledWorld) -> None:
    connection = world.connection()
    connection.received(request(ApiKey.SASL_AUTHENTICATE, 1, messages.SaslAuthenticateRequest(auth_bytes=SECRET.encode() * 2))[:-3])
    connection.closed("peer")
    assert len(world.frames()) == 1
    assert not is_written(world.lake)


def test_a_secret_is_not_written_as_the_response_to_a_produce_request_with_the_same_number(world: JournaledWorld) -> None:
    connection = world.connection()
    for frame in (many_tags(0), many_tags(1), request(ApiKey.CREATE_DELEGATION_TOKEN, 3, messages.CreateDelegationTokenRequest())):
        connection.received(frame)
    connection.sent(response(ApiKey.CREATE_DELEGATION_TOKEN, 3, messages.CreateDelegationTokenResponse(hmac=SECRET.encode())))
    assert len(world.frames()) == 4 and not is_written(world.lake)


def test_requests_that_wait_for_their_masks_count_as_they_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where only headers are written: else a client fills the memory while the disk is slow."""
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(self: OpenSegment, batch: Any) -> None:
        hangs.set()
        goes_on.wait(30)

    monkeypatch.setattr("klamm.journal.writer.WAITING_BYTES", 8 << 20)
    monkeypatch.setattr(OpenSegment, "write", hang)
    world = JournaledWorld(tmp_path, JournalWriter(tmp_path, "r", 1, frames="headers"))
    connection = world.connection()
    frame = request(ApiKey.SASL_AUTHENTICATE, 0, messages.SaslAuthenticateRequest(auth_bytes=bytes(2 << 20)))
    assert hangs.wait(10)
    for _ in range(5):
        connection.received(frame)
    goes_on.set()
    world.writer.close()
    assert "the disk is too slow" in caplog.text


def test_secrets_are_in_no_event(world: JournaledWorld) -> None:
    world.connection().received(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, altered("IncrementalAlterConfigs", "ssl.key.password")))
    world.frames()
    assert [row["kind"] for row in rows(world.lake, "events")] == ["conn_open"]


def test_a_token_that_does_not_wait_for_the_response_of_its_handshake_is_not_written(world: JournaledWorld) -> None:
    connection = world.connection()
    handshake = request(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeRequest(mechanism="PLAIN"))
    token = f"\0user\0{SECRET}".encode()
    connection.received(handshake + len(token).to_bytes(4, "big") + token)
    connection.closed("us", "no SASL here")
    found = world.frames()
    assert [bool(row["flags"] & Flag.RAW_TOKEN) for row in found] == [False, True]
    assert not is_written(world.lake)


def test_requests_go_on_after_a_handshake_that_was_refused(world: JournaledWorld) -> None:
    connection = world.connection()
    connection.received(request(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeRequest(mechanism="NO")))
    connection.sent(response(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeResponse(error_code=33)))
    connection.received(asked(5))
    assert [(row["api_key"], row["flags"]) for row in world.frames()] == [(17, 0), (17, 0), (3, 0)]


@pytest.mark.parametrize(("config", "hidden"), [("ssl.key.password", True), ("mine", True), ("cleanup.policy", False)])
@pytest.mark.parametrize("version", [0, 7])
def test_configs_of_new_topics_are_masked_as_altered_ones(world: JournaledWorld, version: int, config: str, hidden: bool) -> None:
    top = messages.CreateTopicsRequest
    configs = [top.CreatableTopicConfig(name=config, value=SECRET)]
    topic = top.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    world.connection().received(request(ApiKey.CREATE_TOPICS, version, top(topics=[topic])))
    (row,) = world.frames()
    assert (is_written(world.lake), bool(row["flags"] & Flag.MASKED)) == (not hidden, hidden)


TOKEN = f"\0user\0{SECRET}".encode()


def header(key: int, version: int, client: bytes = b"pen", length: int | None = None) -> bytes:
    return pack(">hhih", key, version, 1, len(client) if length is None else length) + client


def sasl_request(token: bytes = b"\0a\0b") -> bytes:
    return request(ApiKey.SASL_AUTHENTICATE, 2, messages.SaslAuthenticateRequest(auth_bytes=token))[4:]


ODD = {
    "a bare token": TOKEN,
    "an unknown version of SaslAuthenticate": header(36, 9) + b"\0\x30" + TOKEN,
    "a negative version of SaslAuthenticate": header(36, -1) + b"\0\x30" + TOKEN,
    **{f"a token that begins like a request of API {key}": header(key, 0) + TOKEN for key in (0, 3, 17, 18, 36, 1000)},
    "a client id that ends early": header(36, 2, SECRET.encode(), 300),
    "a client id that ends early in a request without secrets": header(3, 9, SECRET.encode(), 300),
    "a tagged field of the header": header(36, 2) + b"\1\5" + bytes([len(SECRET.encode())]) + SECRET.encode() + sasl_request()[14:],
    "a tagged field of the header of Metadata": header(3, 9) + b"\1\5" + bytes([len(SECRET.encode())]) + SECRET.encode() + asked()[18:],
    "bytes behind a request": sasl_request() + TOKEN,
    "bytes behind a request without secrets": asked()[4:] + TOKEN,
    "a version of ApiVersions that nobody has": header(18, 99) + b"\0" + TOKEN,
}


@pytest.mark.parametrize("frame", ODD.values(), ids=ODD)
@pytest.mark.parametrize("before", ["nothing", "a handshake of version 0", "a handshake of version 1", "a handshake on PLAINTEXT"])
@pytest.mark.parametrize("piece", [10**6, 5])
def test_no_odd_sasl_exchange_leaves_a_password(world: JournaledWorld, frame: bytes, before: str, piece: int) -> None:
    connection = world.connection(has_sasl=not before.endswith("PLAINTEXT"))
    if before != "nothing":
        connection.received(request(ApiKey.SASL_HANDSHAKE, 1 - ("0" in before), messages.SaslHandshakeRequest(mechanism="PLAIN")))
    framed = len(frame).to_bytes(4, "big") + frame
    for start in range(0, len(framed), piece):
        connection.received(framed[start : start + piece])
    connection.closed("us")
    assert world.frames()
    assert not is_written(world.lake)


@pytest.mark.parametrize("frame", ODD.values(), ids=ODD)
def test_no_odd_sasl_exchange_that_is_cut_off_leaves_a_password(world: JournaledWorld, frame: bytes) -> None:
    connection = world.connection(has_sasl=True)
    connection.received((len(frame) + 10).to_bytes(4, "big") + frame)
    connection.closed("peer")
    assert world.frames()
    assert not is_written(world.lake)


def test_a_bare_token_after_the_authentication_is_not_written_and_requests_take_the_short_way(world: JournaledWorld) -> None:
    connection = world.connection(has_sasl=True)
    connection.received(request(ApiKey.SASL_HANDSHAKE, 0, messages.SaslHandshakeRequest(mechanism="PLAIN")))
    connection.authenticated("User:a", "PLAIN")
    connection.received(asked(5))
    connection.received(len(TOKEN).to_bytes(4, "big") + TOKEN)
    connection.received(asked(6))
    found = world.frames()
    assert [(row["api_key"], row["correlation_id"], bool(row["flags"] & Flag.RAW_TOKEN)) for row in found] == [
        (17, 1, False), (3, 5, False), (None, None, True), (3, 6, False),
    ]
    assert not is_written(world.lake)


def test_requests_before_the_authentication_are_kept_as_they_were_sent(world: JournaledWorld) -> None:
    connection = world.connection(has_sasl=True)
    versions = request(ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    connection.received(versions + asked(2))
    assert [(row["frame"], row["flags"]) for row in world.frames()] == [(versions, 0), (asked(2), 0)]


def test_a_request_whose_encoding_has_another_length_is_masked_and_keeps_its_length(world: JournaledWorld) -> None:
    body = messages.encode(messages.SaslAuthenticateRequest(auth_bytes=SECRET.encode()), 2)
    frame = messages.encode_request(ApiKey.SASL_AUTHENTICATE, 2, 1, "c", body[:-1] + b"\1\7" + bytes([len(TOKEN)]) + TOKEN)
    world.connection().received(frame + asked(2))
    first, second = world.frames()
    assert (len(first["frame"]), first["flags"], second["frame"]) == (len(frame), Flag.MASKED, asked(2))
    assert not is_written(world.lake)


def test_a_frame_with_a_length_of_a_gigabyte_takes_no_more_memory_than_is_held(
    world: JournaledWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy nobody refuses it before: `GET ` of a browser is such a length. What is cut is masked all the same."""
    monkeypatch.setattr("klamm.journal.connection._LARGEST_HELD", 4096)
    connection = world.connection()
    whole = request(ApiKey.SASL_AUTHENTICATE, 0, messages.SaslAuthenticateRequest(auth_bytes=SECRET.encode() * 1000))
    connection.received(whole[:10_000])
    assert len(connection._exchanges.requests._buffer) == 4096
    connection.received(whole[10_000:])
    connection.received(b"GET " + b"x" * 10_000)
    assert len(connection._exchanges.requests._buffer) == 4096
    connection.closed("peer")
    cut, stray = world.frames()
    assert not is_written(world.lake) and (len(cut["frame"]), cut["flags"]) == (4096, Flag.CUT | Flag.MASKED)
    assert stray["frame"].startswith(b"GET ") and stray["flags"] & Flag.CUT
