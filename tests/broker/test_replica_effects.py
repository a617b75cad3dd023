"""What the replica manager says it changed: one value for each topic and kind of change, none for what was refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from klamm.broker.replica_effects import (
    BecameFollower,
    BecameLeader,
    Deleted,
    Effect,
    LeaderUnavailable,
    Stopped,
    TopicIdAssigned,
    WentOffline,
    describe,
    log_effects,
)
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.nouns import ZERO_UUID, TopicPartition
from klamm.tests.broker.replica_requests import EPOCH, LISR, A, hosting, lisr, state, stop
from klamm.tests.broker.update_metadata import broker, update


def effects_of(replicas: ReplicaManager, *states: Any, version: int = 7, **more: Any) -> list[Effect]:
    return replicas.handle_leader_and_isr(lisr(*states, **more), version, EPOCH).effects


def test_leader_and_followers_of_a_topic_are_told_apart() -> None:
    first, second, third, absent = state(1), state(1, 2, index=1), state(1, index=2), state(1, 9, index=3)
    assert effects_of(hosting(), first, second, third, absent) == [
        BecameLeader("t", A, [first, third]),
        BecameFollower("t", A, [second]),
        LeaderUnavailable("t", A, [absent]),
    ]


def test_topics_come_in_the_order_of_the_request() -> None:
    one, other = state(1), state(1, index=4)
    request = lisr(one)
    request = request._replace(topic_states=[*request.topic_states, LISR.LeaderAndIsrTopicState("a", b"b" * 16, [other])])
    effects = hosting().handle_leader_and_isr(request, 7, EPOCH).effects
    assert effects == [BecameLeader("t", A, [one]), BecameLeader("a", b"b" * 16, [other])]


def test_refused_partitions_have_no_effect() -> None:
    replicas = hosting()
    effects_of(replicas, state(3))
    assert effects_of(replicas, state(3), state(2, 2), state(0, index=1, replicas=[2])) == []
    assert effects_of(replicas, state(9), broker_epoch=EPOCH - 1) == []
    assert effects_of(replicas, state(9), controller_epoch=0) == []


def test_state_with_an_older_partition_epoch_has_no_effect() -> None:
    replicas = hosting()
    effects_of(replicas, state(3, partition_epoch=4))
    assert effects_of(replicas, state(4, 2, partition_epoch=3)) == []


def test_higher_leader_epoch_of_the_same_role_is_an_effect_again() -> None:
    replicas = hosting()
    effects_of(replicas, state(3))
    assert effects_of(replicas, state(4)) == [BecameLeader("t", A, [state(4)])]


def test_leader_that_returns_makes_a_follower() -> None:
    replicas = hosting()
    waiting = state(4, 3, replicas=[1, 3])
    assert effects_of(replicas, waiting) == [LeaderUnavailable("t", A, [waiting])]
    replicas.handle_update_metadata(update(brokers=[broker(3)]), EPOCH)
    assert effects_of(replicas, waiting) == [BecameFollower("t", A, [waiting])]


def test_id_that_comes_late_is_assigned() -> None:
    replicas = hosting()
    assert effects_of(replicas, state(1), topic_id=ZERO_UUID) == [BecameLeader("t", ZERO_UUID, [state(1)])]
    assert effects_of(replicas, state(1)) == [TopicIdAssigned("t", A, [0])]
    assert effects_of(replicas, state(1)) == []


@pytest.mark.parametrize("version", [0, 1, 2, 4])
def test_versions_without_topic_ids_have_the_same_effects(version: int) -> None:
    one = state(1)._replace(topic_name="t")
    request = lisr(one, topic_id=ZERO_UUID)
    if version < 2:
        request = request._replace(topic_states=[], ungrouped_partition_states=[one])
    assert hosting().handle_leader_and_isr(request, version, EPOCH).effects == [BecameLeader("t", ZERO_UUID, [one])]


def test_stopped_and_deleted_replicas() -> None:
    replicas = hosting()
    effects_of(replicas, state(5, 2), state(5, index=1), state(5, index=2))
    request = stop((0, 5, False), (1, 5, True), (2, 4, True), (7, -1, True))
    assert replicas.handle_stop_replica(request, 4, EPOCH).effects == [Stopped("t", [0]), Deleted("t", [1])]
    assert replicas.handle_stop_replica(request._replace(broker_epoch=EPOCH - 1), 4, EPOCH).effects == []


def test_offline_replicas_are_said_once_and_have_no_effects() -> None:
    replicas = hosting()
    effects_of(replicas, state(1), state(1, index=1))
    assert replicas.fail_log_dir([TopicPartition("t", 1), TopicPartition("u", 0)]) == [WentOffline("t", [1]), WentOffline("u", [0])]
    assert replicas.fail_log_dir([TopicPartition("t", 1), TopicPartition("t", 0)]) == [WentOffline("t", [0])]
    assert effects_of(replicas, state(2), state(2, index=1)) == []
    assert replicas.handle_stop_replica(stop((0, -2, True)), 4, EPOCH).effects == []


@pytest.mark.parametrize(
    ("effect", "line"),
    [
        (BecameLeader("t", A, [state(3), state(4, index=1)]), "leads t-0 (leader epoch 3), t-1 (leader epoch 4)"),
        (BecameFollower("t", A, [state(3, 2)]), "follows t-0 (leader 2, leader epoch 3)"),
        (LeaderUnavailable("t", A, [state(3, -1)]), "has no live leader of t-0 (leader -1)"),
        (TopicIdAssigned("t", A, [0]), "knows the topic id of t-0"),
        (Stopped("t", [0, 2]), "stops fetching t-0, t-2"),
        (Deleted("t", [0]), "deletes t-0"),
        (WentOffline("t", [0]), "has offline replicas t-0"),
    ],
)
def test_state_change_log_has_a_line_for_every_effect(effect: Effect, line: str, caplog: pytest.LogCaptureFixture) -> None:
    assert describe(effect) == line
    with caplog.at_level(logging.DEBUG, "klamm.broker.state_change"):
        log_effects(1, [effect])
    assert caplog.messages == [f"broker 1: {line}"]
