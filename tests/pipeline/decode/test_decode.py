"""One frame at a time: what `decode_frame` says, judged by Kafka's own JSON, by the server's codec, and by kafka-python."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_header import ResponseClassRegistry

from klamm.journal.columns import Direction, Flag
from klamm.pipeline.decode import member_bytes
from klamm.pipeline.decode.frame_decoder import MEANINGS, Reason, decode_frame
from klamm.pipeline.decode.json_codec import RECORDS_KEPT
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.json_form import to_json
from klamm.protocol.records.record import Record, encode_batch
from klamm.protocol.schema import attribute_name
from klamm.protocol.second_opinion import other_class
from klamm.tests.pipeline.decode.frame_samples import FrameSample, frame_of, recorded
from klamm.tests.protocol import golden
from klamm.tests.protocol.strategies import all_versions, message

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")


def brief(value: Any, message: str = "") -> Any:
    """The JSON of Kafka's converters as a table has it: records are their size and first bytes, what members send is decoded."""
    if isinstance(value, dict):
        return {name: _brief_field(name, each, message) for name, each in value.items()}
    return [brief(each, message) for each in value] if isinstance(value, list) else value


def _brief_field(name: str, value: Any, message: str) -> Any:
    if name == "records" and isinstance(value, str):
        return _records(value)
    maker = member_bytes.maker_of(message, name)
    return brief(value, message) if maker is None else getattr(member_bytes, maker)(base64.b64decode(value))


def _records(text: str) -> dict[str, Any]:
    data = base64.b64decode(text)
    return {"size": len(data), "head": base64.b64encode(data[:RECORDS_KEPT]).decode()}


