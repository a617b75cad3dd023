"""Partitions that are alike: what a rule can see of a partition is the key, and each key goes through the steps once.

A row of the input has the key's columns and how many partitions have it. Leader epochs and partition epochs are not in the key: rules only
add to them, so a pattern begins with epoch 0 and ends with what is to be added. Whatever else is special about a partition (its topic
allows unclean elections, a log directory is offline, a file reassigns it) is a column of the key, or the grouping would be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import compute

from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.pipeline.simulation.procedures import Procedures
from klamm.pipeline.simulation.simulated_partition import Simulated
from klamm.pipeline.simulation.steps import Brokers, Step
from klamm.protocol.nouns import NO_LEADER, Ints

KEY = {
    "replicas": "array<int>",
    "adding": "array<int>",
    "removing": "array<int>",
    "leader": "int",
    "isr": "array<int>",
    "recovery": "int",
    "offline_dirs": "array<int>",
    "unclean": "boolean",
    "min_isr": "int",
    "queued": "boolean",
    "targets": "array<array<int>>",
}
"""The whole input of the rules, and the types of Spark. A source may leave out all but `replicas`; without `leader` and `isr` all replicas
are in sync and the first one leads. A null leader is a partition without a state."""

COUNTED = pa.schema(
    [("step", pa.int32()), ("metric", pa.string()), ("broker", pa.int32()), ("partitions", pa.int64()), ("bytes", pa.int64())]
)
COUNTED_DDL = "step int, metric string, broker int, partitions bigint, bytes bigint"
NOBODY = -1
"""In place of a broker, where a metric belongs to none."""
PATTERNS = 0, "patterns", NOBODY
"""Where it is counted how many patterns went through the steps."""

Batches = Iterable[pa.RecordBatch]


class Scenario(NamedTuple):
    """What every worker needs to take patterns through a simulation."""

    brokers: Brokers
    steps: tuple[Step, ...]
    min_isr: int = 1
    """`min.insync.replicas` of topics that have none of their own."""

    def procedures(self, rebalanced: dict[int, frozenset[int]]) -> Procedures:
        return Procedures(self.brokers, self.steps, rebalanced)


class Pattern(NamedTuple):
    """A key with its weight: how many partitions, and how many bytes all of them have."""

    partition: Simulated
    weight: int
    size: int
    row: int


def patterns(batch: pa.RecordBatch) -> Iterator[Pattern]:
    """The rows of a batch."""
    columns = {name: _values(batch.column(name)) for name in batch.schema.names}
    count = batch.num_rows
    nothing: list[Any] = [None] * count
    replicas = columns["replicas"]
    leaders, isrs = columns.get("leader"), columns.get("isr")
    weights = columns.get("weight")
    plain = all(columns.get(name) is None for name in ("adding", "removing", "offline_dirs", "unclean", "min_isr", "queued", "targets"))
    rows: Iterable[tuple[Any, ...]] = zip(
        replicas, leaders if leaders is not None else (r[0] for r in replicas), isrs if isrs is not None else replicas,
        columns.get("recovery", nothing), weights if weights is not None else [1] * count, columns.get("bytes", [0] * count), strict=True,
    )
    if plain:
        for at, (ids, leader, isr, recovery, weight, size) in enumerate(rows):
            yield Pattern(Simulated(Assignment(ids), _state(leader, isr, recovery)), weight, size, at)
        return
    special = zip(*(columns.get(name, nothing) for name in list(KEY)[6:]), strict=True)
    moving = zip(columns.get("adding", nothing), columns.get("removing", nothing), strict=True)
    for at, ((ids, leader, isr, recovery, weight, size), (adding, removing), (offline, unclean, min_isr, queued, targets)) in enumerate(
        zip(rows, moving, special, strict=True)
    ):
        partition = Simulated(
            Assignment(ids, _ints(adding), _ints(removing)), _state(leader, isr, recovery), offline_dirs=frozenset(_ints(offline)),
            unclean=unclean, min_isr=min_isr, queued=queued is True,
            targets=() if targets is None else tuple(None if t is None else tuple(t) for t in targets),
        )
        yield Pattern(partition, weight, size, at)


def _state(leader: int | None, isr: Ints | None, recovery: int | None) -> LeaderAndIsr | None:
    if leader is None:
        return None
    return LeaderAndIsr(leader, 0, _ints(isr), 0 if recovery is None else recovery, 0, 0)


def _ints(values: Ints | None) -> Ints:
    return () if values is None else values


def _values(column: pa.Array) -> list[Any]:
    """A column as Python values, lists of numbers as tuples."""
    if not pa.types.is_list(column.type) or pa.types.is_list(column.type.value_type):
        return list(column.to_pylist())
    numbers, ends = column.values.to_pylist(), column.offsets.to_pylist()
    if column.null_count:
        valid = column.is_valid().to_pylist()
        return [tuple(numbers[a:b]) if v else None for a, b, v in zip(ends, ends[1:], valid, strict=False)]
    return [tuple(numbers[a:b]) for a, b in pairwise(ends)]


class Counts:
    """Sums over patterns: what holds before the first step (step 0), and what each step changes."""

    def __init__(self) -> None:
        self.partitions: Counter[tuple[int, str, int]] = Counter()
        self.bytes: Counter[tuple[int, str, int]] = Counter()

    def batch(self) -> pa.RecordBatch:
        """The sums as rows."""
        keys = [key for key, count in self.partitions.items() if count or self.bytes.get(key)]
        return pa.RecordBatch.from_arrays([
            pa.array([step for step, _, _ in keys], pa.int32()),
            pa.array([metric for _, metric, _ in keys], pa.string()),
            pa.array([broker for _, _, broker in keys], pa.int32()),
            pa.array([self.partitions[key] for key in keys], pa.int64()),
            pa.array([self.bytes.get(key, 0) for key in keys], pa.int64()),
        ], schema=COUNTED)


def count_pattern(counts: Counts, procedures: Procedures, default_min_isr: int, pattern: Pattern) -> None:
    """Take a pattern through all steps, and count what is seen of it."""
    p, weight = pattern.partition, pattern.weight
    add, total = counts.partitions, counts.bytes
    p.begin(procedures.before[0] if procedures.before else procedures.last)
    leader, flags, replicas, epoch, writes = NO_LEADER, (0, 0, 0, 0), p.assignment.replicas, 0, 0
    if p.state is not None:
        leader = p.state.leader
    brokers = procedures.before[0] if procedures.before else procedures.last
    flags = _flags(p, brokers, default_min_isr)
    add[PATTERNS] += 1
    add[0, "partitions", NOBODY] += weight
    add[0, "leads", leader] += weight
    for r in replicas:
        add[0, "hosts", r] += weight
    for metric, flag in zip(FLAGS, flags, strict=True):
        if flag:
            add[0, metric, NOBODY] += weight
    for number in range(len(procedures.steps)):
        if not procedures.apply(p, number):
            if p.refused:
                add[number + 1, "refused", NOBODY] += weight
                p.refused = 0
            continue
        step, state = number + 1, p.state
        if state is not None:
            if state.leader != leader:
                add[step, "leads", leader] -= weight
                add[step, "leads", state.leader] += weight
                add[step, "lost", leader] += weight
                add[step, "gained", state.leader] += weight
                add[step, "leaders_moved", NOBODY] += weight
                leader = state.leader
            if state.leader_epoch != epoch:
                add[step, "leader_epochs", NOBODY] += weight * (state.leader_epoch - epoch)
                epoch = state.leader_epoch
            if state.partition_epoch != writes:
                add[step, "state_writes", NOBODY] += weight * (state.partition_epoch - writes)
                writes = state.partition_epoch
        after = procedures.before[step] if step < len(procedures.before) else procedures.last
        now = _flags(p, after, default_min_isr)
        if now != flags:
            for metric, old, new in zip(FLAGS, flags, now, strict=True):
                if old != new:
                    add[step, metric, NOBODY] += weight * (new - old)
            flags = now
        if p.assignment.replicas is not replicas:
            for r in replicas:
                add[step, "hosts", r] -= weight
            replicas = p.assignment.replicas
            for r in replicas:
                add[step, "hosts", r] += weight
        if p.unclean_elections or p.bytes_in or p.refused:
            _count_events(p, step, add, total, weight, pattern.size)


def count_alike(counts: Counts, procedures: Procedures, default_min_isr: int, table: pa.Table) -> None:
    """Count patterns that are nothing but replicas. Those that differ in brokers between which no step makes a difference go through the
    steps once, with the replicas of one of them, and what is counted of its replicas is shared out among the brokers in their places.
    """
    for ids, places in shapes(table, procedures):
        one, weight = Counts(), sum(places[0].values())
        state = LeaderAndIsr(ids[0], 0, ids, 0, 0, 0)
        count_pattern(one, procedures, default_min_isr, Pattern(Simulated(Assignment(ids), state), 1, 0, 0))
        place_of = {b: place for place, b in enumerate(ids)}
        counts.partitions[PATTERNS] += one.partitions.pop(PATTERNS)
        for (step, metric, broker), count in one.partitions.items():
            if broker in place_of:
                for b, share in places[place_of[broker]].items():
                    counts.partitions[step, metric, b] += count * share
            else:
                counts.partitions[step, metric, broker] += count * weight


def shapes(table: pa.Table, procedures: Procedures) -> Iterator[tuple[Ints, list[dict[int, int]]]]:
    """The replicas of one pattern of each kind; for each place in its list the brokers that patterns of this kind have there, and how many
    partitions do.
    """
    lengths = compute.list_value_length(table["replicas"])
    for length in compute.unique(lengths).to_pylist():
        some = table.filter(compute.equal(lengths, length))
        flat = compute.list_flatten(some["replicas"]).combine_chunks()
        kinds = procedures.kinds(compute.unique(flat).to_pylist())
        known, kind_of = pa.array(kinds, pa.int32()), pa.array(kinds.values(), pa.int64())
        base = max(kinds.values()) + 1
        columns, shape = {}, pa.array([0] * some.num_rows, pa.int64())
        for place in range(length):
            brokers = flat.take(pa.array(range(place, len(flat), length), pa.int64()))
            columns[f"r{place}"] = brokers
            shape = compute.add(compute.multiply(shape, base), kind_of.take(compute.index_in(brokers, known)))
        alike = pa.table({**columns, "shape": shape, "weight": some["weight"]})
        firsts = alike.group_by("shape", use_threads=False).aggregate([(f"r{place}", "first") for place in range(length)])
        places: dict[int, list[dict[int, int]]] = {found: [{} for _ in range(length)] for found in firsts["shape"].to_pylist()}
        for place in range(length):
            sums = alike.group_by(["shape", f"r{place}"]).aggregate([("weight", "sum")])
            rows = zip(*(sums[name].to_pylist() for name in ("shape", f"r{place}", "weight_sum")), strict=True)
            for found, broker, weight in rows:
                places[found][place][broker] = weight
        for row in firsts.to_pylist():
            yield tuple(row[f"r{place}_first"] for place in range(length)), places[row["shape"]]


FLAGS = ("leaderless", "under_min_isr", "led_elsewhere", "reassigning")
"""What a partition is or is not, at one time."""


def _flags(p: Simulated, brokers: Brokers, default_min_isr: int) -> tuple[int, int, int, int]:
    state, replicas = p.state, p.assignment.replicas
    if state is None:
        return (1, 1, 1, 0)
    wanted = min(default_min_isr if p.min_isr is None else p.min_isr, len(replicas))
    return (
        int(state.leader not in brokers.registered),
        int(len(state.isr) < wanted),
        int(state.leader != replicas[0]),
        int(p.assignment.is_reassigning),
    )


def _count_events(p: Simulated, step: int, add: Counter[Any], total: Counter[Any], weight: int, size: int) -> None:
    if p.unclean_elections:
        add[step, "unclean", NOBODY] += weight * p.unclean_elections
    if p.refused:
        add[step, "refused", NOBODY] += weight * p.refused
    for metric, ids in (("copied_in", p.bytes_in), ("copied_out", p.bytes_out)):
        for b in ids:
            add[step, metric, b] += weight
            total[step, metric, b] += size
    p.unclean_elections = p.refused = 0
    p.bytes_in = p.bytes_out = ()


def counting(scenario: Scenario, rebalanced: dict[int, frozenset[int]]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: patterns in, `COUNTED` rows out."""

    def count(batches: Batches) -> Iterator[pa.RecordBatch]:
        procedures, counts = scenario.procedures(rebalanced), Counts()
        plain: list[pa.RecordBatch] = []
        for batch in batches:
            if {*batch.schema.names} == {"replicas", "weight"}:
                plain.append(batch)
                continue
            for pattern in patterns(batch):
                count_pattern(counts, procedures, scenario.min_isr, pattern)
        if plain:
            count_alike(counts, procedures, scenario.min_isr, pa.Table.from_batches(plain))
        yield counts.batch()

    return count


