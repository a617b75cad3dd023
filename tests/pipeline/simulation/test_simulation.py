"""A simulation in Spark gives what a plain loop over all partitions gives, for random clusters and all steps."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.pipeline.lake import spark_views
from klamm.pipeline.simulation import generated_cluster as generator
from klamm.pipeline.simulation import sources
from klamm.pipeline.simulation.generated_cluster import Generated
from klamm.pipeline.simulation.outcome import Outcome, outcome
from klamm.pipeline.simulation.patterns import Counts, Pattern, Scenario, count_pattern
from klamm.pipeline.simulation.simulate import Partitions, finished_rows, group, over_ratio, simulate
from klamm.pipeline.simulation.simulated_partition import Simulated
from klamm.pipeline.simulation.snapshot import BadSource, Snapshot
from klamm.pipeline.simulation.steps import Blacklist, Elect, Kill, Reassign, Rebalance, Return, Shutdown, Step, Unclean
from klamm.pipeline.simulation.tables import SIM_LEADERS, SIM_MOVEMENT, SIM_PARTITIONS, SIM_SUMMARY, write_outcome, write_rows
from klamm.protocol.nouns import Ints, TopicPartition

pytestmark = pytest.mark.slow

IDS = range(1, 9)
SIZES = sources.Sizes(None, 10**9, 1.0, 5)
STEPS: tuple[Step, ...] = (
    Kill((3, 7)), Unclean(True), Kill((1,)), Return((3,)), Blacklist((2, 5)), Elect(), Reassign(0, "plan.json"), Shutdown((4, 6)),
    Rebalance(10), Return((1, 7)), Unclean(False), Elect(unclean=True), Blacklist(()), Return((4, 6)), Reassign(1, "plan.json"),
    Rebalance(5), Elect(),
)


def random_snapshot(rng: random.Random, partitions: int) -> Snapshot:
    """Replicas that are not in sync, partitions without a leader, reassignments that wait, and topics with configs of their own."""
    states: dict[TopicPartition, tuple[Assignment, LeaderAndIsr | None]] = {}
    for i in range(partitions):
        replicas = tuple(rng.sample(IDS, rng.randint(1, 4)))
        assignment = Assignment(replicas)
        if rng.random() < 0.1:
            assignment = assignment.reassign_to(tuple(rng.sample(IDS, 2)))
        isr = replicas[: rng.randint(1, len(replicas))] if rng.random() < 0.3 else replicas
        leader = -1 if rng.random() < 0.05 else isr[0]
        state = LeaderAndIsr(leader, rng.randint(0, 50), isr, int(rng.random() < 0.05), rng.randint(0, 90), 3)
        states[TopicPartition(f"t{i % 7}", i // 7)] = assignment, None if rng.random() < 0.03 else state
    configs = {"t1": {"unclean.leader.election.enable": "true"}, "t2": {"min.insync.replicas": "3"}, "t3": {"cleanup.policy": "compact"}}
    return Snapshot(states, frozenset(IDS) - {8}, {b: f"r{b % 3}" for b in IDS}, frozenset({2}), False, configs, frozenset({"t6"}))


def random_plan(rng: random.Random, snapshot: Snapshot) -> dict[TopicPartition, Ints]:
    chosen = rng.sample(sorted(snapshot.partitions), len(snapshot.partitions) // 4)
    return {key: tuple(rng.sample(IDS, rng.randint(1, 3))) for key in chosen}


def one_by_one(
    rows: list[Any], scenario: Scenario, rebalanced: dict[int, frozenset[int]]
) -> tuple[Counts, dict[TopicPartition, Simulated]]:
    """The same rules, partition after partition, with the epochs that each has."""
    procedures, counts, after = scenario.procedures(rebalanced), Counts(), {}
    for row in rows:
        r = row.asDict()
        state = None
        if r["leader"] is not None:
            state = LeaderAndIsr(r["leader"], 0, tuple(r["isr"]), r.get("recovery") or 0)
        options = {name: r[name] for name in ("unclean", "min_isr") if name in r}
        targets = tuple(None if t is None else tuple(t) for t in r.get("targets") or ())
        assignment = Assignment(tuple(r["replicas"]), tuple(r.get("adding") or ()), tuple(r.get("removing") or ()))
        p = Simulated(assignment, state, queued=r.get("queued") is True, targets=targets, **options)
        count_pattern(counts, procedures, scenario.min_isr, Pattern(p, 1, r["bytes"], 0))
        after[TopicPartition(r["topic"], r["partition"])] = p
    return counts, after


@pytest.mark.parametrize("seed", [1, 2])
def test_groups_give_what_each_partition_gives(spark: Any, seed: int) -> None:
    rng = random.Random(seed)
    snapshot = random_snapshot(rng, 400)
    plans = [random_plan(rng, snapshot), random_plan(rng, snapshot)]
    partitions, scenario = sources.read(spark, snapshot, STEPS, plans, ["plan.json"] * 2, SIZES, 2)
    found = simulate(partitions, scenario, 50_000_000)
    rebalanced = over_ratio(partitions, scenario)
    rows = partitions.rows.collect()
    counts, after = one_by_one(rows, scenario, rebalanced)
    sums = {key: (count, counts.bytes.get(key, 0)) for key, count in counts.partitions.items()}
    expected = outcome(scenario, sums, snapshot.racks, 50_000_000, found.patterns)
    assert found == expected
    assert found.patterns < len(rows)
    assert found.summary[-1].partitions == 400
    for seen in ("bytes_moved", "refused", "unclean_elections", "leaders_moved", "reassigning", "under_min_isr"):
        assert any(getattr(s, seen) for s in found.summary), seen
    finished = finished_rows(partitions, scenario).collect()
    assert len(finished) == len(rows)
    for row in finished:
        key = TopicPartition(row["topic"], row["partition"])
        before, state = snapshot.partitions[key][1], after[key].state
        assert (row["leader"] is None) == (state is None)
        assert tuple(row["replicas"]) == after[key].assignment.replicas
        if state is not None:
            assert (row["leader"], tuple(row["isr"]), row["recovery"]) == (state.leader, state.isr, state.recovery)
            if before is not None:
                assert row["leader_epoch"] == before.leader_epoch + state.leader_epoch
                assert row["partition_epoch"] == before.partition_epoch + state.partition_epoch


@pytest.mark.parametrize(("placement", "racks"), [("kafka", 0), ("kafka", 3), ("random", 0)])
def test_patterns_of_a_generated_cluster_are_those_of_its_rows(spark: Any, placement: str, racks: int) -> None:
    cluster = Generated(1_234, 9, 3, racks, placement, 7, 50)
    rows = generator.rows(spark, cluster)
    assert rows.count() == 1_234 == rows.select("topic", "partition").distinct().count()
    by_rows = {tuple(row["replicas"]): row["weight"] for row in group(rows.drop("topic", "partition")).collect()}
    ungrouped = generator.ungrouped(spark, cluster)
    for draws in (generator.grouped(spark, cluster), *([] if ungrouped is None else [ungrouped])):
        by_groups: Counter[tuple[int, ...]] = Counter()
        for row in draws.mapInArrow(generator.expanding(cluster), generator.PATTERNS_DDL).collect():
            by_groups[tuple(row["replicas"])] += row["weight"]
        assert by_groups == by_rows
    assert all(len({cluster.rack_of[b] for b in replicas}) == 3 for replicas in by_rows) or not racks


def test_draws_that_a_worker_counts_in_several_goes_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "_DRAWS_AT_ONCE", 5)
    cluster = Generated(1_000, 9, 3, 0, "random")
    draws = [503 * n * n % 17 for n in range(1_000)]
    batches = [pa.record_batch([pa.array(draws[start : start + 3], pa.int64())], names=["draw"]) for start in range(0, 1_000, 3)]
    found = pa.Table.from_batches(generator.expanding(cluster)(batches)).to_pylist()
    assert len(found) == len(set(draws))
    assert {tuple(row["replicas"]): row["weight"] for row in found} == Counter(cluster.replicas(draw) for draw in draws)


@pytest.mark.parametrize(
    "steps",
    [
        (Kill((1, 2)), Blacklist((5,)), Rebalance(5), Elect(), Return((1, 2)), Rebalance(5)),
        (Kill((1, 2)), Blacklist((5,)), Elect(), Return((1, 2)), Elect()),
    ],
    ids=["with a rebalance", "without one"],
)
def test_a_generated_cluster_gives_the_same_in_groups_and_by_rows(spark: Any, steps: tuple[Step, ...]) -> None:
    cluster = Generated(2_000, 10, 3, 0, "random", 3)
    partitions, scenario = sources.generated(spark, cluster, steps, [], [], SIZES, 2)
    found = simulate(partitions, scenario)
    by_rows = simulate(Partitions(group(with_states(partitions.rows)), None, partitions.racks), scenario)
    assert found._replace(patterns=0) == by_rows._replace(patterns=0)
    assert sum(row.leaders for row in found.leaders if row.step == 0) == 2_000
    assert found.summary[-1].led_elsewhere < found.summary[1].led_elsewhere


def with_states(rows: Any) -> Any:
    return rows.selectExpr("replicas", "replicas[0] AS leader", "replicas AS isr")


def test_the_tables_of_a_simulation_are_read_like_all_others(spark: Any, tmp_path: Path) -> None:
    cluster = Generated(300, 5, 2, 0, "kafka", 1, 30)
    plan = {TopicPartition(generator.topic_name(cluster, 0), 0): (4, 5)}
    partitions, scenario = sources.generated(spark, cluster, (Kill((1,)), Reassign(0, "p")), [plan], ["p"], SIZES, 1)
    found: Outcome = simulate(partitions, scenario, 10**6)
    for _ in range(2):
        write_outcome(tmp_path, "one", found)
    assert write_rows(tmp_path, "one", finished_rows(partitions, scenario)) == 300
    summary = spark_views.read(spark, tmp_path, SIM_SUMMARY, ["one"]).sort("step").collect()
    assert [tuple(row)[1:] for row in summary] == [tuple(row) for row in found.summary]
    assert spark_views.read(spark, tmp_path, SIM_LEADERS, ["one"]).count() == len(found.leaders)
    assert spark_views.read(spark, tmp_path, SIM_MOVEMENT).count() == len(found.movement)
    assert spark_views.read(spark, tmp_path, SIM_PARTITIONS).where("replicas = array(4, 5)").count() >= 1


def test_sizes_come_from_a_table(spark: Any, tmp_path: Path) -> None:
    cluster = Generated(4, 4, 1, 0, "kafka", 1, 4)
    topic = generator.topic_name(cluster, 0)
    first = next(row for row in generator.rows(spark, cluster).collect() if row["partition"] == 0)
    target = next(b for b in cluster.ids if b != first["replicas"][0])
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("topic,partition,bytes\n" + "".join(f"{topic},{i},{7_200_000 * (i + 1)}\n" for i in range(4)))
    table = sources.Sizes(str(sizes), 1, 1.0, 1)
    plan = {TopicPartition(topic, 0): (target,)}
    partitions, scenario = sources.generated(spark, cluster, (Reassign(0, "p"),), [plan], ["p"], table, 1)
    found = simulate(partitions, scenario, 1000)
    moved = {row.broker: row for row in found.movement}
    assert (moved[target].replicas_in, moved[target].bytes_in, moved[target].hours) == (1, 7_200_000, 2.0)
    assert (moved[first["replicas"][0]].bytes_out, found.summary[1].hours) == (7_200_000, 2.0)
    assert sum(row.leaders for row in found.leaders if row.step == 1) == 4


def refused_source(spark: Any, sizes: str | None, plan: dict[TopicPartition, Ints]) -> str:
    cluster = Generated(4, 4, 1, 0, "kafka", 1, 4)
    with pytest.raises(BadSource) as problem:
        sources.generated(spark, cluster, (Reassign(0, "p"),), [plan], ["plan.json"], sources.Sizes(sizes, 1, 1.0, 1), 1)
    return str(problem.value)


def test_what_cannot_be_used_is_said_in_a_line(spark: Any, tmp_path: Path) -> None:
    good: dict[TopicPartition, Ints] = {TopicPartition("topic-0", 0): (2,)}
    assert refused_source(spark, None, {TopicPartition("nowhere", 0): (2,)}) == "plan.json: the cluster has no partition nowhere-0"
    short, wrong = tmp_path / "short.csv", tmp_path / "wrong.csv"
    short.write_text("topic,partition,bytes\ntopic-0,0,5\ntopic-0,1,many\n")
    assert refused_source(spark, str(short), good) == f"{short}: no size of partition topic-0-1"
    wrong.write_text("topic,partition\ntopic-0,0\n")
    assert refused_source(spark, str(wrong), good) == f"{wrong}: the table of sizes has no column bytes"
    missing = refused_source(spark, str(tmp_path / "none.parquet"), good)
    assert "none.parquet" in missing and "\n" not in missing
