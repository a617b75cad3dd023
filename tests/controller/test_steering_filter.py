"""The filter of a hold: values of fields, which may come from another process; and phases by their names."""

from __future__ import annotations

from typing import get_args

import pytest

from klamm.controller.phases import PHASES, BrokersFailed, DeletionPropagated, DeletionQueued, PartitionsAppeared, Phase
from klamm.controller.steering import Steering
from klamm.protocol.nouns import TopicPartition


def test_every_phase_is_in_the_table_by_its_name() -> None:
    assert list(PHASES.values()) == list(get_args(Phase))
    assert PHASES["DeletionPropagated"] is DeletionPropagated


def test_a_field_equals_its_value_or_one_of_several() -> None:
    one = Steering().hold(DeletionPropagated, where={"topic": "t", "controller_epoch": 3})
    assert one.wants(DeletionPropagated(controller_epoch=3, topic="t"))
    assert not one.wants(DeletionPropagated(controller_epoch=4, topic="t"))
    assert not one.wants(DeletionPropagated(controller_epoch=3, topic="tt"))
    assert not one.wants(DeletionQueued(controller_epoch=3, topic="t"))
    several = Steering().hold(DeletionPropagated, where={"topic": ["a", "b"]})
    assert several.wants(DeletionPropagated(controller_epoch=1, topic="b"))
    assert not several.wants(DeletionPropagated(controller_epoch=1, topic="c"))
    assert not Steering().hold(DeletionPropagated, where={"topic": set()}).wants(DeletionPropagated(controller_epoch=1, topic="c"))


def test_a_field_that_is_a_collection_holds_the_value() -> None:
    hold = Steering().hold(PartitionsAppeared, where={"partitions": TopicPartition("b", 0)})
    assert hold.wants(PartitionsAppeared(controller_epoch=1, partitions=(TopicPartition("a", 0), TopicPartition("b", 0))))
    assert not hold.wants(PartitionsAppeared(controller_epoch=1, partitions=(TopicPartition("b", 1),)))
    assert Steering().hold(BrokersFailed, where={"broker_ids": [0, 5]}).wants(BrokersFailed(controller_epoch=1, broker_ids=(0,)))


def test_a_field_that_a_kind_lacks_is_refused_with_the_fields_that_it_has() -> None:
    with pytest.raises(ValueError, match="BrokersFailed has no field 'topic'; it has controller_epoch, broker_ids"):
        Steering().hold(DeletionPropagated, BrokersFailed, where={"topic": "t"})
