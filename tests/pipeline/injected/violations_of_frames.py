"""Violations of rules `W`, put into the story `controllers`: at least two of each rule, one of them as small as it can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import (
    REQUEST_IN,
    RESPONSE_OUT,
    Edits,
    Row,
    TrueRun,
    injected,
    moved,
    neutral,
    of_event,
    place,
)
from klamm.tests.pipeline.injected.single_changes import LEAD, STOP, always, ordinary, setting, simple


def _answers(world: TrueRun, key: int = Api.METADATA) -> list[Row]:
    return world.frames(key, RESPONSE_OUT)


@injected("W-01", "an answer leaves behind that of the next request", edge=True)
def _(world: TrueRun) -> Edits:
    one, two = next((a, b) for a in _answers(world, Api.PRODUCE) for b in _answers(world, Api.PRODUCE) if a["conn_id"] == b["conn_id"]
                    and (a["node_id"], a["process"]) == (b["node_id"], b["process"]) and a["seq"] < b["seq"])
    later = two["seq"] + 0.5
    return {place(one): neutral(one), (two["node_id"], later): moved(one, {**two, "seq": later})}


@injected("W-01", "an answer belongs to no request")
def _(world: TrueRun) -> Edits:
    row = _answers(world)[1]
    return {place(row): {**row, "cause_seq": None, "correlation_id": 12345, "flags": 16}}


def advertised(how: Callable[[list[list[int]]], None]) -> Callable[[TrueRun], Edits]:
    def make(world: TrueRun) -> Edits:
        edits: Edits = {}
        for which in range(len(world.events("advertised"))):
            edits |= of_event(world, "advertised", lambda row: True, lambda row, given, output: how(output["apis"]), which=which)
        return edits

    return make


@injected("W-02", "a version one above the range is answered", edge=True)
def _(world: TrueRun) -> Edits:
    def lower(apis: list[list[int]]) -> None:
        for api in apis:
            if api[0] == Api.METADATA:
                api[2] = 11

    return advertised(lower)(world)


@injected("W-02", "an API that is not advertised is answered")
def _(world: TrueRun) -> Edits:
    return advertised(lambda apis: apis.remove(next(api for api in apis if api[0] == Api.METADATA)))(world)


def lost_answer(world: TrueRun, key: int, *, is_last: bool) -> Edits:
    """An answer is lost, and a later request of the connection is answered or not."""
    for row in world.frames(key, RESPONSE_OUT):
        later = [r for r in world.rows.values() if r["node_id"] == row["node_id"] and r["process"] == row["process"]
                 and r.get("dir") == RESPONSE_OUT and r["conn_id"] == row["conn_id"] and r["seq"] > row["seq"]]
        if bool(later) != is_last:
            return {place(row): neutral(row)}
    raise LookupError(key)


@injected("W-03", "an answer is lost, and its connection serves on and is closed")
def _(world: TrueRun) -> Edits:
    return lost_answer(world, Api.API_VERSIONS, is_last=False)


@injected("W-03", "an answer is lost in the middle of a client's requests", edge=True)
def _(world: TrueRun) -> Edits:
    return lost_answer(world, Api.FIND_COORDINATOR, is_last=False)


@injected("W-03", "a request is answered twice")
def _(world: TrueRun) -> Edits:
    row = _answers(world)[2]
    slot = world.slot(row)
    return {place(slot): moved(row, slot)}


def old_versions(error: int, high: int) -> Callable[[TrueRun], Edits]:
    def make(world: TrueRun) -> Edits:
        row = next(r for r in world.rows.values() if r.get("dir") == RESPONSE_OUT and r["api_key"] == 18 and len(r["frame"]) < 24)
        form = messages.ApiVersionsResponse
        body = messages.encode(form(error_code=error, api_keys=[form.ApiVersion(18, 0, high)]), 0)
        frame = row["frame"][4:8] + body
        return {place(row): {**row, "frame": len(frame).to_bytes(4, "big") + frame}}

    return make


injected("W-04", "ApiVersions of the future is answered with error 0")(old_versions(0, 4))
injected("W-04", "its answer says another range of ApiVersions", edge=True)(old_versions(35, 3))


@injected("W-05", "a request of an unknown API is answered")
def _(world: TrueRun) -> Edits:
    asked = next(r for r in world.rows.values() if r.get("dir") == REQUEST_IN and r["api_key"] == 999)
    other = _answers(world)[0]
    slot = world.slot(asked)
    frame = (8).to_bytes(4, "big") + asked["frame"][8:12] + bytes(4)
    return {place(slot): moved({**other, **{k: asked[k] for k in ("node_id", "process", "conn_id", "api_key", "api_version")}}, slot,
                               cause_seq=asked["seq"], correlation_id=asked["correlation_id"], frame=frame)}


@injected("W-05", "after a request of an unknown API the connection serves on", edge=True)
def _(world: TrueRun) -> Edits:
    asked = next(r for r in world.rows.values() if r.get("dir") == REQUEST_IN and r["api_key"] == 999)
    row = next(r for r in _answers(world) if r["node_id"] == asked["node_id"] and r["seq"] > asked["seq"])
    mine = {"conn_id": asked["conn_id"]}
    return {place(row): {**row, **mine}, place(world.request(row)): {**world.request(row), **mine}}


def _header(extra: bool, key: int) -> Callable[[TrueRun], Edits]:
    def make(world: TrueRun) -> Edits:
        row = next(r for r in world.frames(key, RESPONSE_OUT) if extra or r["frame"][8] == 0)
        rest = row["frame"][4:8] + (b"\0" + row["frame"][8:] if extra else row["frame"][9:])
        return {place(r): {**r, "frame": len(rest).to_bytes(4, "big") + rest} for r in world.copies(row)}

    return make


injected("W-07", "ApiVersions has a header of version 1")(_header(True, Api.API_VERSIONS))
injected("W-07", "a flexible answer has a header of version 0", edge=True)(_header(False, Api.LEADER_AND_ISR))


def _bytes(how: Callable[[bytes], bytes], key: int = Api.METADATA, which: int = 3) -> Callable[[TrueRun], Edits]:
    def make(world: TrueRun) -> Edits:
        row = world.frames(key, RESPONSE_OUT)[which]
        return {place(r): {**r, "frame": how(r["frame"])} for r in world.copies(row)}

    return make


def sized(rest: bytes) -> bytes:
    return len(rest).to_bytes(4, "big") + rest


injected("W-08", "a frame is one byte longer than its length says", edge=True)(_bytes(lambda frame: frame + b"\0"))
injected("W-08", "a frame is much shorter than its length says")(_bytes(lambda frame: (len(frame) + 96).to_bytes(4, "big") + frame[4:]))
injected("W-09", "a body has a byte over", edge=True)(_bytes(lambda frame: sized(frame[4:] + b"\0")))
injected("W-09", "a body lacks its last bytes")(_bytes(lambda frame: sized(frame[4:-3])))
injected("W-09", "what a controller is answered is cut")(_bytes(lambda frame: sized(frame[4:-1]), STOP, 0))


@injected("W-10", "a client uses a correlation id twice", edge=True)
def _(world: TrueRun) -> Edits:
    one, two = next((a, b) for a in world.frames(Api.PRODUCE, REQUEST_IN) for b in world.frames(Api.PRODUCE, REQUEST_IN)
                    if a["conn_id"] == b["conn_id"] and (a["node_id"], a["process"]) == (b["node_id"], b["process"])
                    and a["seq"] < b["seq"])
    return {place(two): {**two, "correlation_id": one["correlation_id"]}}


@injected("W-10", "the correlation ids of a client fall")
def _(world: TrueRun) -> Edits:
    last = max((r for r in world.frames(Api.FETCH, REQUEST_IN) if r["correlation_id"] > 5), key=lambda r: r["correlation_id"])
    return {place(last): {**last, "correlation_id": 1}}


def named_topics(body: Any) -> bool:
    return len(body.topics) >= 1


simple("W-11", "Metadata answers a topic twice", Api.METADATA, RESPONSE_OUT, lambda b, r: ordinary(b, r) and len(b.topics) == 1,
       lambda b: setattr(b, "topics", [*b.topics, *b.topics]))
simple("W-11", "CreateTopics answers another topic", Api.CREATE_TOPICS, RESPONSE_OUT, always, lambda b: setattr(b.topics[0], "name", "z"))
simple("W-11", "Produce leaves a partition out", Api.PRODUCE, RESPONSE_OUT, lambda b, r: len(b.responses) >= 1,
       lambda b: setattr(b, "responses", []), edge=True)
simple("W-11", "ElectLeaders leaves the partition out that was named", Api.ELECT_LEADERS, RESPONSE_OUT,
       lambda b, r: r["api_version"] == 0 and len(b.replica_election_results) == 1,
       lambda b: setattr(b, "replica_election_results", []), edge=True)
simple("W-11", "LeaderAndIsr does not answer a partition", LEAD, RESPONSE_OUT, lambda b, r: b.error_code == 0 and len(b.topics) == 1,
       lambda b: setattr(b.topics[0], "partition_errors", []))
simple("W-12", "a throttle time of -1", Api.METADATA, RESPONSE_OUT, ordinary, setting(throttle_time_ms=-1), edge=True)
simple("W-12", "a throttle time that has overflowed", Api.FETCH, RESPONSE_OUT, always, setting(throttle_time_ms=-2147483648))
