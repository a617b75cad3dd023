"""Every call against brokers that are processes: Klamm's, and a real Kafka's (slow). The same test for both wherever both can."""

from __future__ import annotations

from collections.abc import Iterator

import kafka.errors
import pytest
from kafka import KafkaProducer

from klamm.admin import (
    AdminClient,
    AlterOperation,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ElectionType,
    Reassignment,
    ResourceType,
    TopicPartition,
    TopicPartitionReplica,
    Unsupported,
)
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.names import unique_name

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
KIP_179 = (1790, 1791, 1792)


@pytest.fixture
def admin(members: Members) -> Iterator[AdminClient]:
    with AdminClient(members.bootstrap(), request_timeout_ms=20_000) as one:
        yield one


@pytest.fixture
def has_drafts(members: Members) -> bool:
    """Whether the brokers have the APIs of KIP-179."""
    return not members.real()


def topic(members: Members, *replicas: list[int], size: int = 0) -> str:
    """A new topic with these replicas, and with so many bytes in partition 0."""
    name = unique_name("t")
    members.create(name, replicas)
    if size:
        producer = KafkaProducer(bootstrap_servers=members.bootstrap(), acks="all")
        for _ in range(size // 10_000):
            producer.send(name, bytes(10_000), partition=0)
        producer.flush()
        producer.close()
    return name


def broker(broker_id: int) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(broker_id))


def of_topic(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)


def set_throttles(admin: AdminClient, name: str, rate: int) -> None:
    """Throttle all replicas of a topic on all brokers, as a person does."""
    lists = [ConfigChange(LEADERS, "*"), ConfigChange(FOLLOWERS, "*")]
    rates = [ConfigChange(LEADER_RATE, str(rate)), ConfigChange(FOLLOWER_RATE, str(rate))]
    admin.incremental_alter_configs({of_topic(name): lists} | {broker(i): rates for i in (1, 2, 3)}).all()


def remove_throttles(admin: AdminClient, name: str) -> None:
    changes = [ConfigChange(key, operation=AlterOperation.DELETE) for key in (LEADER_RATE, FOLLOWER_RATE)]
    lists = [ConfigChange(key, operation=AlterOperation.DELETE) for key in (LEADERS, FOLLOWERS)]
    admin.incremental_alter_configs({of_topic(name): lists} | {broker(i): changes for i in (1, 2, 3)}).all()


def configs(admin: AdminClient, resource: ConfigResource, *names: str) -> dict[str, str | None]:
    """The values that were set for the resource itself."""
    own = (ConfigSource.DYNAMIC_TOPIC, ConfigSource.DYNAMIC_BROKER)
    found = admin.describe_configs([resource], names=names)[resource]
    return {name: entry.value for name, entry in found.items() if entry.source in own}


