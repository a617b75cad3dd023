"""Fixtures of the rules `R`: steps of reassignments and of throttles."""

from __future__ import annotations

from typing import Any

from klamm.tests.pipeline.rules.controllers import Channel, State, elected, handled
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent

REPLICAS, RATES = "/admin/throttled_replicas_removal", "/admin/throttled_rates_removal"


def later(journal: Any) -> None:
    """A minute passes."""
    journal.now_ns += 60_000_000_000


def _removal(journal: Any, path: str, *names: str, op: str = "set", outcome: str = "OK", cause: int | None = None) -> int:
    """A write of a znode that names whose throttles are to go."""
    given = {"op": op, "path": path, "version": None} | ({} if op == "delete" else {"names": list(names)})
    return int(journal.event("zk_write", input=given, output={"outcome": outcome, "version": 0}, controller_epoch=1, cause=cause))


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
    ]


# ---


def _step(journal: Any, cause: int, name: str = "ChangeConfig") -> int:
    """A step of a request is done."""
    what = {"request": 1, "of": "ReassignPartitions", "step": 3, "name": name}
    return int(journal.event("throttle_step", output=what, cause=cause, controller_epoch=1))


def _assigned(journal: Any, cause: int, *, adding: tuple[int, ...] = (), topic: str = "t") -> int:
    """The replicas of a partition are these from now on."""
    what = {"replicas": [1, 2, *adding], "adding": list(adding), "removing": [], "is_new": False}
    return int(journal.event("assignment", topic=topic, partition=0, output=what, cause=cause, controller_epoch=1))


def _request(journal: Any, brokers: tuple[int, ...], name: str = "ReassignPartitions") -> int:
    """A request names brokers, throttles them, and has done its steps; the seq of the write that names them."""
    request = handled(journal, name)
    named = _removal(journal, RATES, *map(str, brokers), cause=request)
    _step(journal, request, "RecordBrokers")
    for broker in brokers:
        _throttle(journal, "throttle_set", request, broker=broker)
        _step(journal, request)
    return named


@good("R-01")
def named_throttles_go_and_others_stay(run: Run) -> None:
    journal = run.journal()
    request = handled(journal, "ReassignPartitions")
    _removal(journal, REPLICAS, "t", cause=request)
    _step(journal, request, "RecordTopics")
    _throttle(journal, "throttle_set", request, topic="t")
    _step(journal, request)
    _request(journal, (1, 2))
    by_hand = handled(journal, "AlterInterbrokerThrottledRates")
    _throttle(journal, "throttle_set", by_hand, broker=7)
    _step(journal, by_hand)
    end = handled(journal, "AlterPartition")
    _throttle(journal, "throttle_removed", end, topic="t")
    _removal(journal, REPLICAS, op="delete", cause=end)
    _throttle(journal, "throttle_removed", end, broker=1)
    _throttle(journal, "throttle_removed", end, broker=2)
    _removal(journal, RATES, op="delete", cause=end)
    by_hand = handled(journal, "AlterInterbrokerThrottledRates")
    _throttle(journal, "throttle_removed", by_hand, broker=7)
    _step(journal, by_hand)


@good("R-01")
def a_throttle_that_cannot_be_removed_stays_named(run: Run) -> None:
    journal = run.journal()
    elected(journal)
    _request(journal, (1, 2))
    end = handled(journal, "AlterPartition")
    _phases(journal, "B6", "B7", cause=end)
    _throttle(journal, "throttle_removed", end, broker=1)
    _removal(journal, RATES, "2", op="set", cause=end)
    later(journal)
    end = handled(journal, "AlterPartition")
    _throttle(journal, "throttle_removed", end, broker=2)
    _removal(journal, RATES, op="delete", cause=end)


@good("R-01")
def a_topic_that_is_deleted_takes_its_throttle_along(run: Run) -> None:
    journal = run.journal()
    request = handled(journal, "ReassignPartitions")
    _removal(journal, REPLICAS, "t", cause=request)
    _step(journal, request, "RecordTopics")
    _throttle(journal, "throttle_set", request, topic="t")
    _step(journal, request)
    end = handled(journal, "TopicDeletionStopReplicaResponseReceived")
    journal.event("zk_write", topic="t", input={"op": "delete", "path": "/config/topics/t", "version": None},
                  output={"outcome": "OK", "version": None}, controller_epoch=1, cause=end)
    _removal(journal, REPLICAS, op="delete", cause=end)


