"""Tiny journals of the rules `W`."""

from __future__ import annotations

from typing import Any

from klamm.journal.columns import Direction, Flag
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.messages import APIS
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent

SECOND = 1_000_000_000
METADATA = messages.MetadataRequest(topics=None)
SHOWN = messages.MetadataResponse(cluster_id="c", controller_id=1)
entry = messages.ApiVersionsResponse.ApiVersion
EVERYTHING = [entry(int(api.key), api.min_version, api.max_version) for api in APIS.values()]
HEARTBEAT = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def broker(run: Run, node: int = 1, *, listener: str = "PLAINTEXT", versions: tuple[int, int] | None = None) -> Any:
    """The journal of a broker that has started and says what it offers; `versions` are those of ApiVersions."""
    journal = run.journal(node)
    journal.event("broker_started", broker=node, output={"broker": node, "version": "3.9.1", "ibp": "3.9", "listeners": [listener]})
    apis = [[int(api.key), api.min_version, api.max_version] for api in APIS.values() if not api.draft]
    if versions is not None:
        apis = [[key, *(versions if key == ApiKey.API_VERSIONS else span)] for key, *span in apis]
    journal.event("advertised", input={"listener": listener}, output={"apis": apis})
    return journal


def exchange(journal: Any, conn: int = 1, **columns: Any) -> tuple[int, int]:
    """A request for metadata and its answer."""
    asked = journal.request(conn, ApiKey.METADATA, 12, METADATA, **columns)
    return asked, journal.response(conn, asked, SHOWN)


def later(journal: Any, seconds: int) -> None:
    """Time passes."""
    journal.now_ns += seconds * SECOND


# --- W-01


@good("W-01")
def answers_in_order_on_two_connections(run: Run) -> None:
    journal = broker(run)
    first = journal.request(1, ApiKey.METADATA, 12, METADATA)
    other = journal.request(2, ApiKey.METADATA, 12, METADATA)
    second = journal.request(1, ApiKey.METADATA, 12, METADATA)
    for conn, asked in ((2, other), (1, first), (1, second)):
        journal.response(conn, asked, SHOWN)


@good("W-01")
def versions_overtake_as_kafka_s_brokers_send_them(run: Run) -> None:
    journal = broker(run)
    versions = journal.request(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest("a", "1"), corr=1)
    journal.response(1, versions, messages.ApiVersionsResponse(api_keys=EVERYTHING))
    exchange(journal, corr=0)


@bad("W-01")
def an_answer_overtakes(run: Run) -> int:
    journal = broker(run)
    first, second = (journal.request(1, ApiKey.METADATA, 12, METADATA) for _ in range(2))
    journal.response(1, second, SHOWN)
    return int(journal.response(1, first, SHOWN))


@bad("W-01")
def an_answer_without_a_request(run: Run) -> int:
    journal = broker(run)
    asked, _ = exchange(journal)
    return int(journal.response(1, asked, SHOWN, correlation_id=99, cause_seq=None, api_key=3, api_version=12, flags=int(Flag.UNMATCHED)))


# --- W-02


@good("W-02")
def a_version_in_range(run: Run) -> None:
    exchange(broker(run))


@good("W-02")
def ranges_that_only_answers_tell(run: Run) -> None:
    journal = run.journal()
    asked = journal.request(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest("a", "1"))
    journal.response(1, asked, messages.ApiVersionsResponse(api_keys=[entry(3, 0, 12), entry(18, 0, 4)]))
    exchange(journal)


@bad("W-02", also=["W-05"])
def a_version_above_what_is_advertised(run: Run) -> int:
    journal = run.journal()
    journal.event("advertised", input={"listener": "PLAINTEXT"}, output={"apis": [[3, 0, 11], [18, 0, 4]]})
    return exchange(journal)[1]


@bad("W-02", also=["W-05"])
def an_api_that_another_listener_offers(run: Run) -> int:
    journal = broker(run, listener="INTERNAL")
    journal.event("advertised", input={"listener": "PLAINTEXT"}, output={"apis": [[18, 0, 4]]})
    return exchange(journal)[1]


@silent("W-02")
def no_broker_says_what_it_offers(run: Run) -> None:
    exchange(run.journal())


# --- W-03


