"""What `klamm reassign-partitions` decides from what it sees of a cluster: checks, proposals, throttles, progress."""

from __future__ import annotations

from random import Random

import pytest

from klamm.cli.reassign_partitions import plan
from klamm.cli.reassign_partitions.cluster import BrokerReplicas, HostedReplica, TopicView
from klamm.cli.reassign_partitions.progress import Speed, duration, look_at, size, summary, table
from klamm.cli.tools.failures import ToolFailed
from klamm.cli.tools.files import Move, Moves
from klamm.controller.values import Assignment
from klamm.protocol.nouns import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPICS = {"t": TopicView({0: (1, 2), 1: (2, 1)}, {0: (1, 2), 1: (2,)}, {0: 1, 1: 2})}
RACKS: dict[int, str | None] = {1: "a", 2: "b", 3: "c"}


def move(*replicas: int, log_dirs: tuple[str, ...] | None = None) -> Move:
    return Move(replicas, log_dirs if log_dirs is not None else ("any",) * len(replicas))


@pytest.mark.parametrize(
    ("moves", "line"),
    [
        ({T0: move(1, 995)}, "Unknown broker id 995 in the replicas of partition t-0"),
        ({TopicPartition("t", 10): move(1)}, "Unknown partition t-10"),
        ({TopicPartition("other", 0): move(1)}, "Unknown topic other of partition other-0"),
    ],
)
def test_a_broker_or_partition_that_is_not_there_is_named(moves: Moves, line: str) -> None:
    with pytest.raises(ToolFailed, match=line):
        plan.check_moves(moves, RACKS, TOPICS)


def test_a_throttle_alone_changes_when_every_partition_moves_to_its_list_already() -> None:
    running = {T0: Assignment((3, 1, 2), (3,), (1, 2)), T1: Assignment((2, 1, 3), (3,))}
    assert plan.is_new_throttle_only({T0: move(3), T1: move(2, 1, 3)}, running)
    assert not plan.is_new_throttle_only({T0: move(3), T1: move(1, 2, 3)}, running), "the order counts"
    assert not plan.is_new_throttle_only({T0: move(3, 1)}, running)
    assert not plan.is_new_throttle_only({TopicPartition("u", 0): move(3)}, running)


def test_throttled_are_the_moves_of_the_file_and_the_running_ones_of_others() -> None:
    running = {T0: Assignment((3, 1, 2), (3,), (1, 2)), T1: Assignment((4, 2, 1), (4,), (2, 1))}
    throttled = plan.throttles_of(5000, {T0: (5, 1)}, {T0: (3, 1, 2)}, running, {1, 2, 4, 9})
    assert throttled.replica_lists() == {
        "t": {"leader.replication.throttled.replicas": "0:1,0:2,1:1,1:2", "follower.replication.throttled.replicas": "0:5,1:4"}
    }
    assert throttled.brokers == [1, 2, 4], "those of which the cluster takes a rate"
    assert plan.taking_part(running) == {1, 2, 3, 4}


def test_a_move_that_adds_nothing_has_an_empty_follower_list() -> None:
    throttled = plan.throttles_of(1, {T0: (2, 1)}, {T0: (1, 2)}, {}, RACKS)
    assert throttled.replica_lists()["t"]["follower.replication.throttled.replicas"] == ""


def test_proposals_keep_the_number_of_replicas_and_spread_over_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    topics = {"t": TopicView(dict.fromkeys(range(8), (1, 2)))}
    for seed in range(20):
        proposed = plan.propose(["t"], topics, [1, 2, 3, 4], racks, True, Random(seed))
        assert sorted(proposed) == [TopicPartition("t", number) for number in range(8)]
        assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in proposed.values())
        assert sorted(replicas[0] for replicas in proposed.values()) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_proposals_use_the_brokers_of_the_list_only_and_start_at_random() -> None:
    topics = {"t": TopicView({0: (1,)})}
    assert {plan.propose(["t"], topics, [2, 3], RACKS, False, Random(seed))[T0] for seed in range(40)} == {(2,), (3,)}


@pytest.mark.parametrize(
    ("names", "brokers", "racks", "line"),
    [
        (["u"], [1, 2, 3], RACKS, "Unknown topic u"),
        (["t"], [1, 9], RACKS, "Unknown broker id 9"),
        (["t"], [1], RACKS, "Topic t: Replication factor: 2 larger than available brokers: 1"),
        (["t"], [1, 2, 3], {1: "a", 2: "b", 3: None}, "Not all brokers have rack information"),
    ],
)
def test_a_proposal_that_cannot_be_made_is_one_line(names: list[str], brokers: list[int], racks: dict[int, str | None], line: str) -> None:
    with pytest.raises(ToolFailed, match=line):
        plan.propose(names, TOPICS, brokers, racks, True, Random(0))


