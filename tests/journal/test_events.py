"""What a controller does has rows in its broker's journal, each with its cause: on stage, with a journal in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.events.causes import RequestReceived
from klamm.controller.phases import ControllerElectionDue, IsrsAltered, ReassignmentReplicasStarted
from klamm.controller.values import Election, StoreRefused
from klamm.protocol.errors import ApiError
from klamm.protocol.nouns import TopicPartition
from klamm.server.journal.journaling import ControllerJournal
from klamm.tests.controller import stage as stages
from klamm.tests.controller.stage import ME, Stage, isr_request
from klamm.tests.journal.recorded import RecordedJournal, RecordedRow, journaled


class FramesOf:
    """Numbers of frames, as somebody journaled them."""

    def __init__(self, journals: dict[int, RecordedJournal]) -> None:
        self.journals = journals
        self.requests: dict[tuple[str, int], int] = {}
        self.responses: dict[int, int] = {}

    def request_seq(self, connection_id: str, correlation_id: int) -> int | None:
        return self.requests.get((connection_id, correlation_id))

    def response_seq(self, broker_id: int) -> int | None:
        return self.responses.setdefault(broker_id, self.journals[ME].frame())


class Journaled(Stage):
    """A stage whose controller keeps a journal."""

    frames_of: FramesOf

    @property
    def journal(self) -> RecordedJournal:
        return self.frames_of.journals[ME]

    def caused_by(self, cause: RecordedRow, *kinds: str) -> list[RecordedRow]:
        return [row for row in self.journal.of(*kinds) if row.cause_seq == cause.seq]

    def last_event(self, name: str) -> RecordedRow:
        return [row for row in self.journal.of("controller_event") if row.input["name"] == name][-1]


@pytest.fixture
def frames_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[FramesOf]:
    journals: dict[int, RecordedJournal] = {}
    frames = FramesOf(journals)
    monkeypatch.setattr(stages, "Controller", journaled(journals, frames=frames))
    yield frames
    for journal in journals.values():
        journal.check()


@pytest.fixture
async def stage(frames_of: FramesOf) -> AsyncIterator[Journaled]:
    """Brokers 1 to 3, and topic t with one partition on all of them."""
    made = Journaled(kip179_enable=True)
    made.frames_of = frames_of
    await made.open(1, 2, 3)
    await made.create("t", (1, 2, 3))
    yield made
    await made.close()


def values(rows: list[RecordedRow]) -> list[Any]:
    return [row.output for row in rows]


async def test_an_election_begins_a_term_and_what_the_controller_reads_then_is_written_down(stage: Journaled) -> None:
    startup = stage.last_event("Startup")
    assert startup.input["cause"] == {"name": "BrokerStarted"}
    (elected,) = stage.caused_by(startup, "controller_elected")
    assert elected.about("broker", "controller_epoch") == (ME, stage.cluster.epoch)
    assert [row.about("broker") for row in stage.caused_by(startup, "broker_up")] == [(1,), (2,), (3,)]
    assert stage.journal.of("broker_up")[0].output["endpoints"][0][:2] == ["PLAINTEXT", "host1"]


async def test_a_new_partition_has_its_assignment_decision_write_state_and_batch_in_this_order(stage: Journaled) -> None:
    change = stage.last_event("TopicChange")
    rows = stage.caused_by(change, "topic_added", "assignment", "decision", "zk_write", "partition_state", "batch")
    assert [row.kind for row in rows] == ["topic_added", "assignment", "decision", "zk_write", "partition_state", "batch"]
    _, assignment, decision, write, state, batch = rows
    assert assignment.output == {"replicas": [1, 2, 3], "adding": [], "removing": [], "is_new": True}
    assert decision.input["rule"] == {"name": "InitialiseLeader"} and decision.input["partitions"] == [["t", 0]]
    assert write.input == {
        "op": "create", "path": "/brokers/topics/t/partitions/0/state", "version": None,
        "leader": 1, "isr": [1, 2, 3], "recovery": 0, "controller_epoch": stage.cluster.epoch,
    }
    assert write.output == {"outcome": "OK", "version": 0}
    assert state.about("topic", "partition", "leader_epoch", "partition_epoch") == ("t", 0, 0, 0)
    assert state.columns["topic_id"] == write.columns["topic_id"] == assignment.columns["topic_id"] == "dAEBAQEBAQEBAQEBAQEBAQ"
    assert [request[0] for request in batch.output["requests"]] == [4, 6]
    assert all(request[2] == [1, 2, 3] for request in batch.output["requests"])


async def test_a_broker_that_goes_has_a_row_and_what_follows_names_the_same_event(stage: Journaled) -> None:
    await stage.stop(1)
    change = stage.last_event("BrokerChange")
    assert [row.about("broker") for row in stage.caused_by(change, "broker_down")] == [(1,)]
    assert {row.input["rule"]["name"] for row in stage.caused_by(change, "decision")} == {"ElectLeader", "LeaveIsr"}
    assert [row.output["leader"] for row in stage.caused_by(change, "partition_state")][-1] == 2


async def test_a_lost_version_is_a_second_decision_from_the_state_that_was_read(stage: Journaled) -> None:
    stage.store.before_write.append(lambda _: stage.somebody_writes("t", isr=(1, 2)))
    await stage.stop(1)
    change = stage.last_event("BrokerChange")
    outcomes = [row.output["outcome"] for row in stage.caused_by(change, "zk_write") if row.input["op"] == "set"]
    assert outcomes[:2] == ["BAD_VERSION", "OK"]
    elected = [row for row in stage.caused_by(change, "decision") if row.input["rule"]["name"] == "ElectLeader"]
    assert [row.input["situation"]["state"]["isr"] for row in elected] == [[1, 2, 3], [1, 2]]


async def test_a_request_is_followed_from_its_frame_to_the_frames_to_brokers(stage: Journaled, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int, int | None]] = []

    def send(broker_id: int, api_key: int, *request: Any) -> None:
        sent.append((broker_id, api_key, request[-1]))

    monkeypatch.setattr(stage.channels, "send", send)
    frame = stage.frames_of.requests["c-1", 7] = stage.journal.frame()
    request = RequestReceived("ElectLeaders", "c-1", 7)
    await stage.controller.elect_leaders([TopicPartition("t", 0)], Election.PREFERRED, request)
    event = stage.last_event("ElectLeaders")
    assert event.cause_seq == frame
    assert event.input["cause"] == {"name": "RequestReceived", "api": "ElectLeaders", "connection": "c-1", "correlation_id": 7}
    sent.clear()
    await stage.stop(1)
    stopped = stage.last_event("BrokerChange")
    batches = {row.seq: row.output["requests"] for row in stage.caused_by(stopped, "batch")}
    assert sent and {batch for _, _, batch in sent} == batches.keys()
    named = [(b, key, seq) for seq, requests in batches.items() for key, _, broker_ids in requests for b in broker_ids]
    assert sorted(sent) == sorted(named)


async def test_proposals_that_are_refused_are_decisions_too(stage: Journaled) -> None:
    topic_id = stage.cluster.topics["t"].wire_id
    request = isr_request(1, stage.cluster.brokers[1].epoch, topic_id, 0, 0, 0, [1, 2, 9])
    await stage.controller.alter_partition(request, 2)
    event = stage.last_event("AlterPartition")
    (decision,) = stage.caused_by(event, "decision")
    assert decision.input["rule"] == {"name": "AlterIsr"} and decision.input["situation"]["proposal"]["isr"] == [1, 2, 9]
    assert decision.output == {"refuse": 107, "at_once": True}
    assert not stage.caused_by(event, "zk_write")


async def test_requests_that_are_handled_together_have_a_row_each(stage: Journaled) -> None:
    topic_id, epochs = stage.cluster.topics["t"].wire_id, stage.cluster.brokers
    requests = [isr_request(b, epochs[b].epoch, topic_id, 0, 0, 0, [1, 2]) for b in (1, 2)]
    await asyncio.gather(*(stage.controller.alter_partition(request, 2) for request in requests))
    rows = [row for row in stage.journal.of("controller_event") if row.input["name"] == "AlterPartition"]
    assert [row.input["number"] for row in rows] == [rows[0].input["number"], rows[0].input["number"] + 1]
    assert stage.caused_by(rows[0], "zk_write") and not stage.caused_by(rows[1], "zk_write")


async def test_phases_of_a_reassignment_are_rows_of_one_step_each(stage: Journaled) -> None:
    await stage.start(4)
    await stage.controller.alter_reassignments({TopicPartition("t", 0): (4, 2)})
    await stage.settle()
    begun = stage.journal.of("reassign_phase")
    assert [row.output["phase"] for row in begun] == ["U", "A1", "A2"]
    assert len({row.output["step"] for row in begun}) == 1
    state = stage.partition("t").info
    assert state is not None
    topic_id = stage.cluster.topics["t"].wire_id
    request = isr_request(
        1, stage.cluster.brokers[1].epoch, topic_id, 0, state.leader_epoch, state.partition_epoch, [1, 2, 3, 4]
    )
    await stage.controller.alter_partition(request, 2)
    await stage.settle()
    done = stage.journal.of("reassign_phase")[3:]
    assert [row.output["phase"] for row in done] == ["B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8"]
    assert {row.output["step"] for row in done} == {begun[0].output["step"] + 1}
    assert {row.cause_seq for row in done} == {stage.last_event("AlterPartition").seq}
    topics = [row for row in stage.journal.of("zk_write") if row.input["path"] == "/brokers/topics/t"]
    assert topics[0].input["assignments"]["0"] == {"replicas": [4, 2, 1, 3], "adding": [4], "removing": [1, 3]}
    assert topics[-1].input["assignments"]["0"] == {"replicas": [4, 2], "adding": [], "removing": []}


@pytest.mark.requirement("R179-6")
async def test_steps_of_a_throttled_reassignment_are_rows_and_so_is_what_changes_of_throttles(stage: Journaled) -> None:
    stage.world.configs["t"] = {"retention.ms": "5", "secret.of.somebody": "hidden"}
    await stage.start(4)
    await stage.controller.reassign_partitions({TopicPartition("t", 0): (1, 2, 4)}, 5000)
    await stage.settle()
    steps = stage.journal.of("throttle_step")
    assert [row.output["step"] for row in steps if row.output["name"] != "StartMoves"] == [2, 3, 4, 5, 5, 5, 5, 6]
    assert {(row.output["request"], row.output["of"]) for row in steps} == {(1, "ReassignPartitions")}
    changed = stage.journal.of("throttle_set")
    assert changed[0].columns["topic"] == "t" and len(changed) == 5
    assert changed[0].output["properties"].keys() == {f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
    assert {row.columns["broker"]: set(row.output["properties"].values()) for row in changed[1:]} == {b: {"5000"} for b in (1, 2, 3, 4)}
    paths = [row.input["path"] for row in stage.journal.of("zk_write")]
    assert {"/admin/throttled_replicas_removal", "/admin/throttled_rates_removal", "/admin/reassign_partitions"} <= set(paths)
    assert "hidden" not in str(stage.journal.rows)


async def test_throttles_that_go_are_rows(stage: Journaled) -> None:
    await stage.controller.alter_throttled_rates({1: (5, 6), 2: (5, 6)})
    await stage.controller.alter_throttled_rates({2: (5, 6)})
    steps = stage.journal.of("throttle_step")
    assert [(row.output["request"], row.output["step"]) for row in steps] == [
        (1, 2), (1, 4), (1, 4), (1, 5), (2, 2), (2, 3), (2, 4), (2, 5),
    ]
    (removed,) = stage.journal.of("throttle_removed")
    assert removed.columns["broker"] == 1
    assert removed.output["keys"] == ["follower.replication.throttled.rate", "leader.replication.throttled.rate"]


async def test_a_timer_is_the_cause_of_its_event(stage: Journaled) -> None:
    stage.term.schedule_rebalance(0)
    await stage.settle()
    event = stage.last_event("AutoPreferredReplicaLeaderElection")
    (timer,) = [row for row in stage.journal.of("timer") if row.seq == event.cause_seq]
    assert timer.input == {"name": "leader rebalance"}


async def test_a_held_phase_is_a_row_and_so_is_its_release(stage: Journaled) -> None:
    inside, between = stage.steering.hold(IsrsAltered), stage.steering.hold(ReassignmentReplicasStarted)
    topic_id = stage.cluster.topics["t"].wire_id
    request = isr_request(1, stage.cluster.brokers[1].epoch, topic_id, 0, 0, 0, [1, 2])
    answer = asyncio.ensure_future(stage.controller.alter_partition(request, 2))
    await inside.reached()
    (held,) = stage.journal.of("phase_held")
    assert held.input["name"] == "IsrsAltered" and not stage.journal.of("phase_released")
    inside.release()
    await answer
    await stage.start(4)
    moved = asyncio.ensure_future(stage.controller.alter_reassignments({TopicPartition("t", 0): (1, 4)}))
    await between.reached()
    assert stage.journal.of("phase_held")[-1].about("topic", "partition") == ("t", 0)
    between.release()
    await moved
    await stage.settle()
    assert [row.input["name"] for row in stage.journal.of("phase_released")] == ["IsrsAltered", "ReassignmentReplicasStarted"]


async def test_a_broker_that_is_held_before_its_election_has_rows_too(stage: Journaled) -> None:
    hold = stage.steering.hold(ControllerElectionDue)
    stage.world.zk.delete_tree("/controller")
    await hold.reached()
    assert [row.input["name"] for row in stage.journal.of("phase_held")] == ["ControllerElectionDue"]
    hold.release()
    await stage.settle()
    assert [row.input["name"] for row in stage.journal.of("phase_released")] == ["ControllerElectionDue"]
    epochs = [row.columns["controller_epoch"] for row in stage.journal.of("controller_elected")]
    assert len(epochs) == 2 and epochs[0] < epochs[1]


async def test_an_event_that_fails_has_a_row_with_the_error(stage: Journaled, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any) -> Any:
        raise StoreRefused("no rights")

    monkeypatch.setattr(stage.store, "allocate_producer_ids", refused)
    with pytest.raises(ApiError):
        await stage.controller.allocate_producer_ids(1, stage.cluster.brokers[1].epoch)
    event = stage.last_event("AllocateProducerIds")
    assert values(stage.caused_by(event, "event_failed")) == [{"error": "StoreRefused", "text": "no rights"}]


async def test_a_term_that_ends_is_a_row(stage: Journaled) -> None:
    epoch = stage.cluster.epoch
    await stage.close()
    assert [row.about("broker", "controller_epoch") for row in stage.journal.of("controller_resigned")] == [(ME, epoch)]


async def test_a_listed_broker_is_a_change_of_a_config(stage: Journaled) -> None:
    await stage.blacklist(2)
    (change,) = stage.journal.of("config_change")
    assert change.output == {"keys": ["preferred_leader_blacklist"], "listed": [2]}
    assert change.cause_seq == stage.last_event("ConfigsChanged").seq
    assert not stage.caused_by(stage.last_event("ConfigsChanged"), "partition_state", "zk_write", "batch")


async def test_a_topic_is_followed_to_its_end(stage: Journaled) -> None:
    stage.world.delete_topic("t")
    await stage.settle()
    assert [row.output["step"] for row in stage.journal.of("deletion")][:2] == ["queued", "started"]
    assert [row.columns["topic"] for row in stage.journal.of("topic_removed")] == ["t"]
    deleted = [row.input["path"] for row in stage.journal.of("zk_write") if row.input["op"] == "delete"]
    assert deleted[-3:] == ["/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"]


async def test_whoever_subscribed_sees_the_changes_beside_the_journal(stage: Journaled) -> None:
    assert stage.changes
    await stage.put(events.BrokerChange())
    assert isinstance(stage.controller._observer, ControllerJournal)
