"""Who leads next: the table of controller 8 by example, and every strategy against a second version of itself.

The second version is the table read literally: each row says which replicas are candidates, and the leader is the candidate with the
smallest position in the list; there is no loop to leave early and nothing is shared with the first version. The last part of the file
lets the partition machine run elections on random clusters and compares what is written and who is told.
"""

from __future__ import annotations

import random
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.controller.decisions import elections
from klamm.controller.decisions.elections import Choice
from klamm.controller.partitions import partition_machine
from klamm.controller.partitions.partition_machine import StateChangeFailed
from klamm.controller.states import PartitionState
from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.simulated import Wrote
from klamm.tests.controller.simulated_brokers import SentFrame
from klamm.tests.controller.stage import Stage

Case = tuple[tuple[int, ...], tuple[int, ...], frozenset[int], frozenset[int], frozenset[int]]
"""Replicas, ISR, registered brokers without a failed log directory, brokers that are shutting down, brokers on the blacklist."""
NOBODY = frozenset[int]()


# --- the second version ---


def first(candidates: set[int], order: tuple[int, ...], listed: frozenset[int] = NOBODY) -> int | None:
    return min(candidates, key=lambda r: (r in listed, order.index(r)), default=None)


def naive_offline(order, isr, online, unclean_permitted, listed) -> Choice | None:
    in_sync = set(order) & set(online) & set(isr)
    anybody = set(order) & set(online)
    told = tuple(sorted(anybody, key=order.index))
    leader = first(in_sync, order, listed)
    if leader is not None:
        return Choice(leader, tuple(sorted(set(isr) & set(online), key=isr.index)), False, told)
    leader = first(anybody, order, listed)
    return Choice(leader, (leader,), True, told) if unclean_permitted and leader is not None else None


def naive_reassign(target, isr, online) -> Choice | None:
    leader = first(set(target) & set(online) & set(isr), target)
    return None if leader is None else Choice(leader, isr, False, target)


def naive_preferred(order, isr, online, listed) -> Choice | None:
    allowed = set(order) if set(order) & listed else {order[0]} if order else set()
    leader = first(allowed & set(online) & set(isr), order, listed)
    return None if leader is None else Choice(leader, isr, False, order)


def naive_controlled_shutdown(order, isr, registered, leaving, listed) -> Choice | None:
    leader = first((set(order) & set(registered) & set(isr)) - set(leaving), order, listed)
    if leader is None:
        return None
    stays = tuple(r for r in isr if {r}.isdisjoint(leaving))
    return Choice(leader, stays, False, tuple(sorted(set(order) & set(registered), key=order.index)))


def naive_initial(order, online) -> Choice | None:
    present = tuple(sorted(set(order) & set(online), key=order.index))
    return Choice(present[0], present, False, present) if present else None


def compare(case: Case) -> None:
    order, isr, registered, leaving, listed = case
    online = registered - leaving
    assert elections.choose_clean(order, isr, online, listed) == naive_offline(order, isr, online, False, listed)
    assert elections.choose_unclean(order, isr, online, listed) == naive_offline(order, isr, online, True, listed)
    assert elections.choose_reassigned(order, isr, online) == naive_reassign(order, isr, online)
    assert elections.choose_preferred(order, isr, online, listed) == naive_preferred(order, isr, online, listed)
    leaves = naive_controlled_shutdown(order, isr, registered, leaving, listed)
    assert elections.choose_controlled_shutdown(order, isr, registered, leaving, listed) == leaves
    assert elections.initial(order, online) == naive_initial(order, online)


brokers = st.integers(0, 6)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    order = tuple(draw(st.lists(brokers, unique=True, max_size=6)))
    # mostly a part of the replicas in another order; sometimes members that are not assigned (a reassignment ends so, 11.3 B3)
    assigned = bool(order) and draw(st.booleans())
    members = st.sampled_from(order) if assigned else brokers
    isr = tuple(draw(st.lists(members, unique=True, max_size=6)))
    return order, isr, draw(st.frozensets(brokers)), draw(st.frozensets(brokers, max_size=3)), draw(st.frozensets(brokers, max_size=4))


@pytest.mark.requirement("R491-7", "R491-8", "R491-9", "R491-11", "R491-12")
@pytest.mark.timeout(300)  # many examples on a busy machine
@settings(max_examples=400, deadline=None)
@given(cases())
def test_every_strategy_against_its_second_version(case: Case) -> None:
    compare(case)


