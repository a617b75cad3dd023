"""elect_preferred_leaders: what is sent, who gets it, what is returned."""

from __future__ import annotations

import asyncio
import struct
import time

import kafka.errors
import pytest

from klamm.admin import AdminClient, AsyncAdminClient, Disconnected, ElectionType, TimedOut, TopicPartition, Unsupported
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.testing import BlockingCluster
from klamm.tests.admin.replies import elected
from klamm.tests.admin.scripted import CLOSE, HANG, ScriptedCluster, shipped
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import wait_for

ELECT = ApiKey.ELECT_LEADERS
NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)
A, B = TopicPartition("a", 0), TopicPartition("b", 1)


@pytest.mark.requirement("R183-25")
@pytest.mark.parametrize(("options", "sent"), [({}, 60_000), ({"timeout_ms": 1234}, 1234)])
def test_the_time_out_is_sent_and_is_60_s_by_default(cluster: ScriptedCluster, options: dict[str, int], sent: int) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected())
    with AdminClient(cluster.bootstrap) as admin:
        admin.elect_preferred_leaders([A], **options).all()
    (body,) = broker.bodies(ELECT)
    assert (body.timeout_ms, body.election_type) == (sent, 0)
    assert [(t.topic, list(t.partitions)) for t in body.topic_partitions] == [("a", [0])]


@pytest.mark.requirement("R183-25")
def test_none_is_sent_as_null_and_an_empty_list_as_empty(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected(everything=(A, B)))
    with AdminClient(cluster.bootstrap) as admin:
        assert admin.elect_preferred_leaders().partitions() == {A, B}
        assert admin.elect_preferred_leaders([]).partitions() == set()
    assert [body.topic_partitions for body in broker.bodies(ELECT)] == [None, []]


def test_a_partition_named_twice_is_sent_once_and_partitions_of_one_topic_together(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected())
    with AdminClient(cluster.bootstrap) as admin:
        admin.elect_preferred_leaders([("a", 1), ("b", 0), ("a", 0), ("a", 1)])
    (body,) = broker.bodies(ELECT)
    assert [(t.topic, list(t.partitions)) for t in body.topic_partitions] == [("a", [1, 0]), ("b", [0])]


@pytest.mark.requirement("R183-27")
def test_version_0_is_sent_to_brokers_of_kafka_2_2_with_the_bytes_of_kip_183(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.versions = shipped(ELECT_LEADERS=(0, 0), METADATA=(0, 7), API_VERSIONS=(0, 2))
    broker.on(ELECT, elected(errors={A: 80}))
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.elect_preferred_leaders([A], timeout_ms=5000).values()
    (one,) = [one for one in broker.received if one.key is ELECT]
    assert one.version == 0
    assert one.raw == struct.pack(">ih1sii", 1, 1, b"a", 1, 0) + struct.pack(">i", 5000)
    assert outcome[A].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE  # type: ignore[union-attr]


@pytest.mark.parametrize("election_type", ElectionType)
def test_the_election_type_is_sent(cluster: ScriptedCluster, election_type: ElectionType) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected(errors={B: 83}))
    with AdminClient(cluster.bootstrap) as admin:
        result = admin.elect_leaders(election_type, [A, B], timeout_ms=1234)
    (body,) = broker.bodies(ELECT)
    assert (body.election_type, body.timeout_ms) == (int(election_type), 1234)
    assert result.values()[A] is None
    with pytest.raises(kafka.errors.EligibleLeadersNotAvailableError):
        result.partition_result(B)


