"""Encodes the frames of responses; those of Produce for one partition from a template, with the same bytes as the codec.

A producer gets the same response again and again, but for offset, time and log start offset.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.shortcuts.templates import WIDTH, template

MAX_TEMPLATES = 10_000
_LONGEST_NAME = 249

_Fill = Callable[[int, int, int, int], bytes]
"""Makes a frame of a correlation id, base offset, log append time, log start offset."""
_templates: dict[tuple[int, str, bytes, int], _Fill] = {}


def encode_frame(api_key: int, version: int, correlation_id: int, response: messages.Message) -> bytes:
    """A whole response frame: length, header, body. Raises LocalProtocolError as `messages.encode`."""
    if api_key == ApiKey.PRODUCE:
        frame = _produce_frame(version, correlation_id, response)
        if frame is not None:
            return frame
    return messages.encode_response(api_key, version, correlation_id, messages.encode(response, version))


def _produce_frame(version: int, correlation_id: int, response: Any) -> bytes | None:
    """The frame of a response that says where the records of one partition are; None for all others."""
    topics, throttle_time_ms, endpoints = response
    if len(topics) != 1 or throttle_time_ms or endpoints:
        return None
    name, topic_id, rows = topics[0]
    if len(rows) != 1:
        return None
    index, code, base_offset, time_ms, start, errors, text, leader = rows[0]
    if code or errors or text is not None or leader != (-1, -1):
        return None
    fill = _templates.get((version, name, topic_id, index))
    if fill is None:
        if len(name) > _LONGEST_NAME:
            return None
        if len(_templates) >= MAX_TEMPLATES:
            _templates.clear()
        fill = _templates[version, name, topic_id, index] = _produce_template(version, name, topic_id, index)
    try:
        return fill(correlation_id, base_offset, time_ms, start)
    except error:  # numbers that the codec refuses
        return None


def _produce_template(version: int, name: str, topic_id: bytes, index: int) -> _Fill:
    def encode(base_offset: int, time_ms: int, start: int) -> bytes:
        kind = messages.ProduceResponse
        row = kind.PartitionProduceResponse(index=index, base_offset=base_offset, log_append_time_ms=time_ms, log_start_offset=start)
        topic = kind.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[row])
        return messages.encode_response(ApiKey.PRODUCE, version, 0, messages.encode(kind(responses=[topic]), version))

    data, positions = template(encode, 3)
    first, *others = [at for at in positions if at is not None]
    numbers = len(others) + 1
    if others != list(range(first + WIDTH, first + numbers * WIDTH, WIDTH)):
        raise AssertionError("the numbers of a Produce response are not side by side")
    length, head, tail = data[:4], data[8:first], data[first + numbers * WIDTH :]
    pack = Struct(f">4si{len(head)}s{numbers}q{len(tail)}s").pack
    if numbers == 3:
        return lambda correlation_id, base_offset, time_ms, start: pack(length, correlation_id, head, base_offset, time_ms, start, tail)
    if numbers == 2:
        return lambda correlation_id, base_offset, time_ms, start: pack(length, correlation_id, head, base_offset, time_ms, tail)
    return lambda correlation_id, base_offset, time_ms, start: pack(length, correlation_id, head, base_offset, tail)
