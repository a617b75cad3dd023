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
from klamm.pipeline.spark import jvm, session
from klamm.pipeline.spark.jvm import JvmEnded
from klamm.pipeline.spark.session import NoSpark

SPEAKS = """
import os
from klamm.pipeline.spark.session import open_session
spark = open_session("local[1]", memory="1g", variables=os.environ)
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
    "master, told", [("local[*]", "local[*,3]"), ("local[2,1]", "local[2,1]"), ("local", "local"), ("spark://h:1", "spark://h:1")]
)
def test_a_task_on_this_machine_that_fails_is_tried_again(master: str, told: str) -> None:
    assert session.with_tries(master) == told


@pytest.mark.parametrize(
    "master, is_here", [("local[2]", True), ("local", True), ("local-cluster[2,1,1024]", False), ("spark://h:1", False)]
)
def test_workers_on_other_machines_speak_by_ports(monkeypatch: pytest.MonkeyPatch, master: str, is_here: bool) -> None:
    monkeypatch.setattr(session, "_socket_folder", lambda: "/tmp/s")
    assert ("spark.python.unix.domain.socket.dir" in session.own_settings(master)) is is_here


def test_a_folder_whose_name_is_too_long_for_sockets_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_socket_folder", lambda: "/tmp/" + "s" * 60)
    assert not any("socket" in key for key in session.own_settings("local[2]"))


def test_servers_and_programs_of_others_have_none_of_the_settings_of_a_session_of_klamm_s_own(tmp_path: Path) -> None:
    settings = session.session_settings(session.with_tries("local[2]"), Java(tmp_path / "java", "x", 17), "1g", {})
    assert settings.keys().isdisjoint(session.own_settings("local[2]"))


class Builder:
    """In place of SparkSession.builder: says which variables PySpark would see."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables
        self.seen: dict[str, str] = {}

    def master(self, _name: str) -> Builder:
        return self

    def appName(self, _name: str) -> Builder:
        return self

    def config(self, _key: str, _value: str) -> Builder:
        return self

    def getOrCreate(self) -> str:
        self.seen = dict(self.variables)
        return "a session"


@pytest.fixture
def variables() -> dict[str, str]:
    return {"JAVA_HOME": "/theirs"}


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> Builder:
    """No JVM runs in this process, and one that is started has port 7."""
    made = Builder(variables)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", made)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr(session, "start_jvm", lambda *_: jvm.Gateway(7, "secret"))
    return made


def test_pyspark_is_told_of_the_jvm_by_variables_that_are_as_before_afterwards(builder: Builder, variables: dict[str, str]) -> None:
    assert session.open_session("local[1]", variables=variables) == "a session"
    assert builder.seen["PYSPARK_GATEWAY_PORT"] == "7" and builder.seen["JAVA_HOME"] != "/theirs"
    assert variables == {"JAVA_HOME": "/theirs"}


def test_a_call_without_variables_changes_none_and_leaves_the_jvm_to_pyspark(
    builder: Builder, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "start_jvm", lambda *_: pytest.fail("PySpark starts it"))
    before = dict(os.environ)
    assert session.open_session("local[1]") == "a session"
    assert builder.seen == variables and dict(os.environ) == before


@pytest.mark.parametrize("change", ["no attribute", "no variable"])
def test_a_pyspark_that_has_changed_starts_its_jvm_itself_and_one_line_says_so(
    change: str, builder: Builder, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "start_jvm", lambda *_: pytest.fail("PySpark starts it"))
    if change == "no attribute":
        monkeypatch.delattr("pyspark.SparkContext._gateway")
        missing = "SparkContext._gateway"
    else:
        monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda conf=None: None)
        missing = "PYSPARK_GATEWAY_PORT in launch_gateway"
    assert session.open_session("local[1]", variables=variables) == "a session"
    assert "PYSPARK_GATEWAY_PORT" not in builder.seen and builder.seen["PYSPARK_PYTHON"] == sys.executable
    assert [record.getMessage() for record in caplog.records] == [f"this PySpark has no {missing}: it starts its JVM by itself"]


def test_this_pyspark_has_what_a_start_of_our_own_needs() -> None:
    assert jvm.missing_privates() == "", "read how this PySpark starts its JVM, then change pipeline/spark/jvm.py and the bound together"


WITHOUT_PRIVATES = """
from klamm.pipeline.spark import session
session.missing_privates = lambda: "_gateway"
session.start_jvm = None
import os
spark = session.open_session("local[1]", memory="1g", variables=os.environ)
print(spark.range(5).mapInArrow(lambda batches: batches, "id long").count(), spark.conf.get("spark.sql.session.timeZone"))
spark.stop()
"""


@pytest.mark.slow
def test_a_session_whose_jvm_pyspark_started_gives_the_same_rows() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PRIVATES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["5", "UTC"]), done.stderr
    assert "this PySpark has no _gateway: it starts its JVM by itself" in done.stderr


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
            session.open_session(f"spark://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}", variables={})


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