def test_an_unclean_election_is_unsupported_by_kafka_2_2_and_sends_nothing(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.versions = shipped(ELECT_LEADERS=(0, 0), METADATA=(0, 7), API_VERSIONS=(0, 2))
    broker.on(ELECT, elected())
    with AdminClient(cluster.bootstrap) as admin:
        with pytest.raises(Unsupported, match=r"older than Kafka 2\.4"):
            admin.elect_leaders(ElectionType.UNCLEAN, [A])
        assert broker.bodies(ELECT) == []
        admin.elect_leaders(ElectionType.PREFERRED, [A]).all()


@pytest.mark.requirement("R183-25")
def test_the_controller_is_found_again_after_not_controller(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)

    def moved(body: object, version: int) -> object:
        cluster.controller_id = 2
        return elected(default=NOT_CONTROLLER)(body, version)

    one.on(ELECT, moved)
    two.on(ELECT, elected())
    with AdminClient(cluster.bootstrap) as admin:
        admin.elect_preferred_leaders([A, B]).all()
        admin.elect_preferred_leaders([A]).all()
    assert (len(one.bodies(ELECT)), len(two.bodies(ELECT))) == (1, 2)


@pytest.mark.requirement("R183-25")
def test_all_partitions_stay_all_when_another_broker_refuses_them(cluster: ScriptedCluster) -> None:
    """The broker that refuses names the partitions that it knows; the controller may know more."""
    one, two = cluster.add(1, 2)

    def moved(body: object, version: int) -> object:
        cluster.controller_id = 2
        return elected(default=NOT_CONTROLLER, everything=(A,))(body, version)

    one.on(ELECT, moved)
    two.on(ELECT, elected(everything=(A, B)))
    with AdminClient(cluster.bootstrap) as admin:
        assert admin.elect_preferred_leaders().values() == {A: None, B: None}
    assert two.bodies(ELECT)[0].topic_partitions is None


def test_only_refused_partitions_are_sent_again(cluster: ScriptedCluster) -> None:
    """A controller that resigns in between has elected some already."""
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected(errors={B: NOT_CONTROLLER}), elected(errors={A: 84}))
    with AdminClient(cluster.bootstrap) as admin:
        assert admin.elect_preferred_leaders([A, B]).values() == {A: None, B: None}
    again = broker.bodies(ELECT)[1].topic_partitions
    assert [(t.topic, list(t.partitions)) for t in again] == [("b", [1])]


def test_not_controller_until_the_deadline_is_the_outcome_of_each_partition(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected(default=NOT_CONTROLLER))
    with AdminClient(cluster.bootstrap) as admin:
        begun = time.monotonic()
        result = admin.elect_preferred_leaders([A], timeout_ms=200)
        assert 0.9 < time.monotonic() - begun < 5
    with pytest.raises(kafka.errors.NotControllerError):
        result.all()
    assert len(broker.bodies(ELECT)) > 3
    assert broker.bodies(ELECT)[-1].timeout_ms < 200, "what remains is sent, not the whole time-out again"


