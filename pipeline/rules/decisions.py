"""Rule D-01: every journaled decision is what the controller's pure function returns for its journaled input.

The function is the controller's own; what it returns is compared with what was journaled as JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from klamm.pipeline.rules.record import JUDGED_COLUMNS, Rule, Tried, judged_schema

if TYPE_CHECKING:
    import pyarrow as pa


def difference(given: str | None, decided: str | None) -> str | None:
    """What is wrong with a journaled decision, in one line; None if deciding again gives the same result."""
    from klamm.controller.event_loop.decision_json import replay

    if given is None:
        return "the decision has no input"
    try:
        again = replay(given)
    except Exception as problem:  # noqa: BLE001 - the journal may be damaged
        return f"cannot be decided again: {type(problem).__name__}: {problem}"
    try:
        agrees = decided is not None and json.loads(again) == json.loads(decided)
    except ValueError:
        agrees = False
    return None if agrees else f"decided {decided}, and the rule says {again}"


def replayed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `decisions` become judged rows."""
    import pyarrow as pa

    schema = judged_schema()
    seen: dict[tuple[str | None, str | None], str | None] = {}
    for batch in batches:
        rows: dict[str, Any] = batch.to_pydict()
        details = []
        for pair in zip(rows["input"], rows["output"], strict=True):
            if pair not in seen:
                seen[pair] = difference(*pair)
            details.append(seen[pair])
        columns = {
            **{name: rows[name] for name in ("run_id", "node_id", "seq")},
            "conn_id": [None] * len(details), "detail": details,
            "evidence": [[seq] if cause is None else [cause, seq] for cause, seq in zip(rows["cause_seq"], rows["seq"], strict=True)],
        }
        yield pa.RecordBatch.from_arrays([pa.array(columns[name], schema.field(name).type) for name in JUDGED_COLUMNS], schema=schema)


D_01 = Rule(
    "D-01", "error", "every decision is what the pure function says of its input", "controller 8", ("decisions",),
    tried=Tried("SELECT run_id, node_id, seq, cause_seq, input, output FROM decisions", replayed),
)

RULES: tuple[Rule, ...] = (D_01,)
