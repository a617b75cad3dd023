"""Counterparts of the violations of rules `W`: changes of the story `controllers` that are just allowed."""

from __future__ import annotations

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
    place,
)
from klamm.tests.pipeline.injected.single_changes import LEAD, ordinary, setting, simple
from klamm.tests.pipeline.injected.violations_of_frames import advertised, lost_answer, old_versions, sized


def _of_client(world: TrueRun, key: int = Api.METADATA) -> Row:
    """The first request of a client for an API."""
    return next(row for row in world.frames(key, REQUEST_IN) if row["kind"] == "accepted" and row["peer_id"] is None)


@injected("W-01", "an answer leaves behind that of a later request of another connection", allowed=True)
def _(world: TrueRun) -> Edits:
    answers = sorted(world.frames(Api.FIND_COORDINATOR, RESPONSE_OUT) + world.frames(Api.API_VERSIONS, RESPONSE_OUT), key=place)
    for one in answers:
        later = [row for row in world.rows.values() if (row["node_id"], row["process"]) == (one["node_id"], one["process"])
                 and row["seq"] > one["seq"] and "frame" in row]
        other = next((row for row in later if row["dir"] == RESPONSE_OUT and row["conn_id"] != one["conn_id"]), None)
        if other is not None and all(row["conn_id"] != one["conn_id"] for row in later if row["seq"] <= other["seq"]):
            return {place(one): neutral(one), (one["node_id"], other["seq"] + 0.5): moved(one, {**other, "seq": other["seq"] + 0.5})}
    raise LookupError


@injected("W-02", "the range of each API ends with the versions that clients use", allowed=True)
def _(world: TrueRun) -> Edits:
    used: dict[int, set[int]] = {}
    for row in world.rows.values():
        if row.get("dir") == RESPONSE_OUT and row["api_key"] != Api.API_VERSIONS:
            used.setdefault(row["api_key"], set()).add(row["api_version"])

    def narrow(apis: list[list[int]]) -> None:
        for api in apis:
            api[1:] = [min(used[api[0]]), max(used[api[0]])] if api[0] in used else api[1:]

    return advertised(narrow)(world)


injected("W-03", "the last answer of a connection that ends is lost", allowed=True)(
    lambda world: lost_answer(world, Api.METADATA, is_last=True))


@injected("W-04", "brokers offer a newer version of ApiVersions, and say so", allowed=True)
def _(world: TrueRun) -> Edits:
    def raised(apis: list[list[int]]) -> None:
        for api in apis:
            if api[0] == Api.API_VERSIONS:
                api[2] = 5

    return advertised(raised)(world) | old_versions(35, 5)(world)


@injected("W-05", "a request whose client id is no UTF-8 is answered", allowed=True)
def _(world: TrueRun) -> Edits:
    row = _of_client(world)
    return {place(row): {**row, "frame": row["frame"][:14] + b"\xff" + row["frame"][15:]}}


@injected("W-07", "the header of a flexible answer has a tag that nobody knows", allowed=True)
def _(world: TrueRun) -> Edits:
    row = next(r for r in world.frames(LEAD, RESPONSE_OUT) if r["frame"][8] == 0)
    return {place(r): {**r, "frame": sized(row["frame"][4:8] + b"\x01\x63\x01x" + row["frame"][9:])} for r in world.copies(row)}


@injected("W-08", "a request has many bytes over, and its length says so", allowed=True)
def _(world: TrueRun) -> Edits:
    row = _of_client(world)
    return {place(row): {**row, "frame": sized(row["frame"][4:] + bytes(96))}}


@injected("W-09", "a client's request has a byte over", allowed=True)
def _(world: TrueRun) -> Edits:
    row = _of_client(world)
    return {place(row): {**row, "frame": sized(row["frame"][4:] + b"\0")}}


@injected("W-10", "the correlation ids of a client leave some out", allowed=True)
def _(world: TrueRun) -> Edits:
    answer = world.frames(Api.PRODUCE, RESPONSE_OUT)[-1]
    asked, number = world.request(answer), 1_000_000
    new = number.to_bytes(4, "big")
    last = [row for row in world.rows.values() if row.get("correlation_id") is not None and row["node_id"] == asked["node_id"]
            and row["conn_id"] == asked["conn_id"] and row["process"] == asked["process"] and row["seq"] > answer["seq"]]
    assert not last
    return {
        place(asked): {**asked, "correlation_id": number, "frame": asked["frame"][:8] + new + asked["frame"][12:]},
        place(answer): {**answer, "correlation_id": number, "frame": answer["frame"][:4] + new + answer["frame"][8:]},
    }


simple("W-11", "LeaderAndIsr answers its partitions in another order", LEAD, RESPONSE_OUT,
       lambda b, r: b.error_code == 0 and any(len(t.partition_errors) > 1 for t in b.topics),
       lambda b: [t.partition_errors.reverse() for t in b.topics] and None, allowed=True)
simple("W-12", "a throttle time of 1", Api.METADATA, RESPONSE_OUT, ordinary, setting(throttle_time_ms=1), allowed=True)
