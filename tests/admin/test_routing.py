"""Which broker gets a request, what brokers that hang, close, refuse or send garbage mean, and that deadlines hold."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import kafka.errors
import pytest

from klamm.admin import AdminClient, AsyncAdminClient, BadResponse, ConfigChange, ConfigResource, Disconnected, ResourceType, TimedOut
from klamm.admin.calls.values import Broker
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.admin.replies import elected
from klamm.tests.admin.scripted import CLOSE, HANG, ScriptedCluster, ScriptedMember, shipped
from klamm.tests.admin.silent_port import silent_port
from klamm.tests.harness.waits import eventually

META, DIRS = ApiKey.METADATA, ApiKey.DESCRIBE_LOG_DIRS
EVERY_CALL: dict[str, Callable[[Any], Any]] = {
    "describe_cluster": lambda admin: admin.describe_cluster(timeout_ms=200),
    "describe_topics": lambda admin: admin.describe_topics(timeout_ms=200),
    "read_metadata_log": lambda admin: admin.read_metadata_log(1, 0, timeout_ms=200),
    "supports": lambda admin: admin.supports(43, timeout_ms=200),
    "list_partition_reassignments": lambda admin: admin.list_partition_reassignments(timeout_ms=200),
    "describe_log_dirs": lambda admin: admin.describe_log_dirs([1], timeout_ms=200),
    "list_groups": lambda admin: admin.list_groups(timeout_ms=200),
    "describe_groups": lambda admin: admin.describe_groups(["g"], timeout_ms=200),
    "list_group_offsets": lambda admin: admin.list_group_offsets(["g"], timeout_ms=200),
    "alter_group_offsets": lambda admin: admin.alter_group_offsets("g", {("a", 0): 1}, timeout_ms=200),
    "delete_group_offsets": lambda admin: admin.delete_group_offsets("g", [("a", 0)], timeout_ms=200),
    "delete_groups": lambda admin: admin.delete_groups(["g"], timeout_ms=200),
    "remove_members": lambda admin: admin.remove_members("g", None, timeout_ms=200),
    "list_offsets": lambda admin: admin.list_offsets({("a", 0): -1}, timeout_ms=200),
    "alter_replica_log_dirs": lambda admin: admin.alter_replica_log_dirs({("a", 0, 1): "/d"}, timeout_ms=200),
}


@pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL)
async def test_a_server_that_never_responds_ends_in_a_time_out_at_the_deadline(call: Callable[[Any], Any]) -> None:
    with silent_port() as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with AdminClient(address) as admin:
            begun = time.monotonic()
            with pytest.raises(TimedOut, match=address):
                await asyncio.to_thread(call, admin)
            assert 0.15 < time.monotonic() - begun < 5
        async with AsyncAdminClient(address) as asynchronous:
            begun = time.monotonic()
            with pytest.raises(TimedOut, match=address):
                await call(asynchronous)
            assert 0.15 < time.monotonic() - begun < 5


def test_the_time_out_of_the_client_holds_for_calls_that_name_none() -> None:
    with silent_port() as listener, AdminClient(f"127.0.0.1:{listener.getsockname()[1]}", request_timeout_ms=200) as admin:
        begun = time.monotonic()
        with pytest.raises(TimedOut, match="200 ms"):
            admin.describe_cluster()
        assert 0.15 < time.monotonic() - begun < 5


def test_a_refused_connection_ends_in_a_time_out_that_names_the_reason() -> None:
    with silent_port() as listener:
        port = listener.getsockname()[1]
    with AdminClient(f"127.0.0.1:{port}") as admin, pytest.raises(TimedOut, match=f":{port} cannot be reached: Connection refused"):
        admin.describe_cluster(timeout_ms=300)


def test_a_name_that_does_not_resolve_ends_in_a_time_out() -> None:
    with AdminClient("no-such-host.invalid:9092") as admin, pytest.raises(TimedOut, match=r"no-such-host\.invalid:9092"):
        admin.describe_cluster(timeout_ms=300)


def test_a_bootstrap_server_that_hangs_leaves_time_for_the_next(cluster: ScriptedCluster) -> None:
    cluster.add(1)
    with silent_port() as listener, AdminClient(f"127.0.0.1:{listener.getsockname()[1]},{cluster.bootstrap}") as admin:
        assert admin.describe_cluster(timeout_ms=1000).cluster_id == "scripted"


def test_brokers_that_were_learned_are_used_when_the_bootstrap_server_is_gone(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    with AdminClient(one.address) as admin:
        admin.describe_cluster()
        cluster.shown = {2}
        one.stop_listening()
        assert [broker.id for broker in admin.describe_cluster(timeout_ms=2000).brokers] == [2]
    assert two.keys() == {ApiKey.API_VERSIONS, META}


def test_bootstrap_servers_are_used_when_all_brokers_that_were_learned_are_gone(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    cluster.shown = {1}
    with AdminClient(cluster.bootstrap) as admin:
        admin.describe_cluster()
        one.stop_listening()
        cluster.shown = {2}
        assert [broker.id for broker in admin.describe_cluster(timeout_ms=2000).brokers] == [2]
    assert two.keys() == {ApiKey.API_VERSIONS, META}


def correlated(raw: bytes) -> bytes:
    """The payload of a client's second request on a connection, with a header for version 0: correlation id 2, then this."""
    return struct.pack(">i", 2) + raw


