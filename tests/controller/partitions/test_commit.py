"""The commit path: decide, write on a condition, read and decide again, replay what took hold, put it into the batch."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.controller.changes import StatesChanged
from klamm.controller.cluster import Partition
from klamm.controller.decisions.decision import Decide, Decision, Keep, Refusal, Refuse, Situation, Write
from klamm.controller.events import catalogue as events
from klamm.controller.partitions.alter_partition import AlterIsr
from klamm.controller.partitions.commit import Uncommitted, commit_states
from klamm.controller.partitions.partition_machine import ElectLeader, InitialiseLeader
from klamm.controller.partitions.replica_machine import LeaveIsr
from klamm.controller.values import LeaderAndIsr, StoreRefused, WriteOutcome
from klamm.protocol.nouns import TopicPartition
from klamm.seams.identity_memo import IdentityMemo
from klamm.tests.controller.stage import Stage, isr_request


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Brokers 1 to 3; topic `t` with four partitions on [1, 2], led by 1 at partition epoch 0. Nothing is fresh."""
    one = Stage()
    await one.open(1, 2, 3)
    await one.create("t", *[(1, 2)] * 4)
    one.term.written.clear()
    yield one
    await one.close()


class Rule:
    """Decides what a test says, and counts."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.asked: list[Situation] = []

    def __call__(self, situation: Situation) -> Decision:
        self.asked.append(situation)
        return self.decide(situation)


def next_leader(situation: Situation) -> Decision:
    """Leader 2, told to brokers 1 and 2."""
    state = situation.state
    assert state is not None
    return Write(state._replace(leader=2, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1), (1, 2))


def partitions(stage: Stage, *indexes: int) -> list[Partition]:
    return [stage.partition("t", i) for i in indexes]


async def commit(stage: Stage, ps: list[Partition], decide: Decide, **more: Any) -> Any:
    with stage.term.sender.batch() as batch:
        return await commit_states(stage.term, ps, decide, batch, **more)


async def test_partitions_in_one_situation_are_decided_once_and_written_each(stage: Stage) -> None:
    shared = stage.partition("t").info
    ps = partitions(stage, 0, 1, 2, 3)
    stage.cluster.states_changed(ps, [shared] * 4)
    for p in ps:
        stage.cluster.assignment_changed(p, ps[0].assignment)
    rule, mark = Rule(next_leader), stage.mark()
    commits = await commit(stage, ps, rule)
    assert len(rule.asked) == 1
    assert set(commits.committed) == set(ps) and not commits.uncommitted
    assert sorted(stage.writes(mark)) == [f"WROTE t-{i} 2 e1 [1, 2] v1" for i in range(4)]
    whole = " ".join(f"t-{i} 2 e1 [1, 2] v1" for i in range(4))
    assert stage.frames(mark) == [f"LISR 1: {whole}", f"LISR 2: {whole}", f"UMR 1: {whole}", f"UMR 2: {whole}", f"UMR 3: {whole}"]
    assert all(commits.committed[p] is p.info for p in ps)


async def test_a_lost_version_is_read_and_decided_again(stage: Stage) -> None:
    p, q = partitions(stage, 0, 1)
    stage.somebody_writes("t", 0, isr=(2, 1))
    rule, mark = Rule(next_leader), stage.mark()
    commits = await commit(stage, [p, q], rule)
    assert [s.state.isr for s in rule.asked if s.state is not None][-1] == (2, 1)
    assert stage.writes(mark) == ["WROTE t-1 2 e1 [1, 2] v1", "WROTE t-0 2 e1 [2, 1] v2"]
    assert list(commits.committed) == [q, p]


async def test_a_version_that_is_lost_at_every_try_gives_up_and_says_what_stands(stage: Stage) -> None:
    p = stage.partition("t")
    stage.store.before_write = [lambda _: stage.somebody_writes("t")] * 3
    mark = stage.mark()
    commits = await commit(stage, [p], next_leader, tries=3)
    assert commits.uncommitted == {p: Uncommitted(Refusal.LOST_VERSION, stage.world.states[p.key], WriteOutcome.BAD_VERSION)}
    assert stage.frames(mark) == [] and not commits.committed
    assert p.info is not None and p.info.partition_epoch == 0, "what was only read is not replayed"


@pytest.mark.parametrize("decision", [Refuse(Refusal.NO_LEADER), Keep(LeaderAndIsr(1, 0, (1, 2), 0, 9, 1), (1,))])
async def test_a_decision_to_write_nothing_counts_only_for_a_state_that_this_event_knows(stage: Stage, decision: Decision) -> None:
    p = stage.partition("t")
    stage.somebody_writes("t", isr=(2,))
    rule = Rule(lambda _: decision)
    await commit(stage, [p], rule)
    assert [s.state.isr for s in rule.asked if s.state is not None] == [(1, 2), (2,)]
    rule.asked.clear()
    stage.term.written.add(p)
    await commit(stage, [p], rule)
    assert len(rule.asked) == 1


async def test_a_refusal_at_once_reads_nothing(stage: Stage) -> None:
    p = stage.partition("t")
    rule = Rule(lambda _: Refuse(Refusal.NEWER_CONTROLLER, at_once=True))
    commits = await commit(stage, [p], rule)
    assert len(rule.asked) == 1 and commits.uncommitted == {p: Uncommitted(Refusal.NEWER_CONTROLLER, p.info)}


async def test_what_is_kept_is_remembered_and_told(stage: Stage) -> None:
    p, q = partitions(stage, 0, 1)
    stage.somebody_writes("t", 0, isr=(2, 1))

    def keep(situation: Situation) -> Decision:
        assert situation.state is not None
        return Keep(situation.state, (2,))

    mark = stage.mark()
    stage.changes.clear()
    commits = await commit(stage, [p, q], keep)
    assert (stage.state("t", 0), list(commits.committed)) == ("1 e0 [2, 1] v1", [p, q])
    assert stage.frames(mark, "LISR") == ["LISR 2: t-0 1 e0 [2, 1] v1 t-1 1 e0 [1, 2] v0"]
    assert stage.changes == [StatesChanged(((p.key, p.info),))], "the other one is remembered so already"


async def test_a_state_that_cannot_be_written_fails_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = partitions(stage, 0, 1)
    write = stage.store.write_states

    async def one_fails(writes: Any) -> Any:
        return [WriteOutcome.FAILED if w.partition == 0 else (await write([w]))[0] for w in writes]

    monkeypatch.setattr(stage.store, "write_states", one_fails)
    commits = await commit(stage, [p, q], next_leader)
    assert (list(commits.committed), commits.uncommitted[p].reason) == ([q], Refusal.WRITE_FAILED)


async def test_what_took_hold_before_an_error_is_replayed_and_not_sent(stage: Stage) -> None:
    p, q = partitions(stage, 0, 1)
    stage.somebody_writes("t", 0, isr=(2, 1))

    def fail(_: Any) -> None:
        raise StoreRefused("no")

    stage.store.before_write = [None, fail]
    mark = stage.mark()
    with pytest.raises(StoreRefused):
        await commit(stage, [p, q], next_leader)
    assert stage.state("t", 1) == "2 e1 [1, 2] v1"
    assert stage.frames(mark) == []


async def test_states_that_were_read_are_decided_about_instead_of_those_in_memory(stage: Stage) -> None:
    p = stage.partition("t")
    stage.somebody_writes("t", isr=(2, 1))
    rule = Rule(next_leader)
    await commit(stage, [p], rule, read={p: stage.world.states[p.key]})
    assert len(rule.asked) == 1 and stage.state("t") == "2 e1 [2, 1] v2"


async def test_decisions_can_be_written_down_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every situation of a story with births, deaths, elections and ISR changes, after a way through bytes."""
    journal: list[tuple[Decide, Situation, Decision]] = []
    for rule in (InitialiseLeader, ElectLeader, LeaveIsr, AlterIsr):

        def record(self: Any, situation: Situation, decide: Any = rule.__call__) -> Decision:
            decision: Decision = decide(self, situation)
            journal.append((self, situation, decision))
            return decision

        monkeypatch.setattr(rule, "__call__", record)
    stage = Stage()
    await stage.open(1, 2, 3)
    await stage.create("t", (1, 2), (2, 3), (4,))
    stage.world.offline_dirs.add((3, TopicPartition("t", 1)))
    stage.world.notify_log_dir(3)
    await stage.stop(1)
    await stage.start(1)
    broker = stage.cluster.brokers[2]
    request = isr_request(2, broker.epoch, stage.world.topics["t"].topic_id or b"", 0, 1, 1, [2, 1])
    await stage.controller.alter_partition(request, 2)
    await stage.put(events.UncleanLeaderElectionEnabled())
    await stage.controller.controlled_shutdown(2, -1)
    await stage.stop(2)
    await stage.fail_over()
    await stage.close()
    monkeypatch.undo()
    assert {type(rule) for rule, _, _ in journal} == {InitialiseLeader, ElectLeader, LeaveIsr, AlterIsr}
    assert {type(decision) for _, _, decision in journal} == {Write, Keep, Refuse}
    stored: list[tuple[Decide, Situation, Decision]] = pickle.loads(pickle.dumps(journal))
    assert [decide(situation) for decide, situation, _ in stored] == [decision for _, _, decision in journal]
    assert len({*stored}) == len({*journal}), "values with a hash"


def test_a_memo_keeps_the_objects_whose_ids_are_its_keys() -> None:
    """Without that a new object could get the id of one that is gone, and with it that one's result."""
    memo: IdentityMemo[str] = IdentityMemo()
    keys = set()
    for i in range(1000):
        state = LeaderAndIsr(i, 0, (i,))
        assert memo.get(id(state)) is None
        assert memo.keep(id(state), f"of {i}", state) == memo.get(id(state)) == f"of {i}"
        keys.add(id(state))
    assert len(keys) == len(memo) == 1000
    memo.clear()
    assert not memo


async def test_equal_lists_of_replicas_are_one_object_whatever_else_differs(stage: Stage) -> None:
    """After the loss of a broker each partition may be in a situation of its own: its leader epoch is another one."""
    ps = partitions(stage, 0, 1, 2, 3)
    for epoch, p in enumerate(ps):
        stage.somebody_writes("t", p.index, leader=1, leader_epoch=epoch, isr=(1, 2))
    await commit(stage, ps, LeaveIsr(2))
    assert [p.info.isr for p in ps if p.info is not None] == [(1,)] * 4
    assert len({id(p.info.isr) for p in ps if p.info is not None}) == 1
