"""confluent-kafka's admin client (librdkafka)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from klamm.tests.clients.served import Served
from klamm.tests.harness.waits import wait_for

DEAD = 99
WITHIN_S = 30


@pytest.fixture(scope="module")
def admin(served: Served) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 3})


def done(futures: dict[Any, Any]) -> list[Any]:
    """Results of all futures."""
    return [future.result(WITHIN_S) for future in futures.values()]


def code(futures: dict[Any, Any]) -> int:
    """Error code of the only future."""
    (future,) = futures.values()
    with pytest.raises(KafkaException) as failure:
        future.result(WITHIN_S)
    return int(failure.value.args[0].code())


def create(admin: AdminClient, *topics: NewTopic) -> None:
    done(admin.create_topics(list(topics), operation_timeout=WITHIN_S))


def partitions(admin: AdminClient, name: str) -> dict[int, Any]:
    """Partitions of a topic in the client's metadata."""
    return dict(admin.list_topics(name, timeout=WITHIN_S).topics[name].partitions)


def test_metadata_and_describe_cluster(admin: AdminClient, served: Served) -> None:
    metadata = admin.list_topics(timeout=WITHIN_S)
    assert {b.id: b.port for b in metadata.brokers.values()} == served.ports
    assert str(metadata.cluster_id) == served.cluster_id
    assert metadata.controller_id == served.controller
    cluster = admin.describe_cluster(request_timeout=WITHIN_S, include_authorized_operations=True).result(WITHIN_S)
    assert cluster.cluster_id == served.cluster_id
    assert {n.id for n in cluster.nodes} == set(served.ports)
    assert cluster.controller.id == served.controller
    assert cluster.authorized_operations


def test_create_describe_grow_delete(admin: AdminClient, served: Served) -> None:
    name = served.topic()
    create(admin, NewTopic(name, num_partitions=3, replication_factor=2))
    (described,) = done(admin.describe_topics(TopicCollection([name]), request_timeout=WITHIN_S))
    assert described.topic_id is not None and str(described.topic_id)
    for p in described.partitions:
        state = served.tree.state(name, p.id)
        assert state is not None and (state.leader, state.isr) == (p.leader.id, [n.id for n in p.isr])
        assert [n.id for n in p.replicas] == served.tree.assignment(name)[p.id]
    done(admin.create_partitions([NewPartitions(name, 5)], operation_timeout=WITHIN_S))
    wait_for(lambda: len(partitions(admin, name)) == 5, "five partitions")
    done(admin.delete_topics([name], operation_timeout=WITHIN_S))
    wait_for(lambda: name not in admin.list_topics(timeout=WITHIN_S).topics, "the topic is gone")


def test_explicit_assignments(admin: AdminClient, served: Served) -> None:
    name = served.topic()
    create(admin, NewTopic(name, num_partitions=2, replica_assignment=[[3, 2], [1, 3]]))
    done(admin.create_partitions([NewPartitions(name, 3, replica_assignment=[[2, 1]])], operation_timeout=WITHIN_S))
    assert served.tree.assignment(name) == {0: [3, 2], 1: [1, 3], 2: [2, 1]}
    assert {p: m.leader for p, m in wait_for(lambda: three(admin, name), "three partitions").items()} == {0: 3, 1: 1, 2: 2}


def three(admin: AdminClient, name: str) -> dict[int, Any] | None:
    found = partitions(admin, name)
    return found if len(found) == 3 else None


