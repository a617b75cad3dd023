"""The only way by which states of partitions change: decide, write, replay, propagate (controller 5, 6, 7, 14).

A decision is a pure function of a Situation, and both are values: a journal of situations and decisions can be decided again. Decisions
are made from the states in memory, and written on the condition that the state in ZooKeeper is still the one that they were made
from. Where it is another one, the state is read and decided again, a bounded number of times. No version check guards a decision to
write nothing; so it counts only for a state that the same event has written or read, and for any other the state is read first.

What took hold, and nothing else, is replayed into the cluster and put into the batch of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from klamm.controller.batch import Recipients, RequestBatch
from klamm.controller.cluster import Partition
from klamm.controller.identity_memo import IdentityMemo
from klamm.controller.states import PartitionState
from klamm.controller.term import Term
from klamm.controller.values import Assignment, LeaderAndIsr, Proposal, StateWrite, WriteOutcome
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints

MAX_TRIES = 100
"""A partition whose state changes under so many tries is given up."""

_NO_BROKERS: frozenset[int] = frozenset()


class Refusal(IntEnum):
    """Why a partition keeps its state."""

    NO_STATE = 1
    """It has none in ZooKeeper."""
    NEWER_CONTROLLER = 2
    """Its state was written by a later controller."""
    NO_LEADER = 3
    """The rule finds no broker that can lead."""
    NO_REPLICA_ONLINE = 4
    WRITE_FAILED = 5
    """ZooKeeper refused this one write."""
    LOST_VERSION = 6
    """Another writer changed it, at each attempt."""


class Situation(NamedTuple):
    """What a decision about one partition is made from."""

    state: LeaderAndIsr | None
    """None where the partition has no state yet."""
    assignment: Assignment
    registered: frozenset[int]
    shutting_down: frozenset[int]
    offline_dirs: frozenset[int]
    """Brokers whose log directory with this partition is offline."""
    controller_epoch: int
    is_queued_for_deletion: bool = False
    proposal: Proposal | None = None

    @property
    def alive(self) -> frozenset[int]:
        """Brokers that are there and stay."""
        return self.registered - self.shutting_down

    @property
    def online(self) -> frozenset[int]:
        """Brokers whose replica may lead or stay in sync."""
        return self.registered - self.shutting_down - self.offline_dirs

    @property
    def online_or_leaving(self) -> frozenset[int]:
        """As `online`, brokers that are shutting down included."""
        return self.registered - self.offline_dirs


class Write(NamedTuple):
    """Write this state, or create it where there is none."""

    state: LeaderAndIsr
    recipients: Ints | None
    """Who gets a LeaderAndIsr request; everybody gets an UpdateMetadata request. None: this commit sends neither."""
    brings_online: bool = False
    """Whether the partition is in state ONLINE from then on."""


class Keep(NamedTuple):
    """The state in ZooKeeper is as wanted: remember it as this one."""

    state: LeaderAndIsr
    recipients: Ints | None
    brings_online: bool = False


class Refuse(NamedTuple):
    """Nothing can be done."""

    reason: Refusal | ErrorCode
    at_once: bool = False
    """Whether the state in memory is good enough to say so."""


Decision = Write | Keep | Refuse
Decide = Callable[[Situation], Decision]
"""Pure: neither clock, store nor log. A frozen dataclass with `__call__` is a value too."""


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
    proposals: Mapping[Partition, Proposal] | None = None,
    read: Mapping[Partition, LeaderAndIsr | None] | None = None,
    tries: int = MAX_TRIES,
) -> Commits:
    """Decide about partitions, write what was decided, replay what took hold and put it into `batch`.

    `decide` is called once for all partitions in the same situation. `read` are states that this event has read of all the partitions and
    not replayed. With one try a partition whose version is lost is read and given up.

    Raises what the store raises: ControllerMoved, StoreLost, StoreRefused. What took hold before is replayed then.
    """
    commits = Commits()
    decided: IdentityMemo[Decision] = IdentityMemo()
    todo = partitions
    for _ in range(tries):
        plan = _plan(term, todo, decide, decided, proposals, read, commits)
        await _write(term, plan, batch, commits)
        if not plan.again:
            return commits
        todo = plan.again
        read = dict(zip(todo, await term.store.read_states([p.key for p in todo]), strict=True))
    for p in todo:
        commits.uncommitted[p] = Uncommitted(Refusal.LOST_VERSION, None if read is None else read[p], plan.outcomes.get(p))
    return commits


class _Plan:
    """One try: what is to be written, and who has to be looked at again."""

    __slots__ = ("again", "creations", "kept", "new", "outcomes", "writes", "written")

    def __init__(self) -> None:
        self.writes: list[StateWrite] = []
        self.written: list[tuple[Partition, Write]] = []
        self.creations: list[StateWrite] = []
        self.new: list[tuple[Partition, Write]] = []
        self.kept: list[tuple[Partition, Keep]] = []
        self.again: list[Partition] = []
        self.outcomes: dict[Partition, WriteOutcome] = {}
        """Of the writes that failed."""


def _plan(
    term: Term,
    partitions: Collection[Partition],
    decide: Decide,
    decided: IdentityMemo[Decision],
    proposals: Mapping[Partition, Proposal] | None,
    read: Mapping[Partition, LeaderAndIsr | None] | None,
    commits: Commits,
) -> _Plan:
    cluster, plan = term.cluster, _Plan()
    registered, shutting_down, some_offline = cluster.registered, frozenset(cluster.shutting_down), bool(cluster.offline_dirs)
    fresh: Collection[Partition] = term.written if read is None else read
    offline_dirs, proposal = _NO_BROKERS, None
    for p in partitions:
        state, assignment = p.info if read is None else read[p], p.assignment
        is_queued = p.topic.deletion is not None
        if some_offline:
            offline_dirs = cluster.offline_dirs_of(p)
        if proposals is not None:
            proposal = proposals[p]
        key = (id(state), id(assignment), id(proposal), offline_dirs, is_queued)
        decision = decided.get(key)
        if decision is None:
            situation = Situation(state, assignment, registered, shutting_down, offline_dirs, cluster.epoch, is_queued, proposal)
            decision = decided.keep(key, decide(situation), state, assignment, proposal)
        if isinstance(decision, Write):
            if state is None:
                plan.creations.append(StateWrite(p.topic.name, p.index, decision.state, -1))
                plan.new.append((p, decision))
            else:
                plan.writes.append(StateWrite(p.topic.name, p.index, decision.state, state.partition_epoch))
                plan.written.append((p, decision))
        elif isinstance(decision, Refuse) and (decision.at_once or p in fresh):
            commits.uncommitted[p] = Uncommitted(decision.reason, state)
        elif isinstance(decision, Keep) and p in fresh:
            plan.kept.append((p, decision))
        else:
            plan.again.append(p)
    return plan


async def _write(term: Term, plan: _Plan, batch: RequestBatch | None, commits: Commits) -> None:
    """Write what a try decided; what took hold is settled before anything else is written."""
    if plan.kept:
        _settle(term, plan.kept, commits)
        _put_into(plan.kept, batch)
    if plan.creations:
        created = _took_hold(plan.new, await term.store.create_states(plan.creations), plan, commits)
        _settle(term, created, commits)
        if batch is not None:
            for p, write in created:
                if write.recipients is not None:
                    batch.lead(write.recipients, p, is_new=True)
    if plan.writes:
        written = _took_hold(plan.written, await term.store.write_states(plan.writes), plan, commits)
        _settle(term, written, commits)
        _put_into(written, batch)


def _took_hold(
    writes: list[tuple[Partition, Write]], outcomes: Sequence[WriteOutcome], plan: _Plan, commits: Commits
) -> list[tuple[Partition, Write]]:
    """The writes that succeeded; of the others those with a lost version are to be looked at again."""
    if outcomes.count(WriteOutcome.OK) == len(writes) == len(outcomes):
        return writes
    good = []
    for (p, write), outcome in zip(writes, outcomes, strict=True):
        if outcome is WriteOutcome.OK:
            good.append((p, write))
        elif outcome is WriteOutcome.FAILED:
            commits.uncommitted[p] = Uncommitted(Refusal.WRITE_FAILED, None, outcome)
        else:
            plan.again.append(p)
            plan.outcomes[p] = outcome
    return good


def _settle(term: Term, settled: Sequence[tuple[Partition, Write | Keep]], commits: Commits) -> None:
    """These states stand, all written or all kept: replay them. What is remembered already, as most of what is kept, stays as it is."""
    if not settled:
        return
    partitions = [p for p, _ in settled]
    states = [decision.state for _, decision in settled]
    if isinstance(settled[0][1], Write):
        term.cluster.states_changed(partitions, states)
    else:
        other = [(p, state) for p, state in zip(partitions, states, strict=True) if state is not p.info and state != p.info]
        term.cluster.states_changed([p for p, _ in other], [state for _, state in other])
    online = [p for p, decision in settled if decision.brings_online and p.state is not PartitionState.ONLINE]
    if online:
        term.cluster.partition_states_changed(online, PartitionState.ONLINE)
    commits.committed.update(zip(partitions, states, strict=True))
    term.written.update(partitions)


def _put_into(settled: Sequence[tuple[Partition, Write | Keep]], batch: RequestBatch | None) -> None:
    """Put settled partitions that are not new into the batch."""
    if batch is None:
        return
    recipients = Recipients()
    sent = []
    for p, decision in settled:
        if decision.recipients is not None:
            sent.append(p)
            for add in recipients[decision.recipients]:
                add(p)
    batch.lead_many(recipients.by_broker, sent)
