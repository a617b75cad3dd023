"""The shortcut for requests that repeat one another gives what the codec gives, or leaves the request to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.shortcuts.repeated_requests import MAX_PREFIX, MAX_SHAPES, PATIENCE, RepeatedRequests
from klamm.tests.protocol.strategies import NUMBERS, message

Draw = Callable[..., Any]
VERSIONS = [
    (key, version) for key in (ApiKey.PRODUCE, ApiKey.FETCH) for version in range(APIS[key].min_version, APIS[key].max_version + 1)
]


def payload(key: int, version: int, request: Any, correlation_id: int = 1, client_id: str | None = "me") -> bytes:
    return messages.encode_request(key, version, correlation_id, client_id, messages.encode(request, version))[4:]


def decoded(data: bytes) -> tuple[Any, Any, int]:
    """Header, request and end, by the codec."""
    header, start = messages.decode_request_header(data)
    request, end = messages.decode(f"{APIS[header.api_key].name}Request", header.api_version, data, start)
    return header, request, end


def learned(*payloads: bytes) -> RepeatedRequests:
    repeated = RepeatedRequests()
    for data in payloads:
        header, request, _ = decoded(data)
        repeated.learn(data, header, request)
    return repeated


def check(repeated: RepeatedRequests, data: bytes) -> bool:
    """Whether the shortcut knows this request; then it must say what the codec says."""
    found = repeated.find(data)
    if found is None:
        return False
    shape, correlation_id, request = found
    header, expected, end = decoded(data)
    assert shape.header._replace(correlation_id=correlation_id) == header
    assert request == expected
    assert types_of(request) == types_of(expected)
    assert end == len(data)
    return True


def types_of(value: Any) -> Any:
    """The classes of a message and all that is in it."""
    return (type(value), [types_of(each) for each in value]) if isinstance(value, list | tuple) else type(value)


def one_partition(request: Any, row: Any) -> Any:
    """The request for one partition, which has these fields."""
    if isinstance(request, messages.ProduceRequest):
        topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=[row])
        return request._replace(topic_data=[topic])
    fetched = messages.FetchRequest.FetchTopic(topic="t", partitions=[row])
    return request._replace(topics=[fetched], forgotten_topics_data=[])


def with_other(row: Any, records: bytes, offset: int) -> Any:
    return row._replace(records=records) if "records" in row._fields else row._replace(fetch_offset=offset)


def rows(key: ApiKey, version: int) -> st.SearchStrategy[Any]:
    """Partitions of this version, with nothing that the version cannot say."""
    array, part = ("topic_data", "partition_data") if key is ApiKey.PRODUCE else ("topics", "partitions")
    return message(f"{APIS[key].name}Request", version).map(
        lambda request: next((row for topic in getattr(request, array) for row in getattr(topic, part)), None)
    ).filter(lambda row: row is not None)


@st.composite
def cases(draw: Draw) -> tuple[bytes, bytes]:
    """A request, and one that differs from it in what may differ."""
    key, version = draw(st.sampled_from(VERSIONS))
    row = draw(rows(key, version))
    request = one_partition(draw(message(f"{APIS[key].name}Request", version)), row)
    client_id = draw(st.none() | NUMBERS["string"])
    first = payload(key, version, request, draw(NUMBERS["int32"]), client_id)
    records = draw(st.binary(max_size=6) | st.integers(100, 20_000).map(bytes))
    other = one_partition(request, with_other(row, records, draw(NUMBERS["int64"])))
    return first, payload(key, version, other, draw(NUMBERS["int32"]), client_id)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_requests_that_differ_in_records_or_offset_only_are_known_and_read_as_the_codec_does(case: tuple[bytes, bytes]) -> None:
    first, other = case
    repeated = learned(first)
    check(repeated, first)  # its records may be null, which are left to the codec
    assert check(repeated, other)


@settings(max_examples=150, deadline=None)
@given(cases(), st.data())
def test_a_request_with_changed_bytes_is_read_as_the_codec_does_or_left_to_it(case: tuple[bytes, bytes], data: st.DataObject) -> None:
    first, other = case
    repeated = learned(first)
    for _ in range(8):
        changed = bytearray(other)
        match data.draw(st.sampled_from(["byte", "cut", "more", "gap", "splice"])):
            case "byte":
                changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
            case "cut":
                del changed[data.draw(st.integers(0, len(changed))) :]
            case "more":
                changed += data.draw(st.binary(min_size=1, max_size=5))
            case "gap":
                at = data.draw(st.integers(0, len(changed) - 1))
                del changed[at : at + data.draw(st.integers(1, 4))]
            case _:
                at = data.draw(st.integers(0, len(changed)))
                changed[at:at] = data.draw(st.binary(min_size=1, max_size=6))
        check(repeated, bytes(changed))  # the codec must accept what the shortcut accepts


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(VERSIONS), st.data())
def test_of_any_requests_those_that_are_known_are_read_as_the_codec_does(pair: tuple[ApiKey, int], data: st.DataObject) -> None:
    key, version = pair
    sent = data.draw(st.lists(message(f"{APIS[key].name}Request", version), min_size=1, max_size=4))
    frames = [payload(key, version, request, number) for number, request in enumerate(sent)]
    repeated = learned(*frames)
    for frame in frames:
        check(repeated, frame)


def produce(records: bytes | None = b"abc", partitions: int = 1, topic: str = "t", version: int = 9) -> bytes:
    kind = messages.ProduceRequest
    rows = [kind.PartitionProduceData(index=index, records=records) for index in range(partitions)]
    return payload(0, version, kind(acks=1, timeout_ms=5, topic_data=[kind.TopicProduceData(name=topic, partition_data=rows)]))


def fetch(offset: int = 0, partitions: int = 1, version: int = 12, **fields: Any) -> bytes:
    kind = messages.FetchRequest
    rows = [kind.FetchPartition(partition=index, fetch_offset=offset) for index in range(partitions)]
    return payload(1, version, kind(topics=[kind.FetchTopic(topic="t", partitions=rows)], **fields))


@pytest.mark.parametrize("other", [produce(partitions=2), fetch(partitions=2), payload(3, 9, messages.MetadataRequest())])
def test_requests_for_several_partitions_and_of_other_apis_have_no_shape(other: bytes) -> None:
    assert learned(other).find(other) is None


@pytest.mark.parametrize(
    "other", [produce(None), produce(topic="u"), produce(version=8), fetch(partitions=2), fetch(session_id=5), fetch(rack_id="r"), b""]
)
def test_a_request_of_another_shape_is_left_to_the_codec(other: bytes) -> None:
    assert learned(produce(), fetch()).find(other) is None


@pytest.mark.parametrize("whole", [produce(), produce(version=7), produce(bytes(300)), fetch(7), fetch(7, version=4)])
def test_a_request_that_is_cut_or_too_long_is_left_to_the_codec(whole: bytes) -> None:
    repeated = learned(whole)
    assert check(repeated, whole)
    assert not [end for end in range(len(whole)) if repeated.find(whole[:end]) is not None]
    assert repeated.find(whole + b"\0") is None


def test_a_length_in_more_bytes_than_it_needs_is_that_of_the_codec() -> None:
    whole = produce(b"abc")
    at = whole.index(b"\x04abc")
    longer = whole[:at] + b"\x84\x80\x00" + whole[at + 1 :]
    assert check(learned(whole), longer)
    endless = whole[:at] + b"\x84\x80\x80\x80\x80\x00" + whole[at + 1 :]
    assert learned(whole).find(endless) is None


def test_the_last_shapes_of_a_connection_are_remembered() -> None:
    frames = [produce(topic=f"t{number}") for number in range(MAX_SHAPES + 1)]
    repeated = learned(*frames)
    assert [repeated.find(frame) is not None for frame in frames] == [False] + [True] * MAX_SHAPES


def test_a_connection_whose_requests_never_repeat_is_left_to_the_codec() -> None:
    frames = [produce(topic=f"t{number}") for number in range(PATIENCE + 1)]
    repeated = learned(*frames)
    assert repeated.find(frames[-1]) is None
    assert repeated.find(frames[-2]) is not None
    again = learned(*frames[: PATIENCE - 1])
    assert again.find(frames[PATIENCE - 2]) is not None, "a request that comes again sets the count back"
    for frame in frames[PATIENCE - 1 :]:
        again.learn(frame, *decoded(frame)[:2])
    assert again.find(frames[-1]) is not None


def test_long_requests_are_not_remembered() -> None:
    assert learned(fetch(rack_id="r" * MAX_PREFIX)).find(fetch(rack_id="r" * MAX_PREFIX)) is None
    kind = messages.ProduceRequest
    row = kind.PartitionProduceData(records=b"")
    request = kind(transactional_id="x" * MAX_PREFIX, topic_data=[kind.TopicProduceData(name="t", partition_data=[row])])
    data = payload(0, 9, request)
    assert learned(data).find(data) is None
    assert check(learned(produce()), produce(bytes(1 << 20))), "records may be long"


@pytest.mark.parametrize("version", [7, 12, 13])
def test_a_fetch_that_forgets_topics_is_left_to_the_codec_each_time(version: int) -> None:
    forgotten = messages.FetchRequest.ForgottenTopic(topic="u", topic_id=(1).to_bytes(16, "big"), partitions=[0])
    sent = fetch(version=version, forgotten_topics_data=[forgotten])
    assert learned(sent).find(sent) is None
    assert learned(fetch(version=version)).find(sent) is None
    assert not check(learned(sent), fetch(version=version)), "nor is its shape that of one that forgets nothing"
