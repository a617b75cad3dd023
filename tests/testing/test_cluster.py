"""The verbs and waits of `klamm.testing.Cluster`, from a thread without an event loop and on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import klamm.testing
from klamm.admin import AdminClient
from klamm.controller.phases import ReassignmentCaughtUp
from klamm.server.faults.fault import DiskHit
from klamm.testing import AsyncCluster, BlockingCluster, Refused, WaitTimedOut
from klamm.testing.fault import missed
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import wait_for

BOTH = [pytest.param(False, id="one-process"), pytest.param(True, id="processes", marks=pytest.mark.slow)]
"""Brokers in this process, and each in its own."""


@pytest.fixture(scope="module", params=BOTH)
def shared(zookeeper: str, request: pytest.FixtureRequest) -> Iterator[BlockingCluster]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    path = f"{zookeeper}/{unique_name('testing-cluster')}"
    with klamm.testing.Cluster(config=config, zookeeper=path, control_port=0, processes=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: BlockingCluster) -> Iterator[BlockingCluster]:
    """The shared cluster, as if it were new."""
    cluster = shared.again()
    yield cluster
    cluster.restore()


@pytest.fixture
def topic(cluster: BlockingCluster) -> str:
    return create(cluster, "orders")


def create(cluster: BlockingCluster, prefix: str) -> str:
    return cluster.create_topic(cluster.topic_name(prefix), replicas=[[1, 2, 3], [2, 3, 1]])


def send(cluster: BlockingCluster, topic: str, partition: int = 0, value: bytes = b"x") -> int:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="sender") as producer:
        return int(producer.send(topic, value, partition=partition).get(10).offset)


# --- faults


def test_a_fault_hits_the_first_requests_that_match_and_no_others(cluster: BlockingCluster, topic: str) -> None:
    fault = cluster.fault(api="Produce", topic=topic, partition=0, error="NOT_LEADER_OR_FOLLOWER", first=2)
    assert send(cluster, topic, 1) == 0
    assert fault.hits == 0
    assert send(cluster, topic, 0) == 0
    fault.wait(2)
    assert (fault.hits, fault.matches, len(fault.last)) == (2, 2, 2)
    assert [request.error for request in cluster.requests(api="Produce", error="any", topic=topic)] == ["NOT_LEADER_OR_FOLLOWER"] * 2
    errors = [request.error for request in cluster.requests(api="Produce", client_id="sender")]
    assert errors == [None, "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER", None]


def test_a_fault_is_gone_after_its_block_and_keeps_its_counts(cluster: BlockingCluster, topic: str) -> None:
    with cluster.fault(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", first=1) as fault:
        send(cluster, topic)
    fault.remove()
    send(cluster, topic)
    assert fault.hits == 1
    assert [each.number for each in cluster.faults] == [fault.number]


def test_the_wait_for_a_hit_says_what_is_there_instead(cluster: BlockingCluster, topic: str) -> None:
    fault = cluster.fault(api="Fetch", topic=topic, error="NOT_LEADER_OR_FOLLOWER", client_id="nobody")
    with pytest.raises(WaitTimedOut, match=r"not within 0\.05 s: 3 hits of fault \d+: api=Fetch client_id=nobody"):
        fault.wait(3, timeout_s=0.05)


def test_a_follower_with_a_slow_disk_falls_behind_and_its_leader_does_not_wait(cluster: BlockingCluster) -> None:
    name = cluster.create_topic(cluster.topic_name("slow"), replicas=[[1, 2]], config={"min.insync.replicas": 1})
    with cluster.fault(broker=2, topic=name, disk="append", slow_disk_ms=3_600_000) as fault:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks=1) as producer:
            producer.send(name, b"x").get(10)
        fault.wait()
        with pytest.raises(WaitTimedOut):
            cluster.wait_for_replicas(name, 0, 1, [2], timeout_s=0.05)
    cluster.wait_for_replicas(name, 0, 1)
    assert [(hit.broker, hit.operation, hit.topic) for hit in fault.last if isinstance(hit, DiskHit)] == [(2, "append", name)]


def test_reads_of_a_slow_disk_wait_each_for_itself(cluster: BlockingCluster, topic: str) -> None:
    send(cluster, topic, 0)
    send(cluster, topic, 1)
    with cluster.fault(topic=topic, partition=0, disk="read", slow_disk_ms=3_600_000) as fault:
        waiting, other = (KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") for _ in range(2))
        for consumer, partition in ((waiting, 0), (other, 1)):
            consumer.assign([TopicPartition(topic, partition)])
        while not fault.hits:
            assert waiting.poll(timeout_ms=50) == {}
        assert len(other.poll(timeout_ms=10_000)) == 1
    assert len(waiting.poll(timeout_ms=10_000)) == 1
    for consumer in (waiting, other):
        consumer.close()


def test_a_read_of_zookeeper_fails_and_is_repeated_so_that_the_topic_is_there(cluster: BlockingCluster) -> None:
    name = cluster.topic_name("read")
    failure = cluster.fail_at("ZooKeeperRead", paths=f"/brokers/topics/{name}*", when="before", count=1)
    cluster.create_topic(name, replicas=[[1]])
    failure.wait()
    assert (failure.hits, failure.state, failure.held) == (1, "released", [])


def test_a_delayed_phase_goes_on_when_the_clock_says_so(cluster: BlockingCluster) -> None:
    name = cluster.topic_name("late")
    delay = cluster.delay_at("ZooKeeperWrite", 20_000, paths=f"/brokers/topics/{name}", when="before", count=1)
    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(cluster.create_topic, name, replicas=[[1]])
        delay.wait()
        assert not creating.done() and len(delay.held) == 1
        cluster.advance(20.0)
        assert creating.result(30) == name


def test_a_link_between_brokers_is_cut_until_the_faults_are_removed(
    cluster: BlockingCluster, caplog: pytest.LogCaptureFixture
) -> None:
    name = cluster.create_topic(cluster.topic_name("linked"), replicas=[[1, 2]], config={"min.insync.replicas": 1})
    faults = cluster.cut_link(2, 1, both=False)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks=1) as producer:
        for _ in range(2):  # a fetch that waited at broker 1 before the link was cut may respond with the first record
            producer.send(name, b"x").get(10)
    with pytest.raises(WaitTimedOut):
        cluster.wait_for_replicas(name, 0, 2, [2], timeout_s=0.1)
    for fault in faults:
        fault.remove()
    cluster.wait_for_replicas(name, 0, 2, [1, 2])
    told = [record.getMessage() for record in caplog.records]
    assert not [each for each in told if "closes the connection" in each], "the fault is no news"
    assert len([each for each in told if each.startswith("cannot fetch from broker 1")]) <= 1


# --- holds and crashes


def test_a_reassignment_is_held_until_the_end_of_the_block(cluster: BlockingCluster) -> None:
    name = cluster.create_topic(cluster.topic_name("moved"), replicas=[[1, 2]])
    with AdminClient(cluster.bootstrap_servers) as admin:
        with cluster.hold("ReassignmentCaughtUp", topic=name) as hold:
            admin.reassign_partitions({(name, 0): [3, 2]}).all()
            phase = hold.wait()
            assert (type(phase), phase.topic, phase.partition) == (ReassignmentCaughtUp, name, 0)
            assert (hold.state, hold.hits, hold.broker_ids) == ("reached", 1, [cluster.controller_id])
            assert list(admin.list_partition_reassignments()) == [(name, 0)]
            with pytest.raises(WaitTimedOut, match="the end of the reassignment") as timed_out:
                cluster.wait_for_reassignment(name, timeout_s=0.05)
            assert "adding [3], removing [1]" in str(timed_out.value)
            assert "held at ReassignmentCaughtUp" in str(timed_out.value)
        cluster.wait_for_reassignment(name, 0)
        cluster.wait_for_isr(name, 0, {2, 3})


def test_what_is_held_goes_on_one_by_one(cluster: BlockingCluster) -> None:
    name = cluster.topic_name("held")
    hold = cluster.hold("ZooKeeperWrite", where={"paths": f"/brokers/topics/{name}", "when": "before"}, count=1)
    with ThreadPoolExecutor() as pool:
        made = pool.submit(cluster.create_topic, name)
        assert f"/brokers/topics/{name}" in hold.wait().paths
        assert hold.step().when == "before"
        assert made.result(30) == name
    assert hold.state == "released"
    with pytest.raises(Refused, match="it holds nothing now"):
        hold.step()


def test_a_write_fails_and_is_repeated(cluster: BlockingCluster) -> None:
    name = cluster.topic_name("repeated")
    hold = cluster.hold("ZooKeeperWrite", paths=f"/brokers/topics/{name}", when="before", count=1)
    with ThreadPoolExecutor() as pool:
        made = pool.submit(cluster.create_topic, name)
        hold.wait()
        hold.fail("ConnectionLost")
        assert made.result(30) == name


@pytest.mark.parametrize("crash", ["crash_before", "crash_after"])
def test_a_controller_that_dies_at_a_write_leaves_a_whole_topic_to_the_next_one(cluster: BlockingCluster, crash: str) -> None:
    name, before = cluster.topic_name("crashed"), cluster.controller_id
    hold = getattr(cluster, crash)(paths=f"/brokers/topics/{name}")
    cluster.create_topic(name, 2, 2)
    assert hold.wait() is None
    assert (hold.hits, hold.state) == (1, "released")
    assert before not in [broker for broker, _, _ in cluster.addresses]
    cluster.wait_for_controller(other_than=before)
    assert [row["leader"] >= 0 for row in cluster.topic(name)["partitions"]] == [True, True]


def test_a_broker_is_killed_and_started_while_the_controller_is_held(cluster: BlockingCluster) -> None:
    dead = next(number for number in (1, 2, 3) if number != cluster.controller_id)
    with cluster.hold("BrokersFailed") as hold:
        cluster.kill_broker(dead)
        assert hold.wait().broker_ids == (dead,)
        cluster.start_broker(dead)
        assert hold.state == "reached", "no step waits for what cannot come"


def test_the_broker_that_is_held_can_be_killed(cluster: BlockingCluster, topic: str) -> None:
    hold = cluster.hold("FailoverLoaded", count=1)
    with ThreadPoolExecutor() as pool:
        moved = pool.submit(cluster.expire_session, cluster.controller_id)
        hold.wait()
        dead = hold.crash()
        moved.result(30)
    assert cluster.wait_for_controller(other_than=dead) != dead
    assert cluster.wait_for_leader(topic, 0, other_than=dead) != dead
    with pytest.raises(WaitTimedOut, match=f"a leader other than 5 of {topic}-9 in the metadata"):
        cluster.wait_for_leader(topic, 9, other_than=5, timeout_s=0)


# --- requests, groups, clock


def test_requests_are_those_of_clients_since_the_test_began(cluster: BlockingCluster, topic: str) -> None:
    assert cluster.requests() == []
    send(cluster, topic)
    (request,) = cluster.wait_for_requests(1, api="Produce", client_id="sen*", topic=topic)
    assert (request.api, request.client_id, request.broker, request.error) == ("Produce", "sender", 1, None)
    assert request.request.topic_data[0].name == topic
    assert request.response.responses[0].partition_responses[0].base_offset == 0
    assert request.as_json()["response"]["responses"][0]["name"] == topic
    assert {each.client_id for each in cluster.requests()} == {"sender"}
    assert cluster.requests(after=request.number, api="Produce") == []
    assert cluster.again().requests() == []


def test_requests_of_brokers_and_controllers_are_not_those_of_clients(cluster: BlockingCluster, topic: str) -> None:
    cluster.kill_broker(cluster.controller_id)
    cluster.restore()
    cluster.wait_for_isr(topic, 0, [1, 2, 3], timeout_s=30)
    cluster.delete_topic(topic)
    assert cluster.requests() == []


def test_the_wait_for_requests_says_which_it_waited_for(cluster: BlockingCluster, topic: str) -> None:
    send(cluster, topic)
    assert len(cluster.wait_for_requests(1, api="Produce", topic=topic, timeout_s=0)) == 1
    with pytest.raises(WaitTimedOut) as timed_out:
        cluster.wait_for_requests(2, api="Produce", topic=topic, timeout_s=0)
    assert str(timed_out.value).startswith(f"not within 0 s: 2 requests with api=Produce, topic={topic}\n")
    assert "no client sent a request since the wait began" in str(timed_out.value)


def test_a_group_rebalances_and_loses_its_members(cluster: BlockingCluster, topic: str) -> None:
    group = cluster.topic_name("billing")
    with KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, heartbeat_interval_ms=100) as consumer:
        cluster.wait_until(lambda: consumer.poll(50) == {} and bool(consumer.assignment()), "the assignment", timeout_s=30)
        shown = cluster.wait_for_group(group, members=1)
        cluster.rebalance(group)
        cluster.wait_until(lambda: consumer.poll(50) == {} and cluster.group(group)["generation"] > shown["generation"], "a new generation")
        text = "\n".join(cluster.transcript())
        for step in ("rebalance begins", "all members have joined", "assignment comes", "assignment is stored"):
            assert f"* group {group}: {step} (generation " in text
        members = [each["member_id"] for each in cluster.group(group)["members"]]
        assert cluster.expire_members(group) == members
    cluster.wait_for_group(group, "Empty")
    assert f"* group {group}: member {members[0]} expired" in "\n".join(cluster.transcript())
    with pytest.raises(WaitTimedOut, match=r"no running broker has group none-such"):
        cluster.wait_for_group("none-such", timeout_s=0.05)


def test_steps_of_a_transaction_are_events(cluster: BlockingCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.commit_transaction(30)
    steps = ["producer is initialised", "begins", "is to end (commit", "markers are written (commit", "is complete (commit"]

    def told() -> list[str]:
        lines = [line for line in cluster.transcript() if f"* transaction {topic}: " in line]
        return [step for line in lines for step in steps if f": {step}" in line]

    cluster.wait_until(lambda: told() == steps, "all steps of the transaction")


def test_a_transaction_that_is_expired_is_aborted_and_its_producer_is_fenced(cluster: BlockingCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    with pytest.raises(Refused, match=f"transactional id '{topic}' is Empty: it has no transaction that can be aborted now"):
        cluster.expire_transaction(topic)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(10)
    assert [each["state"] for each in cluster.transactions() if each["transactional_id"] == topic] == ["Ongoing"]
    cluster.expire_transaction(topic)
    wait_for(lambda: cluster.transaction(topic)["state"] == "CompleteAbort", "the transaction is aborted")
    with pytest.raises(KafkaException) as failed:
        producer.commit_transaction(10)
    assert failed.value.args[0].fatal()
    with pytest.raises(Refused, match="no running broker has transactional id 'none-such'"):
        cluster.expire_transaction("none-such")


def test_the_controller_resigns_and_a_broker_waits_for_a_slow_zookeeper(cluster: BlockingCluster) -> None:
    before = cluster.controller_id
    office = cluster.resign_controller()
    assert office == cluster.wait_for_controller() != before
    cluster.delay_zookeeper(office, 200)
    begun = time.monotonic()
    name = cluster.create_topic(cluster.topic_name("slowly"))
    assert time.monotonic() - begun > 0.2
    cluster.delay_zookeeper(office, 0)
    assert name in [each["name"] for each in cluster.topics()]


def test_what_there_is_is_listed(cluster: BlockingCluster, topic: str) -> None:
    rows = {each["name"]: each["partitions"] for each in cluster.topics()}
    assert rows[topic] == 2
    assert [(each["id"], each["state"]) for each in cluster.brokers()] == [(1, "running"), (2, "running"), (3, "running")]
    assert {each["name"]: each["can_fail"] for each in cluster.phases()}["DeletionQueued"] is False
    with KafkaConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=topic, auto_offset_reset="earliest") as consumer:

        def is_listed() -> bool:
            consumer.poll(100)
            return topic in [each["group"] for each in cluster.groups()]

        wait_for(is_listed, "the group is listed")
    assert cluster.clock()["frozen"] is False


def test_time_passes_at_once(cluster: BlockingCluster) -> None:
    cluster.freeze_clock()
    assert "the clock is frozen" in cluster.describe()
    assert cluster.wait_until(lambda: cluster.advance(100) > 0)
    assert " s ahead" in cluster.describe()
    cluster.resume_clock()
    assert "frozen" not in cluster.describe()


# --- brokers


def test_what_a_test_stopped_runs_again_when_it_is_restored(cluster: BlockingCluster, topic: str) -> None:
    cluster.kill_broker(1)
    assert cluster.wait_for_leader(topic, 0) == 2
    cluster.stop_broker(2)
    cluster.pause_broker(3)
    cluster.hold("FailoverDone")
    cluster.fault(api="Produce", drop=True)
    cluster.restore()
    assert [broker for broker, _, _ in cluster.addresses] == [1, 2, 3]
    cluster.wait_for_isr(topic, 0, [1, 2, 3], timeout_s=30)
    assert send(cluster, topic) == 0


def test_a_topic_gets_partitions(cluster: BlockingCluster, topic: str) -> None:
    cluster.add_partitions(topic, 4, replicas=[[3, 1, 2], [1, 2, 3]])
    assert [row["replicas"] for row in cluster.topic(topic)["partitions"][2:]] == [[3, 1, 2], [1, 2, 3]]
    assert send(cluster, topic, 3) == 0
    assert cluster.requests(api="CreatePartitions") == []


def test_the_controller_moves(cluster: BlockingCluster) -> None:
    assert cluster.move_controller(2) == cluster.controller_id == 2
    assert cluster.move_controller() != 2
    with pytest.raises(WaitTimedOut, match="broker 9 as the controller"):
        cluster.wait_for_controller(9, timeout_s=0.05)


def test_a_wait_says_the_state_and_what_happened_since_it_began(cluster: BlockingCluster) -> None:
    topic = create(cluster, "a")  # the text lists the first twenty topics, in the order of their names
    cluster.wait_for_isr(topic, 0, [1, 2, 3])  # the clock of the cluster may have left followers behind, and one of them shall lead

    def is_never_so() -> bool:
        send(cluster, topic)
        cluster.stop_broker(1)
        return False

    with pytest.raises(WaitTimedOut) as timed_out:
        cluster.wait_until(is_never_so, "what is never so", timeout_s=0)
    first, *lines = str(timed_out.value).splitlines()
    assert (first, lines[0]) == ("not within 0 s: what is never so", "present state:")
    text = "\n".join(lines)
    assert f"topic {topic}: 2 partitions" in text
    assert f"Produce v9  sender  {topic}-0  ok" in text
    assert "broker 1: stopped" in text
    assert f" {topic}-0: leader 2" in text


def test_a_wait_for_a_leader_says_what_each_broker_shows(cluster: BlockingCluster, topic: str) -> None:
    with pytest.raises(WaitTimedOut) as timed_out:
        cluster.wait_for_leader(topic, 0, 2, timeout_s=0)
    text = str(timed_out.value)
    assert text.startswith(f"not within 0 s: leader 2 of {topic}-0 in the metadata of all brokers\n")
    assert "partition 0: leader 1, isr [1, 2, 3], replicas [1, 2, 3], leader epoch 0; broker 1 leader log end 0" in text


# --- arguments


BAD: list[tuple[Callable[[Any], Any], str]] = [
    (lambda c: c.fault(api="Produce", eror="X"), "a fault has no argument 'eror'; did you mean 'error'?"),
    (lambda c: c.fault(api="Prodoce", error="NOT_CONTROLLER"), "there is no API 'Prodoce'; did you mean Produce?"),
    (lambda c: c.fault(api="Produce", error="NOT_LEADER"), "there is no error 'NOT_LEADER'"),
    (lambda c: c.fault(api="Produce"), "the effect is empty"),
    (lambda c: c.fault(api="Produce", drop=True, close="amid"), "not drop and close"),
    (lambda c: c.fault(api="Produce", delay_ms="5"), "Expected `int`, got `str`"),
    (lambda c: c.fault(api="Produce", drop=True, first=0), "first: 1 or more"),
    (lambda c: c.fault(api="Heartbeat", topic="t", drop=True), "this filter cannot match"),
    (lambda c: c.fault(broker=7, drop=True), "there is no broker 7"),
    (lambda c: c.hold("ReassigmentCaughtUp"), "did you mean ReassignmentCaughtUp"),
    (lambda c: c.hold("ReassignmentCaughtUp", topik="t"), "has no field 'topik'; it has controller_epoch, topic, partition"),
    (lambda c: c.hold("ReassignmentCaughtUp", topic=5), "topic of ReassignmentCaughtUp is a string"),
    (lambda c: c.hold("ReassignmentCaughtUp", where={"topic": "a"}, topic="b"), "topic: given twice"),
    (lambda c: c.hold("ReassignmentCaughtUp", nth=0), "nth and count are at least 1"),
    (lambda c: c.crash_before("FailoverLoaded"), "crash_before needs a ZooKeeperWrite"),
    (lambda c: c.fail_at("DeletionPropagated", "RuntimeError"), "DeletionPropagated cannot fail"),
    (lambda c: c.fail_at("ZooKeeperRead", "ConectionLost"), "did you mean ConnectionLost"),
    (lambda c: c.delay_at("ZooKeeperRead", 0), "delay_ms: from 1 to"),
    (lambda c: c.crash_after("ZooKeeperWrite", when="before"), "when: crash_before and crash_after say it"),
    (lambda c: c.requests(client="me"), "requests are filtered by api, client_id"),
    (lambda c: c.requests(error="NOT_LEADER"), "did you mean NOT_LEADER_OR_FOLLOWER"),
    (lambda c: c.requests(broker=7), "there is no broker 7"),
    (lambda c: c.wait_for_requests(1, error="NOT_LEADER"), "did you mean NOT_LEADER_OR_FOLLOWER"),
    (lambda c: c.wait_for_requests(1, api="Nothing"), "there is no API 'Nothing'"),
    (lambda c: c.wait_for_group("g", "stable"), "'stable' is none of Empty"),
    (lambda c: c.wait_for_leader("t", 0, timeout_s=-1), "timeout_s: 0 or more"),
    (lambda c: c.wait_until(lambda: True, timeout_s=-1), "timeout_s: 0 or more"),
    (lambda c: c.kill_broker(9), "there is no broker 9"),
    (lambda c: c.start_broker(1), "broker 1 runs already"),
    (lambda c: c.resume_broker(1), "broker 1 is not paused"),
    (lambda c: c.advance(-1), "ms: from 0"),
    (lambda c: c.create_topic("a b"), "INVALID_TOPIC_EXCEPTION"),
    (lambda c: c.create_topic("t", 2, replicas=[[1]]), "leave the two numbers out"),
    (lambda c: c.add_partitions("none-such", 2), "UNKNOWN_TOPIC_OR_PARTITION"),
    (lambda c: c.add_partitions("none-such", "2"), "Expected `int`, got `str`"),
    (lambda c: c.delete_topic("none-such"), "UNKNOWN_TOPIC_OR_PARTITION"),
    (lambda c: c.topic("none-such"), "there is no topic 'none-such'"),
    (lambda c: c.group("none-such"), "no running broker has group 'none-such'"),
    (lambda c: c.cut_link(1, 1), "a link is between two brokers"),
]


@pytest.mark.parametrize(("call", "text"), BAD, ids=[text for _, text in BAD])
def test_a_wrong_argument_is_a_value_error_that_names_it(shared: BlockingCluster, call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(ValueError) as refused:
        call(shared)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_wait_for_a_topic_that_is_not_there_says_so(cluster: BlockingCluster) -> None:
    with pytest.raises(WaitTimedOut, match="there is no topic 'none-such'"):
        cluster.wait_for_leader("none-such", 0, timeout_s=0.05)


def test_the_http_interface_has_the_same_faults(cluster: BlockingCluster) -> None:
    from urllib.request import urlopen

    fault = cluster.fault(api="Heartbeat", drop=True)
    assert cluster.control_url is not None
    with urlopen(f"{cluster.control_url}/faults/{fault.number}") as response:
        assert b'"api": "Heartbeat"' in response.read()


# --- asyncio


@pytest.mark.parametrize("processes", BOTH)
async def test_on_an_event_loop_the_same_verbs_are_coroutines_where_they_wait(zookeeper: str, chroot: str, processes: bool) -> None:
    async with klamm.testing.Cluster(brokers=2, topics="orders:1:2", zookeeper=zookeeper + chroot, processes=processes) as cluster:
        assert isinstance(cluster, AsyncCluster)
        with cluster.fault(api="Produce", error="NOT_LEADER_OR_FOLLOWER", first=1) as fault:
            sending = asyncio.ensure_future(asyncio.to_thread(send, cluster, "orders"))  # type: ignore[arg-type]
            await fault.wait()
            assert await sending == 0
        await cluster.wait_for_high_watermark("orders", 0, 1)
        await cluster.wait_for_replicas("orders", 0, 1)
        assert [request.error for request in cluster.requests(api="Produce")] == ["NOT_LEADER_OR_FOLLOWER", None]
        crash = cluster.crash_after("ZooKeeperWrite", paths="/brokers/topics/late")
        await cluster.create_topic("late", 2, 1)
        await crash.wait()
        assert len(cluster.addresses) == 1

        async def is_there() -> bool:
            return (await cluster.topic("late"))["name"] == "late"

        assert await cluster.wait_until(is_there, "topic late")
        with pytest.raises(WaitTimedOut, match="what never is"):
            await cluster.wait_until(lambda: False, "what never is", timeout_s=0.05)
        await cluster.restore()
        assert [await cluster.wait_for_leader("orders", 0) in (1, 2), len(cluster.addresses)] == [True, 2]
        assert await cluster.add_broker({"broker.rack": "c"}) == 3
        await cluster.restart_broker(3)
        assert [(each["id"], each["rack"]) for each in await cluster.brokers()] == [(1, None), (2, None), (3, "c")]


def broker_processes() -> set[int]:
    return {child.pid for child in psutil.Process().children() if "klamm.cli.serving.owned_broker" in child.cmdline()}


@pytest.mark.slow
def test_brokers_in_processes_of_their_own_are_processes_and_leave_none_behind(zookeeper: str, chroot: str) -> None:
    of_others = broker_processes()  # the cluster that the tests of this module share may run
    with klamm.testing.Cluster(brokers=2, zookeeper=zookeeper + chroot, processes=True) as cluster:
        orders = cluster.create_topic("orders", replicas=[[1, 2]])
        assert cluster.control_url is None
        assert send(cluster, orders) == 0
        pids = broker_processes() - of_others
        assert len(pids) == 2
        cluster.kill_broker(1)
        assert [request.error for request in cluster.requests(api="Produce")] == [None], "what a process received is kept when it is killed"
        cluster.start_broker(1)
        cluster.wait_for_replicas(orders, 0, 1, [1, 2])
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_a_cluster_runs_again_but_not_twice_at_the_same_time(zookeeper: str, chroot: str) -> None:
    shape = klamm.testing.Cluster(brokers=1, zookeeper=zookeeper + chroot)
    with shape as first:
        address = first.bootstrap_servers
        hold = first.hold("ZooKeeperWrite", may_miss=True)
        with pytest.raises(RuntimeError, match="already running"):
            shape.__enter__()
    with shape as second:
        assert second.controller_id == 1
        assert address
    assert (hold.hits, hold.state) == (0, "released"), "what is known without a broker"
    for waits in (lambda: first.kill_broker(1), hold.wait, first.restore):
        with pytest.raises(RuntimeError, match="this cluster is not running"):
            waits()
    with pytest.raises(RuntimeError, match="not running"):
        shape.__exit__(None, None, None)


def test_arguments_are_checked_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="brokers: 0"):
        klamm.testing.Cluster(0)
    with pytest.raises(ValueError, match=r"config broker\.id"):
        klamm.testing.Cluster(config={"broker.id": 1})


# --- time and those who are alive


def consume_until_stable(cluster: BlockingCluster, group: str, topic: str, count: int) -> list[Consumer]:
    """Members with sessions of 30 s whose heartbeats come 20 times a second."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "heartbeat.interval.ms": 50, "session.timeout.ms": 30_000}
    members = [Consumer(config | {"client.id": f"member-{number}"}) for number in range(count)]
    for member in members:
        member.subscribe([topic])
    cluster.wait_until(
        lambda: [each.poll(0.02) for each in members] and cluster.topics() and len(stable_members(cluster, group)) == count, "all members"
    )
    return members


