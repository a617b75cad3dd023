"""Seeds of random stories: some for `make test`, all of them for `make test-all`."""

from __future__ import annotations

import pytest

SHARE = 4
"""One seed of so many is told by `make test`."""


def seeds(count: int) -> list[object]:
    """0 to `count` - 1 as parameters of a test; those that `SHARE` does not divide are slow."""
    return [seed if seed % SHARE == 0 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(count)]
