"""Queries of the rules in DuckDB's SQL. Those that were translated before are read from the user's cache.

SQLGlot takes a fifth of the time in which a run of 10,000 frames is judged. A translation depends on the query, on SQLGlot and on
`duckdb_sql.py`: for others there is another file.
"""

from __future__ import annotations

import hashlib
import pkgutil
from functools import cache
from importlib.metadata import version
from pathlib import Path

import orjson

from klamm.machine.cache_folder import cache_folder, keep
from klamm.pipeline.lake.windows import Window, filled

SIGN = "$"
"""Parameters of translated queries begin with it."""


class Translations:
    """Of queries in Spark's SQL, by their texts. `file` has those that are known already, if it is there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            read = orjson.loads(file.read_bytes())
        except (OSError, ValueError):
            read = None
        self._known: dict[str, str] = read if isinstance(read, dict) else {}
        self._are_new = False

    def of(self, sql: str) -> str:
        """A query in DuckDB's SQL. Raises sqlglot.errors.SqlglotError for what is not Spark's SQL."""
        if sql not in self._known:
            from klamm.pipeline.quick.duckdb_sql import translated

            self._known[sql] = translated(sql)
            self._are_new = True
        return self._known[sql]

    def filled(self, sql: str, window: Window | None = None) -> str:
        """The same with values for the parameters of a view."""
        return filled(self.of(sql), window, SIGN)

    def save(self) -> None:
        """Write the file, if there are new ones; where that is not possible, they will be translated again."""
        if self._are_new:
            try:
                keep(self._file, orjson.dumps(self._known))
                for other in self._file.parent.glob("sql-*.json"):
                    if other != self._file:
                        other.unlink(missing_ok=True)
            except OSError:
                return
            self._are_new = False


@cache
def translations() -> Translations:
    """Those of this process."""
    source = pkgutil.get_data(__package__, "duckdb_sql.py")  # Spark's workers have this package in a ZIP file
    assert source is not None
    depends = f"{version('sqlglot')} ".encode() + source
    return Translations(cache_folder("quick") / f"sql-{hashlib.sha256(depends).hexdigest()[:16]}.json")
