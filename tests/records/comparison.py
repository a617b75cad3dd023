"""What Klamm makes of produced records, beside what Apache Kafka makes of them."""

from __future__ import annotations

from typing import Any

from klamm.protocol.records.validation import Refused, assign
from klamm.tests.records.random_batches import NOW, Produced

OFFSET, EPOCH = 1000, 5
FIRST_WITH_TEXTS = 8
"""Version of Produce whose response has texts."""


def outcome(case: Produced) -> tuple[bytes | None, dict[str, Any]]:
    """The bytes that Klamm stores, and what is to be compared."""
    try:
        made = assign(case.data, case.version, OFFSET, EPOCH, case.rules, NOW, topic_partition="t-0")
    except Refused as refused:
        row: dict[str, Any] = {"error": refused.code.name, "log_start": refused.names_log_start}
        if refused.message is not None and case.version >= FIRST_WITH_TEXTS:
            row |= {"message": refused.message, "record_errors": [list(error) for error in refused.record_errors]}
        return None, row
    next_offset = made.headers[-1].next_offset if made.headers else None
    return made.data, {"next": next_offset, "max_timestamp": made.max_timestamp if made.headers else None}


def judged(case: Produced, result: dict[str, Any]) -> dict[str, Any]:
    """The same of Apache Kafka's result."""
    if "error" in result:
        names = ("error", "log_start", "message", "record_errors") if case.version >= FIRST_WITH_TEXTS else ("error", "log_start")
        return {name: result[name] for name in names if name in result}
    return {"next": result.get("next"), "max_timestamp": result.get("max_timestamp")}