def test_every_small_cluster_against_the_second_version() -> None:
    """All clusters of three brokers, all ISR orders, all sets of registered, leaving and listed brokers: nothing is left to chance."""
    subsets = [frozenset(b for b in range(3) if bits >> b & 1) for bits in range(8)]
    lists = [p for n in range(4) for p in permutations(range(3), n)]
    for order in lists:
        for isr in lists:
            for registered in subsets:
                for leaving, listed in product(subsets, subsets):
                    compare((order, isr, registered, leaving, listed))


@pytest.mark.parametrize("seed", range(4))
def test_wide_clusters_against_the_second_version(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        order = tuple(rng.sample(range(40), rng.randint(1, 30)))
        isr = tuple(rng.sample(order, rng.randint(0, len(order))))
        registered, leaving, listed = (frozenset(rng.sample(range(40), rng.randint(0, most))) for most in (40, 3, 20))
        compare((order, isr, registered, leaving, listed))


# --- the table, by example ---

A = (3, 1, 2)


@pytest.mark.parametrize(
    ("isr", "online", "expected"),
    [
        ((3, 1, 2), {1, 2, 3}, Choice(3, (3, 1, 2), False, (3, 1, 2))),
        ((2, 1), {1, 2, 3}, Choice(1, (2, 1), False, (3, 1, 2))),  # assignment order decides, the ISR keeps its own
        ((2, 1, 3), {1, 2}, Choice(1, (2, 1), False, (1, 2))),
        ((2,), {1, 2, 3}, Choice(2, (2,), False, (3, 1, 2))),
        ((3,), {1, 2}, None),
        ((), {1, 2, 3}, None),
        ((3, 1, 2), set(), None),
    ],
)
def test_offline(isr: tuple[int, ...], online: set[int], expected: Choice | None) -> None:
    assert elections.choose_clean(A, isr, frozenset(online)) == expected


@pytest.mark.requirement("R704-1")
@pytest.mark.parametrize(
    ("isr", "online", "expected"),
    [
        ((2, 1), {1, 2, 3}, Choice(1, (2, 1), False, (3, 1, 2))),  # a member of the ISR is there: it wins, cleanly
        ((3,), {1, 2}, Choice(1, (1,), True, (1, 2))),  # the first of the list, not the first of the ISR
        ((3,), {2}, Choice(2, (2,), True, (2,))),
        ((), {1, 2, 3}, Choice(3, (3,), True, (3, 1, 2))),
        ((3,), {7}, None),
    ],
)
def test_offline_unclean(isr: tuple[int, ...], online: set[int], expected: Choice | None) -> None:
    assert elections.choose_unclean(A, isr, frozenset(online)) == expected


@pytest.mark.parametrize(
    ("isr", "online", "expected"),
    [
        ((2, 1, 3), {1, 2, 3}, Choice(3, (2, 1, 3), False, (3, 1, 2))),
        ((2, 3), {3}, Choice(3, (2, 3), False, (3, 1, 2))),  # dead members stay in the ISR, dead replicas are told
        ((2, 1), {1, 2, 3}, None),  # the head is not in sync, nobody else counts
        ((3, 1, 2), {1, 2}, None),
    ],
)
def test_preferred(isr: tuple[int, ...], online: set[int], expected: Choice | None) -> None:
    assert elections.choose_preferred(A, isr, frozenset(online)) == expected


def test_preferred_without_replicas() -> None:
    assert elections.choose_preferred((), (1,), frozenset({1})) is None


@pytest.mark.parametrize(
    ("target", "isr", "online", "expected"),
    [
        ((4, 5), (1, 2, 5, 4), {1, 2, 4, 5}, Choice(4, (1, 2, 5, 4), False, (4, 5))),  # members outside the target stay in the ISR for now
        ((4, 5), (1, 5), {1, 4, 5}, Choice(5, (1, 5), False, (4, 5))),
        ((4, 5), (1, 2, 4, 5), {1, 2, 5}, Choice(5, (1, 2, 4, 5), False, (4, 5))),  # all of the target is told, dead or not
        ((4, 5), (1, 2), {1, 2, 4, 5}, None),
    ],
)
def test_reassigned(target: tuple[int, ...], isr: tuple[int, ...], online: set[int], expected: Choice | None) -> None:
    assert elections.choose_reassigned(target, isr, frozenset(online)) == expected


@pytest.mark.parametrize(
    ("isr", "registered", "leaving", "expected"),
    [
        ((3, 1, 2), {1, 2, 3}, {3}, Choice(1, (1, 2), False, (3, 1, 2))),  # the one that leaves is told too
        ((3, 2, 1), {1, 2, 3}, {3, 1}, Choice(2, (2,), False, (3, 1, 2))),  # all that leave are taken out
        ((3, 1, 2), {2, 3}, {3}, Choice(2, (1, 2), False, (3, 2))),  # a dead one is neither chosen nor told, but not taken out here
        ((3, 1), {1, 2, 3}, {3, 1}, None),
        ((3,), {1, 2, 3}, {3}, None),
    ],
)
def test_controlled_shutdown(isr: tuple[int, ...], registered: set[int], leaving: set[int], expected: Choice | None) -> None:
    assert elections.choose_controlled_shutdown(A, isr, frozenset(registered), frozenset(leaving)) == expected


@pytest.mark.parametrize(
    ("online", "expected"),
    [
        ({1, 2, 3}, Choice(3, (3, 1, 2), False, (3, 1, 2))),
        ({1, 2}, Choice(1, (1, 2), False, (1, 2))),
        ({7}, None),
    ],
)
def test_initial(online: set[int], expected: Choice | None) -> None:
    assert elections.initial(A, frozenset(online)) == expected


@pytest.mark.requirement("R491-7")
@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (set(), (3, 1, 2)),
        ({3}, (1, 2, 3)),
        ({1}, (3, 2, 1)),
        ({2}, (3, 1, 2)),
        ({3, 1}, (2, 3, 1)),
        ({1, 2, 3}, (3, 1, 2)),
        ({7}, (3, 1, 2)),
    ],
)
def test_listed_replicas_come_last_and_each_part_keeps_its_order(listed: set[int], expected: tuple[int, ...]) -> None:
    assert elections.order(A, frozenset(listed)) == expected