@good("R-01")
def throttles_that_are_to_stay_and_one_that_a_person_has_removed(run: Run) -> None:
    journal = run.journal()
    _request(journal, (1, 2))
    for _ in range(2):
        journal.event("config_change", input={"entity_type": "brokers", "entity": "2"},
                      output={"keys": ["leader.replication.throttled.rate"]})
    end = handled(journal, "AlterPartition")
    _throttle(journal, "throttle_removed", end, broker=1)
    _removal(journal, RATES, op="delete", cause=end)
    _request(journal, (3,))
    request = handled(journal, "AlterInterbrokerThrottledRates")
    _removal(journal, RATES, op="delete", cause=request)
    _step(journal, request, "RecordBrokers")


@good("R-01")
def a_znode_that_is_older_than_the_journal(run: Run) -> None:
    journal = run.journal()
    start = elected(journal)
    _throttle(journal, "throttle_removed", start, broker=4)
    _removal(journal, RATES, op="delete", cause=start)
    later(journal)
    handled(journal, "BrokerChange")


@good("R-01")
def names_stay_while_a_reassignment_is_ongoing_and_without_one(run: Run) -> None:
    journal = run.journal()
    elected(journal)
    _request(journal, (1,), "AlterInterbrokerThrottledRates")
    later(journal)
    start = handled(journal, "AlterPartitionReassignments")
    _assigned(journal, start, adding=(3,))
    end = handled(journal, "AlterPartition")
    _phases(journal, "B5", "B6", "B7", cause=end, partition=1)
    later(journal)
    handled(journal, "BrokerChange")


@bad("R-01")
def a_throttle_is_forgotten(run: Run) -> int:
    journal = run.journal()
    _request(journal, (1, 2))
    end = handled(journal, "AlterPartition")
    _throttle(journal, "throttle_removed", end, broker=1)
    return _removal(journal, RATES, op="delete", cause=end)


@bad("R-01")
def a_request_forgets_whom_it_does_not_name(run: Run) -> int:
    journal = run.journal()
    _request(journal, (1, 2))
    return _request(journal, (1,), "AlterInterbrokerThrottledRates")


@bad("R-01")
def a_throttle_set_by_hand_is_removed(run: Run) -> int:
    journal = run.journal()
    _removal(journal, REPLICAS, "t")
    return _throttle(journal, "throttle_removed", handled(journal, "AlterPartition"), topic="other")


@bad("R-01")
def a_throttle_set_by_hand_is_removed_though_it_was_named_once(run: Run) -> int:
    journal = run.journal()
    _request(journal, (1,))
    end = handled(journal, "AlterPartition")
    _throttle(journal, "throttle_removed", end, broker=1)
    _removal(journal, RATES, op="delete", cause=end)
    return _throttle(journal, "throttle_removed", handled(journal, "AlterPartition"), broker=1)


@bad("R-01")
def a_throttle_is_removed_where_nothing_was_ever_named(run: Run) -> int:
    journal = run.journal()
    seq = _throttle(journal, "throttle_removed", handled(journal, "AlterPartition"), broker=1)
    later(journal)
    handled(journal, "BrokerChange")
    return seq


@bad("R-01")
def throttles_outlive_the_last_reassignment(run: Run) -> int:
    journal = run.journal()
    elected(journal)
    seq = _request(journal, (1, 2))
    start = handled(journal, "AlterPartitionReassignments")
    _assigned(journal, start, adding=(3,))
    end = handled(journal, "AlterPartition")
    _assigned(journal, end)
    _phases(journal, "B5", "B6", "B7", "B8", cause=end)
    later(journal)
    handled(journal, "BrokerChange")
    return seq


def _resigned_after_the_end(run: Run, seconds: int) -> int:
    """The last reassignment ends, and so many seconds later the controller; the seq of the write that names whose throttles stay."""
    journal = run.journal()
    elected(journal)
    seq = _request(journal, (1, 2))
    end = handled(journal, "AlterPartition")
    _assigned(journal, end)
    _phases(journal, "B5", "B6", "B7", "B8", cause=end)
    journal.now_ns += seconds * 1_000_000_000
    journal.event("controller_resigned", broker=1, controller_epoch=1)
    later(journal)
    journal.event("broker_stopped")
    return seq


@bad("R-01")
def throttles_outlive_a_controller_that_resigns_long_after(run: Run) -> int:
    return _resigned_after_the_end(run, 100)


@good("R-01")
def a_controller_resigns_before_it_could_remove_throttles(run: Run) -> None:
    _resigned_after_the_end(run, 1)


@bad("R-01")
def a_new_controller_leaves_what_an_earlier_one_has_named(run: Run) -> int:
    journal = run.journal()
    elected(journal)
    seq = _request(journal, (1, 2))
    journal.event("controller_resigned", broker=1, controller_epoch=1)
    other = run.journal(2)
    elected(other, 2)
    later(other)
    handled(other, "BrokerChange", controller_epoch=2)
    return seq


