"""ReassignPartitions and the two requests for throttles over the wire: who is refused, what time-outs answer, what clients read back."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.controller.phases import BrokerThrottlesSet, ReassignmentEpochRaised, ReassignmentsRecorded, ThrottledTopicsRecorded
from klamm.protocol import messages
from klamm.protocol.apis import ADMIN_SOFTWARE, BROKER_SOFTWARE
from klamm.protocol.errors import ErrorCode
from klamm.server.broker_server import BrokerServer
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.client import Client, ConnectionClosed
from klamm.tests.harness.waits import eventually, eventually_asked
from klamm.tests.server.apis.throttle_changes import move, set_rates, set_replicas
from klamm.tests.server.brokers import request
from klamm.tests.server.registered_brokers import split
from klamm.tests.services import DenyAll, make_services, respond

MAX = 2**63 - 1
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
NONE = (None, None)
SLOW = "less than 1 KB/s; the reassignment may never end."
Key = tuple[str, int]


def codes(response: Any) -> dict[Any, int]:
    """Codes by partition or broker; each is there once, with a text exactly where there is an error of its own."""
    if hasattr(response, "brokers"):
        rows = [(row.broker_id, row) for row in response.brokers]
    else:
        rows = [((topic.name, row.partition_id), row) for topic in response.topics for row in topic.partitions]
    assert len(dict(rows)) == len(rows)
    assert not any(row.error_message for _, row in rows if row.error_code == 0 and not (row.error_message or "").endswith(SLOW))
    return {key: row.error_code for key, row in rows}


REQUESTS = [
    (move([("t", 0, [2]), ("t", 1, [2]), ("u", 0, [2])]), 0),
    (set_rates([(1, 2, 3), (2, 3, 4), (9, 0, 0)]), 0),
    (set_replicas([("t", 0, [1]), ("t", 1, [1]), ("u", 0, [1])]), 0),
    (set_replicas([("t", 0, ([1], None)), ("t", 1, ([], [])), ("u", 0, (None, [1]))]), 1),
]
by_request = pytest.mark.parametrize(("message", "version"), REQUESTS, ids=["1790", "1791", "1792 v0", "1792 v1"])


# --- the handlers alone ---


@pytest.mark.requirement("R179-1", "R179-13", "R179-19")
@by_request
async def test_a_broker_that_is_not_the_controller_answers_so_for_each_entry(message: Any, version: int) -> None:
    found = codes(await respond(make_services(), message, version))
    assert len(found) == 3 and set(found.values()) == {ErrorCode.NOT_CONTROLLER}


@pytest.mark.requirement("R179-1", "R179-13", "R179-19")
@by_request
async def test_alter_on_the_cluster_is_needed(message: Any, version: int) -> None:
    authorizer = DenyAll()
    response = await respond(make_services(authorizer=authorizer), message, version)
    found = codes(response)
    rows = response.brokers if hasattr(response, "brokers") else [row for topic in response.topics for row in topic.partitions]
    assert {row.error_message for row in rows} == {"User:ANONYMOUS needs ALTER on the cluster"}
    assert len(found) == 3 and set(found.values()) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert [(operation.name, resource.type.name) for operation, resource in authorizer.checked] == [("ALTER", "CLUSTER")]


# --- a cluster ---


@pytest.fixture
async def cluster(zookeeper: str, chroot: str) -> AsyncIterator[LocalCluster]:
    one = LocalCluster(3, zookeeper=zookeeper + chroot, config={"auto.leader.rebalance.enable": "false"}, topics=[SeedTopic("t", 3, 2)])
    await one.start()
    yield one
    await one.stop()


def key_of(message: Any) -> int:
    return next(api.key for api in messages.APIS.values() if f"{api.name}Request" == type(message).__name__)


async def send(cluster: LocalCluster, message: Any, version: int = 0) -> dict[Any, int]:
    """Ask the controller; the codes."""
    return codes(await request(split(cluster)[0], key_of(message), version, message))


async def described(broker: BrokerServer, kind: int, name: str, keys: tuple[str, str]) -> tuple[Any, Any]:
    """Values of two configs, as DescribeConfigs shows them."""
    request_type = messages.DescribeConfigsRequest
    resource = request_type.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys))
    response = await request(broker, 32, 4, request_type(resources=[resource], include_synonyms=False, include_documentation=False))
    (result,) = response.results
    values = {row.name: row.value for row in result.configs if row.config_source in (1, 2)}
    return values.get(keys[0]), values.get(keys[1])


def replicas_of(cluster: LocalCluster, topic: str, index: int) -> list[int]:
    term = split(cluster)[0].controller.term
    assert term is not None
    return list(term.cluster.topics[topic].partitions[index].assignment.replicas)


def targets(cluster: LocalCluster) -> tuple[list[int], list[int]]:
    """Of t-0: its replicas, and a list that replaces the second one by the broker that has none."""
    first, second = replicas_of(cluster, "t", 0)
    return [first, second], [first, ({1, 2, 3} - {first, second}).pop()]


@pytest.mark.requirement("R179-36", "R179-24")
async def test_rates_and_lists_are_read_back_while_data_moves_and_go_with_the_reassignment(cluster: LocalCluster) -> None:
    (before, after), (controller, _) = targets(cluster), split(cluster)
    hold = cluster.steering.hold(ReassignmentEpochRaised)
    assert await send(cluster, move([("t", 0, after)], throttle=7777)) == {("t", 0): 0}
    await hold.reached()
    pairs = ",".join(sorted(f"0:{b}" for b in before))
    for broker in cluster.brokers:
        async def shown(broker: BrokerServer = broker) -> bool:
            return await described(broker, 4, str(broker.id), RATES) == ("7777", "7777")
        await eventually_asked(shown, "rates are shown")
        assert await described(broker, 2, "t", LISTS) == (pairs, f"0:{after[1]}")
    hold.release()
    await eventually(lambda: replicas_of(cluster, "t", 0) == after, "the partition is moved")
    for broker in cluster.brokers:
        async def gone(broker: BrokerServer = broker) -> bool:
            return await described(broker, 4, str(broker.id), RATES) == NONE
        await eventually_asked(gone, "rates are gone")
    assert await described(controller, 2, "t", LISTS) == NONE


@pytest.mark.requirement("R179-17")
async def test_rates_of_a_request_without_remove_throttle_stay_after_a_reassignment(cluster: LocalCluster) -> None:
    (_, after), (controller, _) = targets(cluster), split(cluster)
    assert await send(cluster, set_rates([(b, 70_000_000, 80_000_000) for b in (1, 2, 3)], remove_throttle=False)) == {1: 0, 2: 0, 3: 0}
    assert await controller.zk.exists("/admin/throttled_rates_removal") is None
    assert await send(cluster, move([("t", 0, after)], throttle=MAX)) == {("t", 0): 0}
    await eventually(lambda: replicas_of(cluster, "t", 0) == after, "the partition is moved")
    await eventually(lambda: controller.is_idle, "whatever follows is done")
    for broker in cluster.brokers:
        async def shown(broker: BrokerServer = broker) -> bool:
            return await described(broker, 4, str(broker.id), RATES) == ("70000000", "80000000")
        await eventually_asked(shown, "rates are shown")
        properties = await controller.admin_zk.read_config("brokers", str(broker.id))
        assert properties == dict(zip(RATES, ("70000000", "80000000"), strict=True))


@pytest.mark.requirement("R179-10")
async def test_what_is_not_recorded_in_time_is_timed_out_and_the_work_goes_on(cluster: LocalCluster) -> None:
    _, after = targets(cluster)
    hold = cluster.steering.hold(ThrottledTopicsRecorded)
    asked = move([("t", 0, after), ("t", 1, [1, 1]), ("t", 2, [99]), ("t", 9, [1])], timeout_ms=300)
    timed_out, bad, unknown = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await send(cluster, asked) == {("t", 0): timed_out, ("t", 1): bad, ("t", 2): bad, ("t", 9): unknown}
    behind = await send(cluster, set_rates([(1, 5, 6), (99, 1, 1)], timeout_ms=0))
    assert behind == {1: timed_out, 99: timed_out}, "nobody has looked at it"
    hold.release()
    await eventually(lambda: replicas_of(cluster, "t", 0) == after, "the partition is moved")


@pytest.mark.requirement("R179-10")
async def test_requests_for_throttles_time_out_too(cluster: LocalCluster) -> None:
    hold = cluster.steering.hold(BrokerThrottlesSet)
    assert await send(cluster, set_rates([(1, 5, 6), (99, 1, 1)], timeout_ms=200)) == {1: 7, 99: ErrorCode.BROKER_NOT_AVAILABLE}
    assert await send(cluster, set_replicas([("t", 0, [1])], timeout_ms=-1)) == {("t", 0): 7}
    hold.release()
    await eventually_asked(lambda: shows(cluster, 4, "1", RATES, ("5", "6")), "the throttle is shown")
    await eventually_asked(lambda: shows(cluster, 2, "t", LISTS, ("0:1", "0:1")), "the throttle is shown")


async def shows(cluster: LocalCluster, kind: int, name: str, keys: tuple[str, str], wanted: tuple[Any, Any]) -> bool:
    broker = next(node for node in cluster.brokers if kind == 2 or str(node.id) == name)
    return await described(broker, kind, name, keys) == wanted


@pytest.mark.requirement("R179-1")
async def test_whoever_waits_learns_that_the_controller_lost_its_term(cluster: LocalCluster) -> None:
    _, after = targets(cluster)
    hold = cluster.steering.hold(ReassignmentsRecorded)
    asking = asyncio.ensure_future(send(cluster, move([("t", 0, after), ("t", 9, [1])])))
    await hold.reached()
    controller = split(cluster)[0]
    await controller.controller.expire()
    assert await asking == {("t", 0): ErrorCode.NOT_CONTROLLER, ("t", 9): ErrorCode.NOT_CONTROLLER}
    hold.release()


@pytest.mark.requirement("R179-5")
@pytest.mark.parametrize("validate_only", [False, True])
async def test_the_response_says_that_a_throttle_below_1_kilobyte_per_second_is_slow(cluster: LocalCluster, validate_only: bool) -> None:
    _, after = targets(cluster)
    controller, _ = split(cluster)
    slow = f"The throttle is 500 B/s, {SLOW}"
    asked = move([("t", 0, after), ("nope", 0, [1])], throttle=500, validate_only=validate_only)
    moved = await request(controller, 1790, 0, asked)
    rows = [(row.error_code, row.error_message) for topic in moved.topics for row in topic.partitions]
    assert rows == [(0, slow), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")]
    rates = set_rates([(1, 500, 5000), (2, 1024, 1024), (99, 1, 1)], validate_only=validate_only)
    changed = await request(controller, 1791, 0, rates)
    assert [(row.error_code, row.error_message) for row in changed.brokers][:2] == [(0, slow), (0, None)]
    assert changed.brokers[2].error_code == ErrorCode.BROKER_NOT_AVAILABLE
    await send(cluster, set_rates([(b, 70_000_000, 70_000_000) for b in (1, 2, 3)]))  # what was begun ends


@pytest.mark.requirement("R179-13", "R179-21", "R179-3")
async def test_what_is_named_twice_is_refused_and_reported_once(cluster: LocalCluster) -> None:
    _, after = targets(cluster)
    invalid = ErrorCode.INVALID_REQUEST
    assert await send(cluster, set_rates([(1, 5, 6), (2, 7, 8), (1, 5, 6)])) == {1: invalid, 2: 0}
    assert await send(cluster, set_rates([(2, 5, 6), (2, 7, 8)])) == {2: invalid}
    await eventually_asked(lambda: shows(cluster, 4, "2", RATES, ("7", "8")), "the throttle is shown")
    assert await send(cluster, set_replicas([("t", 0, [1]), ("t", 1, [2]), ("t", 0, [1])])) == {("t", 0): invalid, ("t", 1): 0}
    lists = [("t", 0, ([1], None)), ("t", 1, ([], [3, 2])), ("t", 2, (None, []))]
    assert set((await send(cluster, set_replicas(lists), 1)).values()) == {0}
    await eventually_asked(lambda: shows(cluster, 2, "t", LISTS, ("0:1,2:1,2:2,2:3", "0:1,0:2,0:3,1:2,1:3")), "the throttle is shown")
    assert await send(cluster, move([("t", 0, after), ("t", 0, after)], throttle=MAX)) == {("t", 0): invalid}


async def test_the_bytes_are_those_of_the_specification(cluster: LocalCluster) -> None:
    """Field order of 22.2 to 22.4, request header 1, response header 0."""
    controller = split(cluster)[0]
    client = Client(controller.advertised[0].host, controller.advertised[0].port)

    def string(text: str) -> bytes:
        return struct.pack(">h", len(text)) + text.encode()

    def header(key: int, version: int) -> bytes:
        return struct.pack(">hhi", key, version, 77) + string("test")

    one_unknown = struct.pack(">i", 1) + string("x") + struct.pack(">i", 1)
    tail = struct.pack(">ih", 5, 3)
    try:
        answer = await client.frame(header(1790, 0) + one_unknown + struct.pack(">iiiii?q?", 5, 2, 1, 2, 9000, False, 4096, True))
        assert answer.startswith(struct.pack(">ii", 77, 0) + one_unknown + tail)
        answer = await client.frame(header(1791, 0) + struct.pack(">iiqq", 1, 99, 1, 2) + struct.pack(">?i?", True, 9000, False))
        assert answer.startswith(struct.pack(">iiih", 77, 1, 99, 8))
        flags = struct.pack(">?i?", True, 9000, False)
        answer = await client.frame(header(1792, 0) + one_unknown + struct.pack(">iii", 5, 1, 1) + flags)
        assert answer.startswith(struct.pack(">i", 77) + one_unknown + tail)
        answer = await client.frame(header(1792, 1) + one_unknown + struct.pack(">iii", 5, -1, 0) + flags)
        assert answer.startswith(struct.pack(">ii", 77, 0) + one_unknown + tail)
    finally:
        await client.close()


def only_even(topic: str, partition: int, replicas: Any) -> str | None:
    """A policy for tests: an odd partition stays where it is, and some break the policy itself."""
    if partition == 2:
        raise ValueError("a policy with a fault")
    return f"{topic}-{partition} stays" if partition == 1 else None


@pytest.mark.requirement("R179-6")
async def test_a_policy_refuses_partitions_that_pass_all_checks_and_others_move(zookeeper: str, chroot: str) -> None:
    config = {"kip179.policy.class.name": "python:klamm.tests.server.apis.test_throttle_requests:only_even"}
    cluster = LocalCluster(3, zookeeper=zookeeper + chroot, config=config, topics=[SeedTopic("t", 4, 2)])
    await cluster.start()
    try:
        before, (_, after) = replicas_of(cluster, "t", 1), targets(cluster)
        asked = [("t", 0, after), ("t", 1, after), ("t", 2, after), ("t", 3, [9]), ("t", 9, [1])]
        expected = {0: 0, 1: ErrorCode.POLICY_VIOLATION, 2: -1, 3: ErrorCode.INVALID_REPLICA_ASSIGNMENT, 9: 3}
        for validate_only in (True, False):
            answer = await request(split(cluster)[0], 1790, 0, move(asked, validate_only=validate_only))
            assert codes(answer) == {("t", p): code for p, code in expected.items()}
            assert answer.topics[0].partitions[1].error_message == "t-1 stays"
        await eventually(lambda: replicas_of(cluster, "t", 0) == after, "the partition is moved")
        assert replicas_of(cluster, "t", 1) == before
    finally:
        await cluster.stop()


@pytest.mark.parametrize("software", [ADMIN_SOFTWARE, BROKER_SOFTWARE])
async def test_the_three_keys_are_listed_to_clients_of_klamm(cluster: LocalCluster, software: str) -> None:
    asked = messages.ApiVersionsRequest(client_software_name=software, client_software_version="1")
    response = await request(split(cluster)[0], 18, 3, asked)
    offered = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert {key: offered.get(key) for key in (1790, 1791, 1792)} == {1790: (0, 0), 1791: (0, 0), 1792: (0, 1)}


async def test_the_three_keys_are_served_to_a_client_to_which_they_are_not_listed(cluster: LocalCluster) -> None:
    broker = split(cluster)[0]
    client = Client(broker.advertised[0].host, broker.advertised[0].port)
    asked = messages.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert not {row.api_key for row in (await client.ask(asked, 3)).api_keys} & {1790, 1791, 1792}
    for message, version in REQUESTS:
        await client.ask(message, version)
    await client.close()


async def test_where_kip_179_is_off_the_keys_are_unknown(zookeeper: str, chroot: str) -> None:
    cluster = LocalCluster(1, zookeeper=zookeeper + chroot, config={"kip179.enable": "off"})
    await cluster.start()
    try:
        broker = cluster.brokers[0]
        asked = messages.ApiVersionsRequest(client_software_name=ADMIN_SOFTWARE, client_software_version="1")
        response = await request(broker, 18, 3, asked)
        assert not {row.api_key for row in response.api_keys} & {1790, 1791, 1792}
        for message, version in REQUESTS:
            client = Client(broker.advertised[0].host, broker.advertised[0].port)
            with pytest.raises(ConnectionClosed):
                await client.ask(message, version)
    finally:
        await cluster.stop()
