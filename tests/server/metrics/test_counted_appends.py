"""Appends and reads count once for each request, also if requests repeat one another or are appended together."""

from __future__ import annotations

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.server.metrics.counting import Counts
from klamm.tests.server.logged_broker import GOOD, asked_for
from klamm.tests.server.produce.produce_connection import Connection, Queue, payload

BAD_CRC = GOOD[:-1] + b"\1"


async def counted() -> tuple[Connection, Counts]:
    connection = await Connection.made()
    counts = Counts.at_zero(connection.logged.services.clock)
    counts.count_appends(connection.logged.services.replicas)
    return connection, counts


@pytest.mark.parametrize("is_known", [False, True], ids=["first", "repeated"])
async def test_a_request_counts_once_whether_it_repeats_another_or_not(is_known: bool) -> None:
    connection, counts = await counted()
    request = payload(asked_for(("t", 0, GOOD)))
    if is_known:
        connection.learn(request)
    connection.begin(request)
    assert [(each.produces, each.bytes_in) for each in (counts.data.all, counts.data.topics["t"])] == [(1, len(GOOD))] * 2


async def test_requests_that_are_appended_together_count_one_by_one() -> None:
    connection, counts = await counted()
    batches = [record_batch(b"v" * size, count) for size, count in ((5, 1), (9, 3), (0, 2))]
    requests = [payload(asked_for(("t", 0, batch))) for batch in batches]
    connection.learn(requests[0])
    queue = Queue(*requests[1:])
    connection.begin(requests[0], queue)
    assert queue.left == []
    topic = counts.data.topics["t"]
    assert (topic.produces, topic.bytes_in, topic.messages_in) == (3, sum(map(len, batches)), 6)


async def test_requests_that_cannot_be_appended_together_count_once_as_refused() -> None:
    connection, counts = await counted()
    connection.logged.partition(0).isr = []  # type: ignore[assignment]
    request = payload(asked_for(("t", 0, GOOD), acks=-1))
    connection.learn(request)
    queue = Queue(request)
    connection.begin(request, queue)
    assert queue.left == [request]
    assert (counts.data.all.produces, counts.data.all.bytes_in, counts.data.all.failed_produces) == (1, 0, 1)


async def test_a_request_that_is_not_like_the_first_counts_when_its_turn_comes() -> None:
    connection, counts = await counted()
    good, bad = payload(asked_for(("t", 0, GOOD))), payload(asked_for(("t", 0, BAD_CRC)))
    connection.learn(good)
    queue = Queue(good, bad)
    connection.begin(good, queue)
    assert (queue.left, counts.data.all.produces) == ([bad], 2)
    connection.begin(bad)
    assert (counts.data.all.produces, counts.data.all.bytes_in) == (3, 2 * len(GOOD))