GARBAGE: dict[str, Any] = {
    "nothing": b"",
    "another correlation id": struct.pack(">i", 999) + bytes(40),
    "zeros": bytes(200),
    "ones": b"\xff" * 200,
    "a body cut short": correlated(b"\0\0\0\0"),
    "a long array without elements": correlated(b"\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff\x0f"),
    "bad UTF-8": correlated(b"\0\0\0\0\0\x02" + struct.pack(">i", 1) + b"\x03\xff\xfe" + bytes(30)),
    "random": lambda _body, _version: correlated(os.urandom(300)),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_broker_that_sends_garbage_is_an_error_that_names_it_and_no_hang(cluster: ScriptedCluster, garbage: Any) -> None:
    (broker,) = cluster.add(1)
    broker.on(META, garbage)
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(TimedOut, match=rf"{broker.address} sent an invalid response"):
        admin.describe_cluster(timeout_ms=900)


UNDECODABLE = {
    "IndexError": bytes.fromhex("0000ff05ff0205808003"),
    "AssertionError": bytes.fromhex(
        "000001020200054f80008003ff0101055b03803f96010180028093ff01ff0005030580020300800505886dbcff0202ff03a1ff020501020305ff000303ff"
    ),
}
"""ApiVersions responses, version 4, by the exception of kafka-python's decoder, which its connection does not expect."""


@pytest.mark.parametrize("body", UNDECODABLE.values(), ids=UNDECODABLE)
def test_an_api_versions_response_that_kafka_pythons_decoder_does_not_expect_closes_the_connection(
    cluster: ScriptedCluster, body: bytes
) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.API_VERSIONS, struct.pack(">i", 1) + body, broker._api_versions)
    with AdminClient(cluster.bootstrap) as admin:
        begun = time.monotonic()
        assert admin.describe_cluster(timeout_ms=10_000).cluster_id == "scripted"
        assert time.monotonic() - begun < 4, "the next attempt does not wait for the end of the first"


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_instead_of_api_versions_is_an_error_and_no_hang(cluster: ScriptedCluster, garbage: Any) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.API_VERSIONS, garbage if garbage is not GARBAGE["random"] else struct.pack(">i", 1) + bytes(3) + b"\xff" * 90)
    with AdminClient(cluster.bootstrap) as admin:
        begun = time.monotonic()
        with pytest.raises(TimedOut, match=rf"{broker.address} sent an invalid response"):
            admin.describe_cluster(timeout_ms=500)
        assert time.monotonic() - begun < 5
    assert broker.connections > 1, "it is tried again, on a new connection"


def test_garbage_of_the_controller_is_raised_at_once(cluster: ScriptedCluster) -> None:
    """A request that changes something is not sent again to a broker that does not speak the protocol."""
    (broker,) = cluster.add(1)
    broker.on(ApiKey.ELECT_LEADERS, b"\0\0")
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(BadResponse) as caught:
        admin.elect_preferred_leaders()
    assert isinstance(caught.value, kafka.errors.KafkaProtocolError)
    assert len(broker.bodies(ApiKey.ELECT_LEADERS)) == 1


