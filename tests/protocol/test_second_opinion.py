"""kafka-python's codec and ours, on the same messages: equal bytes and equal values, but where it is known to differ.

Its classes are made here from our definitions through `load_json`, as its own are, and from its own files where we have none. It keeps
one registry of response classes for the whole process, which its client reads; it is put back as it was.

Known to differ: structures that are themselves tagged fields are not fed unknown tags here, which it cannot take; a zero uuid is None to
it; what it accepts and we refuse is the business of the golden tests.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.schemas import load_json

from klamm.protocol import messages
from klamm.protocol.schema import is_own
from klamm.protocol.second_opinion import PACKAGE, is_available, is_tried, other_class
from klamm.tests.protocol import golden
from klamm.tests.protocol.good_messages import GOOD
from klamm.tests.protocol.strategies import all_versions, message

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    before = dict(ResponseClassRegistry._response_class_registry)
    yield
    ResponseClassRegistry._response_class_registry.clear()
    ResponseClassRegistry._response_class_registry.update(before)


def same(ours: Any, theirs: Any) -> bool:
    """Whether a value of ours and one of theirs mean the same. Only fields of the version are looked at: theirs has no others."""
    if isinstance(ours, messages.Message):
        return all(same(value, getattr(theirs, name)) for name, value in ours._asdict().items() if name in set_fields(theirs))
    if isinstance(ours, list | tuple):
        return theirs is not None and len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, bytes) and len(ours) == 16 and (theirs is None or isinstance(theirs, uuid.UUID)):
        return ours == (bytes(16) if theirs is None else theirs.bytes)
    if isinstance(theirs, memoryview | bytearray):
        return bytes(theirs) == ours
    return bool(ours == theirs)


def set_fields(theirs: Any) -> set[str]:
    """The fields that decoding has set; it would answer for the rest from the defaults."""
    found = set()
    for name in theirs._struct.fields:
        try:
            object.__getattribute__(theirs, name)
        except AttributeError:
            continue
        found.add(name)
    return found


def test_our_definitions_load_through_its_machinery() -> None:
    loaded = []
    for api in messages.APIS.values():
        for suffix in ("Request", "Response"):
            name = api.name + suffix
            if is_own(name):
                cls = other_class(name)
                ours = messages.message_type(name).schema
                assert (cls.API_KEY, cls.name, cls.valid_versions[1]) == (api.key, name, ours.valid.high)
                assert set(cls.fields) == {field.attribute for field in ours.root.fields}
                loaded.append(name)
    assert len(loaded) == 87
    for name in ("RequestHeader", "ResponseHeader"):
        assert load_json(name, PACKAGE)["type"] == "header"


def test_only_releases_of_kafka_python_that_the_tests_have_tried_are_used() -> None:
    assert is_available()
    assert all(map(is_tried, ("3.0.12", "3.0.13.dev1", "3.0.40")))
    assert not any(map(is_tried, ("2.3.3", "3.0", "3.0.4", "3.1", "3.1.0", "4.0")))


def test_a_difference_is_seen() -> None:
    elections = messages.ElectLeadersRequest
    topics = [elections.TopicPartitions("t", [0, 1])]
    ours = elections(1, topics, 5)
    theirs = other_class("ElectLeadersRequest").decode(messages.encode(ours, 2), version=2)
    assert same(ours, theirs)
    for other in (ours._replace(timeout_ms=6), ours._replace(topic_partitions=[]), ours._replace(topic_partitions=None)):
        assert not same(other, theirs)
    assert not same(ours._replace(topic_partitions=[topics[0]._replace(partitions=[0, 2])]), theirs)


@pytest.mark.parametrize(
    ("cases", "at_least"),
    [pytest.param({"full", "nulls"}, 1100, id="full and nulls"), pytest.param(GOOD, 3500, id="all", marks=pytest.mark.slow)],
)
def test_golden_instances(cases: Container[str], at_least: int) -> None:
    tried = 0
    wrong = []
    for row in golden.lines("messages.jsonl.gz"):
        if row["case"] not in cases or row["key"] is None or row["key"] not in messages.APIS:
            continue
        name, version, data = row["name"], row["version"], bytes.fromhex(row["hex"])
        tried += 1
        theirs = other_class(name).decode(data, version=version)
        ours, _ = messages.decode(name, version, data)
        if not same(ours, theirs):
            wrong.append(f"{name} {version} {row['case']}: values differ")
        if bytes(theirs.encode()) != messages.encode(ours, version):
            wrong.append(f"{name} {version} {row['case']}: bytes differ")
    print(f"second opinion: instances tried {tried}, different {len(wrong)}")
    assert wrong == []
    assert tried > at_least


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(all_versions()).flatmap(lambda pair: st.tuples(st.just(pair), message(*pair))))
def test_any_message(sample: tuple[tuple[str, int], Any]) -> None:
    (name, version), ours = sample
    data = messages.encode(ours, version)
    theirs = other_class(name).decode(data, version=version)
    assert same(ours, theirs)
    assert bytes(theirs.encode()) == data
