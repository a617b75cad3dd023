"""What rounds of the cleaner did, beside what Kafka does."""

from __future__ import annotations

from random import Random
from typing import Any

from klamm.tests.broker.log.random_logs import NOW, draw_log

RETENTION = 100


def order_of(seed: int) -> dict[str, Any]:
    log = draw_log(Random(seed))
    return {
        "hex": log.data.hex(), "start": log.start, "aborted": [list(row) for row in log.aborted], "now": NOW, "retention": RETENTION,
        "producers": {str(producer): list(row) for producer, row in log.producers.items()},
    }


def judge_rounds(judge: Any, order: dict[str, Any]) -> list[dict[str, Any]]:
    """Two rounds of the cleaner of Apache Kafka."""
    results: list[dict[str, Any]] = []
    while len(results) < 2 and order["hex"]:
        results.append(judge.order(**order))
        assert "error" not in results[-1], results[-1]
        order = {**order, "hex": results[-1]["hex"], "aborted": results[-1]["aborted"], "now": order["now"] + 200}
    return results
