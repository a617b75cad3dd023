"""Fixtures of the rules `R`: steps of reassignments and of throttles."""

from __future__ import annotations

from typing import Any

from klamm.tests.pipeline.rules.controllers import Channel, State, handled
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent

REPLICAS, RATES = "/admin/throttled_replicas_removal", "/admin/throttled_rates_removal"


def _removal(journal: Any, path: str, *names: str, op: str = "create", outcome: str = "OK") -> int:
    """A write of a znode that names whose throttles are to go."""
    given = {"op": op, "path": path, "version": None} | ({} if op == "delete" else {"names": list(names)})
    return int(journal.event("zk_write", input=given, output={"outcome": outcome, "version": 0}, controller_epoch=1))


def _throttle(journal: Any, kind: str, cause: int, *, topic: str | None = None, broker: int | None = None) -> int:
    entity = {"entity_type": "topics", "entity": topic} if broker is None else {"entity_type": "brokers", "entity": str(broker)}
    output = {"properties": {"x": "1"}} if kind == "throttle_set" else {"keys": ["x"]}
    return int(journal.event(kind, input=entity, output=output, topic=topic, broker=broker, controller_epoch=1, cause=cause))


def _phases(journal: Any, *names: str, step: int = 1, cause: int | None = None, partition: int = 0) -> list[int]:
    return [
        int(journal.event(
            "reassign_phase", topic="t", partition=partition, output={"phase": name, "step": step}, cause=cause, controller_epoch=1
        ))
        for name in names
    ]  # fmt: skip


# ---


@good("R-01")
def named_throttles_go_and_others_stay(run: Run) -> None:
    journal = run.journal()
    request = handled(journal, "ReassignPartitions")
    _removal(journal, REPLICAS, "t")
    _throttle(journal, "throttle_set", request, topic="t")
    _removal(journal, RATES, "1", "2")
    _throttle(journal, "throttle_set", request, broker=1)
    _throttle(journal, "throttle_set", request, broker=2)
    _throttle(journal, "throttle_set", handled(journal, "AlterInterbrokerThrottledRates"), broker=7)
    end = handled(journal, "AlterPartition")
    _throttle(journal, "throttle_removed", end, topic="t")
    _removal(journal, REPLICAS, op="delete")
    _throttle(journal, "throttle_removed", end, broker=1)
    _throttle(journal, "throttle_removed", end, broker=2)
    _removal(journal, RATES, op="delete")
    _throttle(journal, "throttle_removed", handled(journal, "AlterInterbrokerThrottledRates"), broker=7)


@good("R-01")
def a_throttle_that_cannot_be_removed_stays_named(run: Run) -> None:
    journal = run.journal()
    request = handled(journal, "ReassignPartitions")
    _removal(journal, RATES, "1", "2")
    _throttle(journal, "throttle_set", request, broker=1)
    _throttle(journal, "throttle_set", request, broker=2)
    end = handled(journal, "AlterPartition")
    _throttle(journal, "throttle_removed", end, broker=1)
    _removal(journal, RATES, "2", op="set")
    _throttle(journal, "throttle_removed", end, broker=2)
    _removal(journal, RATES, op="delete")


@bad("R-01")
def a_throttle_is_forgotten(run: Run) -> int:
    journal = run.journal()
    request = handled(journal, "ReassignPartitions")
    _removal(journal, RATES, "1", "2")
    _throttle(journal, "throttle_set", request, broker=1)
    _throttle(journal, "throttle_set", request, broker=2)
    _throttle(journal, "throttle_removed", handled(journal, "AlterPartition"), broker=1)
    return _removal(journal, RATES, op="delete")


@bad("R-01")
def a_throttle_set_by_hand_is_removed(run: Run) -> int:
    journal = run.journal()
    _removal(journal, REPLICAS, "t")
    return _throttle(journal, "throttle_removed", handled(journal, "AlterPartition"), topic="other")


# ---


def _topic_written(journal: Any, cause: int) -> int:
    return int(journal.event(
        "zk_write", topic="t", input={"op": "set", "path": "/brokers/topics/t", "version": None, "assignments": {}},
        output={"outcome": "OK", "version": None}, cause=cause, controller_epoch=1,
    ))  # fmt: skip


@good("R-02")
def steps_are_in_order(run: Run) -> None:
    journal = run.journal()
    start = handled(journal, "AlterPartitionReassignments")
    _topic_written(journal, start)
    _phases(journal, "U", "A1", "A2", cause=start)
    end = handled(journal, "AlterPartition")
    _phases(journal, "B1", "B2", "B3", "B4", "B5", step=2, cause=end)
    _topic_written(journal, end)
    _phases(journal, "B6", "B7", "B8", "B9", step=2, cause=end)
    _topic_written(journal, end)
    _phases(journal, "U", "B3", "B6", step=3, cause=end, partition=1)
    _phases(journal, "U", "B1", "B3", "B6", "B7", step=4)


@bad("R-02")
def a_phase_comes_too_late(run: Run) -> int:
    return _phases(run.journal(), "U", "B3", "B1")[-1]


@bad("R-02")
def a_step_waits_and_completes_at_once(run: Run) -> int:
    return _phases(run.journal(), "U", "A1", "B1")[-1]


@bad("R-02")
def the_topic_is_written_after_its_completion(run: Run) -> int:
    journal = run.journal()
    end = handled(journal, "AlterPartition")
    _phases(journal, "B6", "B7", cause=end)
    return _topic_written(journal, end)


# ---


def _steps(journal: Any, request: int, *steps: int) -> list[int]:
    return [
        int(journal.event(
            "throttle_step", output={"request": request, "of": "ReassignPartitions", "step": step, "name": "x"}, controller_epoch=1
        ))
        for step in steps
    ]  # fmt: skip


@good("R-03")
def throttles_are_set_before_partitions_move(run: Run) -> None:
    _steps(run.journal(), 1, 2, 3, 3, 4)
    _steps(run.journal(), 2, 3, 5)
    _steps(run.journal(), 1, 5, 6)
    _steps(run.journal(), 2, 6)


@bad("R-03")
def partitions_move_before_rates_are_set(run: Run) -> int:
    return _steps(run.journal(), 1, 2, 3, 6, 5)[2]


@silent("R-03")
def nothing_is_throttled(run: Run) -> None:
    handled(run.journal(), "BrokerChange")


# ---


@good("R-04")
def the_target_comes_first(run: Run) -> None:
    Channel(run.journal()).lead(State(replicas=(4, 1, 5, 2), adding=(4, 5), removing=(2,)))
    run.journal().event(
        "assignment", topic="t", partition=0, output={"replicas": [4, 1, 2, 3], "adding": [4], "removing": [3], "is_new": False}
    )


@bad("R-04")
def the_origin_comes_first(run: Run) -> int:
    return Channel(run.journal()).lead(State(replicas=(1, 2, 4, 5), adding=(4, 5), removing=(2,)))


@silent("R-04")
def nothing_moves(run: Run) -> None:
    Channel(run.journal()).lead(State())