@good("W-03")
def what_need_not_be_answered(run: Run) -> None:
    journal = broker(run)
    exchange(journal)
    journal.request(1, ApiKey.PRODUCE, 9, messages.ProduceRequest(acks=0), flags=int(Flag.NO_RESPONSE))
    exchange(journal)
    journal.request(2, ApiKey.HEARTBEAT, 4, HEARTBEAT)
    journal.event("conn_close", conn_id=2, output={"by": "peer", "reason": None})
    later(journal, 60)
    exchange(journal)
    journal.request(3, ApiKey.HEARTBEAT, 4, HEARTBEAT)
    later(journal, 10)
    exchange(journal)


@good("W-03")
def requests_behind_a_rebalance(run: Run) -> None:
    journal = broker(run)
    journal.request(1, ApiKey.JOIN_GROUP, 7, messages.JoinGroupRequest(group_id="g", protocol_type="consumer"))
    journal.request(1, ApiKey.METADATA, 12, METADATA)
    later(journal, 120)
    exchange(journal, 2)


@good("W-03")
def answers_lost_in_a_gap(run: Run) -> None:
    journal = broker(run)
    journal.request(1, ApiKey.METADATA, 12, METADATA)
    journal.skip()
    exchange(journal)


@good("W-03")
def the_same_connection_number_in_a_later_process(run: Run) -> None:
    journal = broker(run)
    exchange(journal)
    journal.request(1, ApiKey.HEARTBEAT, 4, HEARTBEAT)
    columns = {"process": 2}
    later(journal, 60)
    asked = journal.request(1, ApiKey.METADATA, 12, METADATA, **columns)
    journal.response(1, asked, SHOWN, **columns)


@bad("W-03")
def a_request_is_passed_over(run: Run) -> int:
    journal = broker(run)
    forgotten = journal.request(1, ApiKey.HEARTBEAT, 4, HEARTBEAT)
    exchange(journal)
    return int(forgotten)


@bad("W-03")
def a_request_is_passed_over_before_its_connection_is_closed(run: Run) -> int:
    journal = broker(run)
    forgotten = journal.request(1, ApiKey.HEARTBEAT, 4, HEARTBEAT)
    exchange(journal)
    journal.request(1, ApiKey.HEARTBEAT, 4, HEARTBEAT)
    journal.event("conn_close", conn_id=1, output={"by": "peer", "reason": None})
    return int(forgotten)


@bad("W-03")
def a_request_is_forgotten(run: Run) -> int:
    journal = broker(run)
    forgotten = journal.request(1, ApiKey.HEARTBEAT, 4, HEARTBEAT)
    journal.request(1, ApiKey.HEARTBEAT, 4, HEARTBEAT)
    later(journal, 60)
    exchange(journal, 2)
    return int(forgotten)


@bad("W-03")
def a_request_is_answered_twice(run: Run) -> int:
    journal = broker(run)
    asked, _ = exchange(journal)
    journal.response(1, asked, SHOWN)
    return asked


# --- W-04

TOO_NEW = messages.ApiVersionsResponse(error_code=35, api_keys=[messages.ApiVersionsResponse.ApiVersion(18, 0, 4)])


def versions(journal: Any, version: int, answer: Any = TOO_NEW, *, answered_in: int = 0, name: str = "tiny") -> int:
    """ApiVersions in a version that the codec need not know, and its answer; the request's seq."""
    head = ApiKey.API_VERSIONS.to_bytes(2, "big") + (version & 0xFFFF).to_bytes(2, "big") + (77).to_bytes(4, "big")
    payload = head + len(name).to_bytes(2, "big") + name.encode() + b"\0" + b"\x02a\x021\0"
    frame = len(payload).to_bytes(4, "big") + payload
    asked = journal.request(1, ApiKey.API_VERSIONS, version, b"", corr=77, frame=frame)
    if answer is not None:
        body = (77).to_bytes(4, "big") + messages.encode(answer, answered_in)
        journal.response(1, asked, b"", frame=len(body).to_bytes(4, "big") + body)
    return int(asked)


@good("W-04")
def versions_too_new_and_negative(run: Run) -> None:
    journal = broker(run)
    versions(journal, 9)
    journal = broker(run, 2)
    versions(journal, -1)


