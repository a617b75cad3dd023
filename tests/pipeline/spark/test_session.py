"""Sessions of Spark: how Python and the JVM speak with each other, and what is left when they have ended."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from klamm.machine.java import Java
from klamm.pipeline.spark import session, workers
from klamm.pipeline.spark.jvm import JvmEnded
from klamm.pipeline.spark.session import NoSpark

SPEAKS = """
from klamm.pipeline.spark.session import open_session
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
    settings = session.session_settings("local[2]", Java(tmp_path / "java", "x", 17), "1g", options=())
    assert settings.keys().isdisjoint(session.own_settings("local[2]"))


@pytest.mark.parametrize("address", ["{closed}", "{closed},{closed}"])
def test_a_master_that_does_not_listen_is_named_with_the_reason_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "start_jvm", lambda *_: pytest.fail("no JVM is needed to see that"))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        master = "spark://" + address.format(closed=f"127.0.0.1:{closed.getsockname()[1]}")
    with pytest.raises(NoSpark) as problem:
        session.open_session(master)
    assert str(problem.value) == f"Spark does not start on {master}: Connection refused"


def test_one_of_several_masters_that_listens_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reached(BaseException):
        pass

    def reached(*_: object) -> None:
        raise Reached

    monkeypatch.setattr(session, "start_jvm", reached)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    with socket.create_server(("127.0.0.1", 0)) as closed, socket.create_server(("127.0.0.1", 0)) as listening:
        ports = closed.getsockname()[1], listening.getsockname()[1]
        closed.close()
        with pytest.raises(Reached):
            session.open_session(f"spark://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}")


@pytest.mark.parametrize(
    "printed, line",
    [
        (
            "Invalid maximum heap size: -Xmxfoo\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n",
            "Invalid maximum heap size: -Xmxfoo",
        ),
        (
            "Error occurred during initialization of VM\nInitial heap size set to a larger value than the maximum heap size\n",
            "Initial heap size set to a larger value than the maximum heap size",
        ),
        (
            "26/11/23 ERROR SparkContext: Error initializing SparkContext.\njava.lang.IllegalArgumentException: no\n\tat a.b(c)\n",
            "java.lang.IllegalArgumentException: no",
        ),
        ("", "the JVM ended with exit code 1"),
    ],
)
def test_the_reason_of_a_jvm_that_does_not_start_is_its_own_line(printed: str, line: str) -> None:
    assert session._reason(JvmEnded("the JVM ended with exit code 1"), printed) == line
