"""The start of a broker imports what it needs."""

from __future__ import annotations

from klamm.tests.start_modules import held, imported

NEVER = {"numpy", "pandas", "pyarrow", "pyspark", "rich", "duckdb", "kafka", "cryptography"}
"""Large packages that tools, the pipeline or features that are off use."""


def test_a_start_imports_the_modules_of_the_list() -> None:
    """A module that is new here costs every start: import it where it is used, or write the list again (`tests/start_modules.py`)."""
    found = imported()
    assert sorted(set(found) ^ set(held())) == []


def test_a_start_imports_neither_large_packages_nor_other_rooms() -> None:
    names = set(held())
    assert names.isdisjoint(NEVER)
    others = (
        "klamm.admin", "klamm.benchmarks", "klamm.control.", "klamm.journal", "klamm.pipeline", "klamm.server.request_registration.",
        "klamm.tests",
    )
    assert [name for name in names if name.startswith(others)] == []
