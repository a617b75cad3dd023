"""The violations of `injections.py`: for each rule that a journal of Klamm exercises at least two, where one is as small as it can be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import (
    REQUEST_IN,
    REQUEST_OUT,
    RESPONSE_IN,
    RESPONSE_OUT,
    Edits,
    Row,
    TrueRun,
    body_of,
    change,
    injected,
    moved,
    neutral,
    of_event,
    place,
    with_body,
)

LEAD, UPDATE, STOP = Api.LEADER_AND_ISR, Api.UPDATE_METADATA, Api.STOP_REPLICA


def states(body: Any) -> list[Any]:
    """The partition states of LeaderAndIsr or UpdateMetadata."""
    return [state for topic in body.topic_states for state in topic.partition_states]


def always(body: Any, row: Row) -> bool:
    return True


def simple(rule: str, name: str, key: int, direction: int, wanted: Callable[..., bool], how: Callable[[Any], Any], **more: Any) -> None:
    """An injection that changes one frame."""
    which = more.pop("which", 0)
    injected(rule, name, **more)(lambda world: change(world, key, direction, wanted, how, which=which))


def with_state(wanted: Callable[[Any], bool], how: Callable[[Any], None]) -> tuple[Callable[..., bool], Callable[[Any], None]]:
    """For the first partition state that is wanted."""

    def has(body: Any, row: Row) -> bool:
        return any(map(wanted, states(body)))

    def apply(body: Any) -> None:
        how(next(filter(wanted, states(body))))

    return has, apply


def setting(**values: Any) -> Callable[[Any], None]:
    """Give these attributes values; a function gets the value before."""

    def apply(thing: Any) -> None:
        for name, value in values.items():
            setattr(thing, name, value(getattr(thing, name)) if callable(value) else value)

    return apply


def led(state: Any) -> bool:
    return bool(state.leader > 0)


def is_later(state: Any) -> bool:
    return bool(state.leader > 0 and state.leader_epoch >= 2)


def ordinary(body: Any, row: Row) -> bool:
    """A frame of a client."""
    return row["kind"] == "accepted" and row["peer_id"] is None


# --- W: frames


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

# --- C: controllers

@injected("C-01", "a leader epoch falls by one behind LeaderAndIsr", edge=True)
def _(world: TrueRun) -> Edits:
    for row in world.frames(LEAD, REQUEST_OUT):
        led_now = {(t.topic_name, s.partition_index) for t in body_of(row).topic_states for s in t.partition_states if is_later(s)}
        for other in world.frames(UPDATE, REQUEST_OUT):
            if (other["node_id"], other["cause_seq"], other["peer_id"]) == (row["node_id"], row["cause_seq"], row["peer_id"]):
                body = body_of(other)
                for topic in body.topic_states:
                    for state in topic.partition_states:
                        if (topic.topic_name, state.partition_index) in led_now:
                            state.leader_epoch -= 1
                            return {place(each): with_body(each, body) for each in world.copies(other)}
    raise LookupError


simple("C-01", "a leader epoch falls to zero in UpdateMetadata", UPDATE, REQUEST_OUT, *with_state(is_later, setting(leader_epoch=0)),
       which=-1)
simple("C-01", "a leader epoch is negative", UPDATE, REQUEST_OUT, *with_state(led, setting(leader_epoch=-1)))
simple("C-02", "a leader is not in the ISR", LEAD, REQUEST_OUT, *with_state(lambda s: led(s) and len(s.isr) > 1, lambda s: setattr(
    s, "isr", [b for b in s.isr if b != s.leader])))
simple("C-02", "one member of the ISR is no replica", UPDATE, REQUEST_OUT,
       *with_state(led, lambda s: setattr(s, "isr", [*s.isr, 77])), edge=True)
simple("C-03", "a good request is refused", UPDATE, RESPONSE_OUT, lambda b, r: b.error_code == 0, setting(error_code=11), which=5)
simple("C-03", "a request with the epoch before is taken", UPDATE, REQUEST_OUT, lambda b, r: b.controller_epoch == 2,
       setting(controller_epoch=1), edge=True, which=-1)
simple("C-04", "two controllers have one epoch", UPDATE, REQUEST_OUT, always, setting(controller_id=77), which=7)
simple("C-04", "a controller has the epoch of the next one in its last request", UPDATE, REQUEST_OUT,
       lambda b, r: b.controller_epoch == 1, setting(controller_epoch=2), which=-1, edge=True)


def is_set(row: Row) -> bool:
    return row["partition"] is not None and '"op": "set"' in row["input"].replace('":"', '": "') and '"OK"' in row["output"]


def is_created(row: Row) -> bool:
    return row["partition"] is not None and '"op": "create"' in row["input"].replace('":"', '": "') and '"OK"' in row["output"]


injected("C-05", "a write makes the partition epoch two higher", edge=True)(
    lambda world: of_event(world, "zk_write", is_set, lambda row, given, output: output.update(version=output["version"] + 1)))
injected("C-05", "a partition is created with partition epoch 1")(
    lambda world: of_event(world, "zk_write", is_created, lambda row, given, output: output.update(version=1)))
simple("C-06", "a partition recovers with two members", LEAD, REQUEST_OUT,
       *with_state(lambda s: s.leader_recovery_state == 1, lambda s: setattr(s, "isr", list(s.replicas))))
simple("C-06", "a partition with two members has the mark", LEAD, REQUEST_OUT,
       *with_state(lambda s: len(s.isr) == 2, setting(leader_recovery_state=1)), edge=True)


def _everywhere(wanted: Callable[[Any], bool], how: Callable[[Any], None], keys: tuple[int, ...] = (LEAD,)) -> Callable[[TrueRun], Edits]:
    """All frames with a state, changed alike."""

    def make(world: TrueRun) -> Edits:
        edits: Edits = {}
        for key in keys:
            for direction in (REQUEST_OUT, REQUEST_IN):
                for row in world.frames(key, direction):
                    body = body_of(row)
                    chosen = list(filter(wanted, states(body)))
                    for state in chosen:
                        how(state)
                    if chosen:
                        edits[place(row)] = with_body(row, body)
        return edits

    return make


injected("C-07", "an unclean election leaves no mark", edge=True)(
    _everywhere(lambda s: s.leader_recovery_state == 1, setting(leader_recovery_state=0)))

injected("C-07", "an unclean election keeps the leader epoch")(
    _everywhere(lambda s: s.leader_recovery_state == 1, setting(leader_epoch=lambda e: e - 1)))


def cleared(world: TrueRun) -> list[Row]:
    """The first AlterPartition after the unclean election, and its answer, in both journals."""
    marked = min(r["ts_ns"] for r in world.frames(LEAD, REQUEST_IN) if any(s.leader_recovery_state == 1 for s in states(body_of(r))))
    asked = min(
        (r for r in world.frames(Api.ALTER_PARTITION, REQUEST_OUT) if r["ts_ns"] > marked and r["node_id"] == 4), key=lambda r: r["ts_ns"])
    return [copy for one in (asked, world.answer(asked)) for copy in world.copies(one)]


@injected("C-08", "the mark goes without AlterPartition", edge=True)
def _(world: TrueRun) -> Edits:
    return {place(row): neutral(row) for row in cleared(world)}


@injected("C-08", "the mark goes though AlterPartition is refused")
def _(world: TrueRun) -> Edits:
    edits: Edits = {}
    for row in cleared(world):
        if row["dir"] in (RESPONSE_OUT, RESPONSE_IN):
            body = body_of(row)
            for topic in body.topics:
                for each in topic.partitions:
                    setting(error_code=9, leader_id=0, leader_epoch=0, isr=[], leader_recovery_state=0, partition_epoch=0)(each)
            edits[place(row)] = with_body(row, body)
    return edits


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
metadata("Metadata has a broker that does not live", lambda b: setattr(b.brokers[0], "node_id", 66))


def is_new(state: Any) -> bool:
    return bool(state.is_new and state.leader > 0 and len(state.isr) > 1)


injected("C-17", "a new partition is led by its second replica")(
    _everywhere(is_new, lambda s: setattr(s, "leader", s.isr[1])))
simple("C-17", "a new partition has leader epoch 1", LEAD, REQUEST_OUT, *with_state(
    lambda s: is_new(s) and s.partition_epoch == 0, setting(leader_epoch=1)), edge=True)
simple("C-18", "a leader epoch has two leaders", LEAD, REQUEST_OUT, *with_state(
    lambda s: led(s) and len(s.isr) > 1, lambda s: setattr(s, "leader", next(b for b in s.isr if b != s.leader))), which=9)
simple("C-18", "a leader epoch has a leader and none", UPDATE, REQUEST_OUT, *with_state(led, setting(leader=-1)), edge=True, which=9)
simple("C-19", "a partition epoch has two ISRs", UPDATE, REQUEST_OUT, *with_state(
    lambda s: led(s) and len(s.isr) > 1, lambda s: setattr(s, "isr", list(reversed(s.isr)))), edge=True, which=9)
simple("C-19", "a leader epoch jumps", UPDATE, REQUEST_OUT, *with_state(led, setting(leader_epoch=lambda e: e + 5)), which=9)
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


def granted(body: Any, row: Row) -> bool:
    return bool(body.error_code == 0 and any(p.error_code == 0 for t in body.topics for p in t.partitions))


def granted_partition(body: Any) -> Any:
    return next(p for t in body.topics for p in t.partitions if p.error_code == 0)


simple("C-21", "AlterPartition gets a partition epoch two higher", Api.ALTER_PARTITION, RESPONSE_OUT, granted, lambda b: setattr(
    granted_partition(b), "partition_epoch", granted_partition(b).partition_epoch + 1), edge=True)
simple("C-21", "AlterPartition gets another ISR", Api.ALTER_PARTITION, RESPONSE_OUT, granted, lambda b: setattr(
    granted_partition(b), "isr", [*granted_partition(b).isr, 55]))


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


# --- D, E, B


def decided(how: Callable[[Any], Any]) -> Callable[[TrueRun], Edits]:
    """The output of a decision that writes a leader."""

    def make(world: TrueRun) -> Edits:
        row = next(r for r in world.events("decision") if '"leader":' in (r["output"] or "").replace(" ", ""))
        return {place(row): {**row, "output": how(row["output"])}}

    return make


injected("D-01", "a decision writes a leader that is one higher", edge=True)(
    decided(lambda text: re.sub(r'("leader": ?)(\d+)', lambda found: f"{found[1]}{int(found[2]) + 1}", text, count=1)))
injected("D-01", "a decision is to do nothing")(decided(lambda text: "{}"))

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


def _listing(row: Row) -> bool:
    return '"listed"' in (row["output"] or "")


def blacklist_change(world: TrueRun) -> Row:
    """A change of the blacklist, which is the cause of nothing else."""
    return next(r for r in world.events("config_change") if _listing(r) and '"ConfigsChanged"' in world.rows[
        r["node_id"], r["cause_seq"]]["input"].replace(" ", ""))


@injected("B-01", "a change of the blacklist writes a state", edge=True)
def _(world: TrueRun) -> Edits:
    config = blacklist_change(world)
    write = next(r for r in world.events("zk_write") if r["node_id"] == config["node_id"] and r["partition"] is not None)
    return {place(write): {**write, "cause_seq": config["cause_seq"]}}


@injected("B-01", "a change of the blacklist sends a batch")
def _(world: TrueRun) -> Edits:
    config = blacklist_change(world)
    batch = next(r for r in world.events("batch") if r["node_id"] == config["node_id"])
    return {place(batch): {**batch, "cause_seq": config["cause_seq"]}}


@injected("B-02", "the rebalance gives the lead to the listed broker", edge=True)
def _(world: TrueRun) -> Edits:
    for row in world.events("zk_write"):
        cause = world.rows.get((row["node_id"], row["cause_seq"] or 0))
        listed = [r for r in world.events("config_change") if _listing(r) and r["node_id"] == row["node_id"] and r["seq"] < row["seq"]]
        if row["partition"] is not None and cause and "AutoPreferredReplicaLeaderElection" in (cause["input"] or "") and listed \
                and '"listed":[1]' in listed[-1]["output"].replace(" ", ""):
            given = json.loads(row["input"]) | {"leader": 1}
            return {place(row): {**row, "input": json.dumps(given)}}
    raise LookupError


def of_listing(world: TrueRun, listed: list[int]) -> Edits:
    """The last blacklist that names broker 1 names these."""
    return of_event(world, "config_change", lambda r: '"listed":[1]' in (r["output"] or "").replace(" ", ""),
                    lambda row, given, output: output.update(listed=listed), which=-1)


injected("B-02", "the blacklist names the broker that gets the lead")(lambda world: of_listing(world, [1, 2, 3, 4]))


# --- R: reassignments


def _phase(row: Row) -> str:
    return str(row["output"])


injected("R-02", "a phase comes again", edge=True)(
    lambda world: of_event(world, "reassign_phase", lambda r: '"B3"' in _phase(r), lambda r, given, output: output.update(phase="B1")))
injected("R-02", "the last phase comes first")(
    lambda world: of_event(world, "reassign_phase", lambda r: '"U"' in _phase(r) or '"B1"' in _phase(r),
                           lambda r, given, output: output.update(phase="B9")))


@injected("R-03", "a request leaves a step out", edge=True)
def _(world: TrueRun) -> Edits:
    row = world.events("throttle_step")[1]
    return {place(row): neutral(row)}


@injected("R-03", "two steps of a request change places")
def _(world: TrueRun) -> Edits:
    rows = world.events("throttle_step")
    one, two = rows[0], rows[-1]
    return {place(one): {**one, "output": two["output"]}, place(two): {**two, "output": one["output"]}}


def moving(state: Any) -> bool:
    return bool(len(state.adding_replicas) > 0)


simple("R-04", "replicas are in another order while they move", LEAD, REQUEST_OUT,
       *with_state(moving, lambda s: setattr(s, "replicas", list(reversed(s.replicas)))), edge=True)
simple("R-04", "a replica of the target is missing while it is added", LEAD, REQUEST_OUT,
       *with_state(moving, lambda s: setattr(s, "replicas", [b for b in s.replicas if b not in s.adding_replicas])))


def _removal(world: TrueRun) -> Row:
    return next(r for r in world.events("throttle_removed"))


@injected("R-01", "a name leaves the znode, and its throttle stays", edge=True)
def _(world: TrueRun) -> Edits:
    row = _removal(world)
    return {place(row): neutral(row)}


@injected("R-01", "a throttle goes that is not named")
def _(world: TrueRun) -> Edits:
    return of_event(world, "throttle_removed", lambda r: r["topic"] is not None, lambda r, given, output: r.update(topic="other"))
