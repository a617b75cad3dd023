"""Violations of rules `D`, `B` and `R`, and of T-06, which events show, put into the story `controllers`: at least two of each rule, one
of them as small as it can be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from klamm.tests.pipeline.injected.injections import (
    REQUEST_OUT,
    Edits,
    Row,
    TrueRun,
    injected,
    neutral,
    of_event,
    place,
)
from klamm.tests.pipeline.injected.single_changes import LEAD, simple, with_state


def decided(how: Callable[[Any], Any]) -> Callable[[TrueRun], Edits]:
    """The output of a decision that writes a leader."""

    def make(world: TrueRun) -> Edits:
        row = next(r for r in world.events("decision") if '"leader":' in (r["output"] or "").replace(" ", ""))
        return {place(row): {**row, "output": how(row["output"])}}

    return make


injected("D-01", "a decision writes a leader that is one higher", edge=True)(
    decided(lambda text: re.sub(r'("leader": ?)(\d+)', lambda found: f"{found[1]}{int(found[2]) + 1}", text, count=1)))
injected("D-01", "a decision is to do nothing")(decided(lambda text: "{}"))


def _listing(row: Row) -> bool:
    return '"listed"' in (row["output"] or "")


def blacklist_change(world: TrueRun) -> Row:
    """A change of the blacklist, which is the cause of nothing else."""
    return next(r for r in world.events("config_change") if _listing(r) and '"ConfigsChanged"' in world.rows[
        r["node_id"], r["cause_seq"]]["input"].replace(" ", ""))


@injected("B-01", "a change of the blacklist writes a state", edge=True)
def _(world: TrueRun) -> Edits:
    config = blacklist_change(world)
    write = next(r for r in world.events("zk_write") if r["node_id"] == config["node_id"] and r["partition"] is not None)
    return {place(write): {**write, "cause_seq": config["cause_seq"]}}


@injected("B-01", "a change of the blacklist sends a batch")
def _(world: TrueRun) -> Edits:
    config = blacklist_change(world)
    batch = next(r for r in world.events("batch") if r["node_id"] == config["node_id"])
    return {place(batch): {**batch, "cause_seq": config["cause_seq"]}}


@injected("B-02", "the rebalance gives the lead to the listed broker", edge=True)
def _(world: TrueRun) -> Edits:
    for row in world.events("zk_write"):
        cause = world.rows.get((row["node_id"], row["cause_seq"] or 0))
        listed = [r for r in world.events("config_change") if _listing(r) and r["node_id"] == row["node_id"] and r["seq"] < row["seq"]]
        if row["partition"] is not None and cause and "AutoPreferredReplicaLeaderElection" in (cause["input"] or "") and listed \
                and '"listed":[1]' in listed[-1]["output"].replace(" ", ""):
            given = json.loads(row["input"]) | {"leader": 1}
            return {place(row): {**row, "input": json.dumps(given)}}
    raise LookupError


def of_listing(world: TrueRun, listed: list[int]) -> Edits:
    """The last blacklist that names broker 1 names these."""
    return of_event(world, "config_change", lambda r: '"listed":[1]' in (r["output"] or "").replace(" ", ""),
                    lambda row, given, output: output.update(listed=listed), which=-1)


injected("B-02", "the blacklist names the broker that gets the lead")(lambda world: of_listing(world, [1, 2, 3, 4]))


def _phase(row: Row) -> str:
    return str(row["output"])


injected("R-02", "a phase comes again", edge=True)(
    lambda world: of_event(world, "reassign_phase", lambda r: '"B3"' in _phase(r), lambda r, given, output: output.update(phase="B1")))
injected("R-02", "the last phase comes first")(
    lambda world: of_event(world, "reassign_phase", lambda r: '"U"' in _phase(r) or '"B1"' in _phase(r),
                           lambda r, given, output: output.update(phase="B9")))


@injected("R-03", "a request leaves a step out", edge=True)
def _(world: TrueRun) -> Edits:
    row = world.events("throttle_step")[1]
    return {place(row): neutral(row)}


@injected("R-03", "two steps of a request change places")
def _(world: TrueRun) -> Edits:
    rows = world.events("throttle_step")
    one, two = rows[0], rows[-1]
    return {place(one): {**one, "output": two["output"]}, place(two): {**two, "output": one["output"]}}


def moving(state: Any) -> bool:
    return bool(len(state.adding_replicas) > 0)


simple("R-04", "replicas are in another order while they move", LEAD, REQUEST_OUT,
       *with_state(moving, lambda s: setattr(s, "replicas", list(reversed(s.replicas)))), edge=True)
simple("R-04", "a replica of the target is missing while it is added", LEAD, REQUEST_OUT,
       *with_state(moving, lambda s: setattr(s, "replicas", [b for b in s.replicas if b not in s.adding_replicas])))


def _removal(world: TrueRun) -> Row:
    return next(r for r in world.events("throttle_removed"))


@injected("R-01", "a name leaves the znode, and its throttle stays", edge=True)
def _(world: TrueRun) -> Edits:
    row = _removal(world)
    return {place(row): neutral(row)}


@injected("R-01", "a throttle goes that is not named")
def _(world: TrueRun) -> Edits:
    return of_event(world, "throttle_removed", lambda r: r["topic"] is not None, lambda r, given, output: r.update(topic="other"))


def recovery(*phases: dict[str, object]) -> Callable[[TrueRun], Edits]:
    """Phases of the recovery of t-0 in leader epoch 5, in the places of rows that say little."""

    def make(world: TrueRun) -> Edits:
        edits, row = {}, world.slot(world.events("config_change")[0])
        for phase in phases:
            about = {"broker_id": row["node_id"], "topic": "t", "partition": 0, "leader_epoch": 5} | phase
            edits[place(row)] = neutral(row) | {"kind": "coordinator_phase", "broker": row["node_id"], "input": json.dumps(about)}
            row = world.slot(row)
        return edits

    return make


DECIDED: dict[str, object] = {
    "name": "PendingTransactionDecided", "producer_id": 7, "producer_epoch": 0, "transactional_id": "tx", "outcome": "commit",
}
RECOVERED: dict[str, object] = {"name": "PartitionRecovered", "open_transactions": 0}

injected("T-06", "one transaction is open after a recovery", edge=True)(recovery(RECOVERED | {"open_transactions": 1}))
injected("T-06", "a transaction has another marker than was decided")(
    recovery(DECIDED, DECIDED | {"name": "PendingTransactionEnded", "outcome": "abort"}, RECOVERED))
