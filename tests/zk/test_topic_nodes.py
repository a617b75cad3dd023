"""The quick way of reading a topic node gives what reading it as JSON gives, or leaves it to that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.protocol.nouns import id_text
from klamm.zk.layout import topics as topic_layout

replicas = st.lists(st.integers(-1, 5000), max_size=4)
partitions = st.dictionaries(st.integers(0, 300).map(str), replicas, max_size=12)
moving = st.dictionaries(st.integers(0, 300).map(str), replicas, max_size=2)
ids = st.binary(min_size=16, max_size=16).map(id_text)


def by_json(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(topic_layout.TopicNodes, "_decode_settled_topic", lambda *_: None)
        return topic_layout.TopicNodes().decode_topic("t", data)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_node(data: st.DataObject) -> None:
    content: dict[str, Any] = {"partitions": data.draw(partitions), "version": 3}
    if data.draw(st.booleans()):
        content["topic_id"] = data.draw(ids)
    if data.draw(st.booleans()):
        content |= {"adding_replicas": data.draw(st.just({}) | moving), "removing_replicas": data.draw(st.just({}) | moving)}
    if data.draw(st.integers(0, 4)) == 0:
        content["more"] = data.draw(st.sampled_from([{"partitions": {"0": [1]}}, "]}", [[1], [2]], None]))
    names = data.draw(st.permutations(list(content)))
    separators = data.draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    raw = json.dumps({n: content[n] for n in names}, separators=separators).encode()
    with pytest.MonkeyPatch.context() as patch:
        assert topic_layout.TopicNodes().decode_topic("t", raw) == by_json(raw, patch)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"partitions":{}}',
        b'{"partitions":{"0":[1]}',
        b'{"partitions":{"0":[1]}}',
        b'{"partitions":{"x":[1]}}',
        b'{"partitions":{"0":[1,"2"]}}',
        b'{"partitions":{"0":[1,true]}}',
        b'{"partitions":{"0":[1.5]}}',
        b'{"partitions":{"0":[[1]]}}',
        b'{"partitions":{"0":{"a":[1]}}}',
        b'{"partitions":{"0":[1],"1":2}}',
        b'{"partitions":{"0":[1],}}',
        b'{"partitions":{"0":[]}}',
        b'{"partitions":{"0":[1]},"topic_id":"short"}',
        b'{"partitions":{"0":[1]},"partitions":{"1":[2]}}',
        b'{"partitions":{"0":[1],"0":[2]}}',
        b'{"a":"partitions":{"0","partitions":{"0":[7]}}',
        b'{"partitions":{"0" :[1]}}',
        b'{"partitions":{"0":[1] }}',
        b'{"partitions":{"0":[01]}}',
        b'{"partitions":{" 1":[1]}}',
        b'{"partitions":{"1_0":[1]}}',
        b'{"partitions":{"+1":[1]}}',
        b'{"partitions":{"-1":[1]}}',
        b'{"partitions":{"2147483647":[2147483647]}}',
        b'{"partitions":{"2147483648":[1]}}',
        b'{"partitions":{"0":[1],"9999999999999999999999":[1]}}',
        b'{"partitions":{"0":[2147483648]}}',
        b'{"partitions":{"0":[1.0]}}',
        b'{"partitions":{"0":[1e1]}}',
        b'\xff{"partitions":{"0":[1]}}',
    ],
)
def test_odd_nodes(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert topic_layout.TopicNodes().decode_topic("t", raw) == by_json(raw, monkeypatch)
