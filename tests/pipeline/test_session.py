"""Sessions of Spark: how Python and the JVM speak with each other, and what is left when they have ended."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline import session, workers
from klamm.pipeline.java import Java

SPEAKS = """
from klamm.pipeline.session import open_session
spark = open_session("local[1]", memory="1g")
folder = spark.conf.get("spark.python.unix.domain.socket.dir")
print(folder, spark.range(3).toArrow().num_rows, spark.range(5).mapInArrow(lambda batches: batches, "id long").count())
spark.stop()
"""


@pytest.mark.slow
def test_results_come_by_sockets_that_have_no_port_in_a_folder_that_goes(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        environ = {**os.environ, "TMPDIR": folder}
        done = subprocess.run([sys.executable, "-c", SPEAKS], env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        sockets, *numbers = done.stdout.split()
        assert numbers == ["3", "5"] and Path(sockets).parent == Path(folder)
        assert not Path(sockets).exists()


@pytest.mark.slow
def test_nobody_else_looks_into_the_folder_of_the_sockets(spark: Any) -> None:
    folder = Path(spark.conf.get("spark.python.unix.domain.socket.dir"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(folder.iterdir())


@pytest.mark.parametrize(
    "master, is_here", [("local[2]", True), ("local", True), ("local-cluster[2,1,1024]", False), ("spark://h:1", False)]
)
def test_workers_on_other_machines_have_ports_and_are_spark_s_own(monkeypatch: pytest.MonkeyPatch, master: str, is_here: bool) -> None:
    monkeypatch.setattr(session, "_socket_folder", lambda: "/tmp/s")
    settings = session.own_settings(master)
    assert ("spark.python.unix.domain.socket.dir" in settings) is is_here
    assert settings.get(workers.SETTING) == (workers.MODULE if is_here else None)


def test_a_folder_whose_name_is_too_long_for_sockets_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_socket_folder", lambda: "/tmp/" + "s" * 60)
    assert not any("socket" in key for key in session.own_settings("local[2]"))


def test_servers_and_programs_of_others_have_spark_s_own_workers_and_extensions(tmp_path: Path) -> None:
    settings = session.session_settings("local[2]", Java(tmp_path / "java", 17, tmp_path, "x"), "1g", options=())
    assert settings.keys().isdisjoint(session.own_settings("local[2]"))
