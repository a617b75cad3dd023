"""`klamm serve --journal`: a run for each start, a journal for each broker, whatever happens to its process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.journal import reading
from klamm.machine.extras import install_command
from klamm.tests.cli.running import Running
from klamm.tests.harness.read_only import WITHOUT_OVERRIDES, read_only
from klamm.tests.harness.waits import wait_for
from klamm.tests.journal.cluster_rows import gaps, rows


@pytest.fixture
def serve(tmp_path: Path, zookeeper: str, chroot: str) -> Iterator[Any]:
    """Starts clusters, and ends them."""
    running: list[Running] = []

    def start(*arguments: object, **options: Any) -> Running:
        made = Running(tmp_path, "serve", "--port", 0, "--json", "--zookeeper", zookeeper + chroot, *arguments, **options)
        running.append(made)
        return made

    yield start
    for each in running:
        if each.process.poll() is None:
            each.kill()


def test_each_start_is_a_run_and_a_relative_folder_is_one_of_the_working_directory(serve: Any, tmp_path: Path) -> None:
    for _ in range(2):
        cluster = serve("--brokers", 1, "--journal", os.path.relpath(tmp_path / "lake"))
        cluster.ready()
        cluster.signal(signal.SIGTERM)
        assert cluster.ended() == 0
    runs = {segment.run for segment in reading.segments(tmp_path / "lake")}
    assert len(runs) == 2
    assert all(re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{4}", run) for run in runs)


def test_a_broker_process_that_is_killed_leaves_all_but_its_last_moment(serve: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    cluster = serve("--processes", "--brokers", 2, "--topic", "orders:3:2", "--journal", lake, "--config", "klamm.journal.run=one")
    said = cluster.ready()
    # A broker that is ready may have its first rows in memory only.
    def fetches() -> list[dict[str, Any]]:
        """Those of both followers, none before both have some."""
        found = [row for row in rows(lake, "frames") if row["kind"] == "to leader"]
        return found if {row["node_id"] for row in found} == {1, 2} else []

    before = wait_for(fetches, "fetches of both followers are on disk")
    os.kill(said["brokers"][1]["pid"], signal.SIGKILL)
    folder = lake / "journal" / "run=one" / "node=2"
    wait_for(lambda: not reading.is_written(folder), "nobody writes the journal of the killed broker")
    left = [segment for segment in reading.segments(lake) if segment.node == 2 and not segment.sealed]
    assert left
    sealed = reading.seal_leftovers(lake)
    assert {(segment.node, segment.name) for segment in sealed} == {(2, segment.name) for segment in left}
    assert [s for s in reading.segments(lake) if s.node == 1 and not s.sealed], "the other one goes on"
    assert {row["seq"] for row in before if row["node_id"] == 2} <= {row["seq"] for row in rows(lake, "frames") if row["node_id"] == 2}
    assert reading.ask_to_seal(lake) == []
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0
    assert gaps(lake)[1] == 0


def test_a_journal_that_cannot_be_written_is_one_line(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cluster = serve("--brokers", 1, "--journal", tmp_path / "file" / "lake")
    assert cluster.ended() == 1
    assert "the journal cannot be written to" in cluster.rest()
    assert "Traceback" not in cluster.stderr


def test_a_read_only_folder_is_one_line(serve: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    with read_only(lake):
        cluster = serve("--brokers", 1, "--journal", lake, within=WITHOUT_OVERRIDES)
        assert cluster.ended() == 1
    assert "the journal cannot be written to" in cluster.rest() and "Permission denied" in cluster.rest() + cluster.stderr
    assert "Traceback" not in cluster.stderr


def test_without_pyarrow_the_option_is_refused_with_the_way_out(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError('no', name='pyarrow')")
    cluster = serve("--brokers", 1, "--journal", tmp_path / "lake", environ={"PYTHONPATH": str(tmp_path)})
    assert cluster.ended() == 1
    assert f"klamm.journal.dir needs pyarrow: {install_command('journal')}" in cluster.rest()
    assert "Traceback" not in cluster.stderr


def test_a_broker_without_a_journal_does_not_import_arrow() -> None:
    code = "import sys, klamm.server.local.cluster, klamm.cli.serving.serve; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
