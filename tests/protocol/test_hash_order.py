"""Brokers that are moved together, and protocols with as many votes, come in the order of Apache Kafka: that of sets of Scala 2.13."""

from __future__ import annotations

import random

import pytest

from klamm.protocol.hash_order import in_hash_order, names_in_hash_order, string_hash


def test_the_order_is_the_one_seen_at_an_apache_kafka_controller() -> None:
    assert in_hash_order([11, 12]) == [12, 11]
    assert in_hash_order([22, 23]) == [22, 23]


def test_every_broker_comes_once_in_an_order_that_does_not_depend_on_how_they_were_named() -> None:
    ids = [*range(2000), 2**31 - 1, 5, 5, 1999]
    order = in_hash_order(ids)
    assert sorted(order) == sorted(set(ids))
    random.Random(1).shuffle(ids)
    assert in_hash_order(ids) == order


def test_ids_come_in_the_order_of_a_set_of_scala() -> None:
    assert in_hash_order(range(40)) == [
        0, 5, 10, 14, 1, 6, 9, 13, 2, 12, 18, 11, 8, 4, 15, 24, 37, 25, 20, 29, 21, 33, 28, 38, 17, 32, 34, 22, 27, 7, 39, 3, 35, 16, 31,
        26, 23, 36, 30, 19,
    ]
    ids = [1000, 1001, 1032, 2048, 7, 39, 71, 103, 135, 65536, 131072, 33]
    assert in_hash_order(ids) == [1001, 33, 1032, 2048, 71, 103, 131072, 65536, 7, 39, 135, 1000]


@pytest.mark.parametrize(
    ("names", "order"),
    [
        ("range roundrobin sticky cooperative-sticky custom-1 custom-2", "cooperative-sticky custom-2 custom-1 roundrobin range sticky"),
        ("range AaAa BBBB sticky AaBB BBAa", "range sticky AaAa BBBB AaBB BBAa"),
        ("BB Aa C D E F", "E F C D BB Aa"),
        ("Aa BB", "Aa BB"),
        ("BB Aa BB", "BB Aa"),
        ("one", "one"),
        ("", ""),
    ],
)
def test_names_come_in_the_order_of_a_set_of_scala_and_those_with_equal_hashes_as_they_were_added(names: str, order: str) -> None:
    assert names_in_hash_order(names.split()) == order.split()


@pytest.mark.parametrize(
    ("text", "hash_code"), [("", 0), ("Aa", 2112), ("\u00e9", 233), ("\U0001f600", 1_772_899), ("\ud83d", 55_357), ("a\udc00", 59_327)]
)
def test_hashes_are_those_of_java_also_of_what_is_no_text(text: str, hash_code: int) -> None:
    assert string_hash(text) == hash_code
