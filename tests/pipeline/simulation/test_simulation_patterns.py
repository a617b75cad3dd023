"""Patterns instead of partitions: grouping loses nothing. Leader epochs only have to be added, and brokers that are alike may stand for
each other. Both are shown for all clusters of a small space.
"""

from __future__ import annotations

from itertools import chain, combinations, permutations, product

import pyarrow as pa
import pytest

from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.pipeline.simulation.generated_cluster import Generated, orders
from klamm.pipeline.simulation.patterns import Counts, Scenario, count_alike, count_pattern, patterns
from klamm.pipeline.simulation.procedures import Procedures
from klamm.pipeline.simulation.simulated_partition import Simulated
from klamm.pipeline.simulation.steps import Blacklist, Brokers, Elect, Kill, Rebalance, Return, Shutdown, Step, Unclean
from klamm.protocol.nouns import Ints

IDS = (1, 2, 3, 4)
ALL = Brokers(frozenset(IDS))
LISTS: list[Ints] = [ids for length in (1, 2, 3) for ids in permutations(IDS, length)]


def subsets(ids: Ints, least: int = 0) -> list[Ints]:
    return list(chain.from_iterable(combinations(ids, n) for n in range(least, len(ids) + 1)))


def ends(procedures: Procedures, assignment: Assignment, state: LeaderAndIsr) -> tuple[LeaderAndIsr | None, Assignment]:
    p = Simulated(assignment, state)
    p.begin(procedures.before[0])
    for number in range(len(procedures.steps)):
        procedures.apply(p, number)
    return p.state, p.assignment


@pytest.mark.parametrize("unclean", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("listed", [(), pytest.param((2,), marks=pytest.mark.slow), (1, 3)])
def test_epochs_of_a_state_are_added_to_what_the_steps_add(unclean: bool, listed: Ints) -> None:
    """Every assignment, leader and ISR; every set of brokers that die, then return, and a preferred election."""
    checked = 0
    for dead in subsets(IDS, 1)[:-1]:
        steps: tuple[Step, ...] = (Blacklist(listed), Unclean(unclean), Kill(dead), Return(dead[:1]), Elect())
        procedures = Procedures(ALL, steps)
        for replicas in LISTS:
            for isr in subsets(replicas, 1):
                for leader in (-1, *isr):
                    base, _ = ends(procedures, Assignment(replicas), LeaderAndIsr(leader, 0, isr))
                    moved, _ = ends(procedures, Assignment(replicas), LeaderAndIsr(leader, 41, isr, 0, 17))
                    assert base is not None and moved is not None
                    assert moved == base._replace(leader_epoch=base.leader_epoch + 41, partition_epoch=base.partition_epoch + 17)
                    checked += 1
    assert checked == 14 * sum((2 ** len(r) - 1) + sum(map(len, subsets(r, 1))) for r in LISTS)


STEPS: list[tuple[Step, ...]] = [
    (Kill((1, 2)), Elect()),
    (Kill((2,)), Kill((1,)), Return((2,)), Elect(), Return((1,))),
    (Shutdown((1, 3)), Blacklist((2,)), Elect(), Return((3, 1)), Elect()),
    (Unclean(True), Blacklist((4,)), Kill((4,)), Rebalance(0), Return((4,)), Rebalance(0)),
    (Blacklist((1, 2, 3, 4)), Elect(), Kill((3, 4, 1)), Elect(unclean=True)),
]


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: ", ".join(map(str, steps)))
def test_brokers_that_the_steps_treat_alike_stand_for_each_other(steps: tuple[Step, ...]) -> None:
    table = pa.table({
        "replicas": pa.array(LISTS, pa.list_(pa.int32())), "weight": pa.array([3 * i + 1 for i in range(len(LISTS))], pa.int64()),
    })
    for rebalanced in ({3: frozenset[int](), 5: frozenset({1, 2})}, {3: frozenset({2, 4}), 5: frozenset(IDS)}):
        procedures = Procedures(ALL, steps, rebalanced)
        each, alike = Counts(), Counts()
        for batch in table.to_batches():
            for pattern in patterns(batch):
                count_pattern(each, procedures, 2, pattern)
        count_alike(alike, procedures, 2, table)
        assert counted(alike) == counted(each)


