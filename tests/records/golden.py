"""The batches of `tests/golden/records.jsonl.gz`, made and read by Apache Kafka 3.9.1."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@cache
def cases() -> dict[str, dict[str, Any]]:
    """Every case by its name."""
    with gzip.open(GOLDEN / "records.jsonl.gz", "rt", encoding="utf-8") as file:
        return {case["case"]: case for case in map(json.loads, file)}


def batch(name: str) -> bytes:
    """The bytes of a case."""
    return bytes.fromhex(cases()[name]["hex"])
