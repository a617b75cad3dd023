"""Faults that are put into a long journal are all found, counted, and nothing else is."""

from __future__ import annotations

import pytest

from klamm.pipeline.rules.runner import Judgement
from klamm.tests.pipeline.faults import ALSO, KINDS, Faulty


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_that_is_put_in_is_found(kind: str, faulty: Faulty, judgement: Judgement) -> None:
    flagged = {verdict.seq for verdict in judgement.verdicts if (verdict.run_id, verdict.rule) == ("faults", KINDS[kind])}
    assert len(faulty.faults[kind]) >= 10
    assert faulty.faults[kind] <= flagged, "missed"


@pytest.mark.slow
def test_nothing_but_the_faults_is_flagged(faulty: Faulty, judgement: Judgement) -> None:
    allowed = {(KINDS[kind], seq) for kind, seqs in faulty.faults.items() for seq in seqs}
    allowed |= {(rule, near) for kind, rules in ALSO.items() for rule in rules for seq in faulty.faults[kind] for near in (seq - 1, seq)}
    others = [verdict for verdict in judgement.verdicts if verdict.run_id == "faults" and (verdict.rule, verdict.seq) not in allowed]
    assert not others
