"""What is seen of a cluster during a run is judged: controllers, leaders, epochs, in-sync replicas."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.chaos.watch import ClusterHistory


class Found(list[tuple[str, str]]):
    """The violations that a history told."""

    def __call__(self, rule: str, text: str) -> None:
        self.append((rule, text))


@pytest.fixture
def found() -> Found:
    return Found()


@pytest.fixture
def history(found: Found) -> ClusterHistory:
    return ClusterHistory(found)


def term(broker: int, epoch: int) -> dict[str, Any]:
    return {"change": "TermBegan", "controller_id": broker, "controller_epoch": epoch}


def leads(leader: int, epoch: int) -> dict[str, Any]:
    return {"change": "StatesChanged", "partitions": [{"topic": "t", "partition": 0, "leader": leader, "leader_epoch": epoch, "isr": []}]}


def topic(epoch: int = 0, isr: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2, 3), version: int = 0) -> dict[str, Any]:
    stored = {"isr": list(isr), "replicas": list(replicas), "leader_epoch": epoch, "partition_epoch": version}
    return {"name": "t", "partitions": [{"partition": 0, "zookeeper": stored}]}


def test_one_controller_in_each_epoch_is_no_fault(history: ClusterHistory, found: Found) -> None:
    for broker, epoch in ((1, 1), (2, 2), (1, 3), (2, 2)):
        history.event("change", term(broker, epoch))
    assert found == [] and history.controllers == 3


def test_two_controllers_in_one_epoch_are_found_once(history: ClusterHistory, found: Found) -> None:
    for broker, epoch in ((1, 1), (2, 1), (2, 1)):
        history.event("change", term(broker, epoch))
    assert found == [("two controllers", "brokers 1 and 2 are both controller with epoch 1")]


def test_two_leaders_in_one_epoch_are_found(history: ClusterHistory, found: Found) -> None:
    for leader, epoch in ((1, 1), (2, 2), (3, 2)):
        history.event("change", leads(leader, epoch))
    assert [rule for rule, _ in found] == ["two leaders"]


def test_a_partition_without_a_leader_may_keep_its_epoch(history: ClusterHistory, found: Found) -> None:
    for leader, epoch in ((1, 1), (-1, 1), (1, 2)):
        history.event("change", leads(leader, epoch))
    assert found == [] and history.elections == 0


def test_changes_of_leaders_are_counted(history: ClusterHistory) -> None:
    for leader, epoch in ((1, 1), (2, 2), (2, 3), (1, 4)):
        history.event("change", leads(leader, epoch))
    assert history.elections == 2


def test_a_leader_epoch_that_falls_is_found(history: ClusterHistory, found: Found) -> None:
    for epoch in (1, 2, 2, 1):
        history.topic(topic(epoch))
    assert found == [("leader epoch fell", "t-0 has leader epoch 1 after 2")]


def test_a_replica_in_the_isr_that_is_not_assigned_is_found_when_it_stays(history: ClusterHistory, found: Found) -> None:
    history.topic(topic(isr=(1, 4)))
    assert found == []
    history.topic(topic(isr=(1, 4)))
    assert found == [("ISR outside of the assignment", "t-0 has ISR [1, 4], its replicas are [1, 2, 3]")]


def test_an_isr_that_was_read_before_its_assignment_is_no_fault(history: ClusterHistory, found: Found) -> None:
    history.topic(topic(isr=(1, 4)))
    history.topic(topic(isr=(1, 4), replicas=(1, 4)))
    history.topic(topic(isr=(1, 4), replicas=(1, 2), version=1))
    assert found == []


def test_a_topic_without_states_is_no_fault(history: ClusterHistory, found: Found) -> None:
    history.topic({"name": "t", "partitions": [{"partition": 0, "zookeeper": {"replicas": [1]}}]})
    assert found == []
