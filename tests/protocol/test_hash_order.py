"""Brokers that are moved together come in the order of an Apache Kafka controller."""

from __future__ import annotations

import random

from klamm.protocol.hash_order import in_hash_order


def test_the_order_is_the_one_seen_at_an_apache_kafka_controller() -> None:
    assert in_hash_order([11, 12]) == [12, 11]
    assert in_hash_order([22, 23]) == [22, 23]


def test_every_broker_comes_once_in_an_order_that_does_not_depend_on_how_they_were_named() -> None:
    ids = [*range(2000), 2**31 - 1, 5, 5, 1999]
    order = in_hash_order(ids)
    assert sorted(order) == sorted(set(ids))
    random.Random(1).shuffle(ids)
    assert in_hash_order(ids) == order