@silent("R-01")
def nobody_throttles(run: Run) -> None:
    elected(run.journal())


# ---


def _topic_written(journal: Any, cause: int) -> int:
    return int(journal.event(
        "zk_write", topic="t", input={"op": "set", "path": "/brokers/topics/t", "version": None, "assignments": {}},
        output={"outcome": "OK", "version": None}, cause=cause, controller_epoch=1,
    ))


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
    _phases(journal, "U", "B1", "B2", "B3", "B4", "B5", "B6", step=3, cause=end, partition=1)
    _phases(journal, "U", "B1", "B2", "B3", step=4)
    _phases(journal, "B4", "B5", step=5)
    _phases(journal, "B1", "B2", step=6)
    _phases(journal, "U", "A1", step=7)
    _phases(journal, "A2", step=8)


@bad("R-02")
def a_phase_comes_too_late(run: Run) -> int:
    return _phases(run.journal(), "U", "B1", "B2", "B1")[-1]


@good("R-02")
def the_topic_is_written_before_its_completion(run: Run) -> None:
    journal = run.journal()
    end = handled(journal, "AlterPartition")
    _phases(journal, "B1", "B2", "B3", "B4", "B5", cause=end)
    _topic_written(journal, end)
    _phases(journal, "B6", "B7", "B8", cause=end)


@bad("R-02")
def a_phase_comes_twice(run: Run) -> int:
    return _phases(run.journal(), "U", "B1", "B1")[-1]


@bad("R-02")
def a_step_waits_and_completes_at_once(run: Run) -> int:
    return _phases(run.journal(), "U", "A1", "B1")[-1]


@bad("R-02")
def a_phase_is_left_out(run: Run) -> int:
    return _phases(run.journal(), "U", "B1", "B2", "B3", "B4", "B6")[-1]


@bad("R-02")
def a_phase_is_left_out_between_two_steps(run: Run) -> list[int]:
    journal = run.journal()
    _phases(journal, "U", "B1", "B2")
    late = _phases(journal, "B4", step=2)[0]
    _phases(journal, "U", step=3, partition=1)
    return [late, _phases(journal, "A2", step=4, partition=1)[0]]


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
    ]


@good("R-03")
def throttles_are_set_before_partitions_move(run: Run) -> None:
    _steps(run.journal(), 1, 2, 3, 3, 4)
    _steps(run.journal(), 2, 3, 5)
    _steps(run.journal(), 1, 5, 6)
    _steps(run.journal(), 2, 6)


@good("R-03")
def a_request_without_a_throttle_and_one_that_is_cut_short(run: Run) -> None:
    _steps(run.journal(), 1, 6, 6)
    _steps(run.journal(), 2, 2, 3)


@bad("R-03")
def a_step_is_left_out(run: Run) -> list[int]:
    without_rates = _steps(run.journal(), 1, 2, 3, 4, 6)[-1]
    return [without_rates, _steps(run.journal(), 2, 3, 4, 5, 6)[-1]]


@bad("R-03")
def partitions_move_before_rates_are_set(run: Run) -> int:
    return _steps(run.journal(), 1, 2, 3, 4, 6, 5)[3]


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


@bad("R-04")
def the_origin_comes_first_in_what_the_controller_remembers(run: Run) -> int:
    assignment = {"replicas": [1, 2, 3, 4], "adding": [4], "removing": [3], "is_new": False}
    return int(run.journal().event("assignment", topic="t", partition=0, output=assignment))


@bad("R-04")
def the_origin_still_comes_first(run: Run) -> int:
    broker = Channel(run.journal())
    broker.lead(State(replicas=(1, 2)))
    return broker.lead(State(replicas=(1, 2, 4, 5), adding=(4, 5), removing=(2,)).next())


@bad("R-04")
def the_controller_remembers_that_the_origin_comes_first(run: Run) -> int:
    for replicas, adding in (([1, 2, 3], []), ([1, 2, 3, 4], [4])):
        assignment = {"replicas": replicas, "adding": adding, "removing": [3] if adding else [], "is_new": False}
        seq = int(run.journal().event("assignment", topic="t", partition=0, output=assignment))
    return seq


@bad("R-04")
def a_replica_that_is_added_is_missing(run: Run) -> int:
    return Channel(run.journal()).lead(State(replicas=(4, 1, 2), adding=(4, 5), removing=(2,)))


@silent("R-04")
def nothing_moves(run: Run) -> None:
    Channel(run.journal()).lead(State())
