"""What the place of a lake can do, and that nobody else touches it."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from klamm.pipeline.lake import store as module
from klamm.pipeline.lake.store import Store

ROOT = Path(module.__file__).resolve().parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "lake")


def test_what_is_put_is_read_as_a_whole_also_in_place_of_what_was_there(store: Store) -> None:
    assert store.read("a/b") is None and not store.has("a")
    for data in (b"old", b""):
        store.put("a/b", data)
        assert store.read("a/b") == data
    assert store.has("a") and store.names("") == ["a/b"]


def test_names_are_those_below_in_order(store: Store) -> None:
    for name in ("t/b.json", "t/a/c.json", "t/d.parquet", "u/e.json"):
        store.put(name, b"")
    assert store.names("t") == ["t/a/c.json", "t/b.json", "t/d.parquet"]
    assert store.names("t", ".json") == ["t/a/c.json", "t/b.json"]
    assert store.names("none") == []


def test_deleting_can_be_repeated_and_leaves_no_empty_folder_of_a_run(store: Store) -> None:
    for name in ("bronze/frames/run=r/node=1/1.parquet", "bronze/frames/run=r/node=2/1.parquet", "silver/messages/run=r/batch=0/p.parquet"):
        store.put(name, b"")
    for _ in range(2):
        store.delete("bronze/frames/run=r/node=1/1.parquet")
    assert store.has("bronze/frames/run=r/node=2") and not store.has("bronze/frames/run=r/node=1")
    for _ in range(2):
        store.delete("silver/messages/run=r/batch=0")
    assert not store.has("silver/messages/run=r") and store.has("silver/messages")


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        Store(tmp_path / "file").put("a", b"")


def test_workers_get_it_as_it_is(store: Store) -> None:
    store.put("a", b"1")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"1"


KNOW_THE_FOLDER = {
    "pipeline/lake/store.py": "it is the place",
    "pipeline/lake/access/driver.py": "the lock of a lake, and whether a folder is one",
    "pipeline/lake/access/older_lake.py": "the manifests of an older lake",
}
ELSEWHERE = {
    "pipeline/export.py": "what is exported goes to a place of the user's",
    "pipeline/ship.py": "removes sealed segments that were shipped, which are files of brokers",
    "pipeline/retention.py": "removes journals, which are folders of brokers",
    "pipeline/lake/journal_copy.py": "copies of the journal of an object store",
    "pipeline/lake/bronze.py": "looks for files in the journals of brokers",
    "pipeline/quick/tables.py": "temporary files",
    "pipeline/quick/translations.py": "the cache of translations",
}
JOINS = r"\b_?lake / |Path\(lake\) / "
CHANGES = r"\b(rmtree|flock|replacing|replace_file|temporary_path)\(|\.(rename|unlink|r?glob|mkdir|iterdir)\("


def test_copies_that_a_killed_process_left_are_removed_and_those_in_use_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}\n" + (
        "from klamm.pipeline.lake.store import local_folder\nprint(local_folder('s3://b/l'), flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        copies = Path(other.stdout.readline().strip())
        module._remove_copies_of_dead_processes()
        assert list(tmp_path.iterdir()) == [copies]
        other.kill()
    assert copies.exists()
    module._remove_copies_of_dead_processes()
    assert not copies.exists()


def test_nobody_but_the_store_and_the_log_joins_renames_or_locks_paths_of_a_lake() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("pipeline/**/*.py")
        if path.parent.name != "spark" and re.search(f"{JOINS}|{CHANGES}", path.read_text(encoding="utf-8"))
    }
    assert found == {*KNOW_THE_FOLDER, *ELSEWHERE}, "say what is wanted by name, to pipeline/lake/store.py or to the log"
    for path in ELSEWHERE:
        assert not re.search(JOINS, (ROOT / path).read_text(encoding="utf-8")), f"{path} joins a path of a lake"
