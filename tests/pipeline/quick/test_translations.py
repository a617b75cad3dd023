"""Translated queries are kept in a file."""

from __future__ import annotations

import json
from pathlib import Path

from klamm.pipeline.quick.duckdb_sql import translated
from klamm.pipeline.quick.translations import Translations

QUERY = "SELECT concat(a, 'x') AS b FROM messages"


def test_a_query_is_translated_once_and_other_files_go(tmp_path: Path) -> None:
    file, older = tmp_path / "quick" / "sql-1.json", tmp_path / "quick" / "sql-0.json"
    first = Translations(file)
    assert first.of(QUERY) == translated(QUERY)
    assert not file.exists()
    older.parent.mkdir()
    older.touch()
    first.save()
    assert sorted(older.parent.iterdir()) == [file]
    file.write_text(json.dumps({QUERY: "SELECT 1"}))
    assert Translations(file).of(QUERY) == "SELECT 1"


def test_a_file_that_is_damaged_or_cannot_be_written_is_as_none(tmp_path: Path) -> None:
    file = tmp_path / "sql-1.json"
    file.write_text("{")
    assert Translations(file).of(QUERY) == translated(QUERY)
    nowhere = Translations(file / "sql-1.json")
    assert nowhere.of(QUERY) == translated(QUERY)
    nowhere.save()
