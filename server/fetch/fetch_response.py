"""Fetch responses as pieces of bytes: records go from the log into the response without being copied on the way.

The pieces are what `messages.encode` would write, in order; the dispatcher joins them with the frame's header, and that is the only copy.
Everything about a partition before its records is packed in one go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from struct import Struct
from types import MappingProxyType
from typing import Any

from klamm.broker.fetch_reads import PartitionRead
from klamm.broker.fetch_sessions import TOPIC_IDS_SINCE, FetchPartition
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.primitives import write_uvarint

THROTTLE_SINCE, ABORTED_SINCE, START_SINCE, SESSIONS_SINCE, PREFERRED_SINCE, FLEXIBLE_SINCE, ENDPOINTS_SINCE = 1, 4, 5, 7, 11, 12, 16


Row = tuple[FetchPartition, PartitionRead]

NULL = -1
_NOT_CONVERTED = frozenset((ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
"""Records that an old version cannot have are refused, and null as on an Apache Kafka broker; with other errors they are empty."""
_NONE: Mapping[FetchPartition, tuple[int, int]] = MappingProxyType({})
_INT32 = Struct(">i").pack
_INT16 = Struct(">h").pack
_HEAD_OF_SESSION = Struct(">ihi").pack
_ABORTED = Struct(">qq").pack
_WITHOUT_TAGS = b"\0"
# index, error code, high watermark, last stable offset, log start offset; then aborted transactions, preferred replica, length of records
_START_OLDEST = Struct(">ihq").pack
_START_4 = Struct(">ihqq").pack
_START_5 = Struct(">ihqqq").pack
_AFTER_ABORTED = Struct(">ii").pack
# no aborted transactions are one int32 of -1, or in flexible versions one byte 0; the length of few records is one or two bytes there
_WHOLE_5 = Struct(">ihqqqii").pack
_WHOLE_11 = Struct(">ihqqqiii").pack
_WHOLE_12 = Struct(">ihqqqBi").pack


def encode(
    version: int,
    session_id: int,
    rows: Sequence[Row],
    leaders: Mapping[FetchPartition, tuple[int, int]] = _NONE,
    endpoints: Sequence[messages.FetchResponse.NodeEndpoint] = (),
    error_code: int = 0,
    throttle_ms: int = 0,
) -> list[bytes]:
    """The pieces of a response body; the records are in memory. Neighbouring rows of one topic are one topic of the response.

    `leaders` are (leader, leader epoch) of partitions that say where they are led, `endpoints` the addresses of those leaders.
    """
    pieces: list[bytes] = [b""]
    add = pieces.append
    is_flexible = version >= FLEXIBLE_SINCE
    topic = None
    topics = count = place = 0
    for partition, read in rows:
        records: Any = read.records
        if partition.topic is not topic:
            if topic is not None:
                pieces[place] = _count(count, is_flexible)
                if is_flexible:
                    add(_WITHOUT_TAGS)
            topic = partition.topic
            topics += 1
            count = 0
            add(topic.topic_id if version >= TOPIC_IDS_SINCE else _name(topic.name or "", is_flexible))
            place = len(pieces)
            add(b"")
        count += 1
        size = NULL if read.error_code in _NOT_CONVERTED else len(records)
        add(before_records(version, partition.index, read, size))
        if records:
            add(records)
        if is_flexible:
            if read.diverging is None and not leaders:
                add(_WITHOUT_TAGS)
            else:
                add(_tags(read.diverging, leaders.get(partition)))
    if topic is not None:
        pieces[place] = _count(count, is_flexible)
        if is_flexible:
            add(_WITHOUT_TAGS)
    if is_flexible:
        add(_endpoints(version, endpoints) if endpoints and version >= ENDPOINTS_SINCE else _WITHOUT_TAGS)
    if version >= SESSIONS_SINCE:
        head = _HEAD_OF_SESSION(throttle_ms, error_code, session_id)
    else:
        head = _INT32(throttle_ms) if version >= THROTTLE_SINCE else b""
    pieces[0] = head + _count(topics, is_flexible)
    return pieces


def size_of(version: int, rows: Sequence[Row]) -> int:
    """The bytes of a response with these rows, with its length but without its header."""
    empty = [(partition, read._replace(records=b"")) for partition, read in rows]
    return 4 + sum(map(len, encode(version, 0, empty))) + sum(read.size for _, read in rows)


def before_records(version: int, index: int, read: PartitionRead, size: int) -> bytes:
    """A partition up to and with the length of its records."""
    error_code, high_watermark, stable_offset, start_offset, aborted, preferred, _, _, _ = read
    if version >= FLEXIBLE_SINCE:
        if aborted is None:
            return _WHOLE_12(index, error_code, high_watermark, stable_offset, start_offset, 0, preferred) + write_uvarint(size + 1)
        listed = write_uvarint(len(aborted) + 1) + b"".join([_ABORTED(*each) + _WITHOUT_TAGS for each in aborted])
        start = _START_5(index, error_code, high_watermark, stable_offset, start_offset)
        return b"".join((start, listed, _INT32(preferred), write_uvarint(size + 1)))
    if version < ABORTED_SINCE:
        return _START_OLDEST(index, error_code, high_watermark) + _INT32(size)
    if aborted is None and version >= START_SINCE:
        if version >= PREFERRED_SINCE:
            return _WHOLE_11(index, error_code, high_watermark, stable_offset, start_offset, -1, preferred, size)
        return _WHOLE_5(index, error_code, high_watermark, stable_offset, start_offset, -1, size)
    if version >= START_SINCE:
        start = _START_5(index, error_code, high_watermark, stable_offset, start_offset)
    else:
        start = _START_4(index, error_code, high_watermark, stable_offset)
    listed = _INT32(-1) if aborted is None else _INT32(len(aborted)) + b"".join([_ABORTED(*each) for each in aborted])
    tail = _AFTER_ABORTED(preferred, size) if version >= PREFERRED_SINCE else _INT32(size)
    return b"".join((start, listed, tail))


def _count(number: int, is_flexible: bool) -> bytes:
    return write_uvarint(number + 1) if is_flexible else _INT32(number)


def _name(name: str, is_flexible: bool) -> bytes:
    text = name.encode()
    return (write_uvarint(len(text) + 1) if is_flexible else _INT16(len(text))) + text


def _tags(diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> bytes:
    """The tagged fields 0, diverging epoch, and 1, current leader; the structures have tagged fields of their own, none."""
    fields: list[bytes] = []
    if diverging is not None:
        fields.append(b"\x00\x0d" + Struct(">iq").pack(*diverging) + _WITHOUT_TAGS)
    if leader is not None and leader != (-1, -1):
        fields.append(b"\x01\x09" + Struct(">ii").pack(*leader) + _WITHOUT_TAGS)
    return write_uvarint(len(fields)) + b"".join(fields)


def _endpoints(version: int, endpoints: Iterable[messages.FetchResponse.NodeEndpoint]) -> bytes:
    """The tagged fields of the body: where the leaders that were named can be reached."""
    encoder = _endpoint_encoder(version)
    encoded = [encoder(each) for each in endpoints]
    field = write_uvarint(len(encoded) + 1) + b"".join(encoded)
    return b"\x01\x00" + write_uvarint(len(field)) + field


@cache
def _endpoint_encoder(version: int):  # type: ignore[no-untyped-def]
    return messages.struct_encoder("FetchResponse", "NodeEndpoint", version)
