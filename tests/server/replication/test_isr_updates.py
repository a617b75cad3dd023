"""ISR changes on their way: AlterPartition in the version both sides know, batches, retries, every error; the znode for older protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from klamm.broker.leadership import IsrProposal
from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.controller.values import LeaderAndIsr, StoreLost
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID, Endpoint, TopicPartition
from klamm.server.ground.background import BackgroundTasks
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.net.controller_requests import ControllerRequests
from klamm.server.replication.isr_updates import IsrUpdates
from klamm.server.replication.stored_isr_updates import StoredIsrUpdates
from klamm.tests.broker.replica_requests import EPOCH, ME, A, hosting, state, tell
from klamm.tests.broker.update_metadata import broker, update
from klamm.tests.harness.waits import eventually
from klamm.tests.server.scripted import ScriptedBroker

ALTER, VERSIONS = ApiKey.ALTER_PARTITION, ApiKey.API_VERSIONS
RESPONSE = messages.AlterPartitionResponse


class Rig:
    """Broker 1 leads t-0 and t-1 for replicas 1, 2, 3 with ISR [1, 2]; `controller` is the other end."""

    def __init__(self, controller: ScriptedBroker, topic_id: bytes = A, **more: Any) -> None:
        self.controller = controller
        self.known = True
        self.replicas: ReplicaManager = hosting()
        self.replicas.handle_update_metadata(update(brokers=[broker(1), broker(2), broker(3)]), EPOCH)
        self.background = BackgroundTasks()
        self.requests = ControllerRequests("1", self._find)
        self.replicas.leaders.isr_updates = IsrUpdates(
            BrokerIdentity(ME, "cluster", EPOCH), self.replicas.leaders, self.requests, self.background, 20
        )
        self.lead(0, 0, topic_id, **more)
        self.lead(1, 0, topic_id, **more)

    def _find(self) -> Endpoint | None:
        return Endpoint("PLAINTEXT", "127.0.0.1", self.controller.port, 0) if self.known else None

    def lead(self, index: int, leader_epoch: int, topic_id: bytes = A, **more: Any) -> None:
        fields: dict[str, Any] = {"isr": [1, 2], "replicas": [1, 2, 3], "partition_epoch": 5} | more
        assert tell(self.replicas, state(leader_epoch, index=index, **fields), topic_id=topic_id) == [0]

    def replica(self, index: int = 0) -> HostedPartition:
        replica = self.replicas.get("t", index)
        assert replica is not None
        return replica

    def join(self, index: int = 0) -> None:
        """Broker 3 fetches everything there is."""
        self.replicas.follower_fetched(self.replica(index), 3, -1, 0, 0)

    async def negotiate(self, newest: int = 3, at: int = 0) -> None:
        await self.controller.received(at + 1)
        assert self.controller.requests[at][1].api_key == VERSIONS
        self.controller.answer(at, api_keys=[messages.ApiVersionsResponse.ApiVersion(ALTER, 0, newest)])

    def respond(self, at: int, code: int = 0, isr: Iterable[int] = (1, 2, 3), epoch: int = 6, index: int = 0, **more: Any) -> None:
        header, request = self.controller.requests[at][1:]
        topic = request.topics[0]
        fields: dict[str, Any] = {"leader_id": 1, "leader_epoch": 0, "isr": list(isr), "partition_epoch": epoch} if code == 0 else {}
        row = RESPONSE.PartitionData(partition_index=index, error_code=code, **fields | more)
        data = RESPONSE.TopicData(topic_name=topic.topic_name, partitions=[row]) if header.api_version < 2 else RESPONSE.TopicData(
            topic_id=topic.topic_id, partitions=[row]
        )
        self.controller.answer(at, topics=[data])

    async def close(self) -> None:
        await self.background.close()
        await self.requests.close()


@pytest.fixture
async def controller() -> AsyncIterator[ScriptedBroker]:
    one = ScriptedBroker()
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
async def rig(controller: ScriptedBroker) -> AsyncIterator[Rig]:
    one = Rig(controller)
    yield one
    await one.close()


async def test_follower_that_has_everything_joins_by_alter_partition(rig: Rig) -> None:
    rig.join()
    await rig.negotiate()
    await rig.controller.received(2)
    _, header, request = rig.controller.requests[1]
    assert (header.api_key, header.api_version, header.client_id) == (ALTER, 3, "1")
    assert (request.broker_id, request.broker_epoch, [topic.topic_id for topic in request.topics]) == (1, EPOCH, [A])
    (row,) = request.topics[0].partitions
    assert (row.partition_index, row.leader_epoch, row.partition_epoch, row.leader_recovery_state) == (0, 0, 5, 0)
    assert [(member.broker_id, member.broker_epoch) for member in row.new_isr_with_epochs] == [(1, -1), (2, -1), (3, -1)]
    assert (rig.replica().isr, rig.replica().maximal_isr) == ((1, 2), (1, 2, 3)), "not confirmed yet"
    rig.respond(1)
    await eventually(lambda: rig.replica().isr == (1, 2, 3), "confirmed")
    assert (rig.replica().partition_epoch, rig.replica().maximal_isr) == (6, (1, 2, 3))


async def test_one_request_is_in_flight_and_the_next_one_takes_all_that_came_meanwhile(rig: Rig) -> None:
    rig.join(0)
    await rig.negotiate()
    await rig.controller.received(2)
    rig.join(1)
    rig.lead(2, 0)
    rig.join(2)
    await asyncio.sleep(0)
    assert len(rig.controller.requests) == 2
    rig.respond(1)
    await rig.controller.received(3)
    assert [row.partition_index for row in rig.controller.requests[2][2].topics[0].partitions] == [1, 2]


@pytest.mark.parametrize(("newest", "topic_id", "expected"), [(3, A, 3), (2, A, 2), (1, A, 1), (0, A, 0), (3, ZERO_UUID, 1)])
async def test_version_is_the_newest_that_both_know_and_at_most_1_without_topic_ids(
    controller: ScriptedBroker, newest: int, topic_id: bytes, expected: int
) -> None:
    rig = Rig(controller, topic_id)
    try:
        rig.join()
        await rig.negotiate(newest)
        await controller.received(2)
        _, header, request = controller.requests[1]
        assert header.api_version == expected
        assert request.topics[0].topic_name == ("t" if expected < 2 else "")
        (row,) = request.topics[0].partitions
        assert (list(row.new_isr), len(row.new_isr_with_epochs)) == (([], 3) if expected == 3 else ([1, 2, 3], 0))
        rig.respond(1)
        await eventually(lambda: rig.replica().isr == (1, 2, 3), "confirmed")
    finally:
        await rig.close()


@pytest.mark.requirement("R704-18")
async def test_older_controller_gets_version_0_and_the_leader_counts_as_recovered(controller: ScriptedBroker) -> None:
    rig = Rig(controller)
    try:
        rig.replicas.states.recover = lambda replica: rig.replicas.leaders.recovered(replica, replica.leader_epoch)
        rig.lead(0, 1, isr=[1], leader_recovery_state=1, partition_epoch=6)
        rig.replicas.apply([])
        assert rig.replica().is_recovering
        await rig.negotiate(0)
        await controller.received(2)
        assert controller.requests[1][1].api_version == 0
        rig.respond(1, isr=[1], epoch=6, leader_epoch=1)
        await eventually(lambda: not rig.replica().is_recovering, "it counts as recovered")
    finally:
        await rig.close()


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
async def test_refusal_that_changed_nothing_goes_back_to_the_confirmed_isr(rig: Rig, code: ErrorCode) -> None:
    rig.join()
    await rig.negotiate()
    await rig.controller.received(2)
    rig.respond(1, code)
    await eventually(lambda: rig.replica().maximal_isr == (1, 2), "rolled back")
    rig.join()
    await rig.controller.received(3)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST, ErrorCode.NEW_LEADER_ELECTED,
    ],
)
async def test_refusal_of_an_unknown_state_waits_for_the_next_leader_and_isr(rig: Rig, code: ErrorCode) -> None:
    rig.join(0)
    await rig.negotiate()
    await rig.controller.received(2)
    rig.respond(1, code)
    rig.join(1)
    await rig.controller.received(3)
    assert [row.partition_index for row in rig.controller.requests[2][2].topics[0].partitions] == [1], "it is not sent again"
    rig.join(0)
    assert rig.replica().maximal_isr == (1, 2, 3), "still pending: nobody knows what holds"
    rig.lead(0, 1, partition_epoch=9)
    assert rig.replica().maximal_isr == (1, 2)


OF_A_LATER_BROKER = 999


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, OF_A_LATER_BROKER])
async def test_other_refusals_are_sent_again(rig: Rig, code: int) -> None:
    rig.join()
    await rig.negotiate()
    await rig.controller.received(2)
    rig.respond(1, code)
    await rig.controller.received(3)
    assert rig.controller.requests[2][2] == rig.controller.requests[1][2]
    rig.respond(2)
    await eventually(lambda: rig.replica().isr == (1, 2, 3), "confirmed")


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
async def test_request_that_is_refused_as_a_whole_is_sent_again(rig: Rig, code: ErrorCode) -> None:
    rig.join()
    await rig.negotiate()
    await rig.controller.received(2)
    rig.controller.answer(1, code)
    await rig.controller.received(3)
    rig.respond(2)
    await eventually(lambda: rig.replica().isr == (1, 2, 3), "confirmed")


async def test_lost_connection_is_made_again_and_versions_are_negotiated_anew(rig: Rig) -> None:
    rig.join()
    await rig.negotiate()
    await rig.controller.received(2)
    rig.controller.writers[0].close()
    await rig.negotiate(1, at=2)
    await rig.controller.received(4)
    assert rig.controller.requests[3][1].api_version == 1


async def test_controller_that_is_not_known_is_waited_for(rig: Rig) -> None:
    rig.known = False
    rig.join()
    await asyncio.sleep(0)
    rig.known = True
    await rig.negotiate()


async def test_proposal_of_an_older_leader_epoch_is_dropped(rig: Rig) -> None:
    rig.join()
    await rig.negotiate()
    await rig.controller.received(2)
    rig.lead(0, 1, isr=[1, 2], partition_epoch=6)
    rig.respond(1)
    rig.join(1)
    await rig.controller.received(3)
    assert (rig.replica().isr, rig.replica().partition_epoch) == ((1, 2), 6), "the late result does not count"


async def test_proposal_that_waits_is_not_sent_when_a_leader_and_isr_comes_first(rig: Rig) -> None:
    rig.join(0)
    await rig.negotiate()
    await rig.controller.received(2)
    rig.join(1)
    rig.lead(1, 1, partition_epoch=6)
    rig.lead(2, 0)
    rig.join(2)
    rig.respond(1)
    await rig.controller.received(3)
    assert [row.partition_index for row in rig.controller.requests[2][2].topics[0].partitions] == [2]


async def test_proposal_of_a_new_leader_epoch_outlives_the_result_of_the_one_in_flight(rig: Rig) -> None:
    rig.join()
    await rig.negotiate()
    await rig.controller.received(2)
    rig.lead(0, 1, partition_epoch=6)
    rig.join()
    rig.respond(1)
    await rig.controller.received(3)
    (row,) = rig.controller.requests[2][2].topics[0].partitions
    assert (row.partition_index, row.leader_epoch, row.partition_epoch) == (0, 1, 6)
    rig.respond(2, epoch=7, leader_epoch=1)
    await eventually(lambda: rig.replica().isr == (1, 2, 3), "confirmed")


async def test_partition_that_the_response_leaves_out_is_sent_again(rig: Rig) -> None:
    rig.join()
    await rig.negotiate()
    await rig.controller.received(2)
    rig.controller.answer(1, topics=[])
    await rig.controller.received(3)


def respond_each(rig: Rig, at: int, *codes: int) -> None:
    """The result of each partition of a request, from 0 on."""
    rows = [
        RESPONSE.PartitionData(index, code, leader_id=1, leader_epoch=0, isr=[1, 2, 3], partition_epoch=6) if code == 0
        else RESPONSE.PartitionData(index, code)
        for index, code in enumerate(codes)
    ]
    rig.controller.answer(at, topics=[RESPONSE.TopicData(topic_id=A, partitions=rows)])


async def both_proposed(rig: Rig) -> None:
    """t-0 and t-1 are in the second request, the one behind the negotiation."""
    rig.known = False
    rig.join(0)
    rig.join(1)
    await asyncio.sleep(0)
    rig.known = True
    await rig.negotiate()
    await rig.controller.received(2)
    assert [row.partition_index for row in rig.controller.requests[1][2].topics[0].partitions] == [0, 1]


async def test_partition_that_is_refused_does_not_keep_the_others_from_their_results(rig: Rig) -> None:
    await both_proposed(rig)
    respond_each(rig, 1, ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    await rig.controller.received(3)
    assert rig.replica(1).isr == (1, 2, 3)
    assert [row.partition_index for row in rig.controller.requests[2][2].topics[0].partitions] == [0]


async def test_a_result_that_cannot_be_processed_ends_neither_the_others_nor_the_sending(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    altered, faults = rig.replicas.leaders.isr_altered, [RuntimeError("a fault")]

    def fail_once(proposal: IsrProposal, *result: Any) -> None:
        if proposal.partition.index == 0 and faults:
            raise faults.pop()
        altered(proposal, *result)

    monkeypatch.setattr(rig.replicas.leaders, "isr_altered", fail_once)
    rig.join(0)
    rig.join(1)
    await rig.negotiate()
    await rig.controller.received(2)
    rows = [
        RESPONSE.PartitionData(partition_index=index, leader_id=1, leader_epoch=0, isr=[1, 2, 3], partition_epoch=6) for index in (0, 1)
    ]
    rig.controller.answer(1, topics=[RESPONSE.TopicData(topic_id=A, partitions=rows)])
    await rig.controller.received(3)
    assert rig.replica(1).isr == (1, 2, 3)
    assert [row.partition_index for row in rig.controller.requests[2][2].topics[0].partitions] == [0]
    rig.respond(2)
    await eventually(lambda: rig.replica(0).isr == (1, 2, 3), "the change is confirmed")
    assert caplog.text.count("raised an exception; the work continues") == 1


async def test_a_request_that_cannot_be_made_does_not_end_the_sending(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    is_wanted, faults = rig.replicas.leaders.is_wanted, [RuntimeError("a fault")]

    def fail_once(proposal: IsrProposal) -> bool:
        if faults:
            raise faults.pop()
        return is_wanted(proposal)

    monkeypatch.setattr(rig.replicas.leaders, "is_wanted", fail_once)
    rig.join()
    await rig.negotiate()
    await rig.controller.received(2)
    rig.respond(1)
    await eventually(lambda: rig.replica().isr == (1, 2, 3), "the change is confirmed")


async def test_response_of_a_broker_that_is_not_the_controller_counts_for_no_partition(rig: Rig) -> None:
    await both_proposed(rig)
    respond_each(rig, 1, ErrorCode.NOT_CONTROLLER, 0)
    await rig.controller.received(3)
    assert rig.replica(1).isr == (1, 2)
    assert [row.partition_index for row in rig.controller.requests[2][2].topics[0].partitions] == [0, 1]


async def test_one_topic_without_an_id_makes_the_request_one_of_names(rig: Rig) -> None:
    fields: dict[str, Any] = {"isr": [1, 2], "replicas": [1, 2, 3], "partition_epoch": 5}
    assert tell(rig.replicas, state(0, **fields), topic="u", topic_id=ZERO_UUID) == [0]
    rig.known = False
    rig.join(0)
    without_id = rig.replicas.get("u", 0)
    assert without_id is not None
    rig.replicas.follower_fetched(without_id, 3, -1, 0, 0)
    await asyncio.sleep(0)
    rig.known = True
    await rig.negotiate()
    await rig.controller.received(2)
    _, header, request = rig.controller.requests[1]
    assert (header.api_version, [topic.topic_name for topic in request.topics]) == (1, ["t", "u"])


# below protocol 2.7-IV2


class States:
    """The states of partitions, with what was announced."""

    def __init__(self) -> None:
        self.written: list[tuple[str, int, LeaderAndIsr]] = []
        self.announced: list[list[TopicPartition]] = []
        self.version: int | None = 6
        self.failures = 0
        self.failure: Exception = StoreLost("no session")
        self.failed_announcements = 0
        self.gate: asyncio.Event | None = None

    async def write_isr(self, topic: str, partition: int, state: LeaderAndIsr) -> int | None:
        if self.failures:
            self.failures -= 1
            raise self.failure
        self.written.append((topic, partition, state))
        return self.version

    async def announce_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.failed_announcements:
            self.failed_announcements -= 1
            raise self.failure
        self.announced.append(list(partitions))


@pytest.fixture
async def stored(controller: ScriptedBroker) -> AsyncIterator[tuple[Rig, States, DrivenClock]]:
    rig, states, clock = Rig(controller, controller_epoch=4), States(), DrivenClock()
    rig.replicas.leaders.isr_updates = StoredIsrUpdates(rig.replicas.leaders, states, rig.background, clock)
    yield rig, states, clock
    await rig.close()


async def test_leader_writes_the_state_itself_with_the_controller_epoch_of_its_election(stored: tuple[Rig, States, DrivenClock]) -> None:
    rig, states, _ = stored
    rig.join()
    await eventually(lambda: rig.replica().isr == (1, 2, 3), "written")
    assert states.written == [("t", 0, LeaderAndIsr(1, 0, (1, 2, 3), 0, 5, 4))]
    assert rig.replica().partition_epoch == 6


async def test_state_that_somebody_else_wrote_is_left_alone(stored: tuple[Rig, States, DrivenClock]) -> None:
    rig, states, _ = stored
    states.version = None
    rig.join()
    await eventually(lambda: states.written, "tried")
    assert (rig.replica().isr, rig.replica().maximal_isr) == ((1, 2), (1, 2, 3)), "pending until a LeaderAndIsr comes"


@pytest.mark.parametrize("failure", [StoreLost("no session"), RuntimeError("a fault")])
async def test_lost_session_delays_the_write(stored: tuple[Rig, States, DrivenClock], failure: Exception) -> None:
    rig, states, clock = stored
    states.failures, states.failure = 1, failure
    rig.join()
    await eventually(lambda: states.failures == 0, "tried")
    assert not states.written
    await clock.advance(1.0)
    await eventually(lambda: rig.replica().isr == (1, 2, 3), "written")


async def test_changes_are_announced_together_five_seconds_after_the_last(stored: tuple[Rig, States, DrivenClock]) -> None:
    rig, states, clock = stored
    rig.join(0)
    await eventually(lambda: len(states.written) == 1, "written")
    await clock.advance(2.5)
    rig.join(1)
    await eventually(lambda: len(states.written) == 2, "written")
    for _ in range(2):
        await clock.advance(2.5)
        assert states.announced == []
    await clock.advance(2.5)
    await eventually(lambda: states.announced, "announced")
    assert states.announced == [[TopicPartition("t", 0), TopicPartition("t", 1)]]
    await clock.advance(60)
    assert len(states.announced) == 1


@pytest.mark.parametrize("failure", [StoreLost("no session"), RuntimeError("a fault")])
async def test_notification_that_failed_is_sent_again_with_what_changed_meanwhile(
    stored: tuple[Rig, States, DrivenClock], failure: Exception
) -> None:
    rig, states, clock = stored
    states.failed_announcements, states.failure = 1, failure
    rig.join(0)
    await eventually(lambda: len(states.written) == 1, "written")
    for _ in range(3):
        await clock.advance(2.5)
    await eventually(lambda: states.failed_announcements == 0, "tried")
    assert states.announced == []
    rig.join(1)
    await eventually(lambda: len(states.written) == 2, "written")
    for _ in range(3):
        await clock.advance(2.5)
    assert states.announced == [[TopicPartition("t", 0), TopicPartition("t", 1)]]


async def test_what_changed_while_a_notification_failed_is_named_with_it(stored: tuple[Rig, States, DrivenClock]) -> None:
    rig, states, clock = stored
    states.failed_announcements, states.gate = 1, asyncio.Event()
    rig.join(0)
    await eventually(lambda: len(states.written) == 1, "written")
    for _ in range(3):
        await clock.advance(2.5)
    rig.join(1)
    await eventually(lambda: len(states.written) == 2, "written while the notification is on its way")
    states.gate.set()
    await eventually(lambda: states.failed_announcements == 0, "it failed")
    for _ in range(3):
        await clock.advance(2.5)
    assert states.announced == [[TopicPartition("t", 0), TopicPartition("t", 1)]]


async def test_changes_that_never_stop_are_announced_each_minute(stored: tuple[Rig, States, DrivenClock]) -> None:
    rig, states, clock = stored
    for number in range(30):
        rig.lead(0, number + 1, partition_epoch=6 + number, controller_epoch=4)
        states.version = 7 + number
        rig.join(0)
        await eventually(lambda: len(states.written) == number + 1, "written")  # noqa: B023
        await clock.advance(2.5)
    assert states.announced == [[TopicPartition("t", 0)]]


async def test_proposal_of_an_older_leader_epoch_is_not_written(stored: tuple[Rig, States, DrivenClock]) -> None:
    rig, states, _ = stored
    rig.join(0)
    rig.lead(0, 1, partition_epoch=6)
    rig.join(1)
    await eventually(lambda: states.written, "written")
    assert [partition for _, partition, _ in states.written] == [1]
