"""Counterparts of the violations of rules `C` about requests, and of `E`: changes of the story `controllers` that are just allowed."""

from __future__ import annotations

from itertools import product
from typing import Any

from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.allowed_states import last_on_connection
from klamm.tests.pipeline.injected.injections import (
    REQUEST_IN,
    REQUEST_OUT,
    RESPONSE_OUT,
    Edits,
    Row,
    TrueRun,
    body_of,
    injected,
    inserted,
    moved,
    neutral,
    place,
    repeated,
    swapped,
    with_body,
)
from klamm.tests.pipeline.injected.single_changes import LEAD, UPDATE, always, setting, simple, states
from klamm.tests.pipeline.injected.violations_of_requests import ELECT, elected, isr_change, release, results, sent


def _lives(world: TrueRun, node: int) -> int:
    """The number of processes of a broker."""
    return max(int(row["process"]) for row in world.rows.values() if row["node_id"] == node)


@injected("C-03", "a request of the controller before is refused", allowed=True)
def _(world: TrueRun) -> Edits:
    """Its receiver has the same registration still."""
    frames = world.frames(UPDATE, REQUEST_IN)
    for row in frames:
        body = body_of(row)
        for later in frames:
            same = all(row[name] == later[name] for name in ("node_id", "process"))
            if same and later["seq"] > row["seq"] and body_of(later).controller_epoch > body.controller_epoch \
                    and body_of(later).broker_epoch == body.broker_epoch:
                answer = body_of(world.answer(row))
                answer.error_code = 11
                at = world.answer(later)
                return inserted(world, row, at["seq"] + 0.1, at, None, answer, conn_id=90_000)
    raise LookupError


@injected("C-04", "a controller is elected, and sends nothing before it resigns", allowed=True)
def _(world: TrueRun) -> Edits:
    elections = world.events("controller_elected")
    newest = max(elections, key=lambda row: int(row["controller_epoch"]))
    last = max((row for row in world.rows.values() if row["node_id"] == 3 and row["process"] == _lives(world, 3)), key=place)
    edits: Edits = {}
    for number, kind in enumerate(("controller_elected", "controller_resigned")):
        seq = last["seq"] - 0.5 + number / 10
        edits[3, seq] = moved({**newest, "kind": kind}, {**last, "seq": seq}, node_id=3, process=last["process"], broker=3,
                              controller_epoch=newest["controller_epoch"] + 1, cause_seq=None)
    return edits


@injected("C-09", "a change of the ISR is not sent, because its event fails", allowed=True)
def _(world: TrueRun) -> Edits:
    batch = isr_change(world)
    return {place(batch): {**neutral(batch), "kind": "event_failed", "cause_seq": batch["cause_seq"]}}


def _in_flight(world: TrueRun) -> tuple[Row, Row]:
    """Two requests of one batch: LeaderAndIsr to one broker, and UpdateMetadata to another one that is sent before the first answers."""
    for batch in world.events("batch"):
        requests = sorted(sent(world, batch), key=place)
        for one, two in product(requests, requests):
            if (one["api_key"], two["api_key"]) == (LEAD, UPDATE) and one["peer_id"] != two["peer_id"] and one["seq"] < two["seq"]:
                before = [r["seq"] for r in world.rows.values() if "frame" in r and r["seq"] < two["seq"] and all(
                    r[name] == two[name] for name in ("node_id", "process", "conn_id"))]
                if world.answer(one)["seq"] > two["seq"] and max(before, default=0) < one["seq"]:
                    return one, two
    raise LookupError


@injected("C-10", "one broker gets UpdateMetadata before another one gets LeaderAndIsr", allowed=True)
def _(world: TrueRun) -> Edits:
    return swapped(world, *_in_flight(world))


@injected("C-11", "a request without an answer is repeated on another connection", allowed=True)
def _(world: TrueRun) -> Edits:
    row = last_on_connection(world, UPDATE)
    edits = repeated(world, row)
    for one in edits.values():
        one["correlation_id"] += 1
        start = 8 if one["dir"] in (REQUEST_IN, REQUEST_OUT) else 4
        one["frame"] = one["frame"][:start] + one["correlation_id"].to_bytes(4, "big") + one["frame"][start + 4:]
    return edits | {place(world.answer(each)): neutral(world.answer(each)) for each in world.copies(row)}


def _reversed(body: Any) -> None:
    for topic in body.topic_states:
        topic.partition_states.reverse()
    body.topic_states.reverse()


simple("C-12", "UpdateMetadata of a batch has its partitions in another order", UPDATE, REQUEST_OUT,
       lambda b, r: len(states(b)) > 1, _reversed, which=5, allowed=True)
simple("C-13", "live brokers are listed in another order", UPDATE, REQUEST_OUT, lambda b, r: len(b.live_brokers) == 4,
       lambda b: b.live_brokers.reverse(), which=5, allowed=True)
