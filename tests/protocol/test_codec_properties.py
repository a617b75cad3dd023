"""What holds for every message: it comes back as it went, and no bytes do worse than being refused."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.protocol import json_form, messages
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.tests.protocol import golden
from klamm.tests.protocol.strategies import all_versions, message

VERSIONS = st.sampled_from(all_versions())


@settings(max_examples=400, deadline=None)
@given(VERSIONS.flatmap(lambda pair: st.tuples(st.just(pair), message(*pair))))
def test_what_is_written_is_read(sample: tuple[tuple[str, int], Any]) -> None:
    (name, version), sent = sample
    data = messages.encode(sent, version)
    assert messages.decode(name, version, data) == (sent, len(data))
    assert json_form.from_json(name, version, json_form.to_json(sent, version)) == sent


@cache
def good_instances() -> list[tuple[str, int, bytes]]:
    rows = golden.lines("messages.jsonl.gz")
    return [
        (row["name"], row["version"], bytes.fromhex(row["hex"]))
        for row in rows
        if row["case"] in ("full", "nulls") and row["key"] is not None and len(row["hex"]) < 4000
    ]


def read_or_refuse(name: str, version: int, data: bytes) -> None:
    """Decoding may only succeed or raise RemoteProtocolError; what it accepts can be sent on, and is read the same again."""
    try:
        found, end = messages.decode(name, version, data)
    except RemoteProtocolError:
        return
    assert end <= len(data)
    try:
        again = messages.encode(found, version)
    except LocalProtocolError as error:
        assert "too long" in str(error) or "format requires" in str(error)  # bad UTF-8 grows when it is replaced
        return
    if not has_nan(found):
        assert messages.decode(name, version, again) == (found, len(again))


def has_nan(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(has_nan, value))
    return isinstance(value, float) and math.isnan(value)


@settings(max_examples=300, deadline=None)
@given(VERSIONS, st.binary(max_size=120))
def test_any_bytes(pair: tuple[str, int], data: bytes) -> None:
    read_or_refuse(*pair, data)


Mutation = tuple[str, int, int]
MUTATIONS = st.lists(st.tuples(st.sampled_from(["set", "insert", "delete", "cut"]), st.integers(0, 2000), st.integers(0, 255)), max_size=4)


@settings(max_examples=500, deadline=None)
@given(st.data(), MUTATIONS)
def test_good_bytes_gone_bad(data: st.DataObject, mutations: list[Mutation]) -> None:
    name, version, good = data.draw(st.sampled_from(good_instances()))
    bad = bytearray(good)
    for what, at, byte in mutations:
        at = min(at, len(bad) - 1) if bad else 0
        match what:
            case "set" if bad:
                bad[at] = byte
            case "insert":
                bad.insert(at, byte)
            case "delete":
                del bad[at : at + byte % 5]
            case "cut":
                del bad[at:]
    read_or_refuse(name, version, bytes(bad))


LISR = messages.LeaderAndIsrRequest
INT32 = st.integers(-(2**31), 2**31 - 1)
SHAPES = st.tuples(st.integers(0, 20), st.integers(0, 4), st.integers(0, 2), st.integers(0, 2))


@st.composite
def partition_states(draw: st.DrawFn) -> list[Any]:
    """A run of states, of one shape or of several."""
    shapes = draw(st.lists(SHAPES, min_size=1, max_size=3))
    states = []
    for i in range(draw(st.integers(0, 30))):
        isr, replicas, adding, removing = (tuple(draw(st.lists(INT32, min_size=n, max_size=n))) for n in shapes[i % len(shapes)])
        leader, is_new = draw(INT32), draw(st.booleans())
        states.append(LISR.LeaderAndIsrPartitionState("", i, leader, -1, 3, isr, 4, replicas, adding, removing, is_new, 0))
    return states


@settings(max_examples=60, deadline=None)
@given(partition_states(), st.sampled_from([3, 4, 7]))
def test_runs_of_partition_states(states: list[Any], version: int) -> None:
    sent = LISR(topic_states=[LISR.LeaderAndIsrTopicState(topic_name="t", partition_states=states)])
    sent = sent if version >= 6 else sent._replace(type=0)
    data = messages.encode(sent, version)
    assert messages.decode("LeaderAndIsrRequest", version, data) == (sent, len(data))


@settings(max_examples=60, deadline=None)
@given(partition_states(), st.integers(0, 5000), st.integers(0, 255))
def test_runs_of_partition_states_gone_bad(states: list[Any], at: int, byte: int) -> None:
    sent = LISR(topic_states=[LISR.LeaderAndIsrTopicState(topic_name="t", partition_states=states)])
    bad = bytearray(messages.encode(sent, 7))
    bad[min(at, len(bad) - 1)] = byte
    read_or_refuse("LeaderAndIsrRequest", 7, bytes(bad))