@good("W-04")
def versions_within_a_header_that_ends_early(run: Run) -> None:
    journal = broker(run)
    versions(journal, 9)
    payload = bytes.fromhex("0012000900000001 00ff61")
    journal.request(2, ApiKey.API_VERSIONS, 9, b"", corr=1, frame=len(payload).to_bytes(4, "big") + payload)
    journal.event("conn_close", conn_id=2, output={"by": "us", "reason": "malformed"})


@good("W-04")
def a_broker_without_kip_511_names_no_range(run: Run) -> None:
    journal = broker(run, versions=(0, 2))
    versions(journal, 3, messages.ApiVersionsResponse(error_code=35))


@bad("W-04")
def a_broker_with_kip_511_names_no_range(run: Run) -> int:
    return versions(broker(run), 9, messages.ApiVersionsResponse(error_code=35))


@bad("W-04")
def versions_answered_with_another_error(run: Run) -> int:
    return versions(broker(run), 9, messages.ApiVersionsResponse(error_code=42))


@bad("W-04")
def versions_answered_with_every_api(run: Run) -> int:
    return versions(broker(run), 9, messages.ApiVersionsResponse(error_code=35, api_keys=[entry(18, 0, 4), entry(3, 0, 12)]))


@bad("W-04")
def versions_not_answered(run: Run) -> int:
    journal = broker(run)
    asked = versions(journal, 9, None)
    journal.event("conn_close", conn_id=1, output={"by": "us", "reason": "version"})
    return asked


@bad("W-04", also=["W-09"])
def versions_answered_in_a_flexible_body(run: Run) -> int:
    return versions(broker(run), 9, TOO_NEW, answered_in=3)


# --- W-05


def unreadable(journal: Any, conn: int = 1, *, key: int = 3, version: int = 12) -> int:
    """A request for metadata whose body is cut; its seq."""
    payload = bytes.fromhex(f"{key:04x}{version:04x}00000001000161 00 05")
    return int(journal.request(conn, key, version, b"", corr=1, frame=len(payload).to_bytes(4, "big") + payload))


@good("W-05", also=["K-01"])
def a_connection_is_closed_after_garbage(run: Run) -> None:
    journal = broker(run)
    unreadable(journal)
    journal.event("conn_close", conn_id=1, output={"by": "us", "reason": "malformed"})
    unreadable(journal, 2, key=999)
    journal.event("conn_close", conn_id=2, output={"by": "us", "reason": "unknown API"})
    unreadable(journal, 3)
    later(journal, 60)
    journal.event("conn_close", conn_id=3, output={"by": "us", "reason": "malformed"})
    later(journal, 60)
    unreadable(journal, 4)
    exchange(journal, 5)


@good("W-05", also=["K-01", "K-03"])
def surplus_bytes_and_bad_utf8_are_served(run: Run) -> None:
    journal = broker(run)
    unreadable(journal, 9)
    journal.event("conn_close", conn_id=9, output={"by": "us", "reason": "malformed"})
    body = messages.encode(METADATA, 12)
    asked = journal.request(1, ApiKey.METADATA, 12, body + b"\0\0\0")
    journal.response(1, asked, SHOWN)
    payload = bytes.fromhex("000c000400000002 0002ffff 00 0367ff 00000001 026d") + b"\0\0"
    asked = journal.request(1, ApiKey.HEARTBEAT, 4, b"", corr=2, frame=len(payload).to_bytes(4, "big") + payload)
    journal.response(1, asked, messages.HeartbeatResponse())


@bad("W-05", also=["K-01"])
def garbage_is_answered(run: Run) -> int:
    journal = broker(run)
    asked = unreadable(journal)
    journal.response(1, asked, SHOWN)
    return asked


@bad("W-05", also=["K-01"])
def a_connection_serves_on_after_garbage(run: Run) -> int:
    journal = broker(run)
    asked = unreadable(journal)
    exchange(journal, corr=9)
    return asked


@bad("W-05", also=["K-01"])
def a_connection_stays_open_after_garbage(run: Run) -> int:
    journal = broker(run)
    asked = unreadable(journal)
    later(journal, 60)
    exchange(journal, 2)
    return asked


