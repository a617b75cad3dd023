"""Random histories of transactions and unclean elections: no reader of committed records waits for ever, none sees an aborted record."""

from __future__ import annotations

from collections import Counter

import pytest

from klamm.tests.server.recoveries.recovery_histories import play


@pytest.mark.requirement("R704-20")
async def test_committed_records_are_read_and_no_others_whatever_elections_come() -> None:
    counts: Counter[str] = Counter()
    for seed in range(16):
        counts += await play(seed)
    for what in ("commit in a recovery", "abort in a recovery", "recoveries that ended at a phase"):
        assert counts[what], f"no history has shown anything: {what}"


@pytest.mark.slow
async def test_many_histories_contain_all_that_a_recovery_can_do() -> None:
    counts: Counter[str] = Counter()
    for seed in range(100, 300):
        counts += await play(seed)
    for what in ("commit in a recovery", "abort in a recovery", "abort in a recovery, by the leader", "recoveries that ended at a phase"):
        assert counts[what], what
