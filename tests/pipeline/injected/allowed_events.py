"""Counterparts of the violations of rules `D`, `B` and `R`, and of T-06, which events show: changes of the story `controllers` that
are just allowed."""

from __future__ import annotations

import json
from typing import Any

from klamm.tests.pipeline.injected.injections import REQUEST_OUT, Edits, TrueRun, injected, neutral, place
from klamm.tests.pipeline.injected.single_changes import LEAD, simple, with_state
from klamm.tests.pipeline.injected.violations_of_events import DECIDED, RECOVERED, blacklist_change, decided, moving, of_listing, recovery

injected("D-01", "a decision is written with spaces", allowed=True)(decided(lambda text: json.dumps(json.loads(text), indent=1)))


@injected("B-01", "a change of the blacklist writes a znode that is no state", allowed=True)
def _(world: TrueRun) -> Edits:
    config = blacklist_change(world)
    write = next(r for r in world.events("zk_write") if r["node_id"] == config["node_id"] and r["partition"] is None)
    return {place(write): {**write, "cause_seq": config["cause_seq"]}}


@injected("B-02", "the blacklist names all brokers but those that get the lead", allowed=True)
def _(world: TrueRun) -> Edits:
    change = [row for row in world.events("config_change") if '"listed":[1]' in (row["output"] or "").replace(" ", "")][-1]
    writes = [row for row in world.events("zk_write") if row["node_id"] == change["node_id"] and row["seq"] > change["seq"]
              and row["partition"] is not None and "AutoPreferred" in (world.rows[row["node_id"], row["cause_seq"]]["input"] or "")]
    leaders = {json.loads(row["input"]).get("leader") for row in writes}
    assert leaders
    return of_listing(world, sorted({1, 2, 3, 4} - leaders))


@injected("R-01", "two throttles are removed in another order", allowed=True)
def _(world: TrueRun) -> Edits:
    one, two = [row for row in world.events("throttle_removed") if row["broker"] is not None][:2]
    own = ("broker", "input", "output")
    return {place(row): {**row, **{name: other[name] for name in own}} for row, other in ((one, two), (two, one))}


@injected("R-02", "the last step of a reassignment does not come to its end", allowed=True)
def _(world: TrueRun) -> Edits:
    last = world.events("reassign_phase")[-1]
    assert '"B8"' in last["output"].replace(" ", "")
    return {place(last): neutral(last)}


@injected("R-03", "a request without a throttle moves partitions at once", allowed=True)
def _(world: TrueRun) -> Edits:
    steps = [row for row in world.events("throttle_step") if json.loads(row["output"])["step"] < 6]
    return {place(row): neutral(row) for row in steps}


def _exchange(state: Any) -> None:
    state.replicas[:2] = reversed(state.replicas[:2])


simple("R-04", "the target of a reassignment has another order", LEAD, REQUEST_OUT,
       *with_state(lambda s: moving(s) and not set(s.replicas[:2]) & set(s.removing_replicas) and (
           set(s.replicas[:2]) <= set(s.adding_replicas) or not set(s.replicas[:2]) & set(s.adding_replicas)), _exchange), allowed=True)

injected("T-06", "a recovery that ends in the middle is followed by one that does not", allowed=True)(
    recovery(DECIDED, RECOVERED | {"leader_epoch": 6}))
