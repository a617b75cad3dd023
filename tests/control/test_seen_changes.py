"""A new controller reads what an earlier one wrote; only what is new is an event."""

from __future__ import annotations

from klamm.control.seen_changes import SeenChanges
from klamm.controller.changes import Change, StatesChanged, TermBegan, TopicAdded, TopicRemoved
from klamm.controller.values import LeaderAndIsr
from klamm.protocol.nouns import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
ONE = LeaderAndIsr(1, 0, (1, 2))


def seen(*before: Change) -> SeenChanges:
    changes = SeenChanges()
    for each in before:
        changes.new(each)
    return changes


def test_states_and_topics_that_are_known_are_not_new() -> None:
    changes = seen(TopicAdded("t", None), StatesChanged(((FIRST, ONE), (SECOND, None))))
    assert changes.new(TopicAdded("t", None)) is None
    assert changes.new(StatesChanged(((FIRST, ONE), (SECOND, None)))) is None
    assert changes.new(TermBegan(2)) == TermBegan(2)


def test_of_many_states_those_with_another_leader_isr_or_epoch_are_new() -> None:
    changes = seen(StatesChanged(((FIRST, ONE), (SECOND, ONE))))
    moved = ONE._replace(leader=2)
    assert changes.new(StatesChanged(((FIRST, ONE), (SECOND, moved)))) == StatesChanged(((SECOND, moved),))
    assert changes.new(StatesChanged(((SECOND, moved),))) is None
    assert changes.new(StatesChanged(((SECOND, None),))) == StatesChanged(((SECOND, None),))


def test_a_topic_that_is_created_again_is_new_with_its_states() -> None:
    changes = seen(TopicAdded("t", None), StatesChanged(((FIRST, ONE),)), TopicRemoved("t"))
    assert changes.new(TopicAdded("t", None)) == TopicAdded("t", None)
    assert changes.new(StatesChanged(((FIRST, ONE),))) == StatesChanged(((FIRST, ONE),))


def test_another_epoch_of_the_controller_alone_is_not_new() -> None:
    changes = seen(StatesChanged(((FIRST, ONE),)))
    assert changes.new(StatesChanged(((FIRST, ONE._replace(controller_epoch=9, partition_epoch=4)),))) is None
    assert changes.new(StatesChanged(((FIRST, ONE._replace(isr=(1,))),))) is not None
    assert changes.new(StatesChanged(((FIRST, ONE._replace(isr=(1,), leader_epoch=1)),))) is not None
