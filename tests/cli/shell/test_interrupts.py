"""Ctrl-C and SIGTERM, from the first import on: one line, the exit code of the signal, and no process that stays behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.tests.cli.conftest import Start
from klamm.tests.cli.running import WITHIN_S
from klamm.tests.harness.waits import wait_for
from klamm.tests.pipeline.journals import write
from klamm.tests.pipeline.progress import without_progress

SIGNALS = [signal.SIGINT, signal.SIGTERM]

WHILE_IMPORTING = """
import os, sys
from klamm.cli.start import main


class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), int(sys.argv[2]))


sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("module", ["klamm.machine.collector", "klamm.cli.main", "click", "klamm.cli.shell.lazy_group"])
def test_a_signal_while_the_command_line_is_imported_is_one_line(number: signal.Signals, module: str) -> None:
    words = [sys.executable, "-c", WHILE_IMPORTING, module, str(int(number))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "klamm: interrupted\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_tool_waits_for_a_broker_is_one_line(start: Start, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        tool = start("configs", "--bootstrap-server", f"127.0.0.1:{port}", "--entity-type", "topics", "--entity-name", "t", "--describe")
        silent.settimeout(WITHIN_S)
        connection, _ = silent.accept()
        with connection:
            connection.recv(1)  # it has sent a request, and gets no response
            tool.signal(number)
            assert tool.ended() == 128 + number
    assert tool.stderr.strip() == "klamm: interrupted"


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_serve_that_is_stopped_before_it_is_ready_fails_and_says_so(start: Start, number: signal.Signals) -> None:
    cluster = start("serve", "--json", "--port", 0, "--zookeeper", "127.0.0.1:1")
    cluster.logged("127.0.0.1:1")
    cluster.signal(number)
    assert cluster.ended() == 128 + number
    assert json.loads(cluster.rest()) == {"error": "interrupted before it was ready"}
    assert cluster.stderr.splitlines()[-1] == "klamm: interrupted before it was ready"
    assert "Traceback" not in cluster.stderr


def processes_of(folder: Path) -> list[str]:
    """Command lines of all processes whose temporary files are in this folder."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                lines.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it is gone
            continue
    return lines


@pytest.mark.parametrize(
    ("seen", "number"),
    [
        ("org.apache.spark.deploy.SparkSubmit", signal.SIGINT),
        pytest.param("org.apache.spark.deploy.SparkSubmit", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("pyspark.daemon", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("pyspark.daemon", signal.SIGTERM, marks=pytest.mark.slow),
    ],
    ids=["the JVM starts", "the JVM starts, SIGTERM", "workers run", "workers run, SIGTERM"],
)
def test_an_interrupted_simulation_leaves_no_process_behind(start: Start, tmp_path: Path, seen: str, number: signal.Signals) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    simulation = start("pipeline", "simulate", "--partitions", "1M", "--json", environ={"TMPDIR": str(folder)})
    wait_for(lambda: any(seen in line for line in processes_of(folder)), f"a process {seen}", within_s=300)  # Spark starts
    simulation.signal(number)
    assert simulation.ended() == 128 + number
    assert json.loads(simulation.rest()) == {"error": "interrupted"}
    assert without_progress(simulation.stderr) == "klamm: interrupted\n"
    wait_for(lambda: not processes_of(folder), "all its processes are gone")
    assert not list(folder.glob("klamm-*"))


@pytest.mark.slow
def test_a_killed_simulation_leaves_no_process_behind(start: Start, tmp_path: Path) -> None:
    simulation = start("pipeline", "simulate", "--partitions", "1M", environ={"TMPDIR": str(tmp_path)})
    wait_for(lambda: any("org.apache.spark.deploy.SparkSubmit" in line for line in processes_of(tmp_path)), "a JVM")
    os.kill(simulation.process.pid, signal.SIGKILL)
    wait_for(lambda: not processes_of(tmp_path), "all its processes are gone")


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_watch_in_order(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    lake = tmp_path / "lake"
    write(lake).close()
    watch = start("pipeline", "watch", lake, "--json")
    wait_for((lake / "silver" / "messages" / "_delta_log").exists, "a table", 120)
    watch.signal(number)
    assert watch.process.wait(300) == 0
    assert json.loads(watch.rest())["rows"] == {"frames": 6, "messages": 6, "quarantine": 0, "events": 1}
    assert "a second signal ends it at once" in watch.stderr
    assert (lake / "gold" / "verdicts").exists()
