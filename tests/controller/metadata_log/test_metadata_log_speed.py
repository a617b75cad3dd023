"""What the metadata log of 100,000 partitions costs, in CPU time: its snapshot, the replay of it, and what it adds to a write."""

from __future__ import annotations

import pytest

from klamm.benchmarks.metadata_log import Bench, one_round

PARTITIONS = 100_000
A_FEW_SECONDS_MS = 3000
"""Three times what a slow machine takes."""


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [False, True], ids=["alike", "distinct"])
def test_a_snapshot_of_100_000_partitions_takes_little_and_what_a_write_adds_is_less_than_its_replay(distinct: bool) -> None:
    """The last two are compared with a step of the same round, which a slow machine slows as much."""
    bench = Bench(PARTITIONS, distinct)
    best = one_round(bench)
    for _ in range(2):
        best = {step: min(took, best[step]) for step, took in one_round(bench).items()}
    print({step: round(took, 1) for step, took in best.items()})
    assert best["begin"] + best["encode"] < A_FEW_SECONDS_MS
    assert best["replay"] < A_FEW_SECONDS_MS
    assert best["append all"] < best["replay"], "a quarter of it when this was written"
    assert best["append singly"] < 10 * best["replay"], "two and a half times it when this was written"