@bad("W-05", also=["W-02"])
def an_api_that_is_not_advertised_is_answered(run: Run) -> int:
    journal = run.journal()
    journal.event("advertised", input={"listener": "PLAINTEXT"}, output={"apis": [[18, 0, 4]]})
    return exchange(journal)[0]


# --- W-06


def handshake(journal: Any, conn: int, version: int = 1, error: int = 0) -> int:
    """SaslHandshake and its answer; the seq of the answer."""
    asked = journal.request(conn, ApiKey.SASL_HANDSHAKE, version, messages.SaslHandshakeRequest("PLAIN"), listener="SASL")
    return int(journal.response(conn, asked, messages.SaslHandshakeResponse(error, ["PLAIN"]), listener="SASL"))


def authenticated(journal: Any, conn: int) -> None:
    """The whole way of a client, and a request afterwards."""
    handshake(journal, conn)
    token = messages.SaslAuthenticateRequest(b"****")
    asked = journal.request(conn, ApiKey.SASL_AUTHENTICATE, 2, token, listener="SASL", flags=int(Flag.MASKED))
    journal.response(conn, asked, messages.SaslAuthenticateResponse(), listener="SASL")
    journal.event("authenticated", conn_id=conn, output={"principal": "User:a", "mechanism": "PLAIN"})
    asked = journal.request(conn, ApiKey.METADATA, 12, METADATA, listener="SASL")
    journal.response(conn, asked, SHOWN, listener="SASL")


def told(journal: Any, conn: int, error: int = 0) -> int:
    """ApiVersions on a SASL listener; the seq of the answer."""
    asked = journal.request(conn, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest("a", "1"), listener="SASL")
    return int(journal.response(conn, asked, messages.ApiVersionsResponse(error, EVERYTHING), listener="SASL"))


@good("W-06")
def clients_authenticate(run: Run) -> None:
    journal = run.journal()
    told(journal, 1, error=42)
    told(journal, 1)
    authenticated(journal, 1)
    told(journal, 1)
    told(journal, 1)
    journal.event("authenticated", conn_id=2, output={"principal": "User:ANONYMOUS", "mechanism": None})
    exchange(journal, 2)
    handshake(journal, 3, version=0)
    journal.raw(3, Direction.REQUEST_IN, b"", listener="SASL", flags=int(Flag.RAW_TOKEN))
    journal.raw(3, Direction.RESPONSE_OUT, b"", listener="SASL", flags=int(Flag.RAW_TOKEN))
    asked = journal.request(3, ApiKey.METADATA, 12, METADATA, listener="SASL")
    journal.response(3, asked, SHOWN, listener="SASL")


@good("W-06")
def a_request_too_early_is_refused(run: Run) -> None:
    journal = run.journal()
    authenticated(journal, 1)
    handshake(journal, 2)
    asked = journal.request(2, ApiKey.HEARTBEAT, 4, HEARTBEAT, listener="SASL")
    journal.response(2, asked, messages.HeartbeatResponse(error_code=34), listener="SASL")
    journal.event("conn_close", conn_id=2, output={"by": "us", "reason": "34"})


@bad("W-06")
def a_request_is_served_too_early(run: Run) -> int:
    journal = run.journal()
    authenticated(journal, 1)
    asked = journal.request(2, ApiKey.HEARTBEAT, 4, HEARTBEAT, listener="SASL")
    return int(journal.response(2, asked, messages.HeartbeatResponse(), listener="SASL"))


@bad("W-06")
def a_second_api_versions_is_served(run: Run) -> int:
    journal = run.journal()
    told(journal, 1)
    second = told(journal, 1)
    authenticated(journal, 1)
    return second


@good("W-06")
def a_second_handshake_is_refused(run: Run) -> None:
    journal = run.journal()
    authenticated(journal, 1)
    handshake(journal, 2)
    handshake(journal, 2, error=34)
    journal.event("conn_close", conn_id=2, output={"by": "us", "reason": "34"})


@good("W-06")
def a_session_is_prolonged_by_another_handshake(run: Run) -> None:
    journal = run.journal()
    authenticated(journal, 1)
    handshake(journal, 1)


