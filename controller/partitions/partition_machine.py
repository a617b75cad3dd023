"""Moves partitions between their states (controller 6): new ones get their first leader, others elect one by a strategy.

A group moves together. Its states are committed in one go (see `commit.py`), and sent to the brokers in one batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from klamm.controller.cluster import Partition
from klamm.controller.decisions import elections
from klamm.controller.decisions.decision import Decision, Refusal, Refuse, Situation, Write
from klamm.controller.decisions.elections import Choice, Strategy
from klamm.controller.partitions.commit import MAX_TRIES, Uncommitted, commit_states
from klamm.controller.propagation.batch import RequestBatch
from klamm.controller.states import PARTITION_MOVES, PartitionState
from klamm.controller.term.term import Term
from klamm.controller.values import RECOVERED, RECOVERING, LeaderAndIsr
from klamm.protocol.nouns import next_epoch
from klamm.seams.value_class import dataclass

log = logging.getLogger("klamm.controller.state_change")


class StateChangeFailed(Exception):
    """A partition stays in its state; the text says why."""


class ElectionNotNeeded(StateChangeFailed):
    """A partition stays in its state because the broker that the rule finds leads it already."""


Results = dict[Partition, LeaderAndIsr | StateChangeFailed]
"""Of each partition of an election: its new state, or why there is none."""


def to_state(term: Term, partitions: Iterable[Partition], target: PartitionState) -> None:
    """Bookkeeping moves: to NEW, OFFLINE or NON_EXISTENT."""
    allowed = PARTITION_MOVES[target]
    moved: list[Partition] = []
    for p in partitions:
        if p.state in allowed:
            moved.append(p)
        else:
            log.error("controller epoch %d: %s cannot go from %s to %s", term.cluster.epoch, p, p.state.name, target.name)
    if moved:
        term.cluster.partition_states_changed(moved, target)


async def to_online(term: Term, partitions: Iterable[Partition], strategy: Strategy) -> Results:
    """Initialise the new ones of these partitions, elect leaders for the others. The result speaks of the latter only."""
    new, known = [], []
    allowed = PARTITION_MOVES[PartitionState.ONLINE]
    results: Results = {}
    for p in partitions:
        if p.state is PartitionState.NEW:
            new.append(p)
        elif p.state in allowed:
            known.append(p)
        else:
            log.error("controller epoch %d: %s cannot go from %s to ONLINE", term.cluster.epoch, p, p.state.name)
            results[p] = StateChangeFailed(f"{p} is in state {p.state.name}")
    with term.sender.batch() as batch:
        if new:
            await _initialise(term, batch, new)
        if known:
            results.update(await _elect(term, batch, known, strategy))
    return results


async def trigger(term: Term, topic: str | None = None) -> int:
    """Try to bring all new and offline partitions (of one topic) online; how many elections succeeded (controller 6.3)."""
    waiting = [p for p in term.cluster.not_online() if topic is None or p.topic.name == topic]
    if not waiting:
        return 0
    results = await to_online(term, waiting, elections.Offline())
    return sum(not isinstance(r, StateChangeFailed) for r in results.values())


async def start(term: Term) -> None:
    """First states after a fail-over, then a first try for all that is not online (controller 6.3).

    A broker that is stopping leads what it led until it asks again to be relieved, and nothing more.
    """
    cluster = term.cluster
    alive = cluster.registered
    slow = bool(cluster.offline_dirs)
    new: list[Partition] = []
    led: list[Partition] = []
    leaderless: list[Partition] = []
    for p in cluster.partitions():
        info = p.info
        if info is None:
            new.append(p)
        elif info.leader in (cluster.online(p) if slow else alive):
            led.append(p)
        else:
            leaderless.append(p)
    cluster.partition_states_changed(led, PartitionState.ONLINE)
    cluster.partition_states_changed(new, PartitionState.NEW)
    cluster.partition_states_changed(leaderless, PartitionState.OFFLINE)
    await trigger(term)


@dataclass(frozen=True, slots=True)
class InitialiseLeader:
    """A new partition: all online replicas are in sync, the first one leads (controller 5.1)."""

    def __call__(self, situation: Situation) -> Decision:
        choice = elections.initial(situation.assignment.replicas, situation.online)
        if choice is None:
            return Refuse(Refusal.NO_REPLICA_ONLINE, at_once=True)
        state = LeaderAndIsr(choice.leader, 0, choice.isr, RECOVERED, 0, situation.controller_epoch)
        return Write(state, choice.recipients)


@dataclass(frozen=True, slots=True)
class ElectLeader:
    """A partition that had a leader: the strategy chooses the next one (controller 8)."""

    strategy: Strategy
    marks_recovery: bool
    """Whether an unclean election leaves its mark in the state."""
    listed: frozenset[int] = elections.NOBODY
    """Brokers on the blacklist; reassignments do not go by it (R491-11)."""

    def __call__(self, situation: Situation) -> Decision:
        state, replicas = situation.state, situation.assignment.replicas
        if state is None:
            return Refuse(Refusal.NO_STATE)
        if state.controller_epoch > situation.controller_epoch:
            return Refuse(Refusal.NEWER_CONTROLLER, at_once=True)
        choice: Choice | None
        reason = Refusal.NO_LEADER
        match self.strategy:
            case elections.Offline(allow_unclean):
                choice = elections.choose_unclean(replicas, state.isr, situation.online, self.listed)
                if choice is None:
                    reason = Refusal.NO_REPLICA_ONLINE
                elif choice.unclean and not allow_unclean:
                    choice = None
            case elections.Preferred(unlisted_only):
                choice = elections.choose_preferred(replicas, state.isr, situation.online, self.listed)
                if choice is not None and not self.listed.isdisjoint(replicas):
                    if choice.leader == state.leader:
                        return Refuse(Refusal.NOT_NEEDED)
                    if unlisted_only and choice.leader in self.listed:
                        choice = None
            case elections.Reassigned():
                choice = elections.choose_reassigned(situation.assignment.target, state.isr, situation.online)
            case elections.ControlledShutdown():
                staying = situation.online_or_leaving, situation.shutting_down
                choice = elections.choose_controlled_shutdown(replicas, state.isr, *staying, self.listed)
            case _:
                assert_never(self.strategy)
        if choice is None:
            return Refuse(reason)
        recovery = RECOVERING if choice.unclean and self.marks_recovery else state.recovery
        after = LeaderAndIsr(
            choice.leader, next_epoch(state.leader_epoch), choice.isr, recovery, state.partition_epoch + 1, situation.controller_epoch
        )
        return Write(after, choice.recipients)


async def _initialise(term: Term, batch: RequestBatch, partitions: Sequence[Partition]) -> None:
    commits = await commit_states(term, partitions, InitialiseLeader(), batch, brings_online=True, tries=1)
    for p, uncommitted in commits.uncommitted.items():
        if uncommitted.outcome is None:
            log.warning("%s stays new: none of its replicas %s is online", p, list(p.assignment.replicas))
        else:
            log.error("%s stays new: its state could not be created (%s)", p, uncommitted.outcome.name)


async def _elect(term: Term, batch: RequestBatch, partitions: Sequence[Partition], strategy: Strategy) -> Results:
    decide = ElectLeader(strategy, term.options.leader_recovery_supported, term.cluster.listed)
    commits = await commit_states(term, partitions, decide, batch, brings_online=True)
    results: Results = {**commits.committed}
    uncommitted = commits.uncommitted
    if uncommitted and strategy == elections.Offline():
        permitted = await _unclean_permitted(term, uncommitted, results)
        if permitted:
            unclean = ElectLeader(elections.Offline(allow_unclean=True), decide.marks_recovery, decide.listed)
            states = {p: uncommitted[p].state for p in permitted}
            more = await commit_states(term, permitted, unclean, batch, read=states, brings_online=True)
            results.update(more.committed)
            uncommitted = {p: u for p, u in uncommitted.items() if p not in more.committed} | more.uncommitted
    for p, why in uncommitted.items():
        if p not in results:
            results[p] = _failure(term, p, why, strategy)
    return results


def _failure(term: Term, p: Partition, why: Uncommitted, strategy: Strategy) -> StateChangeFailed:
    state = why.state
    match why.reason:
        case Refusal.NOT_NEEDED:
            return ElectionNotNeeded(f"{p} is led by the first of its replicas that can")
        case Refusal.NO_STATE:
            text = f"{p} has no state in ZooKeeper"
        case Refusal.NEWER_CONTROLLER if state is not None:
            text = f"{p} was written by controller epoch {state.controller_epoch}, mine is {term.cluster.epoch}"
        case Refusal.NO_REPLICA_ONLINE | Refusal.NO_LEADER:
            text = f"Failed to elect leader for partition {p} under strategy {elections.kafkas_name(strategy)}"
        case Refusal.WRITE_FAILED:
            text = f"the state of {p} could not be written"
        case _:
            text = f"the state of {p} changed under {MAX_TRIES} elections"
    return StateChangeFailed(text)


async def _unclean_permitted(term: Term, uncommitted: Mapping[Partition, Uncommitted], results: Results) -> list[Partition]:
    """Those without a clean leader whose topic permits an unclean one. Where a config cannot be read, `results` gets the reason."""
    leaderless = [p for p, why in uncommitted.items() if why.reason is Refusal.NO_LEADER]
    if not leaderless:
        return []
    names = list(dict.fromkeys(p.topic.name for p in leaderless))
    configs = dict(zip(names, await term.store.topic_configs(names), strict=True))
    permitted: list[Partition] = []
    for p in leaderless:
        config = configs[p.topic.name]
        if config is None:
            results[p] = StateChangeFailed(f"the config of topic {p.topic.name} could not be read")
            continue
        override = config.get("unclean.leader.election.enable")
        if term.options.unclean_leader_election_enable if override is None else override.strip().lower() == "true":
            permitted.append(p)
    return permitted
