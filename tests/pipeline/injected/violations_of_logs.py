"""Injections for the rules about logs, coordinators, new topics, both ends of a channel and members that commit, and their counterparts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import (
    REQUEST_IN,
    RESPONSE_IN,
    RESPONSE_OUT,
    Edits,
    Row,
    TrueRun,
    body_of,
    change,
    injected,
    inserted,
    place,
    with_body,
)
from klamm.tests.pipeline.injected.single_changes import setting, simple

WRITER, READER, RANGE, STATIC = "writer", "reader", "group-range", "group-static"
"""The writer produces three batches to a partition, one after another, with acks=all; the reader fetches each."""


def of(client_id: str) -> Callable[[Any, Row], bool]:
    return lambda body, row: bool(row["client_id"] == client_id)


def _based(offset: int) -> Callable[[Any], None]:
    def apply(body: Any) -> None:
        body.responses[0].partition_responses[0].base_offset = offset

    return apply


def _ending(offset: int) -> Callable[[Any], None]:
    """The high watermark of a Fetch response."""

    def apply(body: Any) -> None:
        body.responses[0].partitions[0].high_watermark = offset

    return apply


def _has_records(body: Any, row: Row) -> bool:
    return bool(row["client_id"] == READER and body.responses and body.responses[0].partitions[0].records)


# --- L: logs

simple("L-01", "a base offset falls by one", Api.PRODUCE, RESPONSE_OUT, of(WRITER), _based(0), which=2, edge=True)
simple("L-01", "a base offset is far above the next one", Api.PRODUCE, RESPONSE_OUT, of(WRITER), _based(50), which=1)


@injected("L-01", "a batch of an idempotent producer is a duplicate of the first one", allowed=True)
def _(world: TrueRun) -> Edits:
    first, _, third = [row for row in world.frames(Api.PRODUCE, RESPONSE_OUT) if row["client_id"] == WRITER]
    edits = {place(third): with_body(third, body_of(first))}
    for answer in (first, third):
        asked = body_of(request := world.request(answer))
        data = asked.topic_data[0].partition_data[0]
        records = bytes(data.records)
        data.records = records[:43] + (7).to_bytes(8, "big") + bytes(6) + records[57:]
        edits[place(request)] = with_body(request, asked)
    return edits


simple("L-02", "a high watermark was one higher before", Api.FETCH, RESPONSE_OUT, _has_records, _ending(4), which=1, edge=True)
simple("L-02", "a high watermark was much higher before", Api.FETCH, RESPONSE_OUT, _has_records, _ending(1000))
simple("L-02", "the last high watermark that is told is higher", Api.FETCH, RESPONSE_OUT, _has_records, _ending(4), which=2, allowed=True)


def _end(which: int, by: int) -> Callable[[TrueRun], Edits]:
    """A response to ListOffsets about the end of partitions of the topic `accounts`, with `read_uncommitted`."""

    def make(world: TrueRun) -> Edits:
        row = [
            row for row in world.frames(Api.LIST_OFFSETS, RESPONSE_OUT)
            if (asked := body_of(world.request(row))).topics[0].name == "accounts" and asked.isolation_level == 0
        ][which]
        body = body_of(row)
        body.topics[0].partitions[0].offset += by
        return {place(row): with_body(row, body)}

    return make


injected("L-03", "ListOffsets says that the last record is the end", story="clients", edge=True)(_end(0, -1))
injected("L-03", "ListOffsets says that an old record is the end", story="clients")(_end(0, -20))
injected("L-03", "ListOffsets has an end that is one higher, as if a marker were there", story="clients", allowed=True)(_end(-1, 1))


# --- C: coordinators and new topics

simple("C-23", "a coordinator has the port behind its own", Api.FIND_COORDINATOR, RESPONSE_OUT,
       lambda b, r: r["client_id"] == READER and b.error_code == 0, setting(port=lambda port: port + 1), edge=True)
simple("C-23", "a broker is named that does not exist", Api.FIND_COORDINATOR, RESPONSE_OUT,
       lambda b, r: r["client_id"] == READER and b.error_code == 0, setting(node_id=9))
simple("C-23", "a coordinator is not available", Api.FIND_COORDINATOR, RESPONSE_OUT,
       lambda b, r: r["client_id"] == READER and b.error_code == 0, setting(error_code=15, node_id=-1, host="", port=-1), allowed=True)


def _is_created(body: Any, row: Row) -> bool:
    return bool(body.topics[0].name == "u" and body.topics[0].error_code == 0)


def _again(validate_only: bool) -> Callable[[TrueRun], Edits]:
    """The topic is created once more."""

    def make(world: TrueRun) -> Edits:
        answer = next(row for row in world.frames(Api.CREATE_TOPICS, RESPONSE_OUT) if _is_created(body_of(row), row))
        asked = body_of(request := world.request(answer))
        asked.validate_only = validate_only
        return inserted(world, request, answer["seq"] + 0.1, answer, asked, conn_id=90_000)

    return make


def _grown(body: Any) -> None:
    body.topics[0].num_partitions += 1


simple("C-24", "a topic has one partition more than come", Api.CREATE_TOPICS, RESPONSE_OUT, _is_created, _grown, edge=True)
injected("C-24", "a topic is created twice, and both times it succeeds")(_again(False))
injected("C-24", "a request that creates nothing succeeds", allowed=True)(_again(True))


# --- C: both ends of a channel


def _is_long(body: Any) -> bool:
    """Whether the order of its brokers, if it lists any, can be another one."""
    return not hasattr(body, "live_brokers") or len(body.live_brokers) > 1


def _other_end(key: int, direction: int, how: Callable[[Any], Any]) -> Callable[[TrueRun], Edits]:
    """The frame of an API, changed in one of its two journals."""

    def make(world: TrueRun) -> Edits:
        row = [row for row in world.frames(key, direction) if len(world.copies(row)) > 1 and _is_long(body_of(row))][-1]
        body = body_of(row)
        how(body)
        return {place(row): with_body(row, body)}

    return make


injected("C-25", "a controller gets an error that the broker did not send", edge=True)(
    _other_end(Api.UPDATE_METADATA, RESPONSE_IN, setting(error_code=-1))
)
injected("C-25", "a broker gets the brokers in another order than was sent")(
    _other_end(Api.UPDATE_METADATA, REQUEST_IN, lambda body: body.live_brokers.reverse())
)


@injected("C-25", "both journals have another order of brokers", allowed=True)
def _(world: TrueRun) -> Edits:
    return change(
        world, Api.UPDATE_METADATA, REQUEST_IN, lambda body, row: _is_long(body) and len(world.copies(row)) > 1,
        lambda body: body.live_brokers.reverse(),
    )


# --- G: who commits


def _as_member(member: Callable[[str], str], error: int, group: str = RANGE) -> Callable[[TrueRun], Edits]:
    """The last commit of a group is that of another member, with this error."""

    def make(world: TrueRun) -> Edits:
        row = [r for r in world.frames(Api.OFFSET_COMMIT, REQUEST_IN) if r["client_id"] == group][-1]
        asked, answer = body_of(row), world.answer(row)
        asked.member_id = member(asked.member_id)
        given = body_of(answer)
        for topic in given.topics:
            for partition in topic.partitions:
                partition.error_code = error
        return {place(row): with_body(row, asked), place(answer): with_body(answer, given)}

    return make


injected("G-07", "a member whose id differs in one character commits", story="clients", edge=True)(
    _as_member(lambda name: name[:-1] + "x", 0)
)
injected("G-07", "a commit of a member without an id succeeds", story="clients")(_as_member(lambda name: "", 0))
injected("G-07", "a commit of a member that is not known is refused", story="clients", allowed=True)(
    _as_member(lambda name: "x", 25, STATIC)
)