@bad("W-06")
def a_second_handshake_succeeds(run: Run) -> int:
    journal = run.journal()
    handshake(journal, 1)
    second = handshake(journal, 1)
    asked = journal.request(1, ApiKey.SASL_AUTHENTICATE, 2, messages.SaslAuthenticateRequest(b"token"), listener="SASL")
    journal.response(1, asked, messages.SaslAuthenticateResponse(), listener="SASL")
    return second


@bad("W-06")
def a_connection_serves_on_after_a_second_handshake(run: Run) -> int:
    journal = run.journal()
    handshake(journal, 1)
    refused = handshake(journal, 1, error=34)
    asked = journal.request(1, ApiKey.SASL_AUTHENTICATE, 2, messages.SaslAuthenticateRequest(b"token"), listener="SASL")
    journal.response(1, asked, messages.SaslAuthenticateResponse(), listener="SASL")
    return refused


@silent("W-06")
def nobody_authenticates(run: Run) -> None:
    journal = broker(run)
    told(journal, 1)
    asked = journal.request(1, ApiKey.SASL_HANDSHAKE, 1, messages.SaslHandshakeRequest("PLAIN"))
    journal.response(1, asked, messages.SaslHandshakeResponse(34, []))


# --- W-07


@good("W-07")
def headers_of_both_versions(run: Run) -> None:
    journal = broker(run)
    asked = journal.request(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest("a", "1"))
    journal.response(1, asked, messages.ApiVersionsResponse(api_keys=[messages.ApiVersionsResponse.ApiVersion(18, 0, 4)]))
    exchange(journal)


@bad("W-07", also=["W-09"])
def headers_of_the_wrong_version(run: Run) -> list[int]:
    journal = broker(run)
    asked = journal.request(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest("a", "1"), corr=5)
    told = messages.ApiVersionsResponse(api_keys=[messages.ApiVersionsResponse.ApiVersion(18, 0, 4)])
    first = journal.response(1, asked, b"", frame=framed(bytes.fromhex("0000000500") + messages.encode(told, 3)))
    asked = journal.request(1, ApiKey.METADATA, 12, METADATA, corr=6)
    return [first, journal.response(1, asked, b"", frame=framed(bytes.fromhex("00000006") + messages.encode(SHOWN, 12)))]


@bad("W-07", also=["W-09"])
def a_header_of_the_wrong_version_in_a_version_of_kafka_4(run: Run) -> int:
    journal = run.journal()
    asked = journal.request(1, ApiKey.METADATA, 13, METADATA, corr=6)
    return int(journal.response(1, asked, b"", frame=framed(bytes.fromhex("00000006") + messages.encode(SHOWN, 13))))


@silent("W-07", also=["W-09"])
def a_body_that_is_not_flexible(run: Run) -> None:
    journal = broker(run)
    asked = journal.request(1, ApiKey.METADATA, 5, METADATA)
    journal.response(1, asked, messages.encode(SHOWN, 5) + b"\0")


def framed(payload: bytes) -> bytes:
    """With its length."""
    return len(payload).to_bytes(4, "big") + payload


# --- W-08


@good("W-08")
def lengths_that_are_right_and_one_of_a_client_that_is_not(run: Run) -> None:
    journal = broker(run)
    exchange(journal)
    journal.raw(2, Direction.REQUEST_IN, b"\xff\xff\xff\xff")
    journal.event("conn_close", conn_id=2, output={"by": "us", "reason": "length"})
    produce = messages.ProduceRequest(acks=1, topic_data=[messages.ProduceRequest.TopicProduceData("t", partition_data=[])])
    journal.request(3, ApiKey.PRODUCE, 9, messages.encode(produce, 9) + bytes(200))
    journal.cut(40)


@bad("W-08", also=["W-09"])
def a_length_that_is_wrong(run: Run) -> int:
    journal = broker(run)
    asked = journal.request(1, ApiKey.METADATA, 12, METADATA, corr=5)
    payload = bytes.fromhex("0000000500") + messages.encode(SHOWN, 12)
    return int(journal.response(1, asked, b"", frame=(len(payload) + 3).to_bytes(4, "big") + payload))


# --- W-09


@good("W-09", also=["K-03"])
def bodies_without_bytes_over(run: Run) -> None:
    journal = broker(run)
    exchange(journal)
    asked = journal.request(1, ApiKey.METADATA, 12, messages.encode(METADATA, 12) + b"\0\0\0")
    journal.response(1, asked, SHOWN)