injected("C-14", "a batch has the versions of its protocol's release", allowed=True)(release("3.9"))
simple("C-15", "a request has no broker epoch", UPDATE, REQUEST_OUT, always, setting(broker_epoch=-1), which=30, allowed=True)


@injected("C-16", "Metadata shows the state before while UpdateMetadata is being taken", allowed=True)
def _(world: TrueRun) -> Edits:
    for shown in world.frames(Api.METADATA, RESPONSE_OUT):
        leaders = {(topic.name, each.partition_index): each.leader_epoch for topic in body_of(shown).topics for each in topic.partitions}
        later = [row for row in world.frames(UPDATE, REQUEST_IN) if row["node_id"] == shown["node_id"]
                 and row["process"] == shown["process"] and row["seq"] > shown["seq"]]
        told = {(topic.topic_name, state.partition_index): state.leader_epoch for row in later[:1]
                for topic in body_of(row).topic_states for state in topic.partition_states}
        if any(epoch > leaders[name] for name, epoch in told.items() if name in leaders):
            return inserted(world, world.request(shown), later[0]["seq"] + 0.1, later[0], conn_id=90_000)
    raise LookupError


@injected("C-20", "the UpdateMetadata that follows has a later state", allowed=True)
def _(world: TrueRun) -> Edits:
    """A partition is left out of all UpdateMetadata of a batch. Its next state comes before a Metadata that shows it."""
    frames = [(row, body_of(row)) for row in world.frames(UPDATE, REQUEST_OUT)]
    shown = [(row, {topic.name for topic in body_of(row).topics}) for row in world.frames(Api.METADATA, RESPONSE_OUT)]
    for lead in world.frames(LEAD, REQUEST_OUT):
        for topic in body_of(lead).topic_states:
            for state in topic.partition_states:
                edits: Edits = {}
                name = topic.topic_name
                times = [row["ts_ns"] for row, body in frames if row["ts_ns"] > lead["ts_ns"] and any(
                    each.topic_name == name and s.partition_index == state.partition_index and s.zk_version > state.partition_epoch
                    for each in body.topic_states for s in each.partition_states)]
                if not times or any(name in names and lead["ts_ns"] < row["ts_ns"] < max(times[:4]) for row, names in shown):
                    continue
                for row, _ in frames:
                    if (row["node_id"], row["cause_seq"]) == (lead["node_id"], lead["cause_seq"]):
                        body = body_of(row)
                        for each in body.topic_states:
                            each.partition_states = [s for s in each.partition_states if (each.topic_name, s.partition_index) != (
                                name, state.partition_index)]
                        edits |= {place(copy): with_body(copy, body) for copy in world.copies(row)}
                if edits and not state.is_new:
                    return edits
    raise LookupError


@injected("C-22", "a controller resigns just after its last request", allowed=True)
def _(world: TrueRun) -> Edits:
    resigned = world.events("controller_resigned")[0]
    last = [r for r in world.rows.values() if r["node_id"] == resigned["node_id"] and r.get("dir") == REQUEST_OUT
            and r["api_key"] in (4, 5, 6) and r["seq"] < resigned["seq"]][-1]
    seq = last["seq"] + 0.5
    return {place(resigned): neutral(resigned), (last["node_id"], seq): moved(resigned, {**last, "seq": seq})}


# --- E


@injected("E-01", "ElectLeaders answers NONE just after UpdateMetadata has come", allowed=True)
def _(world: TrueRun) -> Edits:
    answer = next(r for r in world.frames(ELECT, RESPONSE_OUT) if elected(body_of(r), r))
    asked = world.request(answer)
    names = {(t.topic, p.partition_id) for t in body_of(answer).replica_election_results for p in t.partition_result if p.error_code == 0}
    told = [r for r in world.frames(UPDATE, REQUEST_IN) if r["node_id"] == asked["node_id"] and asked["seq"] < r["seq"] < answer["seq"]
            and names & {(t.topic_name, s.partition_index) for t in body_of(r).topic_states for s in t.partition_states}]
    seq = told[-1]["seq"] + 0.5
    return {place(answer): neutral(answer), (asked["node_id"], seq): moved(answer, {**told[-1], "seq": seq})}


simple("E-02", "no message beside NOT_CONTROLLER", ELECT, RESPONSE_OUT, lambda b, r: any(p.error_code == 41 for p in results(b)),
       lambda b: setting(error_message=None)(results(b)[0]), allowed=True)


def _twice(body: Any) -> None:
    for topic in body.topic_partitions:
        topic.partitions = [*topic.partitions, *topic.partitions]


simple("E-03", "a partition is named twice and answered once", ELECT, REQUEST_IN, lambda b, r: bool(b.topic_partitions), _twice,
       allowed=True)
simple("E-04", "another broker than the controller answers that it is not authorized", Api.CREATE_TOPICS, RESPONSE_OUT,
       lambda b, r: b.topics[0].error_code == 41, lambda b: setting(error_code=29)(b.topics[0]), allowed=True)
