"""Settings that a user passes reach Spark, and secret ones nobody else."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from klamm.cli.pipeline import job
from klamm.configs.properties import read_properties
from klamm.pipeline.spark.cluster import submit_command
from klamm.pipeline.spark.session import NoSpark, open_session
from klamm.pipeline.spark.settings import JAVA_OPTIONS, PY_FILES
from klamm.pipeline.spark.user_settings import merged, without_secrets, without_token, write_secrets
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.waits import wait_for
from klamm.tests.pipeline.journals import write
from klamm.tests.pipeline.progress import without_progress

SECRET_KEY = "spark.hadoop.fs.s3a.secret.key"
SECRETS = {SECRET_KEY: "s=e c:r\\et #!é€😀", "spark.hadoop.fs.s3a.session.token": " t "}


def test_secrets_are_in_a_file_that_only_this_user_can_read_and_not_in_the_command(tmp_path: Path) -> None:
    command = submit_command({"spark.ui.enabled": "false", **SECRETS}, tmp_path, "job.py")
    assert command[1:3] == ["--conf", "spark.ui.enabled=false"] and command[-1] == "job.py"
    file = Path(command[command.index("--properties-file") + 1])
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_properties(file) == SECRETS
    assert not any(value in word for word in command for value in SECRETS.values())


def test_a_command_without_secrets_needs_no_file(tmp_path: Path) -> None:
    assert "--properties-file" not in submit_command({"spark.ui.enabled": "false"}, tmp_path, "job.py")
    assert not list(tmp_path.iterdir())


def test_a_file_of_secrets_never_replaces_another_file(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(FileExistsError):
        write_secrets(SECRETS, tmp_path / "there")


def test_a_users_flags_and_files_join_those_of_klamm_and_other_values_replace_them() -> None:
    ours = {JAVA_OPTIONS: "-Xa", PY_FILES: "klamm.zip", "spark.ui.enabled": "false"}
    theirs = {JAVA_OPTIONS: "-Xb", PY_FILES: "mine.zip", "spark.ui.enabled": "true", "spark.x": "1"}
    assert merged(ours, theirs) == {JAVA_OPTIONS: "-Xa -Xb", PY_FILES: "klamm.zip,mine.zip", "spark.ui.enabled": "true", "spark.x": "1"}
    assert merged(ours, {}) == ours


def test_a_message_hides_secret_values() -> None:
    assert without_secrets("no such key hunter2 at h", {SECRET_KEY: "hunter2", "spark.x": "at"}) == "no such key *** at h"


def test_the_address_of_a_connect_server_is_shown_without_its_token() -> None:
    assert without_token("sc://h:1/;use_ssl=true;token=hunter2;user_id=u") == "sc://h:1/;use_ssl=true;token=***;user_id=u"
    assert without_token("sc://h:1") == "sc://h:1"
    with pytest.raises(NoSpark, match=r"^no Spark Connect server at sc://127\.0\.0\.1:1/;token=\*\*\*: ") as failure:
        open_session(remote="sc://127.0.0.1:1/;token=hunter2")
    assert "hunter2" not in str(failure.value)


def klamm(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "klamm", "pipeline", *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_settings_of_a_file_reach_spark_with_its_event_log_where_secrets_are_hidden(tmp_path: Path) -> None:
    write(tmp_path / "lake", exchanges=3).close()
    (tmp_path / "log").mkdir()
    (tmp_path / "p").write_text(
        f"{SECRET_KEY} hunter2\nspark.master local[1]\nspark.eventLog.enabled=true\nspark.eventLog.compress: false\n"
        f"spark.eventLog.dir={tmp_path}/log\n"
    )
    done = klamm("run", tmp_path / "lake", "--properties-file", tmp_path / "p", "--conf", "spark.sql.shuffle.partitons=7")
    assert done.returncode == 0, done.stderr
    assert "no setting spark.sql.shuffle.partitons; did you mean spark.sql.shuffle.partitions?\n" in done.stderr
    logged = "".join(file.read_text() for file in (tmp_path / "log").rglob("*") if file.is_file())
    assert f'"{SECRET_KEY}":"*********(redacted)"' in logged and "hunter2" not in logged
    assert '"spark.master":"local[1,3]"' in logged


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,1024]"])
def test_a_program_of_spark_submit_runs_a_command_with_the_master_and_settings_of_spark_submit(master: str, tmp_path: Path) -> None:
    write(tmp_path / "lake", exchanges=3).close()
    (tmp_path / "log").mkdir()
    settings = {"enabled": "true", "compress": "false", "dir": f"{tmp_path}/log"}
    told = [word for key, value in settings.items() for word in ("--conf", f"spark.eventLog.{key}={value}")]
    done = klamm("submit", "--master", master, *told, "--", job.__file__, "run", tmp_path / "lake", "--json")
    assert done.returncode == 0, done.stdout + done.stderr  # spark-submit puts the stderr of a program on stdout
    assert json.loads(done.stdout.splitlines()[-1])["rows"]["frames"] == 6
    logged = "".join(file.read_text() for file in (tmp_path / "log").rglob("*") if file.is_file())
    assert f'"spark.master":"{master}"' in logged
    failed = klamm("submit", "--master", master, "--", job.__file__, "run", tmp_path / "nothing")
    assert (failed.returncode, "no such folder" in failed.stdout) == (1, True)


@pytest.mark.slow
def test_a_master_on_kubernetes_gets_the_settings(tmp_path: Path) -> None:
    asked: list[tuple[str, Any]] = []

    class Api(http.server.BaseHTTPRequestHandler):
        """An API server that says yes to all that is to be made, and has nothing."""

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, json.loads(data)))
            self.send_response(201)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_DELETE = do_PATCH = do_GET

        def log_message(self, *_: object) -> None:
            pass

    write(tmp_path / "lake", exchanges=3).close()
    with http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Api) as api:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        settings = ["spark.kubernetes.container.image=klamm:test", "spark.executor.instances=1", "spark.kubernetes.namespace=judges"]
        words = [word for setting in settings for word in ("--conf", setting)]
        master = f"k8s://http://127.0.0.1:{api.server_port}"
        command = [sys.executable, "-m", "klamm", "pipeline", "run", str(tmp_path / "lake"), "--master", master, *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as run:
            asks_for_a_pod = lambda: any("/pods" in path for path, _ in asked)  # noqa: E731
            wait_for(lambda: asks_for_a_pod() or run.poll() is not None, "Spark asks for a pod, or ends", within_s=120)
            run.terminate()
            _, stderr = run.communicate()
        api.shutdown()
    pods = [body for path, body in asked if path.startswith("/api/v1/namespaces/judges/pods")]
    assert pods, (asked, without_progress(stderr))
    assert pods[0]["spec"]["containers"][0]["image"] == "klamm:test"