def test_cluster_and_topics_are_described(members: Members, admin: AdminClient) -> None:
    name = topic(members, [3, 1], [2, 3])
    cluster = admin.describe_cluster()
    assert [(b.id, b.port) for b in cluster.brokers] == [(i, members.brokers[i].port) for i in (1, 2, 3)]
    assert cluster.controller is not None and cluster.controller.id == members.tree.controller()
    assert cluster.cluster_id == members.tree.json("/cluster/id")["id"]
    described = admin.describe_topics([name, "no-such-topic"])
    first, second = described[name].partitions
    assert (first.partition, first.leader, first.replicas, first.offline) == (0, 3, (3, 1), ())
    assert (second.leader, second.replicas, second.isr) == (2, (2, 3), (2, 3))
    assert described[name].topic_id == members.tree.topic_id(name)
    assert described.errors["no-such-topic"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert name in admin.describe_topics().found


def test_partitions_are_reassigned_listed_and_cancelled(members: Members, admin: AdminClient) -> None:
    name = topic(members, [1], [1], size=200_000)
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
    set_throttles(admin, name, 1)
    result = admin.alter_partition_reassignments({zero: [2], one: [2, 2], ("no-such-topic", 0): [1]})
    assert {key: error.code for key, error in result.errors().items()} == {
        one: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        TopicPartition("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    expected = {zero: Reassignment((2, 1), (2,), (1,))}
    assert admin.list_partition_reassignments() == expected
    assert admin.list_partition_reassignments([zero, one]) == expected
    assert admin.list_partition_reassignments([one]) == {}
    admin.alter_partition_reassignments({zero: None}).all()
    assert admin.list_partition_reassignments() == {}
    with pytest.raises(kafka.errors.NoReassignmentInProgressError):
        admin.alter_partition_reassignments({zero: None}).all()
    remove_throttles(admin, name)
    admin.alter_partition_reassignments({zero: [3, 2]}).all()
    wait_for(lambda: not admin.list_partition_reassignments(), "the move is done")
    wait_for(lambda: admin.describe_topics([name])[name].partitions[0].replicas == (3, 2), "every broker's metadata shows the move")
    members.delete(name)


def test_log_directories_are_described_and_replicas_moved_between_them(members: Members, admin: AdminClient) -> None:
    name = topic(members, [1, 2], size=100_000)
    zero = TopicPartition(name, 0)
    described = admin.describe_log_dirs(partitions=[zero])
    assert sorted(described.found) == [1, 2, 3]
    assert all(len(dirs) == 2 for dirs in described.found.values())
    held = [(broker_id, path) for broker_id, dirs in described.found.items() for path, one in dirs.items() if zero in one.replicas]
    assert [broker_id for broker_id, _ in sorted(held)] == [1, 2]
    path = dict(held)[1]
    replica = described[1][path].replicas[zero]
    assert replica.size >= 100_000
    assert (replica.offset_lag, replica.is_future) == (0, False)
    assert described[1][path].total_bytes >= described[1][path].usable_bytes > 0
    (other,) = set(described[1]) - {path}
    moved = TopicPartitionReplica(name, 0, 1)
    result = admin.alter_replica_log_dirs({moved: other, (name, 0, 2): "/no/such/directory", (name, 0, 9): other})
    assert result.values()[moved] is None
    assert {key.broker_id: error.code for key, error in result.errors().items()} == {
        2: ErrorCode.LOG_DIR_NOT_FOUND,
        9: ErrorCode.BROKER_NOT_AVAILABLE,
    }

    def is_moved() -> bool:
        dirs = admin.describe_log_dirs([1], [zero])[1]
        return zero in dirs[other].replicas and not dirs[other].replicas[zero].is_future and zero not in dirs[path].replicas

    wait_for(is_moved, "the replica is in the other directory")
    assert set(admin.describe_log_dirs([9, 3]).errors) == {9}


def test_configs_are_changed_one_by_one_and_described_with_their_source(members: Members, admin: AdminClient) -> None:
    name = topic(members, [1])
    one, own, everyone = of_topic(name), broker(2), ConfigResource(ResourceType.BROKER, "")
    result = admin.incremental_alter_configs(
        {
            one: [ConfigChange("retention.ms", "1000"), ConfigChange("cleanup.policy", "compact", AlterOperation.APPEND)],
            own: [ConfigChange(LEADER_RATE, "77")],
            everyone: [ConfigChange("log.cleaner.threads", "2")],
            of_topic("no-such-topic"): [ConfigChange("retention.ms", "1")],
            broker(3): [ConfigChange(FOLLOWER_RATE, "-5")],
        }
    )
    assert {key.name: error.code for key, error in result.errors().items()} == {
        "no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "3": ErrorCode.INVALID_REQUEST,
    }

    def seen() -> bool:
        return configs(admin, own, LEADER_RATE) == {LEADER_RATE: "77"}

    wait_for(seen, "the broker has its config")
    assert configs(admin, one, "retention.ms", "cleanup.policy") == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
    described = admin.describe_configs([one, own], names=["retention.ms"], include_synonyms=True, include_documentation=True)
    entry = described[one]["retention.ms"]
    assert next(source for _, _, source in entry.synonyms) is ConfigSource.DYNAMIC_TOPIC
    assert entry.documentation
    everything = admin.describe_configs([own, of_topic("no-such-topic")])
    assert everything[own]["broker.id"].is_read_only
    assert everything[own]["broker.id"].source is ConfigSource.STATIC_BROKER
    assert list(everything.errors) == [of_topic("no-such-topic")]
    admin.incremental_alter_configs({one: [ConfigChange("retention.ms", "5")]}, validate_only=True).all()
    delete = AlterOperation.DELETE
    admin.incremental_alter_configs(
        {
            own: [ConfigChange(LEADER_RATE, operation=delete)],
            everyone: [ConfigChange("log.cleaner.threads", operation=delete)],
            one: [ConfigChange("cleanup.policy", "compact", AlterOperation.SUBTRACT)],
        }
    ).all()
    wait_for(lambda: configs(admin, own, LEADER_RATE) == {}, "the broker's config is gone")
    assert configs(admin, one, "retention.ms", "cleanup.policy") == {"retention.ms": "1000", "cleanup.policy": "delete"}


@pytest.mark.requirement("R183-25")
@pytest.mark.requirement("R183-26")
def test_preferred_leaders_are_elected(members: Members, admin: AdminClient) -> None:
    name = topic(members, [1, 2])
    zero = TopicPartition(name, 0)
    members.brokers[1].stop()
    members.start(1)
    wait_for(lambda: admin.describe_topics([name])[name].partitions[0].isr == (2, 1), "broker 1 is in sync again")
    result = admin.elect_preferred_leaders([zero, ("no-such-topic", 3)])
    result.partition_result(zero)
    assert result.partitions() == {zero, ("no-such-topic", 3)}
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        result.all()
    assert members.tree.state(name).leader == 1  # type: ignore[union-attr]
    again = admin.elect_preferred_leaders([zero]).values()[zero]
    assert isinstance(again, kafka.errors.ElectionNotNeededError)
    assert zero not in admin.elect_preferred_leaders().partitions()


def test_unclean_leaders_are_elected_where_there_is_no_leader(members: Members, admin: AdminClient) -> None:
    name = topic(members, [1, 2])
    zero = TopicPartition(name, 0)
    members.brokers[2].stop()
    members.brokers[1].stop()
    wait_for(lambda: admin.describe_topics([name])[name].partitions[0].leader is None, "there is no leader")
    none = admin.elect_leaders(ElectionType.UNCLEAN, [zero]).values()[zero]
    assert isinstance(none, kafka.errors.EligibleLeadersNotAvailableError)
    members.start(2)
    elected = admin.elect_leaders(ElectionType.UNCLEAN, [zero, (name, 7)])
    elected.partition_result(zero)
    assert isinstance(elected.values()[TopicPartition(name, 7)], kafka.errors.UnknownTopicOrPartitionError)
    assert members.tree.state(name).leader == 2  # type: ignore[union-attr]
    again = admin.elect_leaders(ElectionType.UNCLEAN, [zero]).values()[zero]
    assert isinstance(again, kafka.errors.ElectionNotNeededError)
    members.start(1)
    wait_for(lambda: admin.describe_topics([name])[name].partitions[0].isr == (2, 1), "broker 1 is in sync again")


@pytest.mark.requirement("R183-25")
def test_the_controller_is_found_again_when_it_moves_or_dies(members: Members, admin: AdminClient) -> None:
    name = topic(members, [1], [2], [3])
    every = [(name, number) for number in range(3)]
    for _ in range(2):
        codes = {error.code for error in admin.elect_preferred_leaders(every).values().values() if error is not None}
        assert codes == {ErrorCode.ELECTION_NOT_NEEDED}
        former = members.tree.controller()
        members.tree.delete("/controller")
        wait_for(lambda: members.tree.controller() != -1, f"a controller after {former}")
    died = members.controller()
    died.kill()
    outcome = admin.elect_preferred_leaders(every).values()
    assert {error.code for error in outcome.values() if error is not None} <= {
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }
    assert admin.list_partition_reassignments() == {}
    members.start(died.id)


@pytest.mark.requirement("R179-35")
def test_a_kafka_without_the_apis_of_kip_179_is_unsupported(members: Members, admin: AdminClient, has_drafts: bool) -> None:
    assert [admin.supports(key) for key in KIP_179] == [has_drafts] * 3
    assert admin.supports(43) and admin.supports(45) and admin.supports(46)
    if not has_drafts:
        for call in (
            lambda: admin.reassign_partitions({("t", 0): [1]}),
            lambda: admin.alter_interbroker_throttled_rates({1: (1, 1)}),
            lambda: admin.alter_interbroker_throttled_replicas({("t", 0): (None, None)}),
        ):
            with pytest.raises(Unsupported, match="key 179"):
                call()


@pytest.mark.parametrize("members", ["klamm"], indirect=True)
@pytest.mark.requirement("R179-35")
@pytest.mark.requirement("R179-36")
def test_a_throttled_reassignment_shows_its_throttles_and_removes_them(members: Members, admin: AdminClient) -> None:
    name = topic(members, [1], size=200_000)
    zero = TopicPartition(name, 0)
    admin.reassign_partitions({zero: [2]}, throttle=3000, validate_only=True).all()
    assert admin.list_partition_reassignments() == {}
    result = admin.reassign_partitions({zero: [2], (name, 7): [2]}, throttle=3000)
    result.partition_result(zero)
    assert result.errors()[TopicPartition(name, 7)].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_for(lambda: admin.list_partition_reassignments() == {zero: Reassignment((2, 1), (2,), (1,))}, "it is under way")
    assert configs(admin, of_topic(name), LEADERS, FOLLOWERS) == {LEADERS: "0:1", FOLLOWERS: "0:2"}
    wait_for(lambda: [configs(admin, broker(i), LEADER_RATE, FOLLOWER_RATE) for i in (1, 2)] == [rates(3000)] * 2, "the rates are set")
    with pytest.raises(kafka.errors.ReassignmentInProgressError):
        admin.reassign_partitions({zero: [3]}, throttle=3000).all()
    admin.alter_interbroker_throttled_rates({1: (10_000_000, 10_000_000), 2: (10_000_000, 10_000_000)}).all()
    wait_for(lambda: not admin.list_partition_reassignments(), "the faster move is done")
    wait_for(lambda: configs(admin, of_topic(name), LEADERS, FOLLOWERS) == {}, "the lists are gone")
    wait_for(lambda: [configs(admin, broker(i), LEADER_RATE, FOLLOWER_RATE) for i in (1, 2)] == [{}, {}], "the rates are gone")
    assert admin.describe_topics([name])[name].partitions[0].replicas == (2,)


def rates(value: int) -> dict[str, str]:
    return {LEADER_RATE: str(value), FOLLOWER_RATE: str(value)}


@pytest.mark.parametrize("members", ["klamm"], indirect=True)
@pytest.mark.requirement("R179-35")
@pytest.mark.requirement("R179-36")
def test_throttles_are_replaced_and_readable(members: Members, admin: AdminClient) -> None:
    name = topic(members, [1, 2], [2, 3])
    keep = {"auto_remove_throttle": False}
    result = admin.alter_interbroker_throttled_rates({1: (5, 6), 9: (1, 1)}, **keep)
    assert {key: error.code for key, error in result.errors().items()} == {9: ErrorCode.BROKER_NOT_AVAILABLE}
    wait_for(lambda: configs(admin, broker(1), LEADER_RATE, FOLLOWER_RATE) == {LEADER_RATE: "5", FOLLOWER_RATE: "6"}, "the rates are set")
    replicas = {(name, 0): ([1], [2]), (name, 1): (None, [])}
    admin.alter_interbroker_throttled_replicas(replicas, **keep).all()
    assert configs(admin, of_topic(name), LEADERS, FOLLOWERS) == {LEADERS: "0:1,1:1,1:2,1:3", FOLLOWERS: "0:2"}
    admin.alter_interbroker_throttled_replicas({(name, 0): ([], [])}, validate_only=True).all()
    assert configs(admin, of_topic(name), FOLLOWERS) == {FOLLOWERS: "0:2"}
    remove_throttles(admin, name)
    wait_for(lambda: configs(admin, broker(1), LEADER_RATE, FOLLOWER_RATE) == {}, "the rates are gone")
