"""What a broker takes from a controller: tables over leader epochs, topic ids, stale senders, and what stays behind afterwards.

That the answers are a real broker's is proved by `test_broker_story.py`; here is the state behind them, and what no script can do
to a real broker.
"""

from typing import Any

import pytest

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition, Role
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replica_requests import refuse_leader_and_isr, refuse_stop_replica
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID, TopicPartition
from klamm.tests.broker.replica_requests import EPOCH, LISR, ME, OK, STOP, A, B, hosting, lisr, state, stop, tell
from klamm.tests.broker.update_metadata import update

STALE = ErrorCode.STALE_CONTROLLER_EPOCH


def replica_of(hosted: ReplicaManager, partition: int = 0) -> HostedPartition:
    replica = hosted.get("t", partition)
    assert replica is not None
    return replica


def stopped(hosted: ReplicaManager, *partitions: tuple[int, int, bool]) -> list[int]:
    response, _ = hosted.handle_stop_replica(stop(*partitions), 4, EPOCH)
    assert response.error_code == OK
    return [row.error_code for row in response.partition_errors]


# who is listened to


@pytest.mark.parametrize(
    ("broker_epoch", "controller_epoch", "code"),
    [
        (EPOCH, 1, OK),
        (-1, 1, OK),
        (EPOCH + 1, 1, OK),
        (EPOCH, 2, OK),
        (EPOCH - 1, 1, ErrorCode.STALE_BROKER_EPOCH),
        (0, 9, ErrorCode.STALE_BROKER_EPOCH),
        (EPOCH, 0, STALE),
        (EPOCH - 1, 0, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_stale_senders(broker_epoch: int, controller_epoch: int, code: ErrorCode) -> None:
    epochs: dict[str, Any] = {"broker_epoch": broker_epoch, "controller_epoch": controller_epoch}

    hosted = hosting()
    answer, _ = hosted.handle_leader_and_isr(lisr(state(3), state(3, index=1), **epochs), 7, EPOCH)
    assert answer.error_code == code
    assert [[row.error_code for row in topic.partition_errors] for topic in answer.topics] == [[code, code]]
    assert len(hosted) == (2 if code is OK else 0)

    stopped, _ = hosting().handle_stop_replica(stop((0, -1, False), **epochs), 4, EPOCH)
    assert (stopped.error_code, len(stopped.partition_errors)) == (code, 1 if code is OK else 0)

    hosted = hosting()
    updated, topics = hosted.handle_update_metadata(update(brokers=[], **epochs), EPOCH)
    assert (updated.error_code, topics, bool(hosted.metadata.brokers)) == (code, set(), code is not OK)


@pytest.mark.parametrize("first", ["lisr", "stop", "update"])
@pytest.mark.parametrize("second", ["lisr", "stop", "update"])
def test_the_highest_controller_epoch_of_all_three_counts(first: str, second: str) -> None:
    hosted = hosting()

    def send(kind: str, epoch: int) -> int:
        if kind == "update":
            return hosted.handle_update_metadata(update(controller_epoch=epoch), EPOCH)[0].error_code
        if kind == "lisr":
            return hosted.handle_leader_and_isr(lisr(state(epoch), controller_epoch=epoch), 7, EPOCH).response.error_code
        return hosted.handle_stop_replica(stop((0, -1, False), controller_epoch=epoch), 4, EPOCH).response.error_code

    assert send(first, 5) == OK
    assert send(second, 4) == STALE
    assert send(second, 5) == OK
    assert hosted.controller_epoch == 5


def test_a_stale_broker_epoch_teaches_no_controller_epoch() -> None:
    hosted = hosting()
    hosted.handle_leader_and_isr(lisr(state(1), controller_epoch=50, broker_epoch=EPOCH - 1), 7, EPOCH)
    assert hosted.controller_epoch == 1


# LeaderAndIsr, partition by partition


@pytest.mark.parametrize(
    ("before", "told", "topic_id", "code", "after"),
    [
        (None, state(0), A, OK, (Role.LEADER, 0, 1)),
        (None, state(0, 2), A, OK, (Role.FOLLOWER, 0, 2)),
        (None, state(5, 2), ZERO_UUID, OK, (Role.FOLLOWER, 5, 2)),
        (None, state(0, 2, replicas=[2, 3]), A, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (None, state(-1), A, STALE, None),
        (None, state(-2), A, STALE, None),
        (None, state(0, 9), A, OK, (Role.NONE, -1, -1)),
        (None, state(0, -1), A, OK, (Role.NONE, -1, -1)),
        (state(3), state(4, 2), A, OK, (Role.FOLLOWER, 4, 2)),
        (state(3, 2), state(4), A, OK, (Role.LEADER, 4, 1)),
        (state(3), state(3), A, STALE, (Role.LEADER, 3, 1)),
        (state(3), state(3, 2), A, STALE, (Role.LEADER, 3, 1)),
        (state(3), state(2, 2), A, STALE, (Role.LEADER, 3, 1)),
        (state(3), state(4, 2, replicas=[2, 3]), A, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (Role.LEADER, 3, 1)),
        (state(3), state(4, 2), B, ErrorCode.INCONSISTENT_TOPIC_ID, (Role.LEADER, 3, 1)),
        (state(3), state(2, 2), B, ErrorCode.INCONSISTENT_TOPIC_ID, (Role.LEADER, 3, 1)),
        (state(3), state(4, 2), ZERO_UUID, OK, (Role.FOLLOWER, 4, 2)),
        (state(3), state(3, 2), ZERO_UUID, OK, (Role.LEADER, 3, 1)),
        (state(3), state(3, 1), ZERO_UUID, STALE, (Role.LEADER, 3, 1)),
        (state(3), state(2, 1), ZERO_UUID, STALE, (Role.LEADER, 3, 1)),
        (state(3), state(4, 9), A, OK, (Role.LEADER, 3, 1)),
        (state(3, 2), state(4, -1), A, OK, (Role.FOLLOWER, 3, 2)),
        (state(3, partition_epoch=4), state(4, 2, partition_epoch=3), A, OK, (Role.LEADER, 3, 1)),
        (state(3, partition_epoch=4), state(4, 2, partition_epoch=4), A, OK, (Role.FOLLOWER, 4, 2)),
    ],
)
def test_one_partition(before: Any, told: Any, topic_id: bytes, code: ErrorCode, after: tuple[Role, int, int] | None) -> None:
    hosted = hosting()
    if before is not None:
        assert tell(hosted, before) == [OK]
    assert tell(hosted, told, topic_id=topic_id) == [code]
    replica = hosted.get("t", 0)
    assert (None if replica is None else (replica.role, replica.leader_epoch, replica.leader)) == after
    if replica is not None:
        assert replica.topic_id == (A if before is not None else topic_id)
        assert replica.fetching == (replica.role is Role.FOLLOWER)


@pytest.mark.parametrize(("told", "codes"), [(state(1), [OK, STALE, STALE]), (state(2, 2), [OK, STALE, STALE])])
def test_an_id_comes_late(told: Any, codes: list[ErrorCode]) -> None:
    """A log without an id takes the first one it hears of, at the same leader epoch or at a higher one."""
    hosted = hosting()
    assert tell(hosted, state(1), topic_id=ZERO_UUID) == [OK]
    assert [tell(hosted, told, topic_id=A)[0], tell(hosted, told, topic_id=A)[0], tell(hosted, told, topic_id=A)[0]] == codes
    assert replica_of(hosted).topic_id == A
    assert tell(hosted, state(9), topic_id=B) == [ErrorCode.INCONSISTENT_TOPIC_ID]


def test_a_follower_that_waited_for_its_leader_takes_the_same_epoch() -> None:
    hosted = hosting()
    assert tell(hosted, state(4, 3, replicas=[1, 3])) == [OK]
    hosted.handle_update_metadata(update(brokers=[]), EPOCH)
    assert tell(hosted, state(4, 3, replicas=[1, 3])) == [OK]
    assert replica_of(hosted).role is Role.NONE
    assert tell(hosted, state(4, 1)) == [OK], "a leader needs nobody alive"
    assert tell(hosted, state(4, 1)) == [STALE]


def test_what_is_kept() -> None:
    hosted = hosting()
    told = state(2, 2, isr=[2, 1], replicas=[1, 2, 3], controller_epoch=5, partition_epoch=6, leader_recovery_state=1)
    tell(hosted, told)
    replica = replica_of(hosted)
    assert (replica.leader, replica.isr, replica.replicas, replica.partition_epoch) == (2, (2, 1), (1, 2, 3), 6)
    assert (replica.controller_epoch, replica.recovery) == (5, 1)
    tell(hosted, state(0), state(0, index=1), topic="u", topic_id=B)
    assert sorted((topic, index) for topic, index, _ in hosted) == [("t", 0), ("u", 0), ("u", 1)]
    assert (len(hosted), hosted.leader_count()) == (3, 2)
    empty = ReplicaManager(ME, MetadataCache(ME))
    tell(empty, state(0, 9))
    bare = replica_of(empty)
    assert (bare.isr, bare.replicas, bare.controller_epoch, bare.recovery) == ((), (), -1, 0)


def test_each_partition_for_itself() -> None:
    hosted = hosting()
    tell(hosted, state(3), state(3, index=1))
    assert tell(hosted, state(3), state(4, index=1), state(0, index=2), state(0, index=3, replicas=[2])) == [
        STALE,
        OK,
        OK,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_topic_in_two_elements_makes_the_request_an_error_and_changes_nothing() -> None:
    hosted = hosting()
    request = lisr(state(1))
    twice = LISR.LeaderAndIsrTopicState(topic_name="t", topic_id=A, partition_states=[state(1, index=1)])
    answer, effects = hosted.handle_leader_and_isr(request._replace(topic_states=[*request.topic_states, twice]), 7, EPOCH)
    assert (answer.error_code, effects, len(hosted)) == (ErrorCode.UNKNOWN_SERVER_ERROR, [], 0)


def test_topics_without_ids_share_one_row() -> None:
    request = lisr(state(1), topic_id=ZERO_UUID)
    other = LISR.LeaderAndIsrTopicState(topic_name="u", partition_states=[state(1, index=4)])
    answer, _ = hosting().handle_leader_and_isr(request._replace(topic_states=[*request.topic_states, other]), 7, EPOCH)
    assert [(topic.topic_id, [row.partition_index for row in topic.partition_errors]) for topic in answer.topics] == [(ZERO_UUID, [0, 4])]


# StopReplica


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize(
    ("leader_epoch", "code"), [(-2, OK), (-1, OK), (5, OK), (6, OK), (4, ErrorCode.FENCED_LEADER_EPOCH), (0, ErrorCode.FENCED_LEADER_EPOCH)]
)
def test_stopping(leader_epoch: int, code: ErrorCode, delete: bool) -> None:
    hosted = hosting()
    tell(hosted, state(5, 2), state(5, index=1))
    assert stopped(hosted, (0, leader_epoch, delete), (1, leader_epoch, delete), (2, leader_epoch, delete)) == [code, code, OK]
    gone = delete and code is OK
    for index, role in ((0, Role.FOLLOWER), (1, Role.LEADER)):
        replica = hosted.get("t", index)
        assert (replica is None) == gone
        if replica is not None:
            assert (replica.role, replica.leader_epoch) == (role, 5)
            assert replica.fetching == (role is Role.FOLLOWER and code is not OK)
    assert tell(hosted, state(5, 2)) == [OK if gone else STALE]


# log directories


def test_offline_partitions() -> None:
    hosted = hosting()
    tell(hosted, state(1), state(1, index=1))
    hosted.fail_log_dir([TopicPartition("t", 0), TopicPartition("new", 0)])
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    assert tell(hosted, state(2), state(2, index=1)) == [storage, OK]
    assert stopped(hosted, (0, -2, True), (1, -2, True)) == [storage, OK]
    assert tell(hosted, state(0), topic="new") == [storage]


def test_no_old_log_is_made_anew_while_a_log_dir_is_offline() -> None:
    hosted = hosting()
    hosted.fail_log_dir([])
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    assert tell(hosted, state(1, is_new=False), state(0, index=1, is_new=True)) == [storage, OK]
    assert tell(hosted, state(2, is_new=True), state(1, index=1, is_new=False)) == [storage, OK]
    assert tell(hosted, state(1, index=3, is_new=False, replicas=[2])) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("found", "told", "code"),
    [(A, A, OK), (ZERO_UUID, A, OK), (A, ZERO_UUID, OK), (B, A, ErrorCode.INCONSISTENT_TOPIC_ID), (ZERO_UUID, ZERO_UUID, OK)],
)
def test_a_log_that_was_there_at_the_start_is_that_of_its_topic_id(found: bytes, told: bytes, code: ErrorCode) -> None:
    hosted = hosting()
    hosted.states.logs_found = {TopicPartition("t", 0): found}
    assert tell(hosted, state(1), topic_id=told) == [code]
    assert (hosted.get("t", 0) is not None) == (code is OK)


@pytest.mark.parametrize(("partition_epoch", "leader_epoch"), [(5, 3), (6, 4), (7, 4)])
@pytest.mark.parametrize("leader", [1, 2])
def test_a_state_with_an_older_partition_epoch_changes_nothing(leader: int, partition_epoch: int, leader_epoch: int) -> None:
    hosted = hosting()
    tell(hosted, state(3, partition_epoch=6))
    assert tell(hosted, state(4, leader, partition_epoch=partition_epoch)) == [OK]
    replica = replica_of(hosted)
    assert replica.leader_epoch == leader_epoch
    assert replica.role is (Role.LEADER if leader == 1 or leader_epoch == 3 else Role.FOLLOWER)


def test_an_old_log_in_another_log_dir_is_used() -> None:
    hosted = hosting()
    hosted.fail_log_dir([])
    hosted.states.logs_found = {TopicPartition("t", 1): ZERO_UUID}
    assert tell(hosted, state(1, is_new=False), state(1, index=1, is_new=False)) == [ErrorCode.KAFKA_STORAGE_ERROR, OK]


# refusals from outside


@pytest.mark.parametrize("version", range(8))
def test_refused_leader_and_isr_names_every_partition(version: int) -> None:
    states = [state(1), state(1, index=1)]
    if version < 2:
        request = LISR(ungrouped_partition_states=[s._replace(topic_name="t") for s in states])
    else:
        request = lisr(*states)
    answer = refuse_leader_and_isr(request, version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert answer.error_code == 31
    rows = [("", r) for t in answer.topics for r in t.partition_errors] if version >= 5 else [("t", r) for r in answer.partition_errors]
    assert [(r.topic_name, r.partition_index, r.error_code) for _, r in rows] == [(name, i, 31) for i, (name, _) in enumerate(rows)]
    assert len(rows) == 2
    messages.encode(answer, version)


@pytest.mark.parametrize("version", range(5))
def test_refused_stop_replica_names_every_partition(version: int) -> None:
    if version == 0:
        request = STOP(ungrouped_partitions=[STOP.StopReplicaPartitionV0("t", 0), STOP.StopReplicaPartitionV0("t", 1)])
    elif version < 3:
        request = STOP(topics=[STOP.StopReplicaTopicV1("t", [0, 1])])
    else:
        request = stop((0, -1, False), (1, -1, False))
    answer = refuse_stop_replica(request, version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert answer.error_code == 31
    assert [(r.topic_name, r.partition_index, r.error_code) for r in answer.partition_errors] == [("t", 0, 31), ("t", 1, 31)]
    messages.encode(answer, version)
