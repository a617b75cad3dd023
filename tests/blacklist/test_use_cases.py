"""KIP-491 on whole clusters with clients under load: the example of the document, and each of its use cases.

A controlled shutdown and a death, requested and automatic elections; nothing that a producer was told is lost in any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import pytest

from klamm.admin import AlterOperation, ConfigChange
from klamm.tests.blacklist.leading import BALANCING, LIST, TOPIC, Leading, leading
from klamm.tests.harness import requests
from klamm.tests.harness.waits import wait_for
from klamm.tests.moves.moving import create

Start = Callable[..., AbstractContextManager[Leading]]


@pytest.fixture
def start(zookeeper: str, chroot: str) -> Start:
    return partial(leading, zookeeper, chroot)


@pytest.mark.requirement("R491-6", "R491-7", "R491-8", "R491-9", "R491-12", "R491-14")
def test_the_example_of_the_document(start: Start) -> None:
    with start(3, [(1, 2, 3)]) as story:
        story.led_by(1)
        story.blacklist(1)
        assert (story.leaders, story.leader_epochs) == ([1], [0])
        assert (story.prefer(), story.leaders) == ({0: "NONE"}, [2])
        story.kill(2)
        story.led_by(3)
        story.in_sync()
        story.kill(3)
        story.led_by(1)
        story.start(2, 3)
        assert (story.prefer(), story.leaders) == ({0: "NONE"}, [2])
        story.blacklist()
        assert (story.prefer(), story.leaders) == ({0: "NONE"}, [1])


@pytest.mark.slow
@pytest.mark.requirement("R491-10", "R491-18")
def test_a_host_that_was_swapped_for_an_empty_one_leads_only_when_it_is_taken_off_the_list(start: Start) -> None:
    """The automatic rebalance runs every second; when it has given broker 2 its partition back, it has looked at all others too."""
    with start(3, [(1, 2, 3), (1, 3, 2), (2, 3, 1)], BALANCING) as story:
        story.kill(1)
        story.led_by(2, 3, 2)
        story.blacklist(1)
        mark = len(story.led)
        story.start(1)
        story.bounce(2)
        story.led_by(2, 3, 2)
        assert 1 not in story.since(mark)
        assert set(story.prefer().values()) == {"ELECTION_NOT_NEEDED"}
        story.blacklist()
        story.led_by(1, 1, 2)


@pytest.mark.slow
@pytest.mark.requirement("R491-12", "R491-18")
def test_weaker_machines_that_are_listed_for_good_lead_only_while_nobody_else_can(start: Start) -> None:
    """Brokers 3 and 4 are weak; every broker is bounced in turn, then the strong ones die."""
    with start(4, [(3, 1, 2), (4, 2, 1), (1, 3, 4), (3, 4, 2)]) as story:
        story.led_by(3, 4, 1, 3)
        story.blacklist(3, 4)
        story.prefer()
        story.led_by(1, 2, 1, 2)
        mark = len(story.led)
        for broker_id in (1, 2, 3, 4):
            story.bounce(broker_id)
            story.prefer()
            story.led_by(1, 2, 1, 2)
        assert all(led.leader in (1, 2) for led in story.led[mark:] if led.partition in (0, 1)), "a strong one was there all the time"
        story.kill(1)
        story.in_sync()
        story.kill(2)
        story.led_by(3, 4, 3, 3)
        story.start(1, 2)
        story.prefer()
        story.led_by(1, 2, 1, 2)


@pytest.mark.slow
@pytest.mark.requirement("R491-12", "R491-18")
def test_a_broker_that_comes_and_goes_leads_only_when_all_others_are_down(start: Start) -> None:
    with start(3, [(1, 2, 3), (2, 1, 3)]) as story:
        story.blacklist(1)
        story.prefer()
        story.led_by(2, 2)
        mark, epochs = len(story.led), story.leader_epochs
        for _ in range(3):
            story.kill(1)
            story.in_sync()
            story.start(1)
            assert set(story.prefer().values()) == {"ELECTION_NOT_NEEDED"}
        assert story.leaders == [2, 2]
        assert 1 not in story.since(mark)
        assert [after - before for before, after in zip(epochs, story.leader_epochs, strict=True)] == [3, 3], "once for each death: the ISR"
        story.kill(2)
        story.led_by(3, 3)
        story.in_sync()
        story.kill(3)
        story.led_by(1, 1)
        story.start(3)
        story.prefer()
        story.led_by(3, 3)


@pytest.mark.requirement("R491-5", "R491-11", "R491-18")
def test_the_controllers_own_broker_is_relieved_and_the_next_controller_goes_by_the_same_list(start: Start) -> None:
    with start(3, [(1, 2, 3), (2, 3, 1), (3, 1, 2)]) as story:
        relieved = story.brokers.controller_id
        others = [b for b in (1, 2, 3) if b != relieved]
        story.blacklist(relieved)
        story.prefer()
        assert relieved not in story.leaders and sorted(set(story.leaders)) == others
        assert story.brokers.controller_id == relieved, "it goes on as the controller"
        create(story.cluster, "new", [[relieved, *others]])
        state = story.tree.state("new", 0)
        assert state is not None and state.leader == relieved, "the first leader of a new partition is the head"
        mark = len(story.led)
        story.brokers.move_controller(others[0])
        story.bounce(others[1])
        story.prefer()
        assert relieved not in story.since(mark) and relieved not in story.leaders
        story.brokers.move_controller(relieved)
        assert set(story.prefer().values()) == {"ELECTION_NOT_NEEDED"}


@pytest.mark.requirement("R491-11", "R491-18")
def test_a_broker_is_drained_without_a_bounce_and_does_not_take_over_when_a_second_one_is_bounced(start: Start) -> None:
    """After this broker 2 stops, and nobody notices: it has led nothing."""
    with start(3, [(2, 1, 3), (1, 2, 3), (3, 2, 1)]) as story:
        story.led_by(2, 1, 3)
        epoch = story.tree.broker_epoch(2)
        story.alter(ConfigChange(LIST, "2", AlterOperation.APPEND))
        assert story.prefer() == {0: "NONE", 1: "ELECTION_NOT_NEEDED", 2: "ELECTION_NOT_NEEDED"}
        assert story.shown_leaders() == story.leaders == [1, 1, 3], "the response came when metadata showed the leader"
        assert story.tree.broker_epoch(2) == epoch, "it was not restarted"
        mark = len(story.led)
        story.bounce(1)
        assert story.leaders == [3, 3, 3], "2 is in sync and stands before 3 in two of them"
        story.prefer()
        story.led_by(1, 1, 3)
        story.kill(1)
        story.led_by(3, 3, 3)
        story.start(1)
        story.prefer()
        story.led_by(1, 1, 3)
        assert 2 not in story.since(mark)
        story.brokers.stop_broker(2)
        assert story.leaders == [1, 1, 3] and story.since(mark) == {1, 3}
        story.start(2)
        story.alter(ConfigChange(LIST, "2", AlterOperation.SUBTRACT))
        story.prefer()
        story.led_by(2, 1, 3)


@pytest.mark.slow
@pytest.mark.requirement("R491-10")
def test_the_automatic_rebalance_relieves_a_broker_that_is_put_on_the_list(start: Start) -> None:
    """Without any request for an election; a partition that has listed brokers only keeps its leader."""
    with start(4, [(1, 2), (1, 3), (1, 4), (3, 1)], BALANCING) as story:
        story.led_by(1, 1, 1, 3)
        story.blacklist(1, 4)
        story.led_by(2, 3, 1, 3)
        story.blacklist()
        story.led_by(1, 1, 1, 3)


def test_a_preferred_election_by_the_znode_goes_by_the_list(start: Start) -> None:
    with start(3, [(1, 2, 3)]) as story:
        story.blacklist(1)
        story.tree.put("/admin/preferred_replica_election", {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0}]})
        story.led_by(2)
        wait_for(lambda: story.tree.exists("/admin/preferred_replica_election") is None, "the znode is gone")
        answer = story.cluster.ask(requests.elect_leaders(None), 2)
        elected = [row.topic for row in answer.replica_election_results]  # clients may have made the offsets topic
        assert answer.error_code == 0 and TOPIC not in elected, "its partition needs no election"
