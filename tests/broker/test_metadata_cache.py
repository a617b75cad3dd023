"""The metadata cache: what UpdateMetadata merges, what it replaces, and that it copies nothing."""

import random
from typing import Any

import pytest

from klamm.broker.metadata_cache import MetadataCache, with_listeners
from klamm.protocol import messages
from klamm.protocol.nouns import ZERO_UUID, Endpoint
from klamm.tests.broker.update_metadata import REQUEST, broker, partition, topic, update


def cached(*topics: Any, **more: Any) -> MetadataCache:
    cache = MetadataCache(1)
    cache.update(update(*topics, **more))
    return cache


def leaders(cache: MetadataCache) -> dict[str, dict[int, int]]:
    return {name: {index: p.leader for index, p in found.partitions.items()} for name, found in cache.topics.items()}


def test_empty_before_the_first_update() -> None:
    cache = MetadataCache(1)
    assert (cache.brokers, cache.controller_id, cache.topics, cache.generation) == ({}, None, {}, 0)
    assert cache.leader("t", 0) is None
    assert cache.partition("t", 0) is None
    assert not cache.contains("t")


def test_brokers_and_controller_are_replaced() -> None:
    cache = cached(brokers=[broker(0, rack="r"), broker(3, "A", "B")], controller_id=0)
    assert list(cache.racks().items()) == [(0, "r"), (3, None)]
    assert cache.brokers[3].endpoints["B"].port == 9003
    assert cache.controller_id == 0
    cache.update(update(brokers=[broker(3)], controller_id=-1))
    assert (list(cache.brokers), cache.is_alive(0), cache.is_alive(3)) == ([3], False, True)
    nobody: int | None = cache.controller_id
    assert nobody is None


@pytest.mark.parametrize(
    ("steps", "left", "ids"),
    [
        ([topic("a", 1, partition(0), partition(1, 2))], {"a": {0: 1, 1: 2}}, {"a": 1}),
        ([topic("a", 1, partition(0)), topic("a", 1, partition(1, 2))], {"a": {0: 1, 1: 2}}, {"a": 1}),
        ([topic("a", 1, partition(0), partition(0, 2))], {"a": {0: 2}}, {"a": 1}),
        ([topic("a", 1, partition(0), partition(1)), topic("a", 1, partition(0, -2))], {"a": {1: 1}}, {"a": 1}),
        ([topic("a", 1, partition(0)), topic("a", 1, partition(0, -2))], {}, {}),
        ([topic("a", 1, partition(0)), topic("a", 1, partition(5, -2))], {"a": {0: 1}}, {"a": 1}),
        ([topic("a", 1, partition(0, -2))], {}, {"a": 1}),
        ([topic("a", 1, partition(0)), topic("a", 0, partition(0, 2))], {"a": {0: 2}}, {}),
        ([topic("a", 1, partition(0)), topic("a", 2, partition(0, 2))], {"a": {0: 2}}, {"a": 2}),
        ([topic("a", 0, partition(0, -1))], {"a": {0: -1}}, {}),
        ([topic("a", 1)], {}, {"a": 1}),
    ],
)
def test_merging(steps: list[Any], left: dict[str, dict[int, int]], ids: dict[str, int]) -> None:
    cache = MetadataCache(1)
    for step in steps:
        assert cache.update(update(step)) == {"a"}
    assert leaders(cache) == left
    assert cache.topic_ids == {name: n.to_bytes(16, "big") for name, n in ids.items()}
    for n in (1, 2):
        name = next((name for name, known in ids.items() if known == n), None)
        assert cache.topic_name(n.to_bytes(16, "big")) == name
        known = cache.topic_by_id(n.to_bytes(16, "big"))
        assert (known.name if known else None) == (name if name in left else None)
    for name, found in cache.topics.items():
        assert found.topic_id == cache.topic_id(name)
    assert cache.topic_id("other") == ZERO_UUID


def test_an_id_that_went_to_another_topic_stays_there() -> None:
    """The first topic's request names its new id after the second one has its old one."""
    cache = cached(topic("a", 1, partition(0)))
    cache.update(update(topic("b", 1, partition(0))))
    cache.update(update(topic("a", 2, partition(0))))
    one = (1).to_bytes(16, "big")
    assert cache.topic_name(one) == "b"
    assert cache.topic_by_id(one) is cache.topics["b"]
    cache.update(update(topic("b", 1, partition(0, -2))))
    assert cache.topic_name(one) is None


def test_the_decoded_states_are_kept_and_nothing_is_copied() -> None:
    cache = cached(topic("a", 1, partition(0), partition(1)), topic("b", 2, partition(0)))
    a, b = cache.topics["a"], cache.topics["b"]
    kept, other = a.partitions, b.partitions[0]
    request = update(topic("a", 1, partition(1, 2)))
    cache.update(request)
    assert cache.topics["a"] is a
    assert a.partitions is kept
    assert a.partitions[1] is request.topic_states[0].partition_states[0]
    assert cache.topics["b"] is b
    assert b.partitions[0] is other


