"""Counterparts: changes of the story `controllers` that are just allowed."""

from __future__ import annotations

from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injected_violations import ELECT, lost_answer, ordinary, release, results, setting, simple
from klamm.tests.pipeline.injected.injections import REQUEST_IN, RESPONSE_OUT, Edits, TrueRun, injected, place

injected("W-03", "the last answer of a connection that ends is lost", allowed=True)(
    lambda world: lost_answer(world, Api.METADATA, is_last=True))


@injected("W-09", "a client's request has a byte over", allowed=True)
def _(world: TrueRun) -> Edits:
    row = next(row for row in world.frames(Api.METADATA, REQUEST_IN) if row["kind"] == "accepted" and row["peer_id"] is None)
    rest = row["frame"][4:] + b"\0"
    return {place(row): {**row, "frame": len(rest).to_bytes(4, "big") + rest}}


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


simple("W-12", "a throttle time of 1", Api.METADATA, RESPONSE_OUT, ordinary, setting(throttle_time_ms=1), allowed=True)
injected("C-14", "a batch has the versions of its protocol's release", allowed=True)(release("3.9"))
simple("E-02", "no message beside NOT_CONTROLLER", ELECT, RESPONSE_OUT, lambda b, r: any(p.error_code == 41 for p in results(b)),
       lambda b: setting(error_message=None)(results(b)[0]), allowed=True)
simple("E-04", "another broker than the controller answers that it is not authorized", Api.CREATE_TOPICS, RESPONSE_OUT,
       lambda b, r: b.topics[0].error_code == 41, lambda b: setting(error_code=29)(b.topics[0]), allowed=True)