def counted(counts: Counts) -> dict[tuple[int, str, int], int]:
    return {key: count for key, count in counts.partitions.items() if count and key[1] != "patterns"}


def test_brokers_are_of_one_kind_when_no_step_tells_them_apart() -> None:
    steps: tuple[Step, ...] = (Kill((1, 2)), Blacklist((3,)), Kill((4,)))
    procedures = Procedures(Brokers(frozenset(range(1, 9))), steps)
    kinds = procedures.kinds(range(1, 9))
    assert kinds[1] != kinds[2], "they end together, and their ids say in which sequence"
    assert len({kinds[b] for b in (1, 2, 3, 4, 5)}) == 5
    assert {kinds[b] for b in (5, 6, 7, 8)} == {kinds[5]}


def test_each_order_of_replicas_has_its_number() -> None:
    cluster = Generated(10, 5, 3)
    assert cluster.orders == 60
    each = [cluster.replicas(order) for order in range(60)]
    assert set(each) == set(permutations(range(1, 6), 3))
    assert [tuple(ids) for ids in orders(cluster, pa.array(range(60), pa.int64())).to_pylist()] == each


def test_a_scenario_goes_to_workers_as_a_value() -> None:
    import pickle

    scenario = Scenario(ALL, (Kill((1,)), Elect()), 2)
    assert pickle.loads(pickle.dumps(scenario)) == scenario


def test_columns_that_are_special_to_partitions_are_part_of_the_pattern() -> None:
    batch = pa.RecordBatch.from_pydict({
        "replicas": [[1, 2], [1, 2, 3]], "adding": [None, [3]], "removing": [None, [1]], "leader": [1, None], "isr": [[1], None],
        "recovery": [1, None], "offline_dirs": [[2], None], "unclean": [True, None], "min_isr": [2, None], "queued": [False, None],
        "targets": [[[2, 3], None], None], "weight": [7, 1], "bytes": [70, 1],
    }, schema=pa.schema([
        *((name, pa.list_(pa.int32())) for name in ("replicas", "adding", "removing")), ("leader", pa.int32()),
        ("isr", pa.list_(pa.int32())), ("recovery", pa.int32()), ("offline_dirs", pa.list_(pa.int32())), ("unclean", pa.bool_()),
        ("min_isr", pa.int32()), ("queued", pa.bool_()), ("targets", pa.list_(pa.list_(pa.int32()))), ("weight", pa.int64()),
        ("bytes", pa.int64()),
    ]))
    first, second = patterns(batch)
    p = first.partition
    assert (p.assignment, p.state) == (Assignment((1, 2)), LeaderAndIsr(1, 0, (1,), 1))
    assert (p.offline_dirs, p.unclean, p.min_isr, p.queued, p.targets) == (frozenset({2}), True, 2, False, ((2, 3), None))
    assert (first.weight, first.size) == (7, 70)
    q = second.partition
    assert (q.assignment, q.state, q.offline_dirs, q.unclean, q.targets) == (Assignment((1, 2, 3), (3,), (1,)), None, frozenset(), None, ())


def test_all_kinds_of_elections_differ_somewhere_in_the_small_space() -> None:
    """The spaces above reach every outcome: an ISR that shrinks, an unclean leader, none, and one that is passed over."""
    seen = set()
    for unclean, dead in product((False, True), subsets(IDS, 1)[:-1]):
        procedures = Procedures(ALL, (Blacklist((2,)), Unclean(unclean), Kill(dead), Elect()))
        for replicas in LISTS:
            p = Simulated(Assignment(replicas), LeaderAndIsr(replicas[0], 0, replicas[:1]))
            p.begin(ALL)
            for number in range(4):
                procedures.apply(p, number)
            assert p.state is not None
            seen.add(("leaderless", p.state.leader == -1))
            seen.add(("unclean", p.unclean_elections > 0))
            seen.add(("first", p.state.leader == replicas[0]))
    assert len(seen) == 6
