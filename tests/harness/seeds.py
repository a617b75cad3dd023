"""Seeds of random stories: some for `make test`, others drawn by `make test-all`."""

from __future__ import annotations

import pytest

SHARE = 8
"""One seed of so many is told by `make test`."""


def seeds(count: int) -> list[object]:
    """0 to `count` - 1 as parameters of a test; those that `SHARE` does not divide are slow and drawn."""
    marks = (pytest.mark.slow, pytest.mark.many_seeds)
    return [seed if seed % SHARE == 0 else pytest.param(seed, marks=marks) for seed in range(count)]
