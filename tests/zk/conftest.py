"""Labs for tests of the store: the contract runs in both, the rest on the real ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from klamm.tests.zk.labs import Lab, RealLab, SimulatedLab


@pytest.fixture(params=["real", "simulated"])
async def lab(request: pytest.FixtureRequest, zookeeper: str, chroot: str) -> AsyncIterator[Lab]:
    """A world in which the contract of the store must hold."""
    one = await RealLab(zookeeper + chroot).open() if request.param == "real" else SimulatedLab()
    yield one
    await one.close()


@pytest.fixture
async def real(zookeeper: str, chroot: str) -> AsyncIterator[RealLab]:
    """The real world."""
    one = await RealLab(zookeeper + chroot).open()
    yield one
    await one.close()
