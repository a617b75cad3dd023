"""kafka-python's admin client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka.admin import ConfigResource, KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import (
    ElectionNotNeededError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from klamm.tests.clients.served import Served
from klamm.tests.harness.waits import wait_for

DEAD = 99
PREFERRED, UNCLEAN = 0, 1


def leads(admin: KafkaAdminClient, name: str, partition: int, leader: int) -> bool:
    """Whether the client sees this leader."""
    (described,) = admin.describe_topics([name])
    return any(p["partition_index"] == partition and p["leader_id"] == leader for p in described["partitions"])


@pytest.fixture(scope="module")
def admin(served: Served) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=served.bootstrap, client_id="admin", request_timeout_ms=20_000)
    yield client
    client.close()


def test_describe_cluster(admin: KafkaAdminClient, served: Served) -> None:
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"] == served.cluster_id
    assert {b["broker_id"]: b["port"] for b in cluster["brokers"]} == served.ports
    assert cluster["controller_id"] == served.controller


def test_create_describe_grow_delete(admin: KafkaAdminClient, served: Served) -> None:
    name = served.topic()
    admin.create_topics([NewTopic(name, num_partitions=4, replication_factor=3)], wait_for_metadata=True)
    assert name in admin.list_topics()
    (described,) = admin.describe_topics([name])
    assert sorted(p["partition_index"] for p in described["partitions"]) == [0, 1, 2, 3]
    for p in described["partitions"]:
        assert sorted(p["replica_nodes"]) == sorted(p["isr_nodes"]) == [1, 2, 3]
        assert p["leader_id"] == p["replica_nodes"][0]
        state = served.tree.state(name, p["partition_index"])
        assert state is not None and (state.leader, state.isr) == (p["leader_id"], p["isr_nodes"])
    admin.create_partitions({name: NewPartitions(6)})
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 6
    admin.delete_topics([name])
    assert name not in admin.list_topics()


def test_explicit_assignments(admin: KafkaAdminClient, served: Served) -> None:
    name = served.topic()
    admin.create_topics([NewTopic(name, -1, -1, replica_assignments={0: [3, 1], 1: [2, 3]})], wait_for_metadata=True)
    (described,) = admin.describe_topics([name])
    assert {p["partition_index"]: p["replica_nodes"] for p in described["partitions"]} == {0: [3, 1], 1: [2, 3]}
    admin.create_partitions({name: NewPartitions(3, [[1, 2]])})
    assert served.tree.assignment(name) == {0: [3, 1], 1: [2, 3], 2: [1, 2]}


def test_defaults_of_the_broker(admin: KafkaAdminClient, served: Served) -> None:
    name = served.topic()
    admin.create_topics([NewTopic(name)], wait_for_metadata=True)
    assert {p: len(replicas) for p, replicas in served.tree.assignment(name).items()} == {0: 1}


def test_validate_only(admin: KafkaAdminClient, served: Served) -> None:
    name = served.topic()
    admin.create_topics([NewTopic(name, 2, 2)], validate_only=True)
    assert name not in admin.list_topics()
    assert served.tree.exists(f"/brokers/topics/{name}") is None


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("no/slash", 1, 1), InvalidTopicError),
        (NewTopic("none", 0, 1), InvalidPartitionsError),
        (NewTopic("many", 1, 4), InvalidReplicationFactorError),
        (NewTopic("twice", -1, -1, replica_assignments={0: [1, 1]}), InvalidReplicationAssignmentError),
        (NewTopic("gap", -1, -1, replica_assignments={1: [1]}), InvalidReplicationAssignmentError),
        (NewTopic("odd", 1, 1, topic_configs={"no.such.key": "1"}), InvalidConfigurationError),
        (NewTopic("bad", 1, 1, topic_configs={"retention.ms": "soon"}), InvalidConfigurationError),
    ],
)
def test_refused_creations(admin: KafkaAdminClient, topic: NewTopic, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        admin.create_topics([topic])


def test_refusals_of_what_exists_or_does_not(admin: KafkaAdminClient, served: Served) -> None:
    name = served.topic()
    admin.create_topics([NewTopic(name, 2, 1)], wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 1, 1)])
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({name: NewPartitions(2)})
    with pytest.raises(InvalidReplicationAssignmentError):
        admin.create_partitions({name: NewPartitions(3, [[DEAD]])})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([served.topic()])


def test_topic_configs(admin: KafkaAdminClient, served: Served) -> None:
    name = served.topic()
    admin.create_topics([NewTopic(name, 1, 1, topic_configs={"cleanup.policy": "compact"})], wait_for_metadata=True)
    admin.alter_configs([ConfigResource("topic", name, {"retention.ms": "60000", "max.message.bytes": "12345"})])
    described = admin.describe_configs([ConfigResource("topic", name)])
    assert {k: v["value"] for k, v in described["topic"][name].items()} == {
        "cleanup.policy": "compact",
        "retention.ms": "60000",
        "max.message.bytes": "12345",
    }
    assert served.tree.json(f"/config/topics/{name}")["config"]["retention.ms"] == "60000"
    admin.reset_configs([ConfigResource("topic", name, ["retention.ms"])])
    described = admin.describe_configs([ConfigResource("topic", name)])
    assert "retention.ms" not in described["topic"][name]


def test_broker_configs(admin: KafkaAdminClient, served: Served) -> None:
    admin.alter_configs([ConfigResource("broker", "2", {"log.cleaner.threads": "2"})])

    def threads() -> object:
        return admin.describe_configs([ConfigResource("broker", "2")])["broker"]["2"].get("log.cleaner.threads")

    shown = wait_for(threads, "the broker heard of its config")
    assert isinstance(shown, dict) and shown["value"] == "2"
    assert served.tree.json("/config/brokers/2")["config"] == {"log.cleaner.threads": "2"}
    admin.reset_configs([ConfigResource("broker", "2", ["log.cleaner.threads"])])
    assert served.tree.json("/config/brokers/2")["config"] == {}


def test_preferred_election(admin: KafkaAdminClient, served: Served) -> None:
    name = served.topic()
    admin.create_topics([NewTopic(name, -1, -1, replica_assignments={0: [1, 2], 1: [2, 3]})], wait_for_metadata=True)
    served.rewrite_state(name, 0, 2, [1, 2])
    wait_for(lambda: leads(admin, name, 0, 2), "the new state is told")
    admin.elect_leaders(PREFERRED, {name: [0]})
    state = served.tree.state(name)
    assert state is not None and (state.leader, state.isr, state.le) == (1, [1, 2], 2)
    (result,) = admin.elect_leaders(PREFERRED, {name: [1]}).replica_election_results
    assert [p.error_code for p in result.partition_result] == [ElectionNotNeededError.errno]
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders(PREFERRED, {served.topic(): [0]})


def test_unclean_election(admin: KafkaAdminClient, served: Served) -> None:
    name = served.topic()
    admin.create_topics([NewTopic(name, -1, -1, replica_assignments={0: [DEAD, 1]})], wait_for_metadata=True)
    served.rewrite_state(name, 0, -1, [DEAD])
    wait_for(lambda: leads(admin, name, 0, -1), "the new state is told")
    admin.elect_leaders(UNCLEAN, {name: [0]})
    state = served.tree.state(name)
    assert state is not None and (state.leader, state.isr, state.le) == (1, [1], 2)
    # the leader recovers at once, so its mark may be gone already