@pytest.mark.requirement("R491-8", "R491-12")
@pytest.mark.parametrize(
    ("isr", "online", "listed", "expected"),
    [
        ((3, 1, 2), {1, 2, 3}, {3}, Choice(1, (3, 1, 2), False, (3, 1, 2))),
        ((3, 2), {1, 2, 3}, {3}, Choice(2, (3, 2), False, (3, 1, 2))),
        ((3,), {1, 2, 3}, {3}, Choice(3, (3,), False, (3, 1, 2))),  # in sync beats not listed
        ((), {1, 2, 3}, {3}, Choice(1, (1,), True, (3, 1, 2))),  # unclean: the first that is not listed
        ((), {3}, {3}, Choice(3, (3,), True, (3,))),
        ((3, 1, 2), {1, 2, 3}, {1, 2, 3}, Choice(3, (3, 1, 2), False, (3, 1, 2))),  # all listed: as nobody
    ],
)
def test_offline_with_a_list(isr: tuple[int, ...], online: set[int], listed: set[int], expected: Choice | None) -> None:
    assert elections.choose_unclean(A, isr, frozenset(online), frozenset(listed)) == expected


@pytest.mark.requirement("R491-9")
@pytest.mark.parametrize(
    ("isr", "online", "listed", "leader"),
    [
        ((3, 1, 2), {1, 2, 3}, {3}, 1),
        ((3, 2), {1, 2, 3}, {3}, 2),  # the next one is not in sync: the one after it
        ((3, 1, 2), {2, 3}, {3}, 2),
        ((3,), {1, 2, 3}, {3}, 3),  # nobody else: the listed one itself
        ((3, 1, 2), {1, 2, 3}, {2}, 3),
        ((1, 2), {1, 2, 3}, {2}, 1),  # one member is listed: the head alone does not decide
        ((1, 2), {1, 2, 3}, {7}, None),  # no member is listed: the head or nobody
        ((1, 2), {3}, {2}, None),
    ],
)
def test_preferred_with_a_list(isr: tuple[int, ...], online: set[int], listed: set[int], leader: int | None) -> None:
    choice = elections.choose_preferred(A, isr, frozenset(online), frozenset(listed))
    assert choice == (None if leader is None else Choice(leader, isr, False, A))


# --- the machine: what is written, who is told ---

STRATEGIES = [
    elections.Offline(),
    elections.Offline(allow_unclean=True),
    elections.Preferred(),
    elections.Preferred(unlisted_only=True),
    elections.Reassigned(),
    elections.ControlledShutdown(),
]


