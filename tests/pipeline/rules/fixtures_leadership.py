"""Fixtures of the rules `B`: the blacklist of preferred leaders."""

from __future__ import annotations

from typing import Any

from klamm.tests.pipeline.rules.controllers import batch, elected, handled, written
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent


def _listed(journal: Any, *brokers: int, event: int | None = None) -> int:
    """The blacklist becomes this one; the seq of the controller's event."""
    if event is None:
        event = handled(journal, "ConfigsChanged")
    journal.event(
        "config_change", input={"entity_type": "brokers", "entity": "<default>"},
        output={"keys": ["preferred_leader_blacklist"], "listed": list(brokers)}, cause=event,
    )
    return event


@good("B-01")
def a_change_of_the_list_moves_nothing(run: Run) -> None:
    journal = run.journal()
    _listed(journal, 2)
    event = handled(journal, "BrokerChange")
    written(journal, 1, 0, cause=event)
    batch(journal, event)


@good("B-01")
def a_fail_over_reads_the_list_and_elects(run: Run) -> None:
    journal = run.journal()
    event = elected(journal)
    _listed(journal, 2, event=event)
    written(journal, 1, 0, cause=event)
    _listed(journal)


@bad("B-01")
def a_change_of_the_list_elects(run: Run) -> int:
    journal = run.journal()
    return written(journal, 1, 0, cause=_listed(journal, 2))


@silent("B-01")
def another_config_changes(run: Run) -> None:
    run.journal().event("config_change", input={"entity_type": "topics", "entity": "t"}, output={"keys": ["retention.ms"]})


@good("B-02")
def the_rebalance_passes_over_a_listed_broker(run: Run) -> None:
    journal = run.journal()
    _listed(journal, 2)
    written(journal, 1, 0, leader=1, cause=handled(journal, "AutoPreferredReplicaLeaderElection"))
    written(journal, 2, 1, leader=2, cause=handled(journal, "BrokerChange"))
    _listed(journal)
    written(journal, 3, 2, leader=2, cause=handled(journal, "AutoPreferredReplicaLeaderElection"))


@good("B-02")
def a_controller_that_comes_back_knows_no_list_of_its_earlier_term(run: Run) -> None:
    journal = run.journal()
    elected(journal, 1)
    _listed(journal, 2)
    elected(journal, 3)
    written(journal, 1, 0, leader=2, cause=handled(journal, "AutoPreferredReplicaLeaderElection"))
    _listed(journal, 4)
    written(journal, 2, 1, leader=2, cause=handled(journal, "AutoPreferredReplicaLeaderElection"))


@bad("B-02")
def the_rebalance_elects_a_listed_broker(run: Run) -> int:
    journal = run.journal()
    _listed(journal, 2)
    return written(journal, 1, 0, leader=2, cause=handled(journal, "AutoPreferredReplicaLeaderElection"))


@silent("B-02")
def nobody_is_listed(run: Run) -> None:
    journal = run.journal()
    written(journal, 1, 0, leader=2, cause=handled(journal, "AutoPreferredReplicaLeaderElection"))
