"""Violations of rules `C` about requests and of rules `E`, put into the story `controllers`: at least two of each rule, one of them as
small as it can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import (
    REQUEST_OUT,
    RESPONSE_IN,
    RESPONSE_OUT,
    Edits,
    Row,
    TrueRun,
    body_of,
    injected,
    moved,
    neutral,
    of_event,
    place,
    with_body,
)
from klamm.tests.pipeline.injected.single_changes import LEAD, STOP, UPDATE, always, led, setting, simple, states, with_state
from klamm.tests.pipeline.injected.violations_of_states import is_new

simple("C-03", "a good request is refused", UPDATE, RESPONSE_OUT, lambda b, r: b.error_code == 0, setting(error_code=11), which=5)
simple("C-03", "a request with the epoch before is taken", UPDATE, REQUEST_OUT, lambda b, r: b.controller_epoch == 2,
       setting(controller_epoch=1), edge=True, which=-1)
simple("C-04", "two controllers have one epoch", UPDATE, REQUEST_OUT, always, setting(controller_id=77), which=7)
simple("C-04", "a controller has the epoch of the next one in its last request", UPDATE, REQUEST_OUT,
       lambda b, r: b.controller_epoch == 1, setting(controller_epoch=2), which=-1, edge=True)


def release(ibp: str) -> Callable[[TrueRun], Edits]:
    return lambda world: of_event(world, "batch", lambda row: bool(sent(world, row)), lambda row, given, output: output.update(ibp=ibp))


def sent(world: TrueRun, batch: Row) -> list[Row]:
    """The frames of a batch."""
    return [r for r in world.rows.values() if r["node_id"] == batch["node_id"] and r["cause_seq"] == batch["seq"] and "frame" in r]


injected("C-14", "a batch has the versions of the release after its protocol's", edge=True)(release("3.3"))
injected("C-14", "a batch has much newer versions than its protocol")(release("1.0"))


@injected("C-09", "LeaderAndIsr is sent for a change of the ISR")
def _(world: TrueRun) -> Edits:
    for event in world.events("controller_event"):
        if '"AlterPartition' in event["input"]:
            batches = [r for r in world.events("batch") if (r["node_id"], r["cause_seq"]) == (event["node_id"], event["seq"])]
            writes = [r for r in world.events("zk_write") if (r["node_id"], r["cause_seq"]) == (event["node_id"], event["seq"])]
            phases = [r for r in world.events("reassign_phase") if (r["node_id"], r["cause_seq"]) == (event["node_id"], event["seq"])]
            for write in writes:
                for row in world.frames(LEAD, REQUEST_OUT):
                    if batches and not phases and write["partition"] is not None and row["node_id"] == event["node_id"] and any(
                        topic.topic_name == write["topic"] and s.partition_index == write["partition"]
                        for topic in body_of(row).topic_states for s in topic.partition_states
                    ):
                        return {place(row): {**row, "cause_seq": batches[0]["seq"]}}
    raise LookupError


def isr_change(world: TrueRun) -> Row:
    """The one batch that a change of the ISR alone sends."""
    for event in world.events("controller_event"):
        if '"AlterPartition' in event["input"]:
            same = [r for r in world.rows.values() if (r["node_id"], r["cause_seq"]) == (event["node_id"], event["seq"])]
            batches = [r for r in same if r["kind"] == "batch"]
            if len(batches) == 1 and any(r["kind"] == "zk_write" for r in same) and not any(r["kind"] == "reassign_phase" for r in same):
                return batches[0]
    raise LookupError


@injected("C-09", "a change of the ISR is not sent", edge=True)
def _(world: TrueRun) -> Edits:
    batch = isr_change(world)
    return {place(batch): neutral(batch)}


def _batch_with(world: TrueRun, *keys: int) -> list[Row]:
    for batch in world.events("batch"):
        requests = sent(world, batch)
        for peer in {r["peer_id"] for r in requests}:
            mine = [r for r in requests if r["peer_id"] == peer]
            if [r["api_key"] for r in mine][: len(keys)] == list(keys):
                return mine
    raise LookupError


@injected("C-10", "UpdateMetadata before LeaderAndIsr", edge=True)
def _(world: TrueRun) -> Edits:
    one, two = _batch_with(world, LEAD, UPDATE)[:2]
    return {place(one): moved(two, one), place(two): moved(one, two)}


@injected("C-10", "StopReplica before UpdateMetadata")
def _(world: TrueRun) -> Edits:
    one, two = _batch_with(world, UPDATE, STOP)[:2]
    return {place(one): moved(two, one), place(two): moved(one, two)}


@injected("C-11", "a controller sends before the answer has come", edge=True)
def _(world: TrueRun) -> Edits:
    row = world.frames(UPDATE, RESPONSE_IN)[10]
    after = next(r for r in world.rows.values() if r["node_id"] == row["node_id"] and r.get("dir") == REQUEST_OUT
                 and r["conn_id"] == row["conn_id"] and r["process"] == row["process"] and r["seq"] > row["seq"]
                 and r["api_key"] in (4, 5, 6))
    return {place(row): moved(after, row), place(after): moved(row, after)} | {
        place(r): {**r, "cause_seq": row["seq"]} for r in [world.answer(after)]}


@injected("C-11", "a request without an answer is not repeated")
def _(world: TrueRun) -> Edits:
    row = world.frames(UPDATE, RESPONSE_IN)[20]
    return {place(row): neutral(row)}


simple("C-12", "UpdateMetadata of a batch lacks a partition", UPDATE, REQUEST_OUT, lambda b, r: sum(1 for _ in states(b)) > 1,
       lambda b: setattr(b.topic_states[0], "partition_states", b.topic_states[0].partition_states[:-1]), edge=True, which=5)
simple("C-12", "UpdateMetadata of a batch has no partition", UPDATE, REQUEST_OUT, lambda b, r: sum(1 for _ in states(b)) > 1,
       lambda b: setattr(b, "topic_states", []), which=9)
simple("C-13", "a live broker is left out", UPDATE, REQUEST_OUT, lambda b, r: len(b.live_brokers) == 4,
       lambda b: setattr(b, "live_brokers", b.live_brokers[:-1]), edge=True, which=5)
simple("C-13", "a live leader is left out", LEAD, REQUEST_OUT, lambda b, r: len(b.live_leaders) >= 1,
       lambda b: setattr(b, "live_leaders", []), which=5)


@injected("C-13", "a request goes to a broker that is not registered")
def _(world: TrueRun) -> Edits:
    return of_event(world, "broker_up", lambda row: True, lambda row, given, output: row.update(broker=44), which=1)


simple("C-15", "a broker epoch is one lower than the controller knows", UPDATE, REQUEST_OUT, always,
       setting(broker_epoch=lambda e: e - 1), edge=True, which=30)
simple("C-15", "a request has a broker epoch of nobody", LEAD, REQUEST_OUT, always, setting(broker_epoch=1), which=5)


def shown(body: Any, row: Row) -> bool:
    return bool(len(body.brokers) == 4 and any(p.leader_id > 0 for t in body.topics for p in t.partitions))


def first_partition(body: Any) -> Any:
    return next(p for t in body.topics for p in t.partitions if p.leader_id > 0)


def metadata(name: str, how: Callable[[Any], None], *, edge: bool = False, version: int = 0) -> None:
    simple("C-16", name, Api.METADATA, RESPONSE_OUT, lambda b, r: shown(b, r) and r["api_version"] >= version, how, edge=edge)


metadata("Metadata has another leader", lambda b: setattr(first_partition(b), "leader_id", first_partition(b).leader_id % 4 + 1))
metadata("Metadata has the leader epoch before", lambda b: setattr(
    first_partition(b), "leader_epoch", first_partition(b).leader_epoch - 1), version=7, edge=True)
metadata("Metadata lacks a member of the ISR", lambda b: setattr(first_partition(b), "isr_nodes", first_partition(b).isr_nodes[:-1]))
metadata("Metadata has other replicas", lambda b: setattr(
    first_partition(b), "replica_nodes", list(reversed([*first_partition(b).replica_nodes, 9]))))
metadata("Metadata has another topic id", lambda b: setattr(b.topics[0], "topic_id", bytes(range(16))), version=10)
metadata("Metadata has another controller", lambda b: setattr(b, "controller_id", b.controller_id % 4 + 1), version=1)
metadata("Metadata has no controller", lambda b: setattr(b, "controller_id", -1), version=1, edge=True)
metadata("Metadata has another cluster id", lambda b: setattr(b, "cluster_id", "other"), version=2)
metadata("Metadata leaves a live broker out", lambda b: setattr(b, "brokers", b.brokers[:-1]), edge=True)
metadata("Metadata has another port of the last broker", lambda b: setattr(b.brokers[-1], "port", b.brokers[-1].port + 1), edge=True)
metadata("Metadata has another host of a live broker", lambda b: setattr(b.brokers[0], "host", "elsewhere"))
metadata("Metadata has an offline replica that is online", lambda b: setattr(
    first_partition(b), "offline_replicas", [first_partition(b).replica_nodes[0]]), version=5)
simple("C-16", "Metadata leaves out the last partition of a topic", Api.METADATA, RESPONSE_OUT,
       lambda b, r: shown(b, r) and len(b.topics[0].partitions) > 1,
       lambda b: setattr(b.topics[0], "partitions", b.topics[0].partitions[:-1]), edge=True)
metadata("Metadata has a broker that does not live", lambda b: setattr(b.brokers[0], "node_id", 66))
simple("C-20", "LeaderAndIsr goes to no replica", LEAD, REQUEST_OUT,
       *with_state(lambda s: led(s) and len(s.replicas) > 1, setting(replicas=[8, 9], isr=[8], leader=8)))


@injected("C-20", "no UpdateMetadata follows", edge=True)
def _(world: TrueRun) -> Edits:
    row = next(r for r in world.frames(LEAD, REQUEST_OUT) if any(is_new(s) for s in states(body_of(r))))
    body = body_of(row)
    names = {(t.topic_name, s.partition_index) for t in body.topic_states for s in t.partition_states}
    edits: Edits = {}
    for other in world.frames(UPDATE, REQUEST_OUT):
        if other["peer_id"] == row["peer_id"]:
            said = body_of(other)
            for topic in said.topic_states:
                topic.partition_states = [s for s in topic.partition_states if (topic.topic_name, s.partition_index) not in names]
            for copy in world.copies(other):
                edits[place(copy)] = with_body(copy, said)
    return edits


@injected("C-22", "a controller resigns, and sends one more request", edge=True)
def _(world: TrueRun) -> Edits:
    resigned = world.events("controller_resigned")[0]
    last = [r for r in world.frames(UPDATE, REQUEST_OUT) if r["node_id"] == resigned["node_id"] and r["seq"] < resigned["seq"]][-1]
    return {place(last): moved(resigned, last), place(resigned): moved(last, resigned)} | {
        place(r): {**r, "cause_seq": resigned["seq"]} for r in world.rows.values()
        if r["node_id"] == last["node_id"] and r["cause_seq"] == last["seq"]}


@injected("C-22", "a controller resigns early, and goes on")
def _(world: TrueRun) -> Edits:
    resigned = world.events("controller_resigned")[0]
    first = next(r for r in world.events("conn_open") if r["node_id"] == resigned["node_id"] and any(
        e["node_id"] == r["node_id"] and e["seq"] < r["seq"] for e in world.events("controller_elected")))
    return {place(first): moved(resigned, first), place(resigned): neutral(resigned)}


ELECT = Api.ELECT_LEADERS


def results(body: Any) -> list[Any]:
    return [p for t in body.replica_election_results for p in t.partition_result]


def elected(body: Any, row: Row) -> bool:
    return any(p.error_code == 0 for p in results(body))


@injected("E-01", "ElectLeaders answers NONE before anybody was told", edge=True)
def _(world: TrueRun) -> Edits:
    answer = next(r for r in world.frames(ELECT, RESPONSE_OUT) if elected(body_of(r), r))
    asked = world.request(answer)
    slot = next(r for r in world.rows.values() if r["node_id"] == asked["node_id"] and r["seq"] > asked["seq"] and "frame" not in r)
    return {place(slot): moved(answer, slot), place(answer): neutral(answer)}


simple("E-01", "ElectLeaders answers NONE where it is not the controller", ELECT, RESPONSE_OUT,
       lambda b, r: any(p.error_code == 41 for p in results(b)), lambda b: setting(error_code=0, error_message=None)(results(b)[0]))
simple("E-02", "a message beside code 0", ELECT, RESPONSE_OUT, elected, lambda b: setattr(results(b)[0], "error_message", ""), edge=True)
simple("E-02", "no message beside an error", ELECT, RESPONSE_OUT, elected,
       lambda b: setting(error_code=80, error_message=None)(results(b)[0]))
simple("E-03", "a partition is answered twice", ELECT, RESPONSE_OUT, elected, lambda b: setattr(
    b.replica_election_results[0], "partition_result", [*b.replica_election_results[0].partition_result] * 2))
simple("E-03", "what needed no election is listed", ELECT, RESPONSE_OUT, lambda b, r: elected(b, r) and r["api_version"] == 2,
       lambda b: setting(error_code=84, error_message="not needed")(results(b)[0]), edge=True)
simple("E-04", "another broker than the controller creates a topic", Api.CREATE_TOPICS, RESPONSE_OUT,
       lambda b, r: b.topics[0].error_code == 41, lambda b: setting(error_code=0, error_message=None)(b.topics[0]))
simple("E-04", "another broker than the controller answers another code", Api.CREATE_TOPICS, RESPONSE_OUT,
       lambda b, r: b.topics[0].error_code == 41, lambda b: setting(error_code=42)(b.topics[0]), edge=True, which=1)