@good("W-09")
def a_tagged_field_of_a_later_release(run: Run) -> None:
    journal = broker(run)
    asked = journal.request(1, ApiKey.METADATA, 12, METADATA)
    journal.response(1, asked, messages.encode(SHOWN, 12)[:-1] + b"\1\x63\2ab")


@bad("W-09")
def a_tagged_field_with_its_default(run: Run) -> int:
    journal = broker(run)
    asked = journal.request(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest("a", "1"))
    body = messages.encode(messages.ApiVersionsResponse(api_keys=[messages.ApiVersionsResponse.ApiVersion(18, 0, 4)]), 3)
    return int(journal.response(1, asked, body[:-1] + b"\1\1\x08" + b"\xff" * 8))


@bad("W-09")
def bodies_cut_and_too_long_and_a_boolean_of_two(run: Run) -> list[int]:
    journal = broker(run)
    found = bodies_that_are_not_whole(journal)
    bodies = [messages.encode(messages.DescribeConfigsResponse(results=[
        messages.DescribeConfigsResponse.DescribeConfigsResult(resource_type=2, resource_name="t", configs=[
            messages.DescribeConfigsResponse.DescribeConfigsResourceResult("a", "b", read_only=read_only)])]), 4)
        for read_only in (False, True)]
    asked = journal.request(1, ApiKey.DESCRIBE_CONFIGS, 4, messages.DescribeConfigsRequest())
    found.append(journal.response(1, asked, spoilt(*bodies)))
    return found


def spoilt(one: bytes, other: bytes) -> bytes:
    """With 2 where two bodies differ."""
    return bytes(a if a == b else 2 for a, b in zip(one, other, strict=True))


def bodies_that_are_not_whole(journal: Any) -> list[int]:
    """One with bytes over, one that is cut; their seqs."""
    body = messages.encode(SHOWN, 12)
    asked = journal.request(1, ApiKey.METADATA, 12, METADATA)
    long = journal.response(1, asked, body + b"\1\2")
    asked = journal.request(1, ApiKey.METADATA, 12, METADATA)
    return [long, journal.response(1, asked, body[:-3])]


def _asked_by_another(run: Run, *, is_journaled: bool) -> int:
    """Broker 1 asks broker 2, whose answer is too long."""
    journal = broker(run)
    asked = journal.request(7, ApiKey.METADATA, 12, METADATA, dir=Direction.REQUEST_OUT, peer_id=2)
    if is_journaled:
        broker(run, 2)
    return int(journal.response(7, asked, messages.encode(SHOWN, 12) + b"\0", peer_id=2))


@bad("W-09")
def a_broker_without_a_journal_answers_too_much(run: Run) -> int:
    return _asked_by_another(run, is_journaled=False)


@good("W-09")
def what_a_broker_with_a_journal_answers_is_judged_there(run: Run) -> None:
    _asked_by_another(run, is_journaled=True)


@bad("W-07", also=["W-09"])
def a_broker_without_a_journal_answers_with_the_other_header(run: Run) -> int:
    journal = broker(run)
    asked = journal.request(7, ApiKey.METADATA, 12, METADATA, dir=Direction.REQUEST_OUT, peer_id=2)
    frame = messages.encode_response(ApiKey.METADATA, 12, 1, messages.encode(SHOWN, 12))
    return int(journal.response(7, asked, SHOWN, peer_id=2, frame=(len(frame) - 5).to_bytes(4, "big") + frame[4:8] + frame[9:]))


@silent("W-09")
def headers_alone(run: Run) -> None:
    journal = broker(run)
    journal.request(1, ApiKey.METADATA, 12, METADATA)
    seq = journal.next_seq - 1
    journal.cut(14)
    journal.response(1, seq, SHOWN)
    journal.cut(8)


# --- W-10


@good("W-10")
def ids_rise(run: Run) -> None:
    journal = broker(run)
    asked = journal.request(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest("a", "1"), corr=1)
    journal.response(1, asked, messages.ApiVersionsResponse(api_keys=EVERYTHING))
    for corr in (0, 2, 7):
        exchange(journal, corr=corr)
    exchange(journal, 2, corr=0)


