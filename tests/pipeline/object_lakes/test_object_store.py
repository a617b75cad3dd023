"""Tables are published to an object store: moto's S3 server, a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.merge import merge_small
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES
from klamm.pipeline.publish import HOUR_NS, Published, publish, remove_old
from klamm.pipeline.retention import retain
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.journals import numbers
from klamm.tests.pipeline.lakes_by_hand import to_silver

TARGET = "s3://bucket/lake"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty bucket; the environment names its server, as a user's would."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(found[0] for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:[0-9]+", line)))
            threading.Thread(target=server.stderr.read, daemon=True).start()  # it logs each request
            urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")).close()
            credentials = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
            for name, value in {**credentials, "ENDPOINT_URL": url, "ALLOW_HTTP": "true"}.items():
                monkeypatch.setenv(f"AWS_{name}", value)
            yield
        finally:
            server.kill()


def day(lake: Path, tiny: TinyJournal, number: int) -> None:
    """Three rows, and what a run of the pipeline makes of them."""
    tiny.event("timer")
    simple_exchange(tiny)
    tiny.roll()
    to_silver(lake, str(number))


def published(path: str, version: int | None = None) -> list[tuple[int, int]]:
    rows = DeltaTable(f"{TARGET}/{path}", version=version).to_pyarrow_table(columns=["node_id", "seq"])
    return sorted((row["node_id"], row["seq"]) for row in rows.to_pylist())


@pytest.mark.slow
@pytest.mark.usefixtures("bucket")
def test_an_object_store_has_the_rows_of_the_lake_after_new_rows_compaction_and_retention(tmp_path: Path) -> None:
    with TinyJournal(tmp_path, "goes") as goes:
        day(tmp_path, goes, 0)
    stays = TinyJournal(tmp_path, "stays")
    day(tmp_path, stays, 1)
    assert Published(MESSAGES.path, 0, 2, 0) in list(publish(tmp_path, TARGET))
    assert list(publish(tmp_path, TARGET)) == []
    assert published(MESSAGES.path) == numbers(tmp_path, MESSAGES.path) == [(1, 2), (1, 2), (1, 3), (1, 3)]

    day(tmp_path, stays, 2)
    assert Published(MESSAGES.path, 1, 1, 0) in list(publish(tmp_path, TARGET))
    assert published(MESSAGES.path) == numbers(tmp_path, MESSAGES.path)
    assert published(MESSAGES.path, 0) == [(1, 2), (1, 2), (1, 3), (1, 3)]

    assert EVENT_TABLE.path in {one.table for one in merge_small(tmp_path, 1)}
    assert Published(EVENT_TABLE.path, 2, 1, 2) in list(publish(tmp_path, TARGET))
    assert published(EVENT_TABLE.path) == numbers(tmp_path, EVENT_TABLE.path) == [(1, 1), (1, 1), (1, 4)]

    retain(tmp_path, Commits(tmp_path), None, ["goes"])
    assert {(one.table, one.removed) for one in publish(tmp_path, TARGET)} >= {(MESSAGES.path, 1), (EVENT_TABLE.path, 1)}
    for table in (MESSAGES, EVENT_TABLE):
        files = delta_log.files(tmp_path, table.path)
        assert published(table.path) == numbers(tmp_path, table.path)
        assert len(DeltaTable(f"{TARGET}/{table.path}").file_uris()) == len(files)
    assert list(remove_old(TARGET, HOUR_NS)) == []
    assert {one.table for one in remove_old(TARGET, 0)} >= {MESSAGES.path, EVENT_TABLE.path}
    assert list(remove_old(TARGET, 0)) == []
    for table in (MESSAGES, EVENT_TABLE):
        assert published(table.path) == numbers(tmp_path, table.path)
