"""What releases of Apache Kafka answered to each case: `recorded.json`, written by `tests/conform/record.py`.

Release → id of a case → its result and what the server answered, as a text.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("recorded.json")


@cache
def answers() -> dict[str, dict[str, tuple[str, str]]]:
    """All of them; empty if nothing is recorded yet."""
    if not FILE.exists():
        return {}
    loaded: dict[str, dict[str, tuple[str, str]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded


def of_case(case_id: str) -> dict[str, tuple[str, str]]:
    """Release → result and answer, for one case."""
    return {release: cases[case_id] for release, cases in answers().items() if case_id in cases}


def is_broken_by_kafka(case_id: str) -> bool:
    """Whether a release does not do what the sentence of the case says."""
    return any(text.startswith("broken: ") for _, text in of_case(case_id).values())