@good("W-10")
def java_sets_ids_aside_for_authentication(run: Run) -> None:
    journal = run.journal()
    for key, corr in ((ApiKey.API_VERSIONS, 2**31 - 8), (ApiKey.API_VERSIONS, 0)):
        asked = journal.request(1, key, 3, messages.ApiVersionsRequest("a", "1"), corr=corr)
        journal.response(1, asked, messages.ApiVersionsResponse(api_keys=EVERYTHING))
    exchange(journal, corr=1)


@bad("W-10")
def an_id_twice(run: Run) -> int:
    journal = broker(run)
    exchange(journal, corr=4)
    return exchange(journal, corr=4)[0]


@bad("W-10")
def an_id_of_api_versions_again(run: Run) -> int:
    journal = broker(run)
    asked = journal.request(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest("a", "1"), corr=4)
    journal.response(1, asked, messages.ApiVersionsResponse(api_keys=EVERYTHING))
    return exchange(journal, corr=4)[0]


def request_of(journal: Any, key: int, corr: int) -> int:
    """A request of a consumer of Java with this correlation id, and the answer to it; the seq of the request."""
    asked, answer = {
        ApiKey.API_VERSIONS: (messages.ApiVersionsRequest("a", "1"), messages.ApiVersionsResponse(api_keys=EVERYTHING)),
        ApiKey.METADATA: (messages.MetadataRequest(), messages.MetadataResponse()),
        ApiKey.FIND_COORDINATOR: (messages.FindCoordinatorRequest(), messages.FindCoordinatorResponse(node_id=1, host="h", port=9092)),
    }[ApiKey(key)]
    request = journal.request(1, key, 3, asked, corr=corr, client_id="consumer-1")
    journal.response(1, request, answer)
    return int(request)


V, M, F = ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR


@good("W-10")
def a_consumer_of_java_asks_for_versions_and_metadata_first(run: Run) -> None:
    journal = broker(run)
    for key, corr in ((V, 1), (M, 2), (F, 0), (M, 4), (F, 3), (F, 5)):
        request_of(journal, key, corr)


@good("W-10")
def ids_begin_again_after_the_last_one_below_those_of_sasl(run: Run) -> None:
    journal = broker(run)
    exchange(journal, corr=2**31 - 9)
    exchange(journal, 2, corr=0)


@bad("W-10")
def an_id_of_the_first_metadata_again_after_another(run: Run) -> list[int]:
    """The ids of all requests before count, not of the last one alone."""
    journal = broker(run)
    for key, corr in ((V, 1), (M, 2), (M, 4)):
        request_of(journal, key, corr)
    return [request_of(journal, F, 2), request_of(journal, F, 4)]


@bad("W-10")
def metadata_falls(run: Run) -> list[int]:
    journal = broker(run)
    request_of(journal, M, 4)
    return [request_of(journal, M, 3), request_of(journal, V, 4)]


@bad("W-10")
def another_request_falls_behind_metadata(run: Run) -> int:
    journal = broker(run)
    request_of(journal, F, 3)
    request_of(journal, M, 4)
    return request_of(journal, F, 2)


# --- W-12


@good("W-12")
def throttle_times_are_zero_or_more(run: Run) -> None:
    journal = broker(run)
    for throttle_ms in (0, 1, 2_147_483_647):
        asked = journal.request(1, ApiKey.HEARTBEAT, 4, HEARTBEAT)
        journal.response(1, asked, messages.HeartbeatResponse(throttle_time_ms=throttle_ms))
        journal.event("conn_close", conn_id=1, output={"by": "peer", "reason": None})
        later(journal, 3_000_000)


@bad("W-12")
def a_throttle_time_is_negative(run: Run) -> int:
    journal = broker(run)
    asked = journal.request(1, ApiKey.HEARTBEAT, 4, HEARTBEAT)
    return int(journal.response(1, asked, messages.HeartbeatResponse(throttle_time_ms=-1)))


@silent("W-12")
def a_version_without_throttle_time(run: Run) -> None:
    journal = broker(run)
    asked = journal.request(1, ApiKey.HEARTBEAT, 0, HEARTBEAT)
    journal.response(1, asked, messages.HeartbeatResponse())