def test_many_topics_at_once(admin: AdminClient, served: Served) -> None:
    names = [served.topic() for _ in range(30)]
    create(admin, *(NewTopic(n, 4, 3) for n in names))
    shown = wait_for(lambda: set(names) <= set(admin.list_topics(timeout=WITHIN_S).topics), "all topics")
    assert shown
    done(admin.delete_topics(names, operation_timeout=WITHIN_S))
    wait_for(lambda: not set(names) & set(served.tree.children("/brokers/topics")), "all deleted")


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (NewTopic("a/b", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("f" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("rf", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("key", 1, 1, config={"nosuch": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("value", 1, 1, config={"min.insync.replicas": "0"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_refused_creations(admin: AdminClient, topic: NewTopic, expected: int) -> None:
    assert code(admin.create_topics([topic], operation_timeout=WITHIN_S)) == expected


def test_refusals_of_what_exists_or_does_not(admin: AdminClient, served: Served) -> None:
    name = served.topic()
    create(admin, NewTopic(name, 2, 1))
    assert code(admin.create_topics([NewTopic(name, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert code(admin.create_partitions([NewPartitions(name, 1)])) == KafkaError.INVALID_PARTITIONS
    assert code(admin.delete_topics([served.topic()])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert code(admin.describe_configs([ConfigResource(ResourceType.TOPIC, served.topic())])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_topic_configs(admin: AdminClient, served: Served) -> None:
    name = served.topic()
    create(admin, NewTopic(name, 1, 1, config={"cleanup.policy": "compact"}))

    def described() -> dict[str, Any]:
        (entries,) = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))
        return dict(entries)

    assert len(described()) == 36
    assert (described()["cleanup.policy"].value, described()["cleanup.policy"].is_default) == ("compact", False)
    assert (described()["retention.ms"].value, described()["retention.ms"].is_default) == ("604800000", True)
    change = ConfigResource(ResourceType.TOPIC, name)
    change.add_incremental_config(ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.APPEND))
    change.add_incremental_config(ConfigEntry("segment.bytes", "1000000", incremental_operation=AlterConfigOpType.SET))
    done(admin.incremental_alter_configs([change]))
    wait_for(lambda: described()["cleanup.policy"].value == "compact,delete", "appended")
    assert described()["segment.bytes"].value == "1000000"
    bad = ConfigResource(ResourceType.TOPIC, name)
    bad.add_incremental_config(ConfigEntry("segment.bytes", "many", incremental_operation=AlterConfigOpType.SET))
    assert code(admin.incremental_alter_configs([bad])) == KafkaError.INVALID_CONFIG


def test_broker_configs(admin: AdminClient) -> None:
    (entries,) = done(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert len(entries) > 200
    assert entries["broker.id"].value == "1"
    bad = ConfigResource(ResourceType.BROKER, "1")
    bad.add_incremental_config(ConfigEntry("broker.id", "7", incremental_operation=AlterConfigOpType.SET))
    assert code(admin.incremental_alter_configs([bad])) == KafkaError.INVALID_REQUEST


def elect(admin: AdminClient, kind: ElectionType, wanted: list[TopicPartition] | None) -> dict[tuple[str, int], int]:
    """Error codes by partition."""
    results = admin.elect_leaders(kind, wanted).result(WITHIN_S)
    return {(tp.topic, tp.partition): 0 if error is None else error.code() for tp, error in results.items()}


def test_preferred_election(admin: AdminClient, served: Served) -> None:
    name = served.topic()
    create(admin, NewTopic(name, num_partitions=2, replica_assignment=[[2, 1], [1, 2]]))
    served.rewrite_state(name, 0, 1, [2, 1])
    wait_for(lambda: partitions(admin, name)[0].leader == 1, "the new state is told")
    wanted = [TopicPartition(name, 0), TopicPartition(name, 1), TopicPartition(name, 9)]
    assert elect(admin, ElectionType.PREFERRED, wanted) == {
        (name, 0): 0,
        (name, 1): KafkaError.ELECTION_NOT_NEEDED,
        (name, 9): KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    state = served.tree.state(name)
    assert state is not None and (state.leader, state.isr, state.le) == (2, [2, 1], 2)
    served.rewrite_state(name, 0, 1, [2, 1])
    wait_for(lambda: partitions(admin, name)[0].leader == 1, "the new state is told")
    assert elect(admin, ElectionType.PREFERRED, None)[name, 0] == 0
    assert (name, 1) not in elect(admin, ElectionType.PREFERRED, None)


def test_unclean_election(admin: AdminClient, served: Served) -> None:
    name = served.topic()
    create(admin, NewTopic(name, num_partitions=1, replica_assignment=[[DEAD, 3]]))
    served.rewrite_state(name, 0, -1, [DEAD])
    wait_for(lambda: partitions(admin, name)[0].leader == -1, "the new state is told")
    assert elect(admin, ElectionType.PREFERRED, [TopicPartition(name, 0)]) == {(name, 0): KafkaError.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(admin, ElectionType.UNCLEAN, [TopicPartition(name, 0)]) == {(name, 0): 0}
    state = served.tree.state(name)
    assert state is not None and (state.leader, state.isr) == (3, [3])
    assert elect(admin, ElectionType.UNCLEAN, [TopicPartition(name, 0)]) == {(name, 0): KafkaError.ELECTION_NOT_NEEDED}
