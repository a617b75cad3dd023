"""Every phase of coordinators is held, stepped, failed and crashed once, in one cluster; the controllers' phases are tested beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, get_args

import pytest

import klamm
from klamm.broker.groups import phases as groups
from klamm.broker.groups.group import Group
from klamm.broker.transactions import phases as transactions
from klamm.broker.transactions.transaction import Transaction
from klamm.controller.phases import PHASES as CONTROLLER_PHASES
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.steering import failing
from klamm.server.broker_server import BrokerServer
from klamm.server.phases import PHASES, can_fail, error_named
from klamm.testing import BlockingCluster
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import request
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import WITHIN_S, wait_for
from klamm.tests.server.local.blocking_steering import Steered
from klamm.zk.session.steered_requests import ZooKeeperRead, ZooKeeperWrite

CONFIG = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "1",
}
FAULT = ErrorCode.UNKNOWN_SERVER_ERROR
NOT_NOW = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Client:
    """Sends requests of one group and one transactional id, both called `name`, to their coordinators."""

    def __init__(self, cluster: BlockingCluster, pool: ThreadPoolExecutor, name: str) -> None:
        self.cluster = cluster
        self.steered = Steered(cluster)
        self.name = name
        self.member_id = ""
        self.generation = 0
        self.producer = -1, -1
        self._pool = pool

    @property
    def brokers(self) -> list[BrokerServer]:
        return self.steered.brokers

    def group(self) -> Group:
        """The group in its coordinator's memory; AssertionError while nobody coordinates it."""
        for broker in self.brokers:
            try:
                found = broker.services.groups.group(self.name)
            except ApiError:
                continue
            assert found is not None
            return found
        raise AssertionError("no coordinator")

    def transaction(self) -> Transaction:
        """The same of the transactional id."""
        found = [each for broker in self.brokers for each in broker.services.transactions.transactions()]
        mine = [each for each in found if each.transactional_id == self.name]
        assert mine, "no coordinator"
        return mine[0]

    def coordinator(self, of: str) -> BrokerServer:
        for broker in self.brokers:
            parts: Any = broker.services.groups.partitions if of == "group" else broker.services.transactions.partitions
            try:
                parts.find(self.name)
            except ApiError:
                continue
            return broker
        raise AssertionError("no coordinator")

    def ask(self, of: str, message: Any, version: int) -> Any:
        port = wait_for(lambda: self.coordinator(of), "a coordinator").advertised[0].port
        return request(port, message, version)

    def later(self, work: Callable[[], Any]) -> Future[Any]:
        return self._pool.submit(work)

    # --- groups

    def join(self, session_ms: int = 60_000) -> int:
        protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")
        answer = self.ask("group", messages.JoinGroupRequest(
            group_id=self.name, session_timeout_ms=session_ms, rebalance_timeout_ms=60_000, member_id=self.member_id,
            protocol_type="consumer", protocols=[protocol],
        ), 3)
        if answer.error_code == 0:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return int(answer.error_code)

    def sync(self) -> int:
        row = messages.SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"mine")
        message = messages.SyncGroupRequest(
            group_id=self.name, generation_id=self.generation, member_id=self.member_id, assignments=[row]
        )
        return int(self.ask("group", message, 2).error_code)

    def leave(self) -> int:
        return int(self.ask("group", messages.LeaveGroupRequest(group_id=self.name, member_id=self.member_id), 2).error_code)

    def heartbeat(self) -> int:
        message = messages.HeartbeatRequest(group_id=self.name, generation_id=self.generation, member_id=self.member_id)
        return int(self.ask("group", message, 2).error_code)

    def commit(self, offset: int = 7) -> int:
        kind = messages.OffsetCommitRequest
        row = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topic = kind.OffsetCommitRequestTopic(name="t", partitions=[row])
        message = kind(
            group_id=self.name, generation_id_or_member_epoch=self.generation, member_id=self.member_id, topics=[topic]
        )
        return int(self.ask("group", message, 7).topics[0].partitions[0].error_code)

    def stable(self) -> None:
        assert (self.join(), self.sync()) == (0, 0) and self.generation == 1

    def rejoined(self) -> None:
        self.stable()
        assert self.join() == 0 and self.generation == 2

    # --- transactions

    def init(self, timeout_ms: int = 60_000) -> int:
        message = messages.InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
        )
        answer = self.ask("transaction", message, 4)
        while answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # the broker asks for producer ids
            answer = self.ask("transaction", message, 4)
        if answer.error_code == 0:
            self.producer = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def add(self, *indexes: int) -> int:
        kind = messages.AddPartitionsToTxnRequest
        topic = kind.AddPartitionsToTxnTopic(name="t", partitions=list(indexes))
        answer = self.ask("transaction", kind(
            v3_and_below_transactional_id=self.name, v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1], v3_and_below_topics=[topic],
        ), 3)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def end(self) -> int:
        producer_id, epoch = self.producer
        message = messages.EndTxnRequest(transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        return int(self.ask("transaction", message, 3).error_code)

    def began(self) -> None:
        assert (self.init(), self.add(0)) == (0, 0)

    def timed_out(self) -> int:
        """A transaction that is aborted after its time-out: 0 once that is so. The time-out is also how long appends may take."""
        wait_for(lambda: (self.init(100), self.add(0)) == (0, 0), "begun")
        wait_for(lambda: self.state() == "CompleteAbort", "aborted")
        return 0

    def state(self) -> str:
        return self.transaction().state.text

    def stored_group(self) -> tuple[int, int]:
        """(generation, members)."""
        group = self.group()
        return group.generation, len(group.members)


class Scene(NamedTuple):
    """How a coordinator comes to a phase: `act`, after `prepare`, which has the response `code`; it waits for the phase if `waits`.

    After a crash at the phase `look` gives `crashed`, in the next coordinator. `fails`: the response where the phase fails, None if it
    cannot. `key` is the field that names whose phase it is.
    """

    phase: type[Any]
    key: str
    act: Callable[[Client], int]
    look: Callable[[Client], object]
    crashed: object
    prepare: Callable[[Client], object] = lambda client: None
    code: int = 0
    waits: bool = True
    fails: int | None = FAULT.value




STORED = Client.stored_group
SCENES = [
    Scene(groups.GroupRebalanceBegun, "group", Client.join, STORED, (1, 1), Client.stable, fails=None),
    Scene(groups.GroupJoinCompleted, "group", Client.join, STORED, (1, 1), Client.stable),
    Scene(groups.GroupAssignmentReceived, "group", Client.sync, STORED, (1, 1), Client.rejoined),
    Scene(groups.GroupAssignmentStored, "group", Client.sync, STORED, (2, 1), Client.rejoined),
    Scene(groups.GroupMemberRemoved, "group", Client.leave, STORED, (1, 1), Client.stable, fails=None),
    Scene(groups.GroupEmptied, "group", Client.leave, STORED, (1, 1), Client.stable, fails=0),
    Scene(groups.OffsetsAppended, "group", Client.commit, lambda c: len(c.group().offsets.committed), 1, Client.stable),
    Scene(transactions.ProducerEpochStored, "transactional_id", Client.init, Client.state, "Empty"),
    Scene(transactions.TransactionBegun, "transactional_id", lambda c: c.add(0), Client.state, "Ongoing", Client.init),
    Scene(
        transactions.TransactionPartitionsAdded, "transactional_id", lambda c: c.add(1), lambda c: len(c.transaction().stored.partitions),
        2, Client.began,
    ),
    Scene(transactions.ProducerFenced, "transactional_id", Client.init, Client.state, "Ongoing", Client.began, code=51),
    Scene(transactions.TransactionEndPrepared, "transactional_id", Client.end, Client.state, "CompleteCommit", Client.began),
    Scene(
        transactions.TransactionMarkersWritten, "transactional_id", Client.end, Client.state, "CompleteCommit", Client.began, waits=False,
        fails=0,
    ),
    Scene(
        transactions.TransactionCompleted, "transactional_id", Client.end, Client.state, "CompleteCommit", Client.began, waits=False,
        fails=None,
    ),
    Scene(transactions.TransactionTimedOut, "transactional_id", Client.timed_out, Client.state, "CompleteAbort", fails=0),
]
scenes = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.phase.__name__)