def plain(value: Any) -> Any:
    """Tuples as lists."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def test_recorded_frames_decode_but_for_surplus_bytes_of_requests() -> None:
    surplus = 0
    for row in recorded():
        body, left, reason, detail = decode_frame(*row[:3], 0, row.frame)
        assert body is not None and reason is None, (row, detail)
        surplus += left != 0
        assert left == 0 or row.dir == Direction.REQUEST_IN
    assert len(recorded()) > 2000 and surplus == 3


def test_recorded_bodies_are_the_json_that_kafka_printed() -> None:
    compared = 0
    for row, line in zip(recorded()[-1000:], list(golden.lines("interbroker.jsonl.gz"))[-1000:], strict=True):
        body, *_ = decode_frame(*row[:3], 0, row.frame)
        assert plain(body) == brief(line["json"])
        compared += 1
    assert compared == 1000


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(all_versions()).flatmap(lambda pair: st.tuples(st.just(pair), message(*pair))))
def test_any_message_becomes_the_json_of_the_servers_codec(sample: tuple[tuple[str, int], Any]) -> None:
    (name, version), value = sample
    if name == "ApiVersionsResponse" and value.error_code == 35:
        return
    row = frame_of(name, version, value)
    body, left, reason, _ = decode_frame(*row[:3], 0, row.frame)
    assert (plain(body), left, reason) == (brief(plain(to_json(value, version)), name), 0, None)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_bytes_make_it_raise(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(recorded()))
    frame = bytearray(row.frame)
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))] + data.draw(st.binary(max_size=4))
    if data.draw(st.booleans()) and len(frame) >= 4:
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    where: tuple[int, int | None, int | None] = row[:3]
    if data.draw(st.integers(0, 3)) == 0:
        where = data.draw(st.tuples(st.integers(0, 3), st.none() | st.integers(-2, 110), st.none() | st.integers(-2, 20)))
    flags = data.draw(st.sampled_from([0, 0, 0, *range(32)]))
    body, _, reason, detail = decode_frame(*where, flags, bytes(frame))
    assert reason is None or body is None
    assert reason is None or detail is None or "Error:" not in detail, detail


def test_a_frame_that_was_cut_in_a_tagged_field_of_its_header_has_no_body() -> None:
    head = (30).to_bytes(4, "big") + (3).to_bytes(4, "big")
    assert decode_frame(1, 22, 4, Flag.CUT, head + b"\x01\x00\x09ab") == (None, None, None, None)


def test_every_truncation_is_found() -> None:
    missed, tried = [], 0
    for row in recorded()[::20]:
        for size in range(4, len(row.frame), max(1, len(row.frame) // 12)):
            cut = (size - 4).to_bytes(4, "big") + row.frame[4:size]
            body, _, reason, _ = decode_frame(*row[:3], 0, cut)
            tried += 1
            if reason is None:
                missed.append((row[:3], size, body))
    assert tried > 1000
    assert missed == []


def is_beginning(part: Any, whole: Any) -> bool:
    """Whether an object is another one as far as it goes."""
    if isinstance(part, dict) and set(part) == {"size", "head"}:
        head = base64.b64decode(part["head"])
        return bool(part["size"] == whole["size"] and base64.b64decode(whole["head"]).startswith(head))
    if isinstance(part, dict):
        return all(name in whole and is_beginning(value, whole[name]) for name, value in part.items())
    if isinstance(part, list):
        return len(part) <= len(whole) and all(map(is_beginning, part, whole))
    return bool(part == whole)


def test_a_frame_that_the_journal_cut_says_what_its_first_bytes_say() -> None:
    with_body = 0
    for row in recorded()[::7]:
        whole, *_ = decode_frame(*row[:3], 0, row.frame)
        for size in range(4, len(row.frame), max(1, len(row.frame) // 12)):
            body, left, reason, detail = decode_frame(*row[:3], Flag.CUT, row.frame[:size])
            assert (reason, left) == (None, None), detail
            assert body is None or is_beginning(body, whole)
            with_body += body is not None
    assert with_body > 1000


def test_records_that_were_cut_keep_their_size() -> None:
    Request = messages.ProduceRequest
    partition = Request.PartitionProduceData(index=3, records=bytes(range(200)))
    row = frame_of("ProduceRequest", 9, Request(topic_data=[Request.TopicProduceData(name="t", partition_data=[partition])]))
    body, *_ = decode_frame(*row[:3], Flag.CUT, row.frame[:80])
    assert body is not None
    (kept,) = body["topicData"][0]["partitionData"]
    assert kept["index"] == 3
    assert kept["records"]["size"] == 200
    assert bytes(range(200)).startswith(base64.b64decode(kept["records"]["head"]))


def test_a_marker_whose_type_the_journal_cut_is_not_told() -> None:
    Response = messages.FetchResponse
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    batch = encode_batch([Record(0, 0, None, b"v")], base_offset=0, attributes=0x10, **producer)
    marker = encode_batch([Record(1, 0, b"\0\0\0\1", bytes(6))], base_offset=1, attributes=0x30, **producer)
    partition = Response.PartitionData(records=batch + marker)
    row = frame_of("FetchResponse", 12, Response(responses=[Response.FetchableTopicResponse(topic="t", partitions=[partition])]))
    told = []
    for size in range(len(row.frame) - len(marker), len(row.frame)):
        body, *_ = decode_frame(*row[:3], Flag.CUT, row.frame[:size])
        assert body is not None
        told += [kind["isCommit"] for kind in body["responses"][0]["partitions"][0]["records"]["markers"]]
    assert set(told) == {True}


LENGTH_2 = b"\0\0\0\2"


@pytest.mark.parametrize(
    ("row", "flags", "reason"),
    [
        pytest.param((0, 9999, 0, b"\0\0\0\x0a" + bytes(10)), 0, Reason.UNKNOWN_KEY, id="key"),
        pytest.param((0, 3, 14, b"\0\0\0\x0a" + bytes(10)), 0, Reason.UNKNOWN_VERSION, id="version"),
        pytest.param((0, 3, -1, b"\0\0\0\x0a" + bytes(10)), 0, Reason.UNKNOWN_VERSION, id="negative version"),
        pytest.param((1, None, None, b"\0\0\0\x04" + bytes(4)), 0, Reason.NO_REQUEST, id="response to nothing"),
        pytest.param((1, 3, 0, b"\0\0\0\x04" + bytes(4)), Flag.UNMATCHED, Reason.NO_REQUEST, id="response to no open request"),
        pytest.param((0, None, None, b"x"), Flag.RAW_TOKEN, Reason.RAW_TOKEN, id="token"),
        pytest.param((0, 3, 0, LENGTH_2 + b"\0\3\0"), 0, Reason.BAD_LENGTH, id="more bytes than announced"),
        pytest.param((0, 3, 0, LENGTH_2 + b"\0"), 0, Reason.TRUNCATED, id="fewer bytes than announced"),
        pytest.param((0, 3, 0, b"\xff\xff\xff\xff"), 0, Reason.BAD_LENGTH, id="negative length"),
        pytest.param((0, 3, 0, LENGTH_2 + b"\0\3"), 0, Reason.TRUNCATED, id="no whole header"),
        pytest.param((1, 6, 6, b"\0\0\0\x0a" + bytes(10)), 0, Reason.TRAILING, id="surplus in a response"),
        pytest.param((0, 43, 0, b"\0\0\0\x0e" + bytes(10) + b"\x7f\xff\xff\xff"), 0, Reason.MALFORMED, id="count above the frame"),
        pytest.param((0, 3, 1, b""), Flag.CUT, Reason.TRUNCATED, id="nothing"),
    ],
)
def test_each_reason_for_quarantine(row: tuple[int, int | None, int | None, bytes], flags: int, reason: Reason) -> None:
    direction, key, version, frame = row
    body, _, said, _ = decode_frame(direction, key, version, flags, frame)
    assert (body, said) == (None, reason)


def test_every_reason_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Reason)


def test_an_answer_to_an_unknown_version_of_api_versions_is_read_as_version_0() -> None:
    for version in (3, 99):
        row = frame_of("ApiVersionsResponse", 0, messages.ApiVersionsResponse(error_code=35))
        body, left, reason, _ = decode_frame(row.dir, ApiKey.API_VERSIONS, version, 0, row.frame)
        assert (body, left, reason) == ({"errorCode": 35, "apiKeys": []}, 0, None)


@pytest.fixture
def kafka_python() -> Iterator[None]:
    """kafka-python's registry of classes as it was, afterwards."""
    before = dict(ResponseClassRegistry._response_class_registry)
    yield
    ResponseClassRegistry._response_class_registry.clear()
    ResponseClassRegistry._response_class_registry.update(before)


