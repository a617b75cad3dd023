"""Moves partitions between their states (controller 6): new ones get their first leader, others elect one by a strategy.

A group moves together: decisions come from the cached states and are written conditionally on the version they were made from.
Where a write finds another version, or where the decision is to write nothing (no version check would guard that), the states
are read from ZooKeeper and decided again. What took hold is replayed into the cluster and told to the brokers in one batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from klamm.controller import elections
from klamm.controller.batch import Recipients, RequestBatch
from klamm.controller.cluster import Partition
from klamm.controller.elections import Choice, Strategy
from klamm.controller.states import PARTITION_MOVES, PartitionState
from klamm.controller.term import Term
from klamm.controller.values import RECOVERED, RECOVERING, Assignment, LeaderAndIsr, Outcome, StateWrite
from klamm.protocol.nouns import Ints, next_epoch

log = logging.getLogger("klamm.controller.state_change")

MAX_ROUNDS = 100
"""A partition whose znode changes under every one of so many tries is given up."""


class StateChangeFailed(Exception):
    """A partition stays in its state; the text says why."""


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
    """First states after a fail-over, then a first try for all that is not online (controller 6.3)."""
    cluster = term.cluster
    alive = cluster.alive
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


async def _initialise(term: Term, batch: RequestBatch, partitions: Sequence[Partition]) -> None:
    """New partitions: all online replicas are in sync, the first one leads (controller 5.1)."""
    cluster = term.cluster
    writes, chosen = [], []
    for p in partitions:
        choice = elections.initial(p.assignment.replicas, cluster.online(p))
        if choice is None:
            log.warning("%s stays new: none of its replicas %s is online", p, list(p.assignment.replicas))
            continue
        state = LeaderAndIsr(choice.leader, 0, choice.isr, RECOVERED, 0, cluster.epoch)
        writes.append(StateWrite(p.topic.name, p.index, state, -1))
        chosen.append(p)
    if not writes:
        return
    for p, write, outcome in zip(chosen, writes, await term.store.create_states(writes), strict=True):
        if outcome is Outcome.OK:
            cluster.states_changed((p,), (write.state,))
            cluster.partition_states_changed((p,), PartitionState.ONLINE)
            term.written.add(p)
            batch.lead(write.state.isr, p, is_new=True)
        else:
            log.error("%s stays new: its state could not be created (%s)", p, outcome.name)


async def _elect(term: Term, batch: RequestBatch, partitions: Sequence[Partition], strategy: Strategy) -> Results:
    cluster, epoch = term.cluster, term.cluster.epoch
    results: Results = {}
    plan = _planner(term, strategy)
    states: dict[Partition, LeaderAndIsr | None] = {p: p.info for p in partitions}
    fresh: set[Partition] = term.written
    todo = list(partitions)
    for _ in range(MAX_ROUNDS):
        writes: list[StateWrite] = []
        chosen: list[tuple[Partition, Ints]] = []
        again: list[Partition] = []
        hopeless: list[Partition] = []
        for p in todo:
            info = states[p]
            planned = None if info is None else plan(p, info)
            if planned is None or info is None:
                (hopeless if p in fresh else again).append(p)
            elif info.controller_epoch > epoch:
                results[p] = StateChangeFailed(f"{p} was written by controller epoch {info.controller_epoch}, mine is {epoch}")
            else:
                state, recipients = planned
                chosen.append((p, recipients))
                writes.append(StateWrite(p.topic.name, p.index, state, info.partition_epoch))
        if hopeless:
            for p, choice in await _unclean_choices(term, hopeless, states, strategy, results):
                info = states[p]
                if info is not None:
                    chosen.append((p, choice.recipients))
                    writes.append(StateWrite(p.topic.name, p.index, _state(info, choice, term), info.partition_epoch))
        outcomes = await term.store.write_states(writes) if writes else []
        moved: list[Partition] = []
        told = Recipients()
        for (p, recipients), write, outcome in zip(chosen, writes, outcomes, strict=True):
            if outcome is Outcome.OK:
                results[p] = write.state
                cluster.states_changed((p,), (write.state,))
                if p.state is not PartitionState.ONLINE:
                    cluster.partition_states_changed((p,), PartitionState.ONLINE)
                moved.append(p)
                for tell in told[recipients]:
                    tell(p)
            elif outcome is Outcome.FAILED:
                results[p] = StateChangeFailed(f"the state of {p} could not be written")
            else:
                again.append(p)
        term.written.update(moved)
        batch.lead_many(told.by_broker, moved)
        if not again:
            return results
        states.update(zip(again, await term.store.read_states([p.key for p in again]), strict=True))
        fresh, todo = set(again), again
    for p in todo:
        results[p] = StateChangeFailed(f"the state of {p} changed under {MAX_ROUNDS} elections")
    return results


def _state(info: LeaderAndIsr, choice: Choice, term: Term) -> LeaderAndIsr:
    """The state after this choice."""
    recovery = RECOVERING if choice.unclean and term.options.leader_recovery_supported else info.recovery
    return LeaderAndIsr(choice.leader, next_epoch(info.leader_epoch), choice.isr, recovery, info.partition_epoch + 1, term.cluster.epoch)


Plan = tuple[LeaderAndIsr, Ints]
"""A new state, and who is told of it."""


def _planner(term: Term, strategy: Strategy) -> Callable[[Partition, LeaderAndIsr], Plan | None]:
    """The strategy as a function of a partition. Partitions whose state and assignment are one object share the plan's."""
    cluster = term.cluster
    leaving = frozenset(cluster.shutting_down)
    known: dict[tuple[int, int, frozenset[int]], Plan | None] = {}
    kept: list[tuple[LeaderAndIsr, Assignment]] = []  # as long as they live, nothing else has their ids
    decide: Callable[[Ints, Ints, frozenset[int]], Choice | None]
    match strategy:
        case elections.Offline():
            decide = elections.choose_clean
        case elections.Preferred():
            decide = elections.choose_preferred
        case elections.Reassigned():
            decide = elections.choose_reassigned
        case elections.ControlledShutdown():
            decide = partial(elections.choose_controlled_shutdown, leaving=leaving)

    of_target = isinstance(strategy, elections.Reassigned)
    online_of = cluster.online_or_leaving if isinstance(strategy, elections.ControlledShutdown) else cluster.online

    def plan(p: Partition, info: LeaderAndIsr) -> Plan | None:
        assignment, online = p.assignment, online_of(p)
        key = (id(info), id(assignment), online)
        if key not in known:
            kept.append((info, assignment))
            choice = decide(assignment.target if of_target else assignment.replicas, info.isr, online)
            known[key] = None if choice is None else (_state(info, choice, term), choice.recipients)
        return known[key]

    return plan