def test_a_server_that_speaks_another_protocol_is_an_error_that_says_so() -> None:
    listener = silent_port()

    def talk() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(100)

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        with AdminClient(f"127.0.0.1:{listener.getsockname()[1]}") as admin, pytest.raises(TimedOut, match="begins like HTTP: is this"):
            admin.describe_cluster(timeout_ms=300)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_connections_are_used_again_and_calls_of_several_threads_do_not_wait_for_each_other(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    entered, leave = threading.Event(), threading.Event()

    def slow(body: object, version: int) -> object:
        entered.set()
        assert leave.wait(20)
        return elected()(body, version)

    broker.on(ApiKey.ELECT_LEADERS, slow)
    with AdminClient(cluster.bootstrap) as admin:
        for _ in range(5):
            admin.describe_cluster()
        assert broker.connections == 1
        election = threading.Thread(target=lambda: admin.elect_preferred_leaders([("a", 0)]).all())
        election.start()
        assert entered.wait(20)
        assert admin.describe_cluster().cluster_id == "scripted"
        assert election.is_alive()
        leave.set()
        election.join(20)
        assert broker.connections == 2


def test_a_connection_that_was_closed_while_idle_is_replaced(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(DIRS, messages.DescribeLogDirsResponse())
    with AdminClient(cluster.bootstrap) as admin:
        for _ in range(3):
            assert admin.describe_log_dirs([1]).errors == {}
            broker.cut()


def test_a_request_whose_connection_closes_is_sent_again_on_a_new_one(cluster: ScriptedCluster) -> None:
    """Connections that were idle meanwhile are not used: what closed one may have closed them all."""
    (broker,) = cluster.add(1)
    waiting = threading.Barrier(3, timeout=20)

    def together(_body: object, _version: int) -> object:
        waiting.wait()
        return messages.DescribeLogDirsResponse()

    broker.on(DIRS, together)
    with AdminClient(cluster.bootstrap) as admin:
        others = [threading.Thread(target=lambda: admin.describe_log_dirs([1]).all()) for _ in range(3)]
        for other in others:
            other.start()
        for other in others:
            other.join(20)
        before = broker.connections
        assert before >= 3
        broker.on(DIRS, CLOSE, messages.DescribeLogDirsResponse())
        assert admin.describe_log_dirs([1]).errors == {}
        assert broker.connections == before + 1, "one new connection, for Metadata and for the request after it"
    assert len(broker.bodies(DIRS)) == 5


def test_a_time_out_closes_its_connection_and_no_other(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(DIRS, HANG, messages.DescribeLogDirsResponse())
    with AdminClient(cluster.bootstrap) as admin:
        assert isinstance(admin.describe_log_dirs([1], timeout_ms=300).errors[1], TimedOut)
        assert admin.describe_log_dirs([1]).errors == {}


def broker_dirs(path: str) -> Any:
    response = messages.DescribeLogDirsResponse
    return response(results=[response.DescribeLogDirsResult(log_dir=path, total_bytes=10, usable_bytes=4)])


def test_each_broker_is_sent_its_own_request_and_a_bad_one_spoils_only_its_own_result(cluster: ScriptedCluster) -> None:
    brokers = cluster.add(1, 2, 3, 4)
    for broker in brokers:
        broker.on(DIRS, broker_dirs(f"/{broker.id}"))
    brokers[1].on(DIRS, HANG)
    brokers[2].on(DIRS, messages.DescribeLogDirsResponse(error_code=31))
    with AdminClient(brokers[0].address) as admin:
        begun = time.monotonic()
        described = admin.describe_log_dirs([4, 3, 2, 1, 9], timeout_ms=800)
        assert time.monotonic() - begun < 5
    assert {broker: list(dirs) for broker, dirs in described.found.items()} == {1: ["/1"], 4: ["/4"]}
    assert isinstance(described.errors[2], TimedOut)
    assert {broker: error.code for broker, error in described.errors.items() if broker != 2} == {
        3: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        9: ErrorCode.BROKER_NOT_AVAILABLE,
    }
    with pytest.raises(kafka.errors.BrokerNotAvailableError):
        _ = described[9]
    with pytest.raises(KeyError):
        _ = described[7]


def test_a_broker_that_is_listed_but_gone_is_an_error_at_once(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    one.on(DIRS, broker_dirs("/1"))
    two.stop_listening()
    with AdminClient(one.address) as admin:
        begun = time.monotonic()
        described = admin.describe_log_dirs()
        assert time.monotonic() - begun < 5
    assert isinstance(described.errors[2], Disconnected)
    assert list(described.found) == [1]


def test_configs_of_a_broker_go_to_it_and_all_others_to_any_in_one_request(cluster: ScriptedCluster) -> None:
    brokers = cluster.add(1, 2)

    def altered(body: Any, _version: int) -> Any:
        response = messages.IncrementalAlterConfigsResponse
        return response(
            responses=[
                response.AlterConfigsResourceResponse(resource_type=one.resource_type, resource_name=one.resource_name)
                for one in body.resources
            ]
        )

    for broker in brokers:
        broker.on(ApiKey.INCREMENTAL_ALTER_CONFIGS, altered)
    kinds = ResourceType
    resources = [
        ConfigResource(kinds.BROKER, "2"), ConfigResource(kinds.TOPIC, "t"), ConfigResource(kinds.BROKER, ""),
        ConfigResource(kinds.BROKER_LOGGER, "2"), ConfigResource(kinds.BROKER, "8"),
    ]
    with AdminClient(brokers[0].address) as admin:
        outcomes = admin.incremental_alter_configs({key: [ConfigChange("a", "1")] for key in resources}).values()
    assert list(outcomes) == resources
    assert [error.code for error in outcomes.values() if error is not None] == [ErrorCode.BROKER_NOT_AVAILABLE]
    assert requested(brokers[1]) == [[(4, "2"), (8, "2")]]
    assert requested(brokers[0]) == [[(2, "t"), (4, "")]]


def requested(broker: ScriptedMember) -> list[list[tuple[int, str]]]:
    bodies = broker.bodies(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    return [[(one.resource_type, one.resource_name) for one in body.resources] for body in bodies]


def test_brokers_and_racks_are_described_and_a_missing_controller_is_none(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(3, 1)
    with AdminClient(cluster.bootstrap) as admin:
        described = admin.describe_cluster()
        cluster.controller_id = -1
        without = admin.describe_cluster()
    assert described.brokers == (Broker(1, "127.0.0.1", two.port), Broker(3, "127.0.0.1", one.port))
    assert described.controller == described.brokers[1]
    assert without.controller is None


def test_topics_named_to_an_old_broker_are_not_created(cluster: ScriptedCluster) -> None:
    """Metadata before version 4 creates what it names; so nothing is named."""
    (broker,) = cluster.add(1)
    broker.versions = shipped(METADATA=(0, 3), API_VERSIONS=(0, 1))
    cluster.topics = {"a": {1: [2, 1], 0: [1, 2]}, "b": {0: [1]}}
    with AdminClient(cluster.bootstrap) as admin:
        described = admin.describe_topics(["a", "nope"])
    assert [p.replicas for p in described["a"].partitions] == [(1, 2), (2, 1)]
    assert list(described.found) == ["a"]
    assert described.errors["nope"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.bodies(META)[-1].topics is None


def test_a_broker_before_kafka_0_10_is_unsupported(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.versions = shipped(METADATA=(0, 0))
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(kafka.errors.UnsupportedVersionError, match=r"older than Kafka 0\.10"):
        admin.describe_cluster()


def test_supports_is_of_the_controller_and_of_versions_that_both_know(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    two.versions = shipped(ELECT_LEADERS=None, DESCRIBE_LOG_DIRS=(9, 10))
    with AdminClient(cluster.bootstrap) as admin:
        assert [admin.supports(key) for key in (43, 35, 1790, 52, 12345)] == [True, True, False, False, False]
        cluster.controller_id = 2
        admin.describe_cluster()
        assert [admin.supports(key) for key in (43, 35)] == [False, False]
    assert one.keys() | two.keys() == {ApiKey.API_VERSIONS, META}


async def test_a_time_out_closes_the_idle_connections_to_its_address_too(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    together = threading.Barrier(3)

    def wait(body: Any, version: int) -> Any:
        together.wait(20)
        return messages.DescribeLogDirsResponse()

    broker.on(DIRS, wait, wait, wait, HANG)
    async with AsyncAdminClient(cluster.bootstrap) as admin:
        await asyncio.gather(*[admin.describe_log_dirs([1]) for _ in range(3)])
        assert len(broker._open) >= 3
        assert isinstance((await admin.describe_log_dirs([1], timeout_ms=300)).errors[1], TimedOut)
        await eventually(lambda: len(broker._open) == 1, "only the broker that hangs has its connection")


def test_the_response_to_an_earlier_request_is_an_error(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)

    def to_an_earlier_one(body: Any, version: int) -> bytes:
        response = messages.encode(messages.DescribeLogDirsResponse(), version)
        return messages.encode_response(DIRS, version, 0, response)[4:]

    broker.on(DIRS, to_an_earlier_one, messages.DescribeLogDirsResponse())
    with AdminClient(cluster.bootstrap) as admin:
        assert isinstance(admin.describe_log_dirs([1]).errors[1], BadResponse)
        assert admin.describe_log_dirs([1]).errors == {}, "over a new connection"
