"""A Produce that waits for its replicas does not hold the bytes of its request: its records are in the log."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.dispatch import LARGE_PRODUCE_BYTES, RUN_BYTES
from klamm.tests.harness.waits import eventually
from klamm.tests.server.logged_broker import asked_for
from klamm.tests.server.produce.produce_connection import Connection, Queue, payload, rows_of

ALONE, LARGE, TOGETHER = RUN_BYTES * 2, LARGE_PRODUCE_BYTES * 2, 1000


async def waiting(connection: Connection, size: int, kind: str) -> tuple[bytes, asyncio.Task[Any]]:
    """A request whose records are in the log and which waits for the other replicas, and its task."""
    data = payload(asked_for(("t", 1, record_batch(b"v" * size)), acks=-1), correlation_id=1)
    if kind != "first":
        connection.learn(data)
    following = [payload(asked_for(("t", 1, record_batch(b"v" * size)), acks=-1), correlation_id=2)] if kind == "together" else []
    task = asyncio.ensure_future(connection.begin(data, Queue(*following)))
    await asyncio.sleep(0)  # its first step
    await eventually(lambda: connection.end(1) == 1 + len(following), "the records are in the log")
    return data, task


@pytest.mark.parametrize(
    ("kind", "size"), [("first", ALONE), ("repeated", ALONE), ("first", LARGE), ("together", TOGETHER)]
)
async def test_bytes_of_a_request_that_has_taken_effect_are_released_while_it_waits_for_replicas(kind: str, size: int) -> None:
    connection = await Connection.made()
    data, task = await waiting(connection, size, kind)
    await eventually(lambda: sys.getrefcount(data) == 2, "only this test has the bytes")  # `data` and the argument
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("kind", "size"), [("first", ALONE), ("first", LARGE)])
async def test_a_fault_while_a_request_waits_refuses_its_partition(
    kind: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await Connection.made()

    async def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("klamm.server.produce.record_appends.wait_for_acks", fail)
    data = payload(asked_for(("t", 1, record_batch(b"v" * size)), acks=-1), correlation_id=1)
    frame = await connection.begin(data)
    assert frame is not None
    assert rows_of(frame) == [(1, ErrorCode.UNKNOWN_SERVER_ERROR, -1)]