def test_the_table_says_which_phases_cannot_fail() -> None:
    assert {scene.phase for scene in SCENES if scene.fails is None} == {scene.phase for scene in SCENES if not can_fail(scene.phase)}


def test_every_phase_is_tested() -> None:
    """Those of the controller in tests/controller/test_phases.py, of recoveries in tests/server/recoveries, and all writes here and in
    tests/zk/test_steered_requests.py."""
    elsewhere = {*CONTROLLER_PHASES.values(), *get_args(transactions.RecoveryPhase), ZooKeeperRead, ZooKeeperWrite}
    assert {scene.phase for scene in SCENES} == set(PHASES.values()) - elsewhere


@pytest.fixture(scope="module")
def cluster(zookeeper: str) -> Iterator[BlockingCluster]:
    with klamm.Cluster(brokers=3, config=CONFIG, topics=["t:2:3"], zookeeper=f"{zookeeper}/{unique_name('coordinators')}") as cluster:
        for kind in (0, 1):
            message = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
            port = cluster.addresses[0][2]

            def look(message: Any = message, port: int = port) -> bool:
                return bool(request(port, message, 4).coordinators[0].error_code == 0)

            wait_for(look, "the internal topic")
        yield cluster


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def client(cluster: BlockingCluster, pool: ThreadPoolExecutor) -> Iterator[Client]:
    yield Client(cluster, pool, unique_name("x"))
    Steered(cluster).release()


