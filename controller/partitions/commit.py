"""The only way by which states of partitions change: decide, write, replay, propagate (controller 5, 6, 7, 14).

A decision is a pure function of a Situation, and both are values (`decisions/decision.py`): an observer of the term gets them. Decisions
are made from the states in memory, and written on the condition that the state in ZooKeeper is still the one that they were made
from. Where it is another one, the state is read and decided again, a bounded number of times. No version check guards a decision to
write nothing; so it counts only for a state that the same event has written or read, and for any other the state is read first.

What took hold, and nothing else, is replayed into the cluster and put into the batch of requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.decisions.decision import Decide, Decision, Keep, Refusal, Refuse, Situation, Write
from klamm.controller.events.observation import Observer
from klamm.controller.propagation.batch import Recipients, RequestBatch
from klamm.controller.states import PartitionState
from klamm.controller.term.term import Term
from klamm.controller.values import LeaderAndIsr, StateWrite, WriteOutcome
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.identity_memo import IdentityMemo

MAX_TRIES = 100
"""A partition whose state has changed under each of this number of tries is given up."""

_NO_BROKERS: frozenset[int] = frozenset()


class Uncommitted(NamedTuple):
    """Why a partition was not committed, and its state as it was looked at last."""

    reason: Refusal | ErrorCode
    state: LeaderAndIsr | None
    outcome: WriteOutcome | None = None
    """Of the write, where there was one."""


@dataclass(slots=True)
class Commits:
    """What became of each partition: it is in one of the two."""

    committed: dict[Partition, LeaderAndIsr] = field(default_factory=dict)
    """The state that stands now, written or kept."""
    uncommitted: dict[Partition, Uncommitted] = field(default_factory=dict)


async def commit_states(
    term: Term,
    partitions: Collection[Partition],
    decide: Decide,
    batch: RequestBatch | None = None,
    *,
    read: Mapping[Partition, LeaderAndIsr | None] | None = None,
    brings_online: bool = False,
    tries: int = MAX_TRIES,
) -> Commits:
    """Decide about partitions, write what was decided, replay what took hold and put it into `batch`.

    `decide` is called once for all partitions in the same situation. `read` are states that this event has read of all the partitions and
    not replayed. `brings_online`: a partition that is committed is in state ONLINE from then on. With one try a partition whose version is
    lost is read and given up.

    Raises what the store raises: ControllerMoved, StoreLost, StoreRefused. What took hold before is replayed then.
    """
    commits = Commits()
    decided: IdentityMemo[Decision] = IdentityMemo()
    todo = partitions
    for _ in range(tries):
        plan = _plan(term, todo, decide, decided, read, commits)
        await _write(term, plan, batch, commits, brings_online)
        if not plan.again:
            return commits
        todo = plan.again
        read = dict(zip(todo, await term.store.read_states([p.key for p in todo]), strict=True))
    for p in todo:
        commits.uncommitted[p] = Uncommitted(Refusal.LOST_VERSION, None if read is None else read[p], plan.outcomes.get(p))
    return commits


async def commit_decided(term: Term, decided: Mapping[Partition, Write]) -> Commits:
    """Write what was decided from the states in memory, and replay what took hold. A partition whose version is lost is read and given up.

    Raises what the store raises, as `commit_states`.
    """
    commits, plan = Commits(), _Plan()
    for p, decision in decided.items():
        assert p.info is not None
        plan.writes.append(StateWrite(p.topic.name, p.index, decision.state, p.info.partition_epoch))
        plan.written.append(p)
        plan.written_as.append(decision)
    await _write(term, plan, None, commits, brings_online=False)
    if plan.again:
        for p, state in zip(plan.again, await term.store.read_states([p.key for p in plan.again]), strict=True):
            commits.uncommitted[p] = Uncommitted(Refusal.LOST_VERSION, state, plan.outcomes.get(p))
    return commits


class _Plan:
    """One try: what is to be written, and who has to be looked at again. Lists beside each other belong together, row by row."""

    __slots__ = ("again", "created", "created_as", "creations", "kept", "kept_as", "outcomes", "writes", "written", "written_as")

    def __init__(self) -> None:
        self.writes: list[StateWrite] = []
        self.written: list[Partition] = []
        self.written_as: list[Write] = []
        self.creations: list[StateWrite] = []
        self.created: list[Partition] = []
        self.created_as: list[Write] = []
        self.kept: list[Partition] = []
        self.kept_as: list[Keep] = []
        self.again: list[Partition] = []
        self.outcomes: dict[Partition, WriteOutcome] = {}
        """Of the writes that failed."""


def _plan(
    term: Term,
    partitions: Collection[Partition],
    decide: Decide,
    decided: IdentityMemo[Decision],
    read: Mapping[Partition, LeaderAndIsr | None] | None,
    commits: Commits,
) -> _Plan:
    cluster, plan = term.cluster, _Plan()
    registered, shutting_down, some_offline = cluster.registered, frozenset(cluster.shutting_down), bool(cluster.offline_dirs)
    fresh: Collection[Partition] = term.written if read is None else read
    offline_dirs = _NO_BROKERS
    decision_of, write, written, written_as = decided.get, plan.writes.append, plan.written.append, plan.written_as.append
    for p in partitions:
        state, assignment, topic = p.info if read is None else read[p], p.assignment, p.topic
        is_queued = topic.deletion is not None
        if some_offline:
            offline_dirs = cluster.offline_dirs_of(p)
        key = (id(state), id(assignment), offline_dirs, is_queued)
        decision = decision_of(key)
        if decision is None:
            situation = Situation(state, assignment, registered, shutting_down, offline_dirs, cluster.epoch, is_queued)
            decision = decided.keep(key, _shared(cluster, decide(situation)), state, assignment)
        if type(decision) is Write:
            if state is None:
                plan.creations.append(StateWrite(topic.name, p.index, decision.state, -1))
                plan.created.append(p)
                plan.created_as.append(decision)
            else:
                write(StateWrite(topic.name, p.index, decision.state, state.partition_epoch))
                written(p)
                written_as(decision)
        elif isinstance(decision, Refuse) and (decision.at_once or p in fresh):
            commits.uncommitted[p] = Uncommitted(decision.reason, state)
        elif isinstance(decision, Keep) and p in fresh:
            plan.kept.append(p)
            plan.kept_as.append(decision)
        else:
            plan.again.append(p)
    if term.observer is not None:
        _show(term, term.observer, partitions, decide, decided, read)
    return plan


def _shared(cluster: Cluster, decision: Decision) -> Decision:
    """The decision, with the one list for all equal lists of in-sync replicas: partitions in different situations get equal ones."""
    if type(decision) is not Write:
        return decision
    state = decision.state
    isr = cluster.shared[state.isr]
    return decision if isr is state.isr else decision._replace(state=state._replace(isr=isr))


def _show(
    term: Term,
    observer: Observer,
    partitions: Collection[Partition],
    decide: Decide,
    decided: IdentityMemo[Decision],
    read: Mapping[Partition, LeaderAndIsr | None] | None,
) -> None:
    """The observer gets each decision of a try once, with the partitions that it is about."""
    cluster = term.cluster
    registered, shutting_down = cluster.registered, frozenset(cluster.shutting_down)
    shown: IdentityMemo[tuple[Situation, list[TopicPartition]]] = IdentityMemo()
    for p in partitions:
        state, assignment, is_queued = p.info if read is None else read[p], p.assignment, p.topic.deletion is not None
        offline_dirs = cluster.offline_dirs_of(p) if cluster.offline_dirs else _NO_BROKERS
        key = (id(state), id(assignment), offline_dirs, is_queued)
        found = shown.get(key)
        if found is None:
            situation = Situation(state, assignment, registered, shutting_down, offline_dirs, cluster.epoch, is_queued)
            found = shown.keep(key, (situation, []), state, assignment)
        found[1].append(p.key)
    for shown_as, (situation, keys) in shown.items():
        observer.decided(decide, situation, tuple(keys), decided[shown_as])


async def _write(term: Term, plan: _Plan, batch: RequestBatch | None, commits: Commits, brings_online: bool) -> None:
    """Write what a try decided; what took hold is settled before anything else is written."""

    def settle(partitions: list[Partition], decisions: Sequence[Write | Keep], is_new: bool = False) -> None:
        """These states stand: the cluster knows them, they are committed, and brokers are to learn of them."""
        states = [decision.state for decision in decisions]
        changed = [(p, state) for p, state in zip(partitions, states, strict=True) if state is not p.info and state != p.info]
        term.cluster.states_changed([p for p, _ in changed], [state for _, state in changed])
        if brings_online:
            online = [p for p in partitions if p.state is not PartitionState.ONLINE]
            if online:
                term.cluster.partition_states_changed(online, PartitionState.ONLINE)
        commits.committed.update(zip(partitions, states, strict=True))
        term.written.update(partitions)
        if batch is not None:
            _put_into(batch, partitions, decisions, is_new)

    if plan.kept:
        settle(plan.kept, plan.kept_as)
    if plan.creations:
        outcomes = await term.store.create_states(plan.creations)
        settle(*_took_hold(plan.created, plan.created_as, outcomes, plan, commits), is_new=True)
    if plan.writes:
        outcomes = await term.store.write_states(plan.writes)
        settle(*_took_hold(plan.written, plan.written_as, outcomes, plan, commits))


def _took_hold(
    partitions: list[Partition], decisions: list[Write], outcomes: Sequence[WriteOutcome], plan: _Plan, commits: Commits
) -> tuple[list[Partition], list[Write]]:
    """The writes that succeeded; of the others those with a lost version are to be looked at again."""
    if outcomes.count(WriteOutcome.OK) == len(partitions) == len(outcomes):
        return partitions, decisions
    good: list[Partition] = []
    good_as: list[Write] = []
    for p, decision, outcome in zip(partitions, decisions, outcomes, strict=True):
        if outcome is WriteOutcome.OK:
            good.append(p)
            good_as.append(decision)
        elif outcome is WriteOutcome.FAILED:
            commits.uncommitted[p] = Uncommitted(Refusal.WRITE_FAILED, None, outcome)
        else:
            plan.again.append(p)
            plan.outcomes[p] = outcome
    return good, good_as


def _put_into(batch: RequestBatch, partitions: list[Partition], decisions: Sequence[Write | Keep], is_new: bool) -> None:
    """Put settled partitions into the batch; a LeaderAndIsr says of new ones that they are."""
    if is_new:
        for p, decision in zip(partitions, decisions, strict=True):
            if decision.recipients is not None:
                batch.lead(decision.recipients, p, is_new=True)
        return
    recipients = Recipients()
    sent = []
    for p, decision in zip(partitions, decisions, strict=True):
        broker_ids = decision.recipients
        if broker_ids is not None:
            sent.append(p)
            for add in recipients[broker_ids]:
                add(p)
    batch.lead_many(recipients.by_broker, sent)