@pytest.mark.requirement("R183-25")
def test_the_controller_is_found_again_when_its_connection_closes(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    two.on(ELECT, elected())

    def dies(_body: object, _version: int) -> object:
        cluster.controller_id = 2
        cluster.shown = {2}
        return CLOSE

    one.on(ELECT, dies)
    with AdminClient(cluster.bootstrap) as admin:
        admin.elect_preferred_leaders([A]).all()
    assert len(two.bodies(ELECT)) == 1


@pytest.mark.usefixtures("short_grace")
def test_no_controller_until_the_deadline_is_a_time_out_that_says_so(cluster: ScriptedCluster) -> None:
    cluster.add(1)
    cluster.controller_id = -1
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(TimedOut, match="no active controller"):
        admin.elect_preferred_leaders([A], timeout_ms=0)


@pytest.mark.usefixtures("short_grace")
def test_after_a_time_out_the_controller_is_looked_for_again(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    one.on(ELECT, elected(), HANG)
    two.on(ELECT, elected())
    with AdminClient(cluster.bootstrap) as admin:
        admin.elect_preferred_leaders([A]).all()
        cluster.controller_id = 2
        with pytest.raises(TimedOut):
            admin.elect_preferred_leaders([A], timeout_ms=0)
        admin.elect_preferred_leaders([A]).all()
    assert (len(one.bodies(ELECT)), len(two.bodies(ELECT))) == (2, 1)


@pytest.mark.requirement("R183-25")
def test_a_controller_that_hangs_ends_in_a_time_out_at_the_deadline(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, HANG)
    with AdminClient(cluster.bootstrap) as admin:
        begun = time.monotonic()
        with pytest.raises(kafka.errors.KafkaTimeoutError, match=rf"{broker.address} did not respond"):
            admin.elect_preferred_leaders([A], timeout_ms=300)
        assert 1.25 < time.monotonic() - begun < 5


@pytest.mark.requirement("R183-26")
def test_result_gives_each_partition_the_set_attempted_and_all(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected(errors={B: 80}, everything=(A, B)), elected(everything=(A,)))
    with AdminClient(cluster.bootstrap) as admin:
        mixed, good = admin.elect_preferred_leaders(), admin.elect_preferred_leaders()
    assert mixed.partitions() == {A, B}
    mixed.partition_result(A)
    mixed.partition_result(("a", 0))
    with pytest.raises(kafka.errors.PreferredLeaderNotAvailableError, match="code 80"):
        mixed.partition_result(B)
    with pytest.raises(kafka.errors.PreferredLeaderNotAvailableError):
        mixed.all()
    assert list(mixed.errors()) == [B]
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError, match="nothing was attempted"):
        good.partition_result(B)
    good.all()


@pytest.mark.requirement("R183-27")
def test_a_broker_without_key_43_is_an_error_without_fall_back(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.versions = shipped(ELECT_LEADERS=None)
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(Unsupported, match="ElectLeaders \\(key 43\\)") as caught:
        admin.elect_preferred_leaders([A])
    assert isinstance(caught.value, kafka.errors.UnsupportedVersionError)
    assert broker.keys() == {ApiKey.API_VERSIONS, ApiKey.METADATA}


def test_an_error_of_the_whole_request_is_raised_when_it_names_no_partition(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, lambda body, version: elected()(body, version)._replace(error_code=31))
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(kafka.errors.ClusterAuthorizationFailedError):
        admin.elect_preferred_leaders()


def test_a_partition_that_the_response_leaves_out_did_not_succeed(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, lambda _body, version: elected(everything=(A,))(_NULL, version))
    with AdminClient(cluster.bootstrap) as admin:
        result = admin.elect_preferred_leaders([A, B]).values()
    assert result[A] is None
    assert result[B].code is ErrorCode.UNKNOWN_SERVER_ERROR  # type: ignore[union-attr]


class _Null:
    topic_partitions = None


_NULL = _Null()


def test_a_time_out_in_a_later_attempt_keeps_what_was_decided(cluster: ScriptedCluster) -> None:
    """Nobody knows what became of the partition whose second request had no response."""
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected(errors={B: NOT_CONTROLLER}), HANG)
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.elect_preferred_leaders([A, B], timeout_ms=0).values()
    assert outcome[A] is None
    assert isinstance(outcome[B], TimedOut)


# On a real cluster


@pytest.mark.requirement("R183-25")
@pytest.mark.requirement("R183-26")
def test_preferred_leaders_are_elected_by_klamm(served: BlockingCluster) -> None:
    with AdminClient(served.bootstrap_servers) as admin:
        served.stop_broker(2)
        served.start_broker(2)

        def back_in_sync() -> bool:
            return all(len(p.isr) == 3 for p in admin.describe_topics(["orders"])["orders"].partitions)

        wait_for(back_in_sync, "broker 2 in every ISR")
        described = admin.describe_topics(["orders"])["orders"].partitions
        moved = {TopicPartition("orders", p.partition) for p in described if p.leader != p.replicas[0]}
        assert moved
        result = admin.elect_preferred_leaders()
        assert result.partitions() >= moved
        for partition in moved:
            result.partition_result(partition)
        assert all(p.leader == p.replicas[0] for p in admin.describe_topics(["orders"])["orders"].partitions)
        named = admin.elect_preferred_leaders([("orders", 0), (unique_name("t"), 0)]).values()
        assert [error.code for error in named.values() if error is not None] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


@pytest.mark.requirement("R183-25")
def test_the_controller_of_a_real_cluster_is_found_after_it_moved(served: BlockingCluster) -> None:
    with AdminClient(served.bootstrap_servers) as admin:
        first = admin.describe_cluster().controller
        assert first is not None
        admin.elect_preferred_leaders([("orders", 0)])
        moved = served.move_controller()
        assert moved != first.id
        codes = {error.code for error in admin.elect_preferred_leaders([("orders", 0)]).values().values() if error is not None}
        assert codes == {ErrorCode.ELECTION_NOT_NEEDED}
        served.kill_broker(moved, expire=True)
        try:
            outcome = admin.elect_preferred_leaders([("orders", 0)]).values()[TopicPartition("orders", 0)]
            assert outcome is None or outcome.code is not ErrorCode.NOT_CONTROLLER
        finally:
            served.start_broker(moved)


async def test_asyncio_has_the_same_results(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ELECT, elected(errors={B: 80}))
    async with AsyncAdminClient(cluster.bootstrap) as admin:
        results = await asyncio.gather(*(admin.elect_preferred_leaders([A, B]) for _ in range(3)))
        broker.on(ELECT, CLOSE)
        with pytest.raises((TimedOut, Disconnected)):
            await admin.elect_preferred_leaders([A], timeout_ms=0)
        broker.on(ELECT, elected(errors={A: 83}))
        unclean = await admin.elect_leaders(ElectionType.UNCLEAN, [A, B])
    assert [list(result.errors()) for result in results] == [[B]] * 3
    assert list(unclean.errors()) == [A]
    assert broker.bodies(ELECT)[-1].election_type == 1
