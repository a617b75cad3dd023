"""Rule D-01: every journaled decision is what the controller's pure function returns for its journaled input.

The function is the controller's own, run in Spark's workers; what it returns is compared with what was journaled as JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from klamm.pipeline.rules.record import JUDGED_COLUMNS, Rule

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = "run_id string, node_id int, conn_id bigint, seq bigint, detail string, evidence array<bigint>"


def difference(given: str | None, decided: str | None) -> str | None:
    """What is wrong with a journaled decision, in one line; None if deciding again gives the same result."""
    from klamm.controller.decision_json import replay

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
    """Rows of `decisions` become judged rows. Runs in Spark's workers."""
    import pyarrow as pa

    seen: dict[tuple[str | None, str | None], str | None] = {}
    for batch in batches:
        rows: dict[str, Any] = batch.to_pydict()
        details = []
        for pair in zip(rows["input"], rows["output"], strict=True):
            if pair not in seen:
                seen[pair] = difference(*pair)
            details.append(seen[pair])
        columns = {
            "run_id": pa.array(rows["run_id"], pa.string()),
            "node_id": pa.array(rows["node_id"], pa.int32()),
            "conn_id": pa.nulls(len(details), pa.int64()),
            "seq": pa.array(rows["seq"], pa.int64()),
            "detail": pa.array(details, pa.string()),
            "evidence": pa.array([[seq] for seq in rows["seq"]], pa.list_(pa.int64())),
        }
        yield pa.RecordBatch.from_arrays([columns[name] for name in JUDGED_COLUMNS], names=list(JUDGED_COLUMNS))


def replay_all(spark: SparkSession) -> DataFrame:
    """All decisions of the judged runs, decided again."""
    return spark.sql("SELECT run_id, node_id, seq, input, output FROM decisions").mapInArrow(replayed, _SCHEMA)


D_01 = Rule(
    "D-01", "error", "every decision is what the pure function says of its input", "controller 8", ("decisions",), function=replay_all
)

RULES: tuple[Rule, ...] = (D_01,)
