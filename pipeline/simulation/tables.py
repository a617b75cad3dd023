"""The tables `gold/sim_*` of a lake. A simulation is a run of its own in them; `run_id` is its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from klamm.journal.columns import Column
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake import table_parts as parts
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.tables import Table

if TYPE_CHECKING:
    from klamm.pipeline.simulation.outcome import Outcome

BATCH = "0"
_RUN = Column("run_id", "string", False, "name of the simulation")
_STEP = (
    _RUN,
    Column("step", "int32", False, "0: before the first step"),
    Column("action", "string", False, "the step, as in `kill 1,2`"),
)

SIM_LEADERS = Table("gold", "sim_leaders", (
    *_STEP,
    Column("broker", "int32", False, ""),
    Column("rack", "string", True, ""),
    Column("runs", "bool", False, ""),
    Column("listed", "bool", False, "on `preferred_leader_blacklist`"),
    Column("leaders", "int64", False, "partitions that it leads"),
    Column("replicas", "int64", False, "partitions that are assigned to it"),
), "a broker behind a step of a simulation")

SIM_MOVEMENT = Table("gold", "sim_movement", (
    *_STEP,
    Column("broker", "int32", False, ""),
    Column("leaders_gained", "int64", False, ""),
    Column("leaders_lost", "int64", False, ""),
    Column("replicas_in", "int64", False, "copies that a reassignment made on it"),
    Column("replicas_out", "int64", False, "copies that were made from its replicas, as leader"),
    Column("bytes_in", "int64", False, ""),
    Column("bytes_out", "int64", False, ""),
    Column("hours", "double", True, "under the throttle; null without one"),
), "what a step of a simulation moved to and from a broker")

SIM_SUMMARY = Table("gold", "sim_summary", (
    *_STEP,
    Column("partitions", "int64", False, ""),
    Column("brokers", "int64", False, "that run"),
    Column("leaderless", "int64", False, "partitions that no broker leads that runs"),
    Column("under_min_isr", "int64", False, "partitions with fewer replicas in sync than `min.insync.replicas`"),
    Column("led_elsewhere", "int64", False, "partitions that the first of their replicas does not lead"),
    Column("reassigning", "int64", False, "partitions whose reassignment waits"),
    Column("most_leaders", "int64", False, "of a broker that runs"),
    Column("fewest_leaders", "int64", False, "of a broker that runs"),
    Column("leaders_moved", "int64", False, "partitions that another broker leads, or none"),
    Column("leader_epochs", "int64", False, "how often a leader epoch rose"),
    Column("state_writes", "int64", False, "how often a partition's state was written"),
    Column("unclean_elections", "int64", False, ""),
    Column("refused", "int64", False, "reassignments that the controller refused"),
    Column("replicas_moved", "int64", False, ""),
    Column("bytes_moved", "int64", False, ""),
    Column("hours", "double", True, "of the broker that takes longest"),
), "the cluster behind a step of a simulation, and what the step did")

SIM_PARTITIONS = Table("gold", "sim_partitions", (
    _RUN,
    Column("topic", "string", False, ""),
    Column("partition", "int32", False, ""),
    Column("leader_before", "int32", True, ""),
    Column("isr_before", "list<int32>", True, ""),
    Column("replicas_before", "list<int32>", False, ""),
    Column("leader", "int32", True, ""),
    Column("isr", "list<int32>", True, ""),
    Column("replicas", "list<int32>", False, ""),
    Column("adding", "list<int32>", True, ""),
    Column("removing", "list<int32>", True, ""),
    Column("recovery", "int32", True, "1: after an unclean election"),
    Column("leader_epoch", "int32", True, ""),
    Column("partition_epoch", "int32", True, ""),
), "a partition before the first and behind the last step; only with `--rows`")

TABLES = (SIM_SUMMARY, SIM_LEADERS, SIM_MOVEMENT, SIM_PARTITIONS)

_TYPES = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string(), "bool": pa.bool_(), "double": pa.float64()}


def write_outcome(lake: Path, run: str, outcome: Outcome) -> None:
    """Add the tables of a simulation to the lake; a simulation of the same name is replaced."""
    entries = []
    rows: Sequence[tuple[Any, ...]]
    for table, rows in ((SIM_SUMMARY, outcome.summary), (SIM_LEADERS, outcome.leaders), (SIM_MOVEMENT, outcome.movement)):
        schema = pa.schema([(column.name, _TYPES[column.type]) for column in table.columns])
        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * (len(schema) - 1)
        arrays = [pa.array([run] * len(rows), pa.string())]
        arrays += [pa.array(column, field.type) for column, field in zip(columns, list(schema)[1:], strict=True)]
        entries.append(parts.put(lake, table, run, BATCH, pa.Table.from_arrays(arrays, schema=schema)))
    _commit(lake, entries)


def write_rows(lake: Path, run: str, rows: Any) -> int:
    """Add the partitions of a simulation to the lake; how many there are."""
    entries = parts.write(lake, SIM_PARTITIONS, rows.selectExpr(f"'{run}' AS run_id", "*"), BATCH)
    _commit(lake, entries)
    return sum(entry.rows for entry in entries)


def _commit(lake: Path, entries: Sequence[Entry]) -> None:
    delta_log.append(lake, TABLES, entries)
    delta_log.name_version(lake, {entry.table for entry in entries})
