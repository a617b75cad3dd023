"""Lines that somebody outside can cause: some are written, the others counted."""

from __future__ import annotations

import logging

import pytest

from klamm.server.net.log_limit import LimitedLog
from klamm.tests.harness.waits import eventually


async def test_lines_beyond_the_limit_are_counted_at_the_end_of_the_period(caplog: pytest.LogCaptureFixture) -> None:
    limited = LimitedLog(logging.getLogger("klamm.test"), "somebody", lines=2, period_s=0.05)
    assert [limited.warning("%d is wrong", number) for number in range(5)] == [True, True, False, False, False]
    await eventually(lambda: len(caplog.records) == 3, "the period ends")
    assert limited.warning("5 is wrong")
    limited.end_period()
    expected = ["0 is wrong", "1 is wrong", "somebody: 3 more lines like this were suppressed", "5 is wrong"]
    assert [record.getMessage() for record in caplog.records] == expected
