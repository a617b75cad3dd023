"""What the owner of a broker's process reads from it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from klamm.server.local.process_cluster import MAX_LINE_BYTES, BrokerProcess


async def test_a_line_that_cannot_be_processed_does_not_end_the_reading(caplog: pytest.LogCaptureFixture) -> None:
    child = f"print('words'); print('x' * {2 * MAX_LINE_BYTES}); print('{{\"a\": 1}}'); print('{{\"b\": 2}}')"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", child, stdout=asyncio.subprocess.PIPE, limit=MAX_LINE_BYTES
    )
    heard: list[dict[str, Any]] = []

    def hear(of: BrokerProcess, report: dict[str, Any]) -> None:
        heard.append(report)
        if "a" in report:
            raise RuntimeError("a fault of the owner")

    async with asyncio.timeout(20):
        assert await BrokerProcess(1, process).ended(hear) == "with exit code 0"
    assert heard == [{"a": 1}, {"b": 2}]
    assert "wrote a line that is not a report" in caplog.text
    assert "a line of broker 1 raised an exception; the work continues" in caplog.text
