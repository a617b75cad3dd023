"""Checks the layout of the records in a batch before a leader appends them, without making an object for each record.

A record is read field by field only if it differs from the one before. Producers mostly send runs of records with equal lengths. So after
one record was read, the columns of bytes with lengths are compared for all records after it: a run of a thousand records costs about ten
slices with a stride. In such runs offset deltas are compared with tables, and timestamp deltas have one or two bytes. `scan` finds what a
leader needs: the highest and lowest timestamp, whether offsets are consecutive, and whether all records have a key.

Source: `DefaultRecord.readFrom` and `readPartiallyFrom` of Apache Kafka 3.9.1; specification of the wire protocol, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from klamm.protocol.primitives import TooLong, read_base_128

SHORTEST_RUN = 6
"""Number of records that are read one by one before columns are compared, and shortest run for which that is faster."""

_PERIOD = 8192
_LOW = bytes([(2 * index & 0x7F) | 0x80 for index in range(_PERIOD)])
_WITHOUT_TOP_BIT = bytes([index & 0x7F for index in range(256)])
_HIGH = bytes([2 * index >> 7 for index in range(_PERIOD)])
_MIDDLE = bytes([2 * index >> 7 | 0x80 for index in range(_PERIOD)])
_EVEN = bytes(range(0, 256, 2))
_CONTINUED = bytes(range(128, 256))
_NO_RUN = 0, -(2**63), 2**63
"""The length of a run, with the highest and the lowest timestamp delta of no records."""


class BadRecord(Exception):
    """The bytes are not the records that the batch header describes."""


class Scan(NamedTuple):
    """The result for all records of a batch. Timestamps are relative to the base timestamp."""

    max_delta: int
    min_delta: int
    is_consecutive: bool
    """The n-th record has the offset delta n."""
    all_have_keys: bool


def read_zigzag(data: bytes | bytearray | memoryview, position: int, most: int = 5) -> tuple[int, int]:
    """A number in zigzag form (twice its value; odd if it is negative), and the position after it. `most` is 10 for a VARLONG.

    Raises IndexError at the end of the data, BadRecord if it has more than `most` bytes.
    """
    try:
        number, position = read_base_128(data, position, most)
    except TooLong:
        raise BadRecord("Varint is too long") from None
    return number & (0xFFFFFFFF if most == 5 else 0xFFFFFFFFFFFFFFFF), position


def read_varint(data: bytes | bytearray | memoryview, position: int, most: int = 5) -> tuple[int, int]:
    """The value of the number at `position`, and the position after it. Raises the errors of `read_zigzag`."""
    number, position = read_zigzag(data, position, most)
    return (number >> 1) ^ -(number & 1), position


def scan(data: bytes, position: int, end: int, count: int, *, sized: bool = True) -> Scan:
    """Like `scan_fields`, but returns a `Scan`."""
    return Scan._make(scan_fields(data, position, end, count, sized))


def scan_fields(data: bytes, position: int, end: int, count: int, sized: bool) -> tuple[int, int, bool, bool]:
    """Check that `data[position:end]` are `count` records and nothing else; return the fields of a `Scan`.

    `sized`: whether each record must be as long as it says. Apache Kafka does not look at that length in compressed batches that it stores
    as they are. Raises BadRecord.
    """
    try:
        max_delta, min_delta = -(2**63), 2**63
        is_consecutive = all_have_keys = True
        index, last_stamp = 0, -1
        following = SHORTEST_RUN if count > SHORTEST_RUN else count + 1  # the index at which columns are tried
        while index < count:
            begin = position
            size = data[begin]
            position = begin + 1
            if size >= 0x80:
                if (more := data[position]) < 0x80:
                    size, position = size & 0x7F | more << 7, position + 1
                else:
                    size, position = read_zigzag(data, begin)
            stop = position + (size >> 1)
            if sized and (size & 1 or stop > end):
                raise BadRecord(f"Invalid record size: {size >> 1}")
            stamps = position + 1  # behind the attributes
            stamp = data[stamps]
            offsets = stamps + 1
            if stamp >= 0x80:
                stamp, offsets = read_zigzag(data, stamps, 10)
            if stamp != last_stamp:
                last_stamp, delta = stamp, (stamp >> 1) ^ -(stamp & 1)
                max_delta = delta if delta > max_delta else max_delta
                min_delta = delta if delta < min_delta else min_delta
            offset = data[offsets]
            key_at = offsets + 1
            if offset >= 0x80:
                if (more := data[key_at]) < 0x80:
                    offset, key_at = offset & 0x7F | more << 7, key_at + 1
                else:
                    offset, key_at = read_zigzag(data, offsets)
            if offset != index << 1:
                is_consecutive = False
            key = data[key_at]
            value_at = key_at + 1
            if key >= 0x80:
                key, value_at = read_zigzag(data, key_at)
            if key & 1:
                all_have_keys = False
            else:
                value_at += key >> 1
            value = data[value_at]
            position = value_at + 1
            if value >= 0x80:
                if (more := data[position]) < 0x80:
                    value, position = value & 0x7F | more << 7, position + 1
                else:
                    value, position = read_zigzag(data, value_at)
            if not value & 1:
                position += value >> 1
            has_headers = data[position]
            position = _skip_headers(data, position, end) if has_headers else position + 1
            if position > end or (sized and position != stop):
                raise BadRecord("Found invalid record structure")
            index += 1
            if index >= following and not has_headers:
                length = position - begin
                most = min(count - index, (end - position) // length)
                if most < SHORTEST_RUN:
                    following = count + 1
                    continue
                layout = (stamps - begin, offsets - begin, key_at - begin, value_at - begin)
                run, highest, lowest = _run(data, begin, length, most, index, layout)
                index, position = index + run, position + run * length
                max_delta, min_delta = max(highest, max_delta), min(lowest, min_delta)
                following = index + 1 if run >= SHORTEST_RUN else index + 2 * SHORTEST_RUN
        if position != end:
            raise BadRecord("Incorrect declared batch size, records still remaining in file")
        return max_delta, min_delta, is_consecutive, all_have_keys
    except IndexError:
        raise BadRecord("Incorrect declared batch size, premature EOF reached") from None


def _skip_headers(data: bytes, position: int, end: int) -> int:
    """The position after the headers, whose count is at `position`."""
    count, position = read_varint(data, position)
    if count < 0 or count > end - position:
        raise BadRecord(f"Found invalid number of record headers {count}")
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise BadRecord(f"Invalid negative header key size {size}")
        position += size
        size, position = read_varint(data, position)
        if size > 0:
            position += size
    return position


def _run(data: bytes, begin: int, length: int, most: int, index: int, layout: tuple[int, int, int, int]) -> tuple[int, int, int]:
    """How many of the `most` records after the one at `begin` have the same layout, with their highest and lowest timestamp delta.

    `index` is the index of the first of them, `layout` the positions of timestamp, offset, key and value in a record of `length` bytes.
    """
    stamps, offsets, key_at, _ = layout
    offset_width = key_at - offsets
    if offset_width == 1:
        most = min(most, 64 - index)
    elif offset_width == 2:
        most = min(most, _PERIOD - index)
    elif offset_width == 3:
        most = min(most, _PERIOD - index % _PERIOD)
    else:
        return _NO_RUN
    if most < SHORTEST_RUN:
        return _NO_RUN
    start = begin + length
    stop = start + length * most

    for place in _constant_places(data, begin, length, layout):
        column = data[start + place : stop : length]
        same = data[begin + place : begin + place + 1]
        if column != same * most:
            most -= len(column.lstrip(same))
            if most < SHORTEST_RUN:
                return _NO_RUN
            stop = start + length * most

    if not _offsets_are(data, start + offsets, stop, length, index, most, offset_width):
        return _NO_RUN

    first = data[start + stamps : stop : length]
    if first.translate(None, _EVEN):
        return _NO_RUN  # one before the base timestamp
    if offsets - stamps == 1 and first.isascii():
        return most, max(first) >> 1, min(first) >> 1
    if offsets - stamps == 2 and not first.translate(None, _CONTINUED):
        second = data[start + stamps + 1 : stop : length]
        if second.isascii():
            return most, _extreme(first, second, max), _extreme(first, second, min)
    return _NO_RUN


def _constant_places(data: bytes, begin: int, length: int, layout: tuple[int, int, int, int]) -> list[int]:
    """The positions of lengths and counts in a record: all bytes except attributes, timestamp, offset, key and value."""
    stamps, _, key_at, value_at = layout
    places = [length - 1, *range(stamps - 1)]
    for place in (key_at, value_at):
        places.append(place)
        while data[begin + place] >= 0x80:
            place += 1
            places.append(place)
    return places


def _offsets_are(data: bytes, start: int, stop: int, length: int, index: int, most: int, width: int) -> bool:
    """Whether the offset deltas in columns from `start` on are the numbers from `index` on."""
    low = data[start:stop:length]
    if width == 1:
        return low == _LOW[index : index + most].translate(_WITHOUT_TOP_BIT)
    part = index % _PERIOD
    second = data[start + 1 : stop : length]
    if low != _LOW[part : part + most]:
        return False
    if width == 2:
        return second == _HIGH[part : part + most]
    third = data[start + 2 : stop : length]
    return second == _MIDDLE[part : part + most] and index < 64 * _PERIOD * 2 and third == bytes((index // _PERIOD,)) * most


def _extreme(low: bytes, high: bytes, pick: Callable[[Iterable[int]], int]) -> int:
    """The highest or lowest number, as `pick` says; the two bytes of the numbers are in two columns."""
    top = pick(high)
    at = high.index(top)
    length = high.count(top)
    if high[at : at + length] != high[at : at + 1] * length:
        return (pick(a for a, b in zip(low, high, strict=True) if b == top) & 0x7F | top << 7) >> 1
    return (pick(low[at : at + length]) & 0x7F | top << 7) >> 1