def stable_members(cluster: BlockingCluster, group: str) -> list[str]:
    shown = next((each for each in cluster.groups() if each["group"] == group), None)
    return [] if shown is None or shown["state"] != "Stable" else [each["member_id"] for each in shown["members"]]


def test_time_that_passes_in_steps_ends_no_session_of_a_member_that_is_alive(cluster: BlockingCluster, topic: str) -> None:
    group = cluster.topic_name("alive")
    members = consume_until_stable(cluster, group, topic, 2)
    generation = cluster.group(group)["generation"]
    cluster.advance(100, step=20)
    assert cluster.group(group)["generation"] == generation
    assert len(cluster.group(group)["members"]) == 2
    assert not [line for line in cluster.transcript() if "expired" in line]
    for member in members:
        member.close()


@pytest.mark.parametrize(("ms", "step"), [(1, 0), (10_000, 1e-3)])
def test_steps_of_time_that_are_none_or_too_many_are_refused(cluster: BlockingCluster, ms: float, step: float) -> None:
    with pytest.raises(Refused, match="step_ms"):
        cluster.advance(ms, step=step)


# --- what is to be said of faults and holds


def test_a_fault_whose_requests_all_passed_before_it_missed(cluster: BlockingCluster, topic: str) -> None:
    late = cluster.fault(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", after=1)
    send(cluster, topic)
    assert (late.matches, late.hits) == (1, 0)
    assert "it never hit" in str(missed(late))
    assert missed(cluster.cut_link(1, 2)[0]) is None


def test_a_crash_is_waited_for_until_its_broker_is_dead(cluster: BlockingCluster) -> None:
    name = cluster.topic_name("crashed")
    crash = cluster.crash_after("ZooKeeperWrite", paths=f"/brokers/topics/{name}")
    cluster.create_topic(name, replicas=[[1, 2, 3]])
    crash.wait()
    dead = [each["id"] for each in cluster.brokers() if each["state"] == "killed"]
    assert len(dead) == 1
    assert dead[0] not in [number for number, _, _ in cluster.addresses]


def test_topics_that_requests_named_come_before_those_whose_names_only_begin_alike(cluster: BlockingCluster) -> None:
    for name in ("0rank", "0rank5"):
        send(cluster, name)
    view = cluster.again()
    send(view, "0rank5")
    topics = [line.split()[1] for line in view.describe().splitlines() if line.startswith("topic 0rank")]
    assert topics == ["0rank5:", "0rank:"]