def measuring(scenario: Scenario, rebalanced: dict[int, frozenset[int]], upto: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: how many partitions each broker is to lead before step `upto`, counted from 0, and how many of them are
    led elsewhere.
    """

    def measure(batches: Batches) -> Iterator[pa.RecordBatch]:
        procedures, counts = scenario.procedures(rebalanced), Counts()
        for batch in batches:
            for pattern in patterns(batch):
                p = pattern.partition
                p.begin(scenario.brokers)
                for number in range(upto):
                    procedures.apply(p, number)
                owner, imbalanced = procedures.owner(p, procedures.before[upto])
                if owner is not None:
                    counts.partitions[upto, "owned", owner] += pattern.weight
                    counts.partitions[upto, "imbalanced", owner] += pattern.weight * imbalanced
        yield counts.batch()

    return measure


OUTCOME = pa.schema([
    ("new_leader", pa.int32()), ("new_isr", pa.list_(pa.int32())), ("new_replicas", pa.list_(pa.int32())),
    ("new_adding", pa.list_(pa.int32())), ("new_removing", pa.list_(pa.int32())), ("new_recovery", pa.int32()),
    ("leader_epochs", pa.int32()), ("partition_epochs", pa.int32()),
])
OUTCOME_DDL = (
    "new_leader int, new_isr array<int>, new_replicas array<int>, new_adding array<int>, new_removing array<int>, new_recovery int, "
    "leader_epochs int, partition_epochs int"
)


def finishing(
    scenario: Scenario, rebalanced: dict[int, frozenset[int]], names: Sequence[str]
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: each pattern with its key (`names`) and what it is behind the last step."""

    def finish(batches: Batches) -> Iterator[pa.RecordBatch]:
        procedures = scenario.procedures(rebalanced)
        for batch in batches:
            rows: list[tuple[Any, ...]] = []
            for pattern in patterns(batch):
                p = pattern.partition
                p.begin(scenario.brokers)
                for number in range(len(scenario.steps)):
                    procedures.apply(p, number)
                s, a = p.state, p.assignment
                if s is None:
                    rows.append((None, None, a.replicas, a.adding, a.removing, None, None, None))
                else:
                    rows.append((s.leader, s.isr, a.replicas, a.adding, a.removing, s.recovery, s.leader_epoch, s.partition_epoch))
            new = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), OUTCOME, strict=True)]
            kept = [batch.column(name) for name in names]
            yield pa.RecordBatch.from_arrays(kept + new, names=[*names, *OUTCOME.names])

    return finish