def agrees(ours: Any, theirs: Any) -> bool:
    """Whether a value of a body and one of kafka-python mean the same."""
    if isinstance(ours, dict) and set(ours) >= {"size", "head"} and not hasattr(theirs, "fields"):
        data = bytes(theirs)
        return (ours["size"], ours["head"]) == (len(data), base64.b64encode(data[:RECORDS_KEPT]).decode())
    if isinstance(ours, dict) and "crc" in ours:
        data = bytes(theirs)
        return (ours["size"], ours["crc"]) == (len(data), crc32(data))
    if isinstance(ours, dict):
        return all(agrees(value, getattr(theirs, attribute_name(name))) for name, value in ours.items())
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(agrees, ours, theirs))
    if isinstance(theirs, uuid.UUID):
        return bool(base64.urlsafe_b64decode(ours + "==") == theirs.bytes)
    if ours == "A" * 22 and theirs is None:
        return True  # a zero uuid is None to it
    if isinstance(theirs, bytes | bytearray | memoryview):
        return bool(base64.b64decode(ours) == bytes(theirs))
    return bool(ours == theirs)


def body_of(row: FrameSample) -> tuple[str, bytes]:
    """Name and body of a recorded frame, its header read by the server's code."""
    name = APIS[row.key].name
    if row.dir in (Direction.REQUEST_IN, Direction.REQUEST_OUT):
        return f"{name}Request", row.frame[4 + messages.decode_request_header(row.frame[4:])[1] :]
    return f"{name}Response", row.frame[4 + messages.decode_response_header(row.key, row.version, row.frame[4:])[1] :]


@pytest.mark.usefixtures("kafka_python")
def test_kafka_python_reads_the_same_from_recorded_frames() -> None:
    wrong = []
    for row in recorded():
        name, data = body_of(row)
        body, *_ = decode_frame(*row[:3], 0, row.frame)
        if not agrees(body, other_class(name).decode(data, version=row.version)):
            wrong.append((name, row.version))
    assert wrong == []


@pytest.mark.usefixtures("kafka_python")
def test_a_difference_to_kafka_python_is_seen() -> None:
    row = next(row for row in recorded() if row.key == ApiKey.UPDATE_METADATA and row.dir == Direction.REQUEST_OUT)
    name, data = body_of(row)
    body, *_ = decode_frame(*row[:3], 0, row.frame)
    assert body is not None
    theirs = other_class(name).decode(data, version=row.version)
    assert agrees(body, theirs)
    assert not agrees(body | {"controllerEpoch": body["controllerEpoch"] + 1}, theirs)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(all_versions()).flatmap(lambda pair: st.tuples(st.just(pair), message(*pair))))
def test_kafka_python_reads_the_same_from_any_message(sample: tuple[tuple[str, int], Any]) -> None:
    before = dict(ResponseClassRegistry._response_class_registry)
    try:
        (name, version), value = sample
        if name == "ApiVersionsResponse" and value.error_code == 35:
            return
        row = frame_of(name, version, value)
        body, *_ = decode_frame(*row[:3], 0, row.frame)
        assert agrees(body, other_class(name).decode(messages.encode(value, version), version=version))
    finally:
        ResponseClassRegistry._response_class_registry.clear()
        ResponseClassRegistry._response_class_registry.update(before)
