"""Lakes whose tables another Klamm made: an older one with manifests is taken over, a newer one is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from klamm.pipeline.lake import delta_log, layout
from klamm.pipeline.lake.access.driver import existing
from klamm.pipeline.lake.access.older_lake import take_over
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import BRONZE, MESSAGES
from klamm.pipeline.stream import prepare
from klamm.tests.pipeline.journals import write
from klamm.tests.pipeline.lakes_by_hand import to_silver


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A lake of three segments as an older Klamm left it: a manifest for each table, with a part that came twice and a torn line."""
    with write(tmp_path):
        pass
    to_silver(tmp_path, "0")
    for table in ("bronze/frames", "bronze/events", MESSAGES.path):
        lines = [
            {"table": one.table, "run": one.run, "batch": one.batch, "path": path, "rows": one.rows}
            for one in delta_log.entries(tmp_path, table) for path in ("gone.parquet", one.path)
        ]
        shutil.rmtree(tmp_path / table / "_delta_log")
        (tmp_path / table / "_manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"tab')
    return tmp_path


def test_a_lake_with_manifests_is_refused_by_name_and_taken_over_by_a_run(older: Path) -> None:
    with pytest.raises(PipelineFailed, match=r"an older Klamm made its tables; `klamm pipeline run .*` takes them over"):
        existing(older)
    assert take_over(older) == [f"an older Klamm made the tables of {older}: bronze is taken over, silver and gold are made again from it"]
    assert existing(older) == older and take_over(older) == []
    assert {table.path: delta_log.rows(older, table.path) for table in BRONZE} == {"bronze/frames": 6, "bronze/events": 1}
    assert not (older / "silver").exists() and prepare(older)
    commits = Commits(older)
    assert not commits.is_folded and commits.rows == {"frames": 6, "events": 1}


def test_a_killed_takeover_is_repeated(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            take_over(older)
    assert len(take_over(older)) == 1
    assert delta_log.rows(older, "bronze/frames") == 6


def test_a_takeover_that_was_killed_when_it_had_removed_one_manifest_is_repeated(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def once(path: Path, *, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        if path.name == "_manifest.jsonl":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", once)
        with pytest.raises(KeyboardInterrupt):
            take_over(older)
    assert len(take_over(older)) == 1 and take_over(older) == []
    assert {table.path: delta_log.rows(older, table.path) for table in BRONZE} == {"bronze/frames": 6, "bronze/events": 1}


def test_a_lake_whose_bronze_was_purged_is_not_touched(older: Path) -> None:
    (older / "bronze/frames/_manifest.jsonl").write_text("")
    with pytest.raises(PipelineFailed, match="bronze was purged"):
        take_over(older)
    assert (older / MESSAGES.path).exists() and not (older / "bronze/events/_delta_log").exists()


def test_a_lake_of_a_newer_klamm_is_refused_by_name(tmp_path: Path) -> None:
    with write(tmp_path):
        pass
    to_silver(tmp_path, "0")
    Store(tmp_path).put(layout.PLACE, json.dumps({"silver": [], "layout": layout.LAYOUT + 1}).encode())
    with pytest.raises(PipelineFailed, match=rf"a newer Klamm made the tables of .*: they have layout {layout.LAYOUT + 1}"):
        existing(tmp_path)
