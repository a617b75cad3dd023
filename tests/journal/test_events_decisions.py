"""Decisions as JSON, both ways, and every decision of simulated controllers made again from it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import klamm.controller
from klamm.controller.decisions import elections
from klamm.controller.decisions.decision import Decision, Keep, Refusal, Refuse, Situation, Write
from klamm.controller.event_loop import decision_json
from klamm.controller.partitions import alter_partition
from klamm.controller.partitions.partition_machine import ElectLeader
from klamm.controller.partitions.replica_machine import LeaveIsr
from klamm.controller.values import Assignment, LeaderAndIsr, Proposal
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.reassignment import test_reassignment_crash_matrix, test_reassignment_model
from klamm.tests.controller.simulated import Faults
from klamm.tests.controller.simulation import crash_matrix, simulation, test_simulation
from klamm.tests.harness.seeds import seeds
from klamm.tests.journal.recorded import RecordedJournal, journaled

IDS = st.lists(st.integers(0, 5), unique=True, max_size=4).map(tuple)
SOME = st.frozensets(st.integers(0, 5))
EPOCHS = st.integers(0, 3)
STATES = st.builds(LeaderAndIsr, st.integers(-1, 5), EPOCHS, IDS, st.integers(0, 1), EPOCHS, EPOCHS)
PROPOSALS = st.builds(Proposal, st.integers(0, 5), EPOCHS, IDS, st.integers(0, 1), EPOCHS, st.integers(0, 3))
ASSIGNMENTS = st.builds(Assignment, IDS, IDS, IDS)
SITUATIONS = st.builds(
    Situation, st.none() | STATES, ASSIGNMENTS, SOME, SOME, SOME, EPOCHS, st.booleans(), st.none() | PROPOSALS
)
STRATEGIES = st.one_of([st.from_type(strategy) for strategy in decision_json._STRATEGIES.values()])
RULES = st.one_of(
    [
        st.builds(ElectLeader, STRATEGIES, st.booleans(), SOME),
        st.builds(LeaveIsr, st.integers(0, 5)),
        *(st.builds(rule) for name, rule in decision_json.RULES.items() if name not in ("ElectLeader", "LeaveIsr")),
    ]
)
DECISIONS = st.one_of(
    st.builds(Write, STATES, st.none() | IDS),
    st.builds(Keep, STATES, st.none() | IDS),
    st.builds(Refuse, st.sampled_from(Refusal) | st.sampled_from(ErrorCode), st.booleans()),
)


def rules_of_the_controller() -> dict[str, type[Any]]:
    """Classes of the controller whose objects decide about a Situation; functions that do are not allowed."""
    found: dict[str, type[Any]] = {}
    for module in pkgutil.walk_packages(klamm.controller.__path__, "klamm.controller."):
        members = vars(importlib.import_module(module.name))
        for name, member in members.items():
            if getattr(member, "__module__", "") != module.name:
                continue
            call = member.__call__ if inspect.isclass(member) else member
            if inspect.isfunction(call) and call.__annotations__ == {"situation": "Situation", "return": "Decision"}:
                assert inspect.isclass(member), f"{name} is a rule without a name in its JSON"
                found[name] = member
    return found


def test_every_rule_of_the_controller_can_be_written_down() -> None:
    assert rules_of_the_controller() == dict(decision_json.RULES)


def test_commit_states_is_given_registered_rules_only() -> None:
    """By name, in each call: an object of a rule, a constant or a local variable that is one."""
    calls = 0
    for path in Path(klamm.controller.__path__[0]).rglob("*.py"):
        tree = ast.parse(path.read_text())
        made = {
            target.id: node.value.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "commit_states":
                rule = node.args[2]
                name = made[rule.id] if isinstance(rule, ast.Name) else rule.func.id  # type: ignore[attr-defined]
                assert name in decision_json.RULES, f"{path.name}: {name}"
                calls += 1
    assert calls >= 6


@given(RULES, SITUATIONS)
def test_rule_and_situation_come_back_from_their_json(rule: Any, situation: Situation) -> None:
    about = (TopicPartition("t", 0), TopicPartition("u", 7))
    text = decision_json.input_json(rule, situation, about)
    assert decision_json.read_input(text) == (rule, situation, about)
    assert decision_json.input_json(*decision_json.read_input(text)) == text


@given(DECISIONS)
def test_a_decision_comes_back_from_its_json(decision: Decision) -> None:
    text = decision_json.output_json(decision)
    assert decision_json.read_output(text) == decision
    assert type(decision_json.read_output(text)) is type(decision)


@given(RULES, SITUATIONS)
def test_what_is_decided_again_is_what_was_decided(rule: Any, situation: Situation) -> None:
    assert decision_json.replay(decision_json.input_json(rule, situation)) == decision_json.output_json(rule(situation))


def test_another_situation_is_decided_otherwise() -> None:
    """The replay looks at what it is given."""
    state = LeaderAndIsr(1, 4, (1, 2), 0, 7, 3)
    rule = ElectLeader(elections.Offline(), True)
    one, other = (
        decision_json.replay(decision_json.input_json(rule, Situation(state, Assignment((1, 2)), alive, frozenset(), frozenset(), 3)))
        for alive in (frozenset({1, 2}), frozenset({2}))
    )
    assert one != other


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"rule":{"name":"Guess"},"situation":{},"partitions":[]}', '{"rule":{"name":"ElectLeader"}}', "nonsense"],
)
def test_what_is_no_decision_is_refused(text: str) -> None:
    with pytest.raises(decision_json.NotADecision):
        decision_json.replay(text)
    with pytest.raises(decision_json.NotADecision):
        decision_json.read_output(text)


def test_a_rule_that_is_not_registered_is_refused() -> None:
    nobody: frozenset[int] = frozenset()
    with pytest.raises(decision_json.NotADecision):
        decision_json.input_json(lambda _: Refuse(Refusal.NO_STATE), Situation(None, Assignment(()), nobody, nobody, nobody, 1))


# --- simulated controllers ---


@pytest.fixture
def journals(monkeypatch: pytest.MonkeyPatch) -> dict[int, RecordedJournal]:
    """Of all controllers of a simulation."""
    found: dict[int, RecordedJournal] = {}
    monkeypatch.setattr(simulation, "Controller", journaled(found))
    return found


def decide_again(journals: dict[int, RecordedJournal]) -> Counter[tuple[str, str]]:
    """Make every decision again; how often which rule said what."""
    said: Counter[tuple[str, str]] = Counter()
    for journal in journals.values():
        for row in journal.check():
            if row.kind == "decision":
                assert row.input_json is not None and row.output_json is not None
                assert decision_json.replay(row.input_json) == row.output_json, row
                assert row.input["partitions"], "about nothing"
                said[row.input["rule"]["name"], next(iter(row.output))] += 1
    return said


async def test_decisions_of_controllers_under_faults_are_made_again(journals: dict[int, RecordedJournal]) -> None:
    faults = Faults(**test_reassignment_model.EVERYTHING)
    for seed in range(4):
        await test_simulation.run(seed, faults, controllers=2, held=True, listed=True)
        await test_reassignment_model.run(seed, faults, controllers=2, held=True)
    said = decide_again(journals)
    assert {rule for rule, _ in said} == decision_json.RULES.keys()
    assert {("ElectLeader", "write"), ("LeaveIsr", "keep"), ("AlterIsr", "refuse")} <= said.keys()


@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize("seed", seeds(25))
async def test_decisions_of_many_controllers_under_faults_are_made_again(journals: dict[int, RecordedJournal], seed: int) -> None:
    await test_simulation.run(seed, Faults(**test_reassignment_model.EVERYTHING), controllers=3, held=seed % 2 == 0, listed=seed % 3 == 0)
    await test_reassignment_model.run(seed, Faults(**test_reassignment_model.CRASHES))
    assert decide_again(journals)


@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize("scenario", (*crash_matrix.SCENARIOS, *test_reassignment_crash_matrix.SCENARIOS), ids=lambda one: one.name)
async def test_decisions_of_controllers_that_crash_at_any_write_are_made_again(
    journals: dict[int, RecordedJournal], scenario: crash_matrix.Scenario
) -> None:
    found = await crash_matrix.row(scenario, places=crash_matrix.in_turn)
    assert not found.wrong
    assert decide_again(journals)


def test_a_broker_that_would_join_an_isr_without_a_replica_is_refused_by_the_rule() -> None:
    state, proposal = LeaderAndIsr(1, 0, (1,), 0, 3, 1), Proposal(1, 0, (1, 3), 0, 3, 2)
    situation = Situation(state, Assignment((1, 2)), frozenset({1, 2, 3}), frozenset(), frozenset(), 1, False, proposal)
    assert alter_partition.AlterIsr()(situation) == Refuse(ErrorCode.INELIGIBLE_REPLICA, at_once=True)
