"""An empty stage; the test brings the brokers and takes office."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from klamm.tests.controller.stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    one = Stage()
    yield one
    await one.close()
