"""What the frames of a client say: its batches, its connections, and in which order it asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from klamm.conform.case import Absent, Broken, expect
from klamm.conform.connection import KEYS
from klamm.protocol.records.batch import BatchHeader, each_header
from klamm.protocol.records.record import read_records
from klamm.testing.request import Request


class SentBatch(NamedTuple):
    """A batch in a Produce request; `values` are without padding."""

    request: Request
    partition: int
    header: BatchHeader
    values: tuple[str, ...]

    @property
    def producer(self) -> tuple[int, int]:
        return self.header.producer_id, self.header.producer_epoch


def values_of(records: bytes, header: BatchHeader, position: int) -> list[tuple[int, str]]:
    """Offset and value, without padding, of each record of a batch."""
    return [(each.offset, (each.value or b"").decode(errors="replace").rstrip(".")) for each in read_records(records, header, position)]


def decoded(requests: Iterable[Request]) -> None:
    """Raise Broken for the first request that does not decode. A version of ApiVersions that Klamm does not have is refused unread."""
    for each in requests:
        is_newer = each.api == "ApiVersions" and each.version > KEYS[each.api].max_version
        expect(is_newer or each.request is not None, f"{each.api} {each.version} does not decode")


def sent_batches(requests: Sequence[Request]) -> list[SentBatch]:
    """The batches of Produce requests. Raises Broken for one that cannot be read."""
    decoded(requests)
    return [
        SentBatch(each, part.index, header, tuple(value for _, value in values_of(part.records, header, position)))
        for each in requests
        for topic in each.request.topic_data
        for part in topic.partition_data
        for position, header in each_header(part.records or b"")
    ]


def expect_sequences(sent: Sequence[SentBatch]) -> None:
    """Raise Broken if the sequences of a producer do not begin at 0, have a gap, or come with other records than before (KIP-98)."""
    contents: dict[tuple[int, tuple[int, int], int], tuple[str, ...]] = {}
    nexts: dict[tuple[int, tuple[int, int]], set[int]] = {}
    for each in sent:
        expect(each.header.producer_id >= 0, "a batch of an idempotent producer has no producer id")
        key, first = (each.partition, each.producer), each.header.base_sequence
        before = contents.setdefault((*key, first), each.values)
        expect(before == each.values, f"sequence {first} was sent with {list(before)}, and again with {list(each.values)}")
        known = nexts.setdefault(key, {0})
        expect(first in known, f"a batch has sequence {first}, the next one of its producer is {max(known)}")
        known.add(first + len(each.values))


def by_connection(requests: Iterable[Request]) -> dict[tuple[int, str], list[Request]]:
    """Broker and peer → the requests of this connection."""
    connections: dict[tuple[int, str], list[Request]] = {}
    for each in requests:
        connections.setdefault((each.broker, each.peer), []).append(each)
    return connections


def after(requests: Sequence[Request], first: Request, *apis: str) -> list[Request]:
    """Those of these APIs that came after this one."""
    return [each for each in requests if each.number > first.number and (not apis or each.api in apis)]


def with_error(requests: Iterable[Request], error: str) -> list[Request]:
    """Those whose response has this error first."""
    return [each for each in requests if each.error == error]


def refused(requests: Iterable[Request], error: str) -> Request:
    """The first of them whose response has this error first. Raises Absent."""
    for each in with_error(requests, error):
        return each
    raise Absent(f"the client sent no request that {error} can be a response to")


def expect_between(requests: Sequence[Request], first: str, middle: str, last: str, error: str) -> None:
    """Raise Broken if an API `first` was answered with this error and the next request of `last` came before one of `middle`."""
    failed = with_error([each for each in requests if each.api == first], error)
    for each in failed:
        later = after(requests, each, middle, last)
        # requests that were sent before the response came do not count
        waiting = [one for one in later if one.api == last and one.peer == each.peer]
        if waiting and middle not in {one.api for one in later}:
            raise Broken(f"after {error} the client sent {last} again, and no {middle}")


def expect_at_most(requests: Sequence[Request], most: int, window_ms: int) -> None:
    """Raise Broken if more than `most` of these requests came within a window."""
    for at, each in enumerate(requests):
        count = sum(1 for one in requests[at:] if one.at_ms < each.at_ms + window_ms)
        expect(count <= most, f"{count} requests of {each.api} within {window_ms} ms")


def expect_silence(requests: Sequence[Request], throttled: Request, throttle_time_ms: int, tolerance_ms: int = 100) -> None:
    """Raise Broken if the connection of a throttled response had a request before its time was over."""
    for each in requests:
        if each.number > throttled.number and (each.broker, each.peer) == (throttled.broker, throttled.peer):
            waited = each.at_ms - throttled.at_ms
            is_early = waited < throttle_time_ms - tolerance_ms
            expect(not is_early, f"{each.api} came {waited} ms after {throttled.api}, which was throttled for {throttle_time_ms} ms")


def expect_rising(numbers: Sequence[int], what: str) -> None:
    """Raise Broken if a number is not above the one before."""
    for before, number in pairwise(numbers):
        expect(number > before, f"{what} {number} follows {before}")
