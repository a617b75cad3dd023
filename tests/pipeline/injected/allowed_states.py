"""Counterparts of the violations of rules `C` about states: changes of the story `controllers` that are just allowed.

Most states change in all frames that have them, so that no two frames disagree. They are states that no Metadata has shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from klamm.protocol.apis import ApiKey as Api
from klamm.tests.pipeline.injected.injections import (
    REQUEST_IN,
    REQUEST_OUT,
    RESPONSE_OUT,
    Edits,
    Row,
    TrueRun,
    body_of,
    injected,
    neutral,
    place,
    repeated,
    with_body,
)
from klamm.tests.pipeline.injected.single_changes import LEAD, UPDATE, led, setting
from klamm.tests.pipeline.injected.violations_of_states import cleared, is_new, is_set


class ToldState(NamedTuple):
    """A state of a partition."""

    topic: str
    partition: int
    epoch: int
    """The partition epoch."""


def _each_state(body: Any) -> list[tuple[str, Any]]:
    return [(topic.topic_name, state) for topic in body.topic_states for state in topic.partition_states]


def _place(topic: str, state: Any) -> ToldState:
    return ToldState(topic, state.partition_index, state.partition_epoch if hasattr(state, "partition_epoch") else state.zk_version)


def _edited(world: TrueRun, how: Callable[[ToldState, Any, int], bool], keys: tuple[int, ...] = (LEAD, UPDATE)) -> Edits:
    """All frames of controllers that `how` changes: it gets each state and the API, and says whether it has changed it."""
    edits: Edits = {}
    for key in keys:
        for direction in (REQUEST_OUT, REQUEST_IN):
            for row in world.frames(key, direction):
                body = body_of(row)
                changed = [how(_place(topic, state), state, key) for topic, state in _each_state(body)]
                if any(changed):
                    edits[place(row)] = with_body(row, body)
    assert edits
    return edits


def _unshown(world: TrueRun, wanted: Callable[[Any], bool]) -> list[ToldState]:
    """The states of LeaderAndIsr that are wanted, and that no Metadata has shown."""
    shown = {(topic.name, each.partition_index, each.leader_epoch, *each.isr_nodes) for row in world.frames(Api.METADATA, RESPONSE_OUT)
             for topic in body_of(row).topics for each in topic.partitions}
    return [_place(topic, state) for row in world.frames(LEAD, REQUEST_IN) for topic, state in _each_state(body_of(row))
            if wanted(state) and (topic, state.partition_index, state.leader_epoch, *state.isr) not in shown]


def last_on_connection(world: TrueRun, key: int) -> Row:
    """A request of a controller that is the last frame with its answer on its connection, in both journals."""

    def is_last(row: Row) -> bool:
        answer = world.answer(row)
        return not any(r["node_id"] == row["node_id"] and r["process"] == row["process"] and r.get("conn_id") == row["conn_id"]
                       and r["seq"] > answer["seq"] and "frame" in r for r in world.rows.values())

    return next(row for row in world.frames(key, REQUEST_OUT) if row["cause_seq"] and len(world.copies(row)) == 2
                and all(map(is_last, world.copies(row))))


@injected("C-01", "a leader epoch is told twice", allowed=True)
def _(world: TrueRun) -> Edits:
    return repeated(world, last_on_connection(world, UPDATE))


@injected("C-02", "the leader is the last member of the ISR", allowed=True)
def _(world: TrueRun) -> Edits:
    chosen = _unshown(world, lambda s: led(s) and not s.is_new and len(s.isr) > 1 and s.isr[-1] != s.leader)[0]

    def last(told: ToldState, state: Any, key: int) -> bool:
        if told == chosen:
            state.isr = sorted(state.isr, key=lambda each: bool(each == state.leader))
        return told == chosen

    return _edited(world, last)


@injected("C-05", "a write fails, and is repeated", allowed=True)
def _(world: TrueRun) -> Edits:
    write = next(row for row in world.events("zk_write") if is_set(row))
    seq = write["seq"] - 0.5
    return {(write["node_id"], seq): {**write, "seq": seq, "output": '{"outcome":"BadVersion","version":null}'}}


def _asked_again(world: TrueRun, how: Callable[[Any], None], **columns: Any) -> Edits:
    """The last AlterPartition that changed something once more: it asks for what it has got. `how` changes the partition of both."""
    row = [r for r in world.frames(Api.ALTER_PARTITION, REQUEST_OUT) if len(world.copies(r)) == 2
           and all(p.error_code == 0 for t in body_of(world.answer(r)).topics for p in t.partitions)][-1]
    asked, answered = body_of(row), body_of(world.answer(row))
    assert [len(t.partitions) for t in asked.topics] == [len(t.partitions) for t in answered.topics]
    for topic, given in zip(asked.topics, answered.topics, strict=True):
        for partition, result in zip(topic.partitions, given.partitions, strict=True):
            partition.partition_epoch = result.partition_epoch
            how(partition)
    return repeated(world, row, asked, answered, **columns)


@injected("C-06", "a leader that recovers asks for itself alone", allowed=True)
def _(world: TrueRun) -> Edits:
    asked, answer = (next(r for r in cleared(world) if r["dir"] == direction) for direction in (REQUEST_OUT, RESPONSE_OUT))
    request, given = body_of(asked), body_of(answer)
    edits: Edits = {}
    for topic, answered in zip(request.topics, given.topics, strict=True):
        for partition, result in zip(topic.partitions, answered.partitions, strict=True):
            partition.leader_recovery_state = result.leader_recovery_state = 1
            result.partition_epoch = partition.partition_epoch
    for one in world.copies(asked):
        seq = one["seq"] - 0.9
        first = {**with_body(one, request), "seq": seq, "conn_id": 90_000}
        second = {**with_body(world.answer(one), given), "seq": seq + 0.1, "cause_seq": seq, "conn_id": 90_000}
        times = {name: one[name] for name in ("ts_ns", "mono_ns")}
        edits |= {place(row): {**row, **times} for row in (first, second)}
    return edits


def _unclean(world: TrueRun) -> ToldState:
    return next(_place(topic, state) for row in world.frames(LEAD, REQUEST_IN) for topic, state in _each_state(body_of(row))
                if state.leader_recovery_state == 1)


@injected("C-07", "the new leader was in the ISR, and the election leaves no mark", allowed=True)
def _(world: TrueRun) -> Edits:
    chosen = _unclean(world)

    def clean(told: ToldState, state: Any, key: int) -> bool:
        if told == chosen and key == LEAD:
            state.leader_recovery_state = 0
        elif told == chosen._replace(epoch=chosen.epoch - 1):
            state.isr = [*state.isr, 4]
        else:
            return False
        return True

    return _edited(world, clean)


@injected("C-08", "the mark goes, and the AlterPartition that asked for it has no answer", allowed=True)
def _(world: TrueRun) -> Edits:
    rows = cleared(world)
    lost = {"conn_id": 90_000}
    return {place(row): {**row, **lost} if row["dir"] in (REQUEST_IN, REQUEST_OUT) else neutral(row) for row in rows}


@injected("C-17", "a replica of a new partition is offline, and not in its ISR", allowed=True)
def _(world: TrueRun) -> Edits:
    """What Metadata shows of it changes too."""
    row, topic, isr = next((row, topic, tuple(state.isr)) for row in world.frames(LEAD, REQUEST_IN) for topic, state in _each_state(
        body_of(row)) if is_new(state) and state.partition_epoch == 0)
    chosen = next(_place(name, state) for name, state in _each_state(body_of(row)) if name == topic and tuple(state.isr) == isr)

    def shorten(told: ToldState, state: Any, key: int) -> bool:
        if told == chosen:
            if key == UPDATE:
                state.offline_replicas = state.isr[-1:]
            state.isr = state.isr[:-1]
        return told == chosen

    edits = _edited(world, shorten)
    later = [row for row in world.frames(UPDATE, REQUEST_IN) if any(_place(name, state)[:2] == chosen[:2] and _place(
        name, state).epoch > 0 for name, state in _each_state(body_of(row)))]
    for answer in world.frames(Api.METADATA, RESPONSE_OUT):
        body = body_of(answer)
        shown = [p for t in body.topics for p in t.partitions if (t.name, p.partition_index, *p.isr_nodes) == (*chosen[:2], *isr)]
        if shown and not any(row["node_id"] == answer["node_id"] and row["seq"] < answer["seq"] for row in later):
            for partition in shown:
                partition.isr_nodes, partition.offline_replicas = partition.isr_nodes[:-1], partition.isr_nodes[-1:]
            edits[place(answer)] = with_body(answer, body)
    return edits


@injected("C-19", "a state is told to nobody, and the next one has the leader epoch after its", allowed=True)
def _(world: TrueRun) -> Edits:
    last: dict[tuple[str, int], ToldState] = {}
    for row in world.frames(UPDATE, REQUEST_IN):
        for topic, state in _each_state(body_of(row)):
            told = _place(topic, state)
            last[told[:2]] = max(told, last.get(told[:2], told))
    elected = _unshown(world, lambda s: led(s) and not s.is_new)
    chosen = next(each for each in elected if each == last[each[:2]] and each.epoch > 0)

    def later(told: ToldState, state: Any, key: int) -> bool:
        if told == chosen:
            setting(**{"partition_epoch" if hasattr(state, "partition_epoch") else "zk_version": told.epoch + 1})(state)
            state.leader_epoch += 1
        return told == chosen

    return _edited(world, later)


@injected("C-21", "AlterPartition asks for the present state, and gets its partition epoch", allowed=True)
def _(world: TrueRun) -> Edits:
    return _asked_again(world, lambda partition: None)
