"""Fixtures of rule D-01: decisions that are decided again."""

from __future__ import annotations

import json
from typing import Any

from klamm.controller.decisions.decision import Situation
from klamm.controller.decisions.elections import Offline, Preferred
from klamm.controller.event_loop.decision_json import input_json, output_json
from klamm.controller.partitions.partition_machine import ElectLeader, InitialiseLeader
from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.protocol.nouns import TopicPartition
from klamm.tests.pipeline.rules.controllers import handled
from klamm.tests.pipeline.rules.fixtures import Run, bad, good, silent

RULE = ElectLeader(Offline(), True)
SITUATION = Situation(LeaderAndIsr(1, 3, (1, 2), 0, 5, 1), Assignment((1, 2)), frozenset({2, 3}), frozenset(), frozenset(), 1)


def _decided(run: Run, given: str, decided: Any) -> int:
    journal = run.journal()
    return int(journal.event("decision", input=given, output=decided, controller_epoch=1, cause=handled(journal, "BrokerChange")))


@good("D-01")
def decisions_are_those_of_the_rule(run: Run) -> None:
    new = SITUATION._replace(state=None)
    for rule, situation in ((RULE, SITUATION), (ElectLeader(Preferred(), True), SITUATION), (InitialiseLeader(), new)):
        _decided(run, input_json(rule, situation, [TopicPartition("t", 0)]), output_json(rule(situation)))
    spaced = json.dumps(json.loads(output_json(RULE(SITUATION))), indent=1)
    _decided(run, input_json(RULE, SITUATION, [TopicPartition("t", 1)]), spaced)


@bad("D-01")
def another_leader_was_written(run: Run) -> int:
    decided = json.loads(output_json(RULE(SITUATION)))
    decided["write"]["leader"] = 3
    return _decided(run, input_json(RULE, SITUATION, [TopicPartition("t", 0)]), decided)


@bad("D-01")
def the_rule_does_not_exist(run: Run) -> int:
    given = json.loads(input_json(RULE, SITUATION, [TopicPartition("t", 0)]))
    given["rule"]["name"] = "ElectNobody"
    return _decided(run, json.dumps(given), output_json(RULE(SITUATION)))


@silent("D-01")
def nothing_is_decided(run: Run) -> None:
    handled(run.journal(), "BrokerChange")
