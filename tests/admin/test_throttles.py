"""The calls of KIP-179: the bytes that are sent, the outcomes, what a broker without them means."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import kafka.errors
import pytest

from klamm.admin import MAX_THROTTLE, AdminClient, AsyncAdminClient, TimedOut, TopicPartition, Unsupported
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.admin.replies import rated, reassigned
from klamm.tests.admin.scripted import CLOSE, HANG, ScriptedCluster, ScriptedMember, with_drafts

REASSIGN, RATES, REPLICAS = (
    ApiKey.REASSIGN_PARTITIONS,
    ApiKey.ALTER_INTERBROKER_THROTTLED_RATES,
    ApiKey.ALTER_INTERBROKER_THROTTLED_REPLICAS,
)
A, B = TopicPartition("a", 0), TopicPartition("a", 1)
CALLS: dict[ApiKey, Callable[[AdminClient], Any]] = {
    REASSIGN: lambda admin: admin.reassign_partitions({A: [1, 2]}, timeout_ms=0),
    RATES: lambda admin: admin.alter_interbroker_throttled_rates({1: (5, 6)}, timeout_ms=0),
    REPLICAS: lambda admin: admin.alter_interbroker_throttled_replicas({A: ([1], [2])}, timeout_ms=0),
}


@pytest.fixture
def broker(cluster: ScriptedCluster) -> ScriptedMember:
    """A controller that has the APIs and accepts everything."""
    (one,) = cluster.add(1)
    one.versions = with_drafts()
    one.on(REASSIGN, reassigned())
    one.on(RATES, rated())
    one.on(REPLICAS, reassigned())
    return one


def sent(broker: ScriptedMember, key: ApiKey) -> bytes:
    """The bytes of the last request, without its header."""
    return [one for one in broker.received if one.key is key][-1].raw


def topic(name: bytes, *partitions: bytes) -> bytes:
    """One topic in an array of its own."""
    return struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", len(partitions)) + b"".join(partitions)


def ints(*values: int) -> bytes:
    return struct.pack(f">i{len(values)}i", len(values), *values)


@pytest.mark.requirement("R179-35")
def test_reassignment_is_unthrottled_and_removes_its_throttle_by_default(cluster: ScriptedCluster, broker: ScriptedMember) -> None:
    with AdminClient(cluster.bootstrap) as admin:
        admin.reassign_partitions({A: [3, 1]}).all()
    options = struct.pack(">i?q?", 60_000, False, MAX_THROTTLE, True)
    assert sent(broker, REASSIGN) == topic(b"a", struct.pack(">i", 0) + ints(3, 1)) + options


@pytest.mark.requirement("R179-35")
def test_reassignment_sends_every_option_and_keeps_the_order_of_replicas(cluster: ScriptedCluster, broker: ScriptedMember) -> None:
    with AdminClient(cluster.bootstrap) as admin:
        admin.reassign_partitions(
            {("a", 1): (2, 3, 1), ("a", 0): [1]}, validate_only=True, throttle=1024, auto_remove_throttle=False, timeout_ms=1500
        ).all()
    partitions = struct.pack(">i", 1) + ints(2, 3, 1), struct.pack(">i", 0) + ints(1)
    assert sent(broker, REASSIGN) == topic(b"a", *partitions) + struct.pack(">i?q?", 1500, True, 1024, False)


@pytest.mark.requirement("R179-35")
@pytest.mark.parametrize("name", ["alter_interbroker_throttled_rates", "alter_interbroker_throttled_rate"])
def test_rates_are_sent_under_both_names_of_the_document(cluster: ScriptedCluster, broker: ScriptedMember, name: str) -> None:
    with AdminClient(cluster.bootstrap) as admin:
        assert getattr(admin, name)({0: (5, 6), 2: (8, 7)}).values() == {0: None, 2: None}
        assert sent(broker, RATES) == struct.pack(">iiqqiqq?i?", 2, 0, 5, 6, 2, 8, 7, True, 60_000, False)
        getattr(admin, name)({}, auto_remove_throttle=False, validate_only=True, timeout_ms=7).all()
        assert sent(broker, RATES) == struct.pack(">i?i?", 0, False, 7, True)


@pytest.mark.requirement("R179-35")
def test_replicas_are_sent_as_two_nullable_lists(cluster: ScriptedCluster, broker: ScriptedMember) -> None:
    with AdminClient(cluster.bootstrap) as admin:
        admin.alter_interbroker_throttled_replicas({A: ([1, 2], None), B: ([], (3,))}).all()
    null = struct.pack(">i", -1)
    partitions = struct.pack(">i", 0) + ints(1, 2) + null, struct.pack(">i", 1) + ints() + ints(3)
    assert sent(broker, REPLICAS) == topic(b"a", *partitions) + struct.pack(">?i?", True, 60_000, False)


@pytest.mark.requirement("R179-35")
def test_replicas_in_version_0_are_one_list_for_both_roles(cluster: ScriptedCluster, broker: ScriptedMember) -> None:
    broker.versions = with_drafts(ALTER_INTERBROKER_THROTTLED_REPLICAS=(0, 0))
    with AdminClient(cluster.bootstrap) as admin:
        admin.alter_interbroker_throttled_replicas({A: ([1, 2], [1, 2])}, validate_only=True).all()
        assert sent(broker, REPLICAS) == topic(b"a", struct.pack(">i", 0) + ints(1, 2)) + struct.pack(">?i?", True, 60_000, True)
        for lists in ([1], [2]), (None, None), ([1], None):
            with pytest.raises(Unsupported, match="version 0"):
                admin.alter_interbroker_throttled_replicas({A: lists})
        admin.alter_interbroker_throttled_replicas({A: ([], [])}).all()
    assert len(broker.bodies(REPLICAS)) == 2


@pytest.mark.requirement("R179-35")
def test_values_have_an_outcome_for_each_key_and_all_raises_the_first_error(cluster: ScriptedCluster, broker: ScriptedMember) -> None:
    broker.on(REASSIGN, reassigned({("a", 1): 60}))
    broker.on(RATES, rated({2: 8}))
    with AdminClient(cluster.bootstrap) as admin:
        moved = admin.reassign_partitions({A: [1], B: [2]})
        rates = admin.alter_interbroker_throttled_rates({1: (1, 1), 2: (1, 1)})
    assert moved.values()[A] is None
    moved.partition_result(A)
    with pytest.raises(kafka.errors.ReassignmentInProgressError) as caught:
        moved.all()
    assert (caught.value.code, caught.value.message) == (ErrorCode.REASSIGNMENT_IN_PROGRESS, "code 60")
    assert {broker_id: error.code for broker_id, error in rates.errors().items()} == {2: ErrorCode.BROKER_NOT_AVAILABLE}
    with pytest.raises(kafka.errors.BrokerNotAvailableError):
        rates.all()


@pytest.mark.requirement("R179-35")
@pytest.mark.parametrize("key", CALLS, ids=lambda key: key.name)
def test_a_kafka_without_these_apis_is_an_error_without_fall_back(cluster: ScriptedCluster, key: ApiKey) -> None:
    (kafka_broker,) = cluster.add(1)
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(Unsupported, match=rf"key {int(key)}"):
        CALLS[key](admin)
    assert kafka_broker.keys() == {ApiKey.API_VERSIONS, ApiKey.METADATA}


@pytest.mark.parametrize("key", CALLS, ids=lambda key: key.name)
def test_the_controller_is_found_again_after_not_controller(cluster: ScriptedCluster, broker: ScriptedMember, key: ApiKey) -> None:
    (two,) = cluster.add(2)
    two.versions = with_drafts()
    two.scripts = dict(broker.scripts)
    refusal = rated(default=41) if key is RATES else reassigned(default=41)

    def moved(body: object, version: int) -> object:
        cluster.controller_id = 2
        return refusal(body, version)

    broker.on(key, moved)
    with AdminClient(cluster.bootstrap) as admin:
        CALLS[key](admin).all()
    assert (len(broker.bodies(key)), len(two.bodies(key))) == (1, 1)


@pytest.mark.parametrize("key", CALLS, ids=lambda key: key.name)
def test_a_controller_that_moves_to_one_without_the_apis_is_unsupported(
    cluster: ScriptedCluster, broker: ScriptedMember, key: ApiKey
) -> None:
    cluster.add(2)

    def moved(_body: object, _version: int) -> object:
        cluster.controller_id = 2
        return CLOSE

    broker.on(key, moved)
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(Unsupported):
        CALLS[key](admin)


@pytest.mark.parametrize("key", CALLS, ids=lambda key: key.name)
def test_a_former_controller_without_the_apis_is_not_mistaken_for_the_present_one(
    cluster: ScriptedCluster, broker: ScriptedMember, key: ApiKey
) -> None:
    """What the client learned before may be old: it looks again before it says that nobody has the API."""
    cluster.add(2)
    cluster.controller_id = 2
    with AdminClient(cluster.bootstrap) as admin:
        admin.describe_cluster()
        cluster.controller_id = 1
        CALLS[key](admin).all()


@pytest.mark.parametrize("key", CALLS, ids=lambda key: key.name)
@pytest.mark.usefixtures("short_grace")
def test_a_controller_that_hangs_ends_in_a_time_out(cluster: ScriptedCluster, broker: ScriptedMember, key: ApiKey) -> None:
    broker.on(key, HANG)
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(TimedOut, match="did not respond in time"):
        CALLS[key](admin)


@pytest.mark.requirement("R179-35")
async def test_asyncio_has_the_same_calls(cluster: ScriptedCluster, broker: ScriptedMember) -> None:
    async with AsyncAdminClient(cluster.bootstrap) as admin:
        assert (await admin.reassign_partitions({A: [1]}, throttle=5, validate_only=True)).values() == {A: None}
        assert (await admin.alter_interbroker_throttled_rates({1: (1, 2)})).values() == {1: None}
        assert (await admin.alter_interbroker_throttled_rate({1: (1, 2)})).values() == {1: None}
        assert (await admin.alter_interbroker_throttled_replicas({A: (None, None)})).values() == {A: None}
    assert broker.keys() >= {REASSIGN, RATES, REPLICAS}