async def _unclean_choices(
    term: Term, hopeless: list[Partition], states: dict[Partition, LeaderAndIsr | None], strategy: Strategy, results: Results
) -> list[tuple[Partition, Choice]]:
    """Where no clean leader is to be had: unclean ones as far as they are permitted; the reason for the rest goes to `results`."""
    out: list[tuple[Partition, Choice]] = []
    open_: list[tuple[Partition, Choice]] = []
    for p in hopeless:
        info = states[p]
        if info is None:
            results[p] = StateChangeFailed(f"{p} has no state in ZooKeeper")
        elif info.controller_epoch > term.cluster.epoch:
            results[p] = StateChangeFailed(f"{p} was written by controller epoch {info.controller_epoch}")
        elif not isinstance(strategy, elections.Offline):
            results[p] = StateChangeFailed(f"no eligible leader for {p}: replicas {list(p.assignment.replicas)}, isr {list(info.isr)}")
        else:
            choice = elections.choose_unclean(p.assignment.replicas, info.isr, term.cluster.online(p))
            if choice is None:
                results[p] = StateChangeFailed(f"no replica of {p} is online")
            elif strategy.allow_unclean:
                out.append((p, choice))
            else:
                open_.append((p, choice))
    if not open_:
        return out
    names = list(dict.fromkeys(p.topic.name for p, _ in open_))
    configs = dict(zip(names, await term.store.topic_configs(names), strict=True))
    for p, choice in open_:
        config = configs[p.topic.name]
        if config is None:
            results[p] = StateChangeFailed(f"the config of topic {p.topic.name} could not be read")
            continue
        override = config.get("unclean.leader.election.enable")
        allowed = term.options.unclean_leader_election_enable if override is None else override.strip().lower() == "true"
        if allowed:
            out.append((p, choice))
        else:
            results[p] = StateChangeFailed(f"no in-sync replica of {p} is online and unclean election is disabled")
    return out
