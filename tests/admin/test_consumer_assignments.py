"""The assignment of a consumer, as the clients of a group exchange it."""

from __future__ import annotations

import pytest

from klamm.admin.groups.consumer_assignments import assigned_partitions
from klamm.protocol.nouns import TopicPartition

KAFKA_PYTHON = bytes.fromhex("0000 00000001 0006 6f7264657273 00000003 00000000 00000002 00000005 00000000")
"""What kafka-python's range assignor gave a member: orders 0, 2 and 5, and empty data of the assignor."""
STICKY = bytes.fromhex("0001 00000002 0001 61 00000001 00000000 0001 62 00000000 ffffffff")


def test_partitions_are_read_in_their_order_and_what_follows_is_not() -> None:
    orders = (TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("orders", 5))
    assert assigned_partitions(KAFKA_PYTHON) == orders
    assert assigned_partitions(KAFKA_PYTHON[:-4]) == orders
    assert assigned_partitions(KAFKA_PYTHON + b"more") == orders
    assert assigned_partitions(STICKY) == (TopicPartition("a", 0),)


def test_an_empty_assignment_has_no_partitions() -> None:
    assert assigned_partitions(b"") == ()
    assert assigned_partitions(bytes.fromhex("0000 00000000")) == ()


@pytest.mark.parametrize("size", range(1, len(KAFKA_PYTHON) - 4))
def test_an_assignment_that_is_cut_off_cannot_be_read(size: int) -> None:
    assert assigned_partitions(KAFKA_PYTHON[:size]) is None


@pytest.mark.parametrize(
    "data",
    [
        "ffff 00000000", "0000 ffffffff", "0000 7fffffff", "0000 00000001 ffff", "0000 00000001 0001 ff 00000000",
        "0000 00000001 0001 61 7fffffff",
    ],
)
def test_other_bytes_cannot_be_read(data: str) -> None:
    assert assigned_partitions(bytes.fromhex(data)) is None