async def random_stage(rng: random.Random, stage: Stage) -> None:
    """Six brokers, some leaving, some with failed directories; a topic for each partition, with settings of its own."""
    await stage.open(*range(6))
    for t in range(25):
        replicas = tuple(rng.sample(range(8), rng.randint(1, 4)))
        await stage.create(f"t{t}", replicas)
        topic = stage.cluster.topics[f"t{t}"]
        p = topic.partitions[0]
        adding = tuple(rng.sample(replicas, rng.randint(1, len(replicas)))) if rng.random() < 0.3 else ()
        removing = tuple(r for r in replicas if r not in adding and rng.random() < 0.5) if adding else ()
        stage.cluster.assignment_changed(p, Assignment(replicas, adding, removing))
        isr = tuple(rng.sample(replicas, rng.randint(1, len(replicas))))
        recovery = int(len(isr) == 1 and rng.random() < 0.3)
        info = LeaderAndIsr(rng.choice([-1, isr[0]]), rng.randint(0, 9), isr, recovery, rng.randint(0, 9), 1)
        stage.world.states[p.key] = info
        stage.cluster.states_changed([p], [info])
        stage.cluster.partition_states_changed([p], rng.choice([PartitionState.ONLINE, PartitionState.OFFLINE]))
        choice = rng.random()
        if choice < 0.4:
            stage.world.configs[topic.name] = {"unclean.leader.election.enable": rng.choice(["true", "false"])}
        elif choice < 0.5:
            stage.world.unreadable_configs.add(topic.name)
    if rng.random() < 0.7:
        await stage.blacklist(*rng.sample(range(8), rng.randint(1, 4)))
    for b in rng.sample(range(6), rng.randint(0, 2)):
        stage.cluster.shutdown_began(b)
    for b in rng.sample(range(6), rng.randint(0, 2)):
        stage.cluster.offline_replicas_changed(b, {p for p in stage.cluster.partitions() if rng.random() < 0.5})
    stage.change_options(unclean_leader_election_enable=rng.random() < 0.5)
    await stage.settle()


def naive_election(stage: Stage, name: str, strategy: elections.Strategy) -> tuple[LeaderAndIsr, set[int]] | None:
    """The row of the table for one partition: its next state and who is told of it."""
    p = stage.partition(name)
    info, replicas = stage.world.states[p.key], p.assignment.replicas
    working = {b for b in stage.cluster.brokers if p not in stage.cluster.offline_dirs.get(b, ())}
    online = frozenset(working - stage.cluster.shutting_down)
    listed = stage.cluster.listed
    match strategy:
        case elections.Offline(allow_unclean):
            config = stage.world.configs.get(name, {}).get("unclean.leader.election.enable")
            permitted = stage.options.unclean_leader_election_enable if config is None else config == "true"
            if name in stage.world.unreadable_configs:
                permitted = False
            choice = naive_offline(replicas, info.isr, online, allow_unclean or permitted, listed)
        case elections.Preferred(unlisted_only):
            choice = naive_preferred(replicas, info.isr, online, listed)
            barred = listed if unlisted_only else NOBODY
            if choice is not None and set(replicas) & listed and choice.leader in barred | {info.leader}:
                choice = None
        case elections.Reassigned():
            target = tuple(r for r in replicas if r not in p.assignment.removing)
            choice = naive_reassign(target, info.isr, online)
        case elections.ControlledShutdown():
            choice = naive_controlled_shutdown(replicas, info.isr, frozenset(working), stage.cluster.shutting_down, listed)
    if choice is None:
        return None
    recovery = 1 if choice.leader not in info.isr else info.recovery
    state = LeaderAndIsr(choice.leader, info.leader_epoch + 1, choice.isr, recovery, info.partition_epoch + 1, stage.cluster.epoch)
    return state, set(choice.recipients) & set(stage.cluster.brokers)


@pytest.mark.requirement("R704-1", "R704-3")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(6))
async def test_the_machine_against_the_table(stage: Stage, strategy: elections.Strategy, seed: int) -> None:
    rng = random.Random(seed)
    await random_stage(rng, stage)
    expected = {name: naive_election(stage, name, strategy) for name in stage.cluster.topics}
    before = dict(stage.world.states)
    mark = stage.mark()
    results = await partition_machine.to_online(stage.term, list(stage.cluster.partitions()), strategy)
    journal = stage.world.journal[mark:]
    wrote = {entry.key: entry.state for entry in journal if isinstance(entry, Wrote)}
    told: dict[str, set[int]] = {name: set() for name in stage.cluster.topics}
    for frame in journal:
        if isinstance(frame, SentFrame) and frame.api_key == 4:
            for t in frame.request.topic_states:
                told[t.topic_name].add(frame.broker)
                assert not t.partition_states[0].is_new
    assert any(expected.values())
    for name, outcome in expected.items():
        p, key = stage.partition(name), TopicPartition(name, 0)
        if outcome is None:
            assert isinstance(results[p], StateChangeFailed), name
            assert (key in wrote, stage.world.states[key], told[name]) == (False, before[key], set())
        else:
            assert results[p] == wrote[key] == stage.world.states[key] == p.info == outcome[0], name
            assert told[name] == outcome[1], name
            assert p.state is PartitionState.ONLINE