def test_generations() -> None:
    cache = cached(topic("a", 1, partition(0)))
    assert (cache.generation, cache.brokers_generation) == (1, 1)
    cache.update(update())
    assert (cache.generation, cache.brokers_generation) == (1, 1), "nothing changed"
    cache.update(update(brokers=[broker(2), broker(1)]))
    assert (cache.generation, cache.brokers_generation) == (1, 1), "another order is no change"
    cache.update(update(topic("a", 1, partition(0, 2))))
    assert (cache.generation, cache.brokers_generation) == (2, 1)
    cache.update(update(brokers=[broker(1)]))
    assert (cache.generation, cache.brokers_generation) == (3, 2)
    cache.update(update(brokers=[broker(1, port=1)]))
    assert (cache.generation, cache.brokers_generation) == (4, 3)
    cache.update(update(brokers=[broker(1, port=1)], controller_id=2))
    assert (cache.generation, cache.brokers_generation) == (5, 3)


def test_kept_answers_go_when_something_changes() -> None:
    cache = cached(topic("a", 1, partition(0)), topic("b", 2, partition(0)))
    for place in (cache.encoded, cache.topics["a"].encoded, cache.topics["b"].encoded):
        place["kept"] = b""
    cache.update(update())
    assert cache.encoded
    cache.update(update(topic("a", 1, partition(0, 2))))
    assert not cache.encoded
    assert not cache.topics["a"].encoded
    assert cache.topics["b"].encoded


@pytest.mark.parametrize(
    ("version", "live", "endpoints"),
    [
        (0, {"v0_host": "h", "v0_port": 5}, {"PLAINTEXT": ("h", 5, 0)}),
        (1, {"endpoints": [(5, "h", "", 1), (6, "i", "", 3)]}, {"SSL": ("h", 5, 1), "SASL_SSL": ("i", 6, 3)}),
        (2, {"endpoints": [(5, "h", "", 0)]}, {"PLAINTEXT": ("h", 5, 0)}),
        (3, {"endpoints": [(5, "h", "MINE", 0)]}, {"MINE": ("h", 5, 0)}),
        (8, {"endpoints": [(5, "h", "MINE", 2)]}, {"MINE": ("h", 5, 2)}),
        (8, {"endpoints": [(5, "h", "", 0), (6, "i", "MINE", 7)]}, {"": ("h", 5, 0), "MINE": ("i", 6, 7)}),
    ],
)
def test_brokers_of_old_versions(version: int, live: dict[str, Any], endpoints: dict[str, tuple[str, int, int]]) -> None:
    rows = [REQUEST.UpdateMetadataEndpoint(*row) for row in live.pop("endpoints", [])]
    sent = REQUEST(controller_id=1, live_brokers=[REQUEST.UpdateMetadataBroker(id=4, endpoints=rows, **live)])
    cache = MetadataCache(1)
    request, _ = messages.decode("UpdateMetadataRequest", version, messages.encode(sent, version))
    cache.update(with_listeners(request, version))
    assert cache.brokers[4].endpoints == {name: Endpoint(name, *rest) for name, rest in endpoints.items()}


@pytest.mark.parametrize("version", range(9))
def test_partitions_of_all_versions(version: int) -> None:
    states = [partition(0), partition(1, 2)]
    if version < 5:
        flat = [state._replace(topic_name=name) for name in ("a", "b") for state in states]
        sent = REQUEST(controller_id=1, ungrouped_partition_states=flat)
    else:
        sent = REQUEST(controller_id=1, topic_states=[topic(name, 1 if version > 6 and name == "a" else 0, *states) for name in ("a", "b")])
    cache = MetadataCache(1)
    assert cache.update(messages.decode("UpdateMetadataRequest", version, messages.encode(sent, version))[0]) == {"a", "b"}
    assert leaders(cache) == {"a": {0: 1, 1: 2}, "b": {0: 1, 1: 2}}


@pytest.mark.parametrize("seed", range(20))
def test_against_a_naive_map(seed: int) -> None:
    dice = random.Random(seed)
    cache, naive, ids = MetadataCache(1), {}, {}
    for _ in range(60):
        topics = []
        for name in dice.sample("abc", dice.randint(0, 3)):
            topic_id = dice.choice([0, ord(name), ord(name) + 100])
            rows = [partition(dice.randrange(4), dice.choice([-2, -2, -1, 1, 2])) for _ in range(dice.randint(0, 3))]
            topics.append(topic(name, topic_id, *rows))
            if topic_id:
                ids[name] = topic_id
            else:
                ids.pop(name, None)
            for row in rows:
                if row.leader != -2:
                    naive[name, row.partition_index] = row.leader
                    continue
                if naive.pop((name, row.partition_index), None) is not None and not any(n == name for n, _ in naive):
                    ids.pop(name, None)
        assert cache.update(update(*topics)) == {t.topic_name for t in topics}
        assert {(name, i): p.leader for name, t in cache.topics.items() for i, p in t.partitions.items()} == naive
        assert {name: int.from_bytes(raw, "big") for name, raw in cache.topic_ids.items()} == ids
        assert {name: t.topic_id for name, t in cache.topics.items()} == {name: cache.topic_id(name) for name in cache.topics}