def others_go_on(client: Client) -> None:
    """Another group and another transactional id are not held."""
    other = Client(client.cluster, client._pool, f"other-{client.name}")
    other.stable()
    assert (other.commit(), other.leave(), other.init(), other.add(0), other.end()) == (0, 0, 0, 0, 0)


@scenes
def test_a_held_phase_goes_on_after_a_step_and_others_do_not_wait(client: Client, scene: Scene) -> None:
    scene.prepare(client)
    hold = client.steered.hold(scene.phase, where={scene.key: client.name}, count=1)
    acting = client.later(lambda: scene.act(client))
    phase = hold.reached(timeout_s=WITHIN_S)
    assert type(phase) is scene.phase and getattr(phase, scene.key) == client.name and hold.broker_ids == [phase.broker_id]
    others_go_on(client)
    if scene.waits:
        assert not acting.done()
    if scene.key == "group":
        assert client.heartbeat() in (0, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    hold.step()
    assert acting.result(30) == scene.code and hold.state == "released"


@scenes
def test_a_phase_fails_where_it_can(client: Client, scene: Scene) -> None:
    """The response has the error. Without one, the coordinator does it again, or nobody waits for it."""
    scene.prepare(client)
    hold = client.steered.hold(scene.phase, where={scene.key: client.name}, count=1)
    acting = client.later(lambda: scene.act(client))
    hold.reached(timeout_s=WITHIN_S)
    if scene.fails is None:
        with pytest.raises(ValueError, match=f"{scene.phase.__name__} cannot fail"):
            hold.fail(error_named(FAULT.name))
        hold.step()
        assert acting.result(30) == scene.code
        return
    hold.fail(error_named(FAULT.name if scene.fails else "NOT_ENOUGH_REPLICAS"))
    assert acting.result(30) == scene.fails
    if scene.phase is transactions.TransactionMarkersWritten:
        wait_for(lambda: client.state() == "CompleteCommit", "it is stored later")


@scenes
def test_a_crash_at_a_phase_leaves_what_is_stored_and_the_client_without_a_response(client: Client, scene: Scene) -> None:
    scene.prepare(client)
    hold = client.steered.hold(scene.phase, where={scene.key: client.name}, count=1)
    acting = client.later(lambda: scene.act(client))
    broker_id = hold.reached(timeout_s=WITHIN_S).broker_id
    client.steered.crash_broker(broker_id)
    assert hold.held == [] and hold.state == "released", "with the broker its phase is gone"
    if scene.waits and scene.phase is not transactions.TransactionTimedOut:
        with pytest.raises(OSError):
            acting.result(30)
    client.cluster.start_broker(broker_id)
    wait_for(lambda: scene.look(client) == scene.crashed, f"{scene.crashed} is stored")
    acting.exception(30)


@pytest.mark.parametrize(("when", "exists"), [("before", False), ("after", True)])
def test_a_crash_before_or_after_a_write_to_zookeeper(client: Client, when: str, exists: bool) -> None:
    """CreateTopics writes the topic znode; with the crash of its broker it has happened, or it has not."""
    path, creation = f"/brokers/topics/{client.name}", requests.create_topic(client.name, [[1, 2, 3]], timeout_ms=100)
    hold = client.steered.hold(ZooKeeperWrite, where={"paths": path, "when": when}, count=1)
    controller = client.cluster.controller_id
    port = next(port for broker_id, _, port in client.cluster.addresses if broker_id == controller)
    acting = client.later(lambda: request(port, creation, 7))
    write = hold.reached(timeout_s=WITHIN_S)
    assert write.broker_id == controller and path in write.paths and write.controller_epoch > 0
    client.steered.crash_broker(controller)
    assert isinstance(acting.exception(30), OSError) and hold.held == []
    client.cluster.start_broker(controller)
    assert all((client.name in broker.metadata.topics) is exists for broker in client.brokers)


def test_a_write_that_fails_is_repeated_so_that_the_topic_is_there(client: Client) -> None:
    lost = client.steered.hold(
        ZooKeeperWrite, where={"paths": f"/brokers/topics/{client.name}*"}, count=3, action=failing(lambda: error_named("ConnectionLost"))
    )
    port = next(port for broker_id, _, port in client.cluster.addresses if broker_id == client.cluster.controller_id)
    (row,) = request(port, requests.create_topic(client.name, [[1, 2, 3]]), 7).topics
    assert row.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS) and lost.state == "released" and lost.hits == 3
    wait_for(lambda: all(client.name in broker.metadata.topics for broker in client.brokers), "the topic is there")


