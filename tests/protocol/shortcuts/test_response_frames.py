"""Response frames from a template have the bytes that the codec writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.shortcuts import response_frames
from klamm.protocol.shortcuts.response_frames import encode_frame
from klamm.tests.protocol.strategies import NUMBERS, all_versions, message

VERSIONS = range(APIS[ApiKey.PRODUCE].min_version, APIS[ApiKey.PRODUCE].last_version + 1)
KIND = messages.ProduceResponse
KEYS = {api.name: key for key, api in APIS.items()}


def by_codec(key: int, version: int, correlation_id: int, response: Any) -> bytes:
    return messages.encode_response(key, version, correlation_id, messages.encode(response, version))


def response(index: int, name: str, base_offset: int, time_ms: int, start: int) -> Any:
    row = KIND.PartitionProduceResponse(index, 0, base_offset, time_ms, start)
    return KIND(responses=[KIND.TopicProduceResponse(name=name, partition_responses=[row])])


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(VERSIONS), NUMBERS["int32"], NUMBERS["int32"], st.sampled_from(["", "t", "\u00e9", "t" * 127, "t" * 300]),
    st.lists(NUMBERS["int64"], min_size=3, max_size=3),
)
def test_a_response_for_one_partition_has_the_bytes_of_the_codec(
    version: int, correlation_id: int, index: int, name: str, numbers: list[int]
) -> None:
    made = response(index, name, *numbers)
    assert encode_frame(ApiKey.PRODUCE, version, correlation_id, made) == by_codec(ApiKey.PRODUCE, version, correlation_id, made)


def test_a_topic_that_was_created_again_has_its_new_id_in_the_response() -> None:
    for topic_id in (b"\1" * 16, b"\2" * 16):
        row = KIND.PartitionProduceResponse(0, 0, 1, 2, 3)
        made = KIND(responses=[KIND.TopicProduceResponse("orders", topic_id, [row])])
        assert encode_frame(ApiKey.PRODUCE, 13, 7, made) == by_codec(ApiKey.PRODUCE, 13, 7, made)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(all_versions(("Response",))).flatmap(lambda pair: st.tuples(st.just(pair), message(*pair))), NUMBERS["int32"])
def test_any_response_has_the_bytes_of_the_codec(sample: tuple[tuple[str, int], Any], correlation_id: int) -> None:
    (name, version), made = sample
    key = KEYS[name.removesuffix("Response")]
    assert encode_frame(key, version, correlation_id, made) == by_codec(key, version, correlation_id, made)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(VERSIONS).flatmap(lambda version: st.tuples(st.just(version), message("ProduceResponse", version))), st.data())
def test_any_row_of_a_produce_response_has_the_bytes_of_the_codec(sample: tuple[int, Any], data: st.DataObject) -> None:
    version, made = sample
    rows = [row for topic in made.responses for row in topic.partition_responses]
    if rows:
        row = data.draw(st.sampled_from(rows))
        changes = {"error_code": 0, "record_errors": [], "error_message": None}
        row = row._replace(**{name: changes[name] for name in data.draw(st.sets(st.sampled_from(sorted(changes))))})
        made = made._replace(responses=[KIND.TopicProduceResponse(name="t", partition_responses=[row])])
    assert encode_frame(ApiKey.PRODUCE, version, 7, made) == by_codec(ApiKey.PRODUCE, version, 7, made)


@pytest.mark.parametrize("numbers", [(2**63, 0, 0), (0, -(2**63) - 1, 0)])
def test_a_number_that_the_codec_refuses_is_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_frame(ApiKey.PRODUCE, 9, 1, response(0, "t", *numbers))


def test_the_number_of_templates_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_frames, "MAX_TEMPLATES", 4)
    templates: dict[Any, Any] = {}
    monkeypatch.setattr(response_frames, "_templates", templates)
    for index in range(6):
        made = response(index, "t", 1, 2, 3)
        assert encode_frame(ApiKey.PRODUCE, 9, 1, made) == by_codec(ApiKey.PRODUCE, 9, 1, made)
        assert len(templates) <= 4
