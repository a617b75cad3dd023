"""The commands of the pipeline on a lake in an object store: killed at each commit, without rights, and once each; and other readers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.store import ObjectStore, Store
from klamm.pipeline.lake.tables import MESSAGES
from klamm.pipeline.run import run
from klamm.tests.harness.waits import wait_for
from klamm.tests.pipeline.journals import Silent, no_session, write
from klamm.tests.pipeline.object_stores import BUCKET, content, s3, ship
from klamm.tests.pipeline.progress import without_progress
from klamm.tests.pipeline.shipping.s3_server import S3Server, s3_server

pytestmark = pytest.mark.slow

COMMIT = re.compile(r"/_delta_log/[0-9]{20}\.json|/bronze/(commits/|committed|silver)|/_checkpoints/version\.json")
"""Paths of objects that commit something."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A way to moto's server, which the environment names."""
    with s3_server() as one:
        for name, value in one.environ.items():
            monkeypatch.setenv(name, value)
        yield one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal of one broker, with a frame that does not decode."""
    write(tmp_path / "lake", "r", 1, raw=1).close()
    return tmp_path / "lake"


def started(*words: object) -> subprocess.Popen[str]:
    """A command of the pipeline, in a group of its own."""
    command = [sys.executable, "-m", "klamm", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def ran(*words: object) -> tuple[int | None, str, str]:
    """Exit code, stdout and stderr."""
    process = started(*words)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, without_progress(err)


def copied(server: S3Server, lake: str, to: str) -> None:
    """Copy all objects of a lake."""
    client = s3(server.url)
    for name in Store(lake).names(""):
        source = {"Bucket": BUCKET, "Key": f"{lake.removeprefix(f's3://{BUCKET}/')}/{name}"}
        client.copy_object(Bucket=BUCKET, CopySource=source, Key=f"{to.removeprefix(f's3://{BUCKET}/')}/{name}")


def seen(lake: str) -> dict[str, Any]:
    """What readers of one version of a lake see."""
    with delta_log.one_version(lake):
        return content(lake)


def killed_at(server: S3Server, lake: str, number: int) -> bool:
    """Run the pipeline and kill it at its commit of this number, before the request is done or behind it; False if it has fewer."""
    commits, process = 0, started("pipeline", "run", lake)

    def counted(path: str) -> None:
        nonlocal commits
        commits += COMMIT.search(path) is not None
        if commits == number and number % 2 == 0:
            kill(path)

    def kill(path: str) -> None:
        if commits == number and COMMIT.search(path):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    server.before_put, server.after_put = counted, kill
    process.communicate(timeout=300)
    server.before_put = server.after_put = lambda _: None
    return process.returncode == -signal.SIGKILL


def test_readers_see_the_last_finished_run_wherever_the_next_one_is_killed_and_the_one_after_completes_it(
    server: S3Server, folder: Path
) -> None:
    base = f"s3://{BUCKET}/base"
    ship(folder, base, server.url)
    for lake in (folder, base):
        run(lake, no_session, Silent())
    before = content(folder)
    assert seen(base) == before
    write(folder, "r", 2, raw=1).close()
    ship(folder, base, server.url)
    run(folder, no_session, Silent())
    after = content(folder)
    number = 1
    while True:
        lake = f"s3://{BUCKET}/{number}"
        copied(server, base, lake)
        if not killed_at(server, lake, number):
            break
        assert seen(lake) in (before, after), f"killed at commit {number}"
        run(lake, no_session, Silent())
        assert content(lake) == seen(lake) == after, f"killed at commit {number}"
        number += 1
    assert number > 13, "commits of bronze, silver and gold, and the version of the lake"


def test_a_bucket_that_may_only_be_read_and_an_expired_token_are_one_line_and_readers_work(server: S3Server, folder: Path) -> None:
    lake = f"s3://{BUCKET}/lake"
    ship(folder, lake, server.url)
    server.refuses = (("PUT", "POST", "DELETE"), 403, "AccessDenied")
    told = f"klamm: {lake}: these credentials may not do this (AccessDenied for PUT)\n"
    assert ran("pipeline", "run", lake) == (1, "", told)
    server.refuses = None
    assert ran("pipeline", "run", lake)[0] == 0
    server.refuses = (("PUT", "POST", "DELETE"), 403, "AccessDenied")
    assert ran("pipeline", "check", lake)[0] == 0
    server.refuses = (("GET", "HEAD", "PUT", "POST", "DELETE"), 400, "ExpiredToken")
    code, out, err = ran("pipeline", "run", lake)
    assert (code, out) == (1, "") and err.startswith(f"klamm: {lake}: the credentials have expired (ExpiredToken for "), err


def test_a_token_that_expires_amid_the_work_is_one_line_and_the_next_run_completes_the_lake(server: S3Server, folder: Path) -> None:
    lake = f"s3://{BUCKET}/lake"
    ship(folder, lake, server.url)

    def expire(path: str) -> None:
        if "/silver/messages/" in path:
            server.refuses = (("GET", "HEAD", "PUT", "POST", "DELETE"), 400, "ExpiredToken")

    server.before_put = expire
    code, out, err = ran("pipeline", "run", lake)
    assert (code, out, err.count("\n")) == (1, "", 1) and "the credentials have expired (ExpiredToken" in err, err
    server.refuses, server.before_put = None, lambda _: None
    run(lake, no_session, Silent())
    run(folder, no_session, Silent())
    assert content(lake) == content(folder)


def test_each_command_works_on_a_lake_of_objects_and_other_programs_read_its_tables(server: S3Server, folder: Path, tmp_path: Path) -> None:
    lake = f"s3://{BUCKET}/lake"
    ship(folder, lake, server.url)
    code, out, err = ran("pipeline", "check", lake, "--quick")
    assert (code, err) == (0, "run r: 1 frames in quarantine, no rule judges them\n"), out
    with started("pipeline", "watch", lake, "--master", "local[1]") as watching:
        wait_for(lambda: Store(lake).has(delta_log.VERSION) or watching.poll() is not None, "a batch is in silver", within_s=300)
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=300)
    assert watching.returncode == 0, err
    run(folder, no_session, Silent())
    assert seen(lake) == content(lake) == content(folder)
    for words in (("pipeline", "check", lake), ("pipeline", "compact", lake), ("pipeline", "retain", lake, "--keep", "9999d", "--dry-run"),
                  ("report", lake, "--output", tmp_path / "report.html"), ("pipeline", "publish", lake, f"s3://{BUCKET}/copy")):
        code, out, err = ran(*words)
        assert code == 0, (words, out, err)
    code, out, err = ran("pipeline", "tables", lake)
    assert (code, err) == (0, "") and f"{lake}/silver/messages/" in out
    assert content(lake) == content(folder) and delta_log.rows(f"s3://{BUCKET}/copy", MESSAGES.path) == delta_log.rows(lake, MESSAGES.path)

    table = DeltaTable(f"{lake}/{MESSAGES.path}", storage_options=ObjectStore(lake).options)
    rows = delta_log.rows(lake, MESSAGES.path)
    arrow = table.to_pyarrow_table()
    assert (arrow.num_rows, len(table.to_pandas()), duckdb.sql("SELECT count(*) FROM arrow").fetchall()) == (rows, rows, [(rows,)])
