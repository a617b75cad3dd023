"""Violations of rules `C` about states, put into the story `controllers`: at least two of each rule, one of them as small as it can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    injected,
    neutral,
    of_event,
    place,
    with_body,
)
from klamm.tests.pipeline.injected.single_changes import LEAD, UPDATE, is_later, led, setting, simple, states, with_state


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


def granted(body: Any, row: Row) -> bool:
    return bool(body.error_code == 0 and any(p.error_code == 0 for t in body.topics for p in t.partitions))


def granted_partition(body: Any) -> Any:
    return next(p for t in body.topics for p in t.partitions if p.error_code == 0)


simple("C-21", "AlterPartition gets a partition epoch two higher", Api.ALTER_PARTITION, RESPONSE_OUT, granted, lambda b: setattr(
    granted_partition(b), "partition_epoch", granted_partition(b).partition_epoch + 1), edge=True)
simple("C-21", "AlterPartition gets another ISR", Api.ALTER_PARTITION, RESPONSE_OUT, granted, lambda b: setattr(
    granted_partition(b), "isr", [*granted_partition(b).isr, 55]))