def test_without_racks_a_broker_without_one_may_get_replicas() -> None:
    proposed = plan.propose(["t"], TOPICS, [2, 3], {2: "b", 3: None}, False, Random(0))
    assert all(set(replicas) == {2, 3} for replicas in proposed.values())


@pytest.mark.parametrize("text", ["x", "", "1,", "1,,2", "-1", "1,1", "1.0", "9999999999", "²"])
def test_a_bad_broker_list_is_one_line(text: str) -> None:
    with pytest.raises(ToolFailed, match="--broker-list"):
        plan.parse_broker_list(text)


def test_a_broker_list_is_sorted() -> None:
    assert plan.parse_broker_list("3, 1,2") == [1, 2, 3]


@pytest.mark.requirement("R179-32")
def test_rows_stand_in_the_order_of_the_file_with_the_first_status_that_holds() -> None:
    moves = {
        T1: move(3, 1, 2),
        T0: move(2, 7),
        TopicPartition("t", 9): move(8),
        TopicPartition("u", 0): move(9, 1),
    }
    hosted = {
        1: BrokerReplicas({T1: HostedReplica("/d", 10, 0)}),
        2: BrokerReplicas({T0: HostedReplica("/d", 10, 10456)}),
        3: BrokerReplicas({}),
    }
    look = look_at(moves, TOPICS, RACKS, hosted)
    assert table(look.rows) == [
        "Topic  Partition  Broker  Status",
        "-------------------------------------------------------------",
        "t      1          3       Broker does not host this partition",
        "t      1          1       In sync",
        "t      1          2       Broker does not host this partition",
        "t      0          2       Behind: 10456 messages behind",
        "t      0          7       Unknown broker",
        "t      9          8       Unknown partition",
        "u      0          9       Unknown topic",
        "u      0          1       Unknown topic",
    ]


def test_a_row_without_lag_is_in_sync_when_its_partition_is_not_being_reassigned_any_more() -> None:
    hosted = {1: BrokerReplicas({T0: HostedReplica("/d", 100, 0)}), 3: BrokerReplicas({T0: HostedReplica("/d", 40, 0)})}
    running = look_at({T0: move(3)}, TOPICS, RACKS, hosted, {T0})
    assert (running.in_sync, running.in_progress, running.bytes_there, running.bytes_in_all) == (0, 1, 40, 100)
    ended = look_at({T0: move(3)}, TOPICS, RACKS, hosted)
    assert (ended.in_sync, ended.in_progress, ended.bytes_there, ended.bytes_in_all) == (1, 0, 100, 100)


def test_a_replica_in_the_isr_is_in_sync_although_it_lags_a_little() -> None:
    hosted = {2: BrokerReplicas({T0: HostedReplica("/d", 100, 3)})}
    look = look_at({T0: move(2)}, TOPICS, RACKS, hosted)
    assert (look.in_sync, look.rows[0].status) == (1, "Behind: 3 messages behind")


@pytest.mark.requirement("R179-32")
def test_a_replica_that_has_not_heard_from_its_leader_yet_has_one_of_the_six_statuses_too() -> None:
    hosted = {2: BrokerReplicas({T0: HostedReplica("/d", 0, -1)})}
    (row,) = look_at({T0: move(2)}, {"t": TOPICS["t"]._replace(isr={})}, RACKS, hosted, {T0}).rows
    assert (row.status, row.in_sync) == ("Broker does not host this partition", False)


def test_the_speed_is_that_of_the_last_ten_seconds() -> None:
    speed = Speed()
    assert (speed.bytes_per_s, speed.seconds_left(5), speed.seconds_left(0)) == (0, None, 0)
    for second in range(31):
        speed.saw(100.0 + second, 1000 * second if second <= 20 else 20_000 + 3000 * (second - 20))
    assert speed.bytes_per_s == 3000
    assert speed.seconds_left(6000) == 2


def test_a_look_is_summed_up_in_one_line() -> None:
    hosted = {1: BrokerReplicas({T0: HostedReplica("/d", 4_000_000, 0)}), 3: BrokerReplicas({T0: HostedReplica("/d", 1_000_000, 7)})}
    speed = Speed()
    speed.saw(0, 0)
    speed.saw(2, 1_000_000)
    line = summary(look_at({T0: move(3)}, TOPICS, RACKS, hosted, {T0}), speed)
    assert line == "0 of 1 replicas in sync, 1.0 MB of 4.0 MB (25 %), 500.0 kB/s, 0:00:06 left"


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2.5e9, "2.5 GB"), (7e15, "7000.0 TB")])
def test_sizes_have_the_unit_that_fits(count: float, text: str) -> None:
    assert size(count) == text


def test_durations_have_hours_minutes_and_seconds() -> None:
    assert duration(3 * 3600 + 25 * 60 + 45.4) == "3:25:45"