def test_a_member_whose_session_expires_is_held_with_its_reason(client: Client) -> None:
    hold = client.steered.hold(groups.GroupMemberRemoved, where={"group": client.name, "reason": "expired"}, count=1)
    assert client.join(200) == 0 and client.sync() == 0
    phase = hold.reached(timeout_s=WITHIN_S)
    assert (phase.member_id, phase.reason, phase.generation) == (client.member_id, "expired", 1)
    assert client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    hold.step()
    wait_for(lambda: client.stored_group() == (2, 0), "the group is empty")


def test_phases_of_one_transaction_are_stepped_one_after_the_other(client: Client) -> None:
    """A transaction goes from phase to phase, and what it stored so far is there at each of them."""
    hold = client.steered.hold(*transactions.TransactionPhase.__args__, where={"transactional_id": client.name})

    def tell() -> int:
        assert (client.init(), client.add(0), client.add(1)) == (0, 0, 0)
        return client.end()

    telling = client.later(tell)
    states = []
    for _ in range(6):
        hold.reached(timeout_s=WITHIN_S)
        states.append((type(hold.step()).__name__, client.state()))
    assert telling.result(30) == 0
    assert [name for name, _ in states] == [
        "ProducerEpochStored", "TransactionBegun", "TransactionPartitionsAdded", "TransactionEndPrepared", "TransactionMarkersWritten",
        "TransactionCompleted",
    ]


def test_a_coordinator_that_moves_while_a_group_is_held_tells_the_client(client: Client) -> None:
    client.stable()
    hold = client.steered.hold(groups.GroupJoinCompleted, groups.OffsetsAppended, where={"group": client.name})
    joining = client.later(client.join)
    broker_id = hold.reached(timeout_s=WITHIN_S).broker_id
    client.cluster.stop_broker(broker_id)
    assert hold.held == []
    client.steered.release()
    client.cluster.start_broker(broker_id)
    try:
        assert joining.result(30) in (0, *NOT_NOW)
    except OSError:
        pass  # the broker was gone before the response
    wait_for(lambda: client.stored_group() == (1, 1), "what was stored")


def test_what_a_group_decides_while_it_is_held_waits_behind(client: Client) -> None:
    client.stable()
    hold = client.steered.hold(groups.OffsetsAppended, where={"group": client.name}, count=1)
    first = client.later(client.commit)
    hold.reached(timeout_s=WITHIN_S)
    second = client.later(lambda: client.commit(8))
    wait_for(lambda: client.group().offsets.is_unstable(TopicPartition("t", 0)), "the group wants it appended")
    others_go_on(client)
    assert not first.done() and not second.done()
    assert [each.commit.offset for each in client.group().offsets.committed.values()] == [7]
    hold.step()
    assert (first.result(30), second.result(30)) == (0, 0)


def test_an_append_that_is_held_is_not_made_when_its_only_replica_crashes(zookeeper: str, chroot: str, pool: ThreadPoolExecutor) -> None:
    config = CONFIG | {"offsets.topic.replication.factor": "1"}
    with klamm.Cluster(brokers=1, config=config, zookeeper=zookeeper + chroot) as cluster:
        client = Client(cluster, pool, "alone")
        find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["alone"])
        wait_for(lambda: request(cluster.addresses[0][2], find, 4).coordinators[0].error_code == 0, "the offsets topic")
        client.rejoined()
        hold = Steered(cluster).hold(groups.GroupAssignmentReceived)
        acting = client.later(client.sync)
        hold.reached(timeout_s=WITHIN_S)
        Steered(cluster).crash_broker(1)
        hold.release()
        cluster.start_broker(1)
        wait_for(lambda: client.stored_group() == (1, 1), "what was stored before")
        acting.exception(30)


def test_what_is_held_when_the_cluster_ends_goes_on_and_is_logged(
    zookeeper: str, chroot: str, caplog: pytest.LogCaptureFixture, pool: ThreadPoolExecutor
) -> None:
    with klamm.Cluster(brokers=1, zookeeper=zookeeper + chroot) as cluster:
        hold = Steered(cluster).hold(ZooKeeperWrite, where={"paths": "/brokers/topics/held*"}, count=1)
        port = cluster.addresses[0][2]
        acting = pool.submit(lambda: request(port, requests.create_topic("held", [[1]]), 7))
        phase = hold.reached(timeout_s=WITHIN_S)
        caplog.set_level(logging.WARNING)
    assert hold.state == "released" and hold.held == []
    assert [record.getMessage() for record in caplog.records if "is held" in record.getMessage()] == [
        f"broker 1 is held at {phase} until now; it goes on, since the cluster ends"
    ]
    acting.exception(30)
