"""alter_partition_reassignments and list_partition_reassignments."""

from __future__ import annotations

import kafka.errors
import pytest

from klamm.admin import AdminClient, AsyncAdminClient, Reassignment, TopicPartition
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.admin.replies import altered
from klamm.tests.admin.scripted import ScriptedCluster

ALTER, LIST = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS
A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def test_targets_and_cancellations_are_sent_with_the_time_out(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ALTER, altered({B: 85}))
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.alter_partition_reassignments({A: [3, 1], B: None}, timeout_ms=700).values()
    (body,) = broker.bodies(ALTER)
    assert body.timeout_ms == 700
    assert [(t.name, p.partition_index, p.replicas) for t in body.topics for p in t.partitions] == [("a", 0, (3, 1)), ("b", 1, None)]
    assert outcome[A] is None
    assert isinstance(outcome[B], kafka.errors.NoReassignmentInProgressError)


@pytest.mark.parametrize("key", [ALTER, LIST], ids=lambda key: key.name)
def test_the_controller_is_found_again_after_a_not_controller_of_the_whole_request(cluster: ScriptedCluster, key: ApiKey) -> None:
    one, two = cluster.add(1, 2)

    def moved(body: object, version: int) -> object:
        cluster.controller_id = 2
        return altered(whole=41)(body, version) if key is ALTER else messages.ListPartitionReassignmentsResponse(error_code=41)

    one.on(key, moved)
    two.on(key, altered() if key is ALTER else messages.ListPartitionReassignmentsResponse())
    with AdminClient(cluster.bootstrap) as admin:
        if key is ALTER:
            admin.alter_partition_reassignments({A: [1], B: None}).all()
        else:
            assert admin.list_partition_reassignments() == {}
    assert (len(one.bodies(key)), len(two.bodies(key))) == (1, 1)


@pytest.mark.usefixtures("short_grace")
def test_not_controller_until_the_deadline_is_raised_by_list_and_the_outcome_of_alter(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ALTER, altered(whole=41))
    broker.on(LIST, messages.ListPartitionReassignmentsResponse(error_code=41, error_message="moved"))
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.alter_partition_reassignments({A: [1]}, timeout_ms=0).values()
        assert [error.code for error in outcome.values() if error is not None] == [ErrorCode.NOT_CONTROLLER]
        with pytest.raises(kafka.errors.NotControllerError, match="moved"):
            admin.list_partition_reassignments(timeout_ms=1000)


def test_a_refusal_of_the_whole_request_is_raised(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ALTER, altered(whole=31))
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(kafka.errors.ClusterAuthorizationFailedError, match="code 31"):
        admin.alter_partition_reassignments({A: [1]})


async def test_list_names_partitions_or_all_and_returns_what_is_under_way(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    response = messages.ListPartitionReassignmentsResponse
    one = response.OngoingPartitionReassignment(partition_index=0, replicas=(4, 5, 1, 2), adding_replicas=(4, 5), removing_replicas=(1, 2))
    broker.on(LIST, response(topics=[response.OngoingTopicReassignment(name="a", partitions=[one])]))
    async with AsyncAdminClient(cluster.bootstrap) as admin:
        listed = await admin.list_partition_reassignments([A, ("a", 1), B])
        await admin.list_partition_reassignments()
    assert listed == {A: Reassignment((4, 5, 1, 2), (4, 5), (1, 2))}
    assert listed[A].target == (4, 5)
    named, everything = broker.bodies(LIST)
    assert [(t.name, list(t.partition_indexes)) for t in named.topics] == [("a", [0, 1]), ("b", [1])]
    assert everything.topics is None
