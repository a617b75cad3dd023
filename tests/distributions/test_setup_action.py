"""The action for GitHub: its steps are run by bash, as a runner does, with the files that a runner gives them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "distributions" / "setup"
LEAVE_GROUP = r"\0\0\0\022\0\015\0\0\0\0\0\001\0\003bad\0\001g\377\377"
"""LeaveGroup 0 of client "bad", with a member id that is null, as printf writes it: a violation of K-01."""
FILES = ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")


class Job:
    """The state of a job between its steps."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.environ = {**os.environ, "RUNNER_TEMP": str(folder), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        for name in FILES:
            (folder / name).touch()
            self.environ[name] = str(folder / name)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def values(self, name: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.read(name).splitlines())

    def use(self, action: Path, inputs: dict[str, str]) -> int:
        """Run the steps of a composite action; returns the exit code of the first one that fails, 0 if none does."""
        described: dict[str, Any] = yaml.safe_load((action / "action.yml").read_text())
        assert described["runs"]["using"] == "composite" and set(inputs) <= set(described["inputs"])
        given = {name: str(each["default"]) for name, each in described["inputs"].items()} | inputs
        for step in described["runs"]["steps"]:
            if step.get("if") == "inputs.package != 'none'" and given["package"] == "none":
                continue
            environ = {name: _evaluated(text, action, given) for name, text in step.get("env", {}).items()}
            assert step["shell"] == "bash" and "${{" not in step["run"], "values reach a script by its environment"
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(
                command, cwd=self.folder, env=self.environ | environ | self.values("GITHUB_ENV"), text=True, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(self.folder / "stderr").open("w"),
            )
            if done.returncode:
                return done.returncode
            self.environ["PATH"] = ":".join([*self.read("GITHUB_PATH").split(), self.environ["PATH"]])
        return 0


def _evaluated(text: str, action: Path, inputs: dict[str, str]) -> str:
    text = text.replace("${{ github.action_path }}", str(action))
    text = re.sub(r"\${{ inputs\.([\w-]+) }}", lambda found: inputs[found[1]], text)
    assert "${{" not in text
    return text


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job of a checkout of its own, with what git has: pip builds Klamm in it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (tmp_path / "action" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "action" / name)
    job = Job(tmp_path / "runner")
    job.environ["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")
    return job


@pytest.mark.slow
def test_a_job_installs_klamm_and_has_a_cluster_and_at_its_end_verdicts_and_a_report(job: Job, tmp_path: Path) -> None:
    setup = tmp_path / "action" / "distributions" / "setup"
    assert job.use(setup, {"arguments": "--brokers 1 --topic orders"}) == 0, job.read("stderr")
    program = shutil.which("klamm", path=job.environ["PATH"])
    assert program is not None and Path(program).is_relative_to(job.folder)
    named = job.values("GITHUB_ENV")
    assert job.values("GITHUB_OUTPUT") == {"bootstrap-servers": named["KLAMM_BOOTSTRAP"], "control": named["KLAMM_CONTROL"]}
    test = 'echo first | klamm produce orders --bootstrap-server "$KLAMM_BOOTSTRAP"'
    subprocess.run(["bash", "-c", test], env=job.environ | named, check=True)
    pid = int(job.read("klamm/pid"))

    assert job.use(setup / "judge", {}) == 0, job.read("stderr")
    assert not Path(f"/proc/{pid}/cmdline").exists() or Path(f"/proc/{pid}/cmdline").read_text() == ""
    outputs = job.values("GITHUB_OUTPUT")
    suite = Xml.parse(outputs["junit"]).getroot()
    assert int(suite.get("tests", "0")) > 20 and suite.get("failures") == "0"
    assert re.match(r"### Rules of the Kafka protocol\n\n( {4}.*\n)+", job.read("GITHUB_STEP_SUMMARY"))
    assert "<html" in Path(outputs["report"]).read_text()


@pytest.mark.slow
def test_a_job_whose_client_breaks_a_rule_fails_if_it_says_so_and_its_page_names_the_rule(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.use(SETUP, {"package": "none", "arguments": "--brokers 1"}) == 0, job.read("stderr")
    address = job.values("GITHUB_ENV")["KLAMM_BOOTSTRAP"].replace(":", "/")
    subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/{address}; printf '{LEAVE_GROUP}' >&3; cat <&3"], check=True)
    assert job.use(SETUP / "judge", {"fail-on": "warn"}) == 3, job.read("stderr")
    assert "K-01" in job.read("GITHUB_STEP_SUMMARY")
    outputs = job.values("GITHUB_OUTPUT")
    assert Xml.parse(outputs["junit"]).getroot().get("failures") == "1" and Path(outputs["report"]).exists()


@pytest.mark.slow
def test_a_cluster_that_cannot_start_fails_its_step_with_the_reason(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.use(SETUP, {"package": "none", "arguments": "--as-version 0.1"}) != 0
    assert "0.1" in job.read("stderr")


def test_arguments_may_be_on_several_lines(tmp_path: Path) -> None:
    job, program = Job(tmp_path / "runner"), tmp_path / "klamm"
    ready = '{"bootstrap_servers": "h:1", "control": "http://h:2"}'
    program.write_text(f"#!/bin/sh\nprintf '%s ' \"$@\" > {tmp_path}/arguments\necho '{ready}'\nexec sleep 1\n")
    program.chmod(0o700)
    job.environ["PATH"] = f"{tmp_path}:{job.environ['PATH']}"
    assert job.use(SETUP, {"package": "none", "arguments": "--brokers 1\n--topic a* --topic $b\n"}) == 0, job.read("stderr")
    assert (tmp_path / "arguments").read_text().endswith("/lake --brokers 1 --topic a* --topic $b ")


def test_ends_of_jobs_are_judged_by_the_action_beside_the_one_that_starts() -> None:
    for action in (SETUP, SETUP / "judge"):
        described = yaml.safe_load((action / "action.yml").read_text())
        steps = {step.get("id") for step in described["runs"]["steps"]}
        for output in described["outputs"].values():
            named = re.fullmatch(r"\${{ steps\.(\w+)\.outputs\.[\w-]+ }}", output["value"])
            assert named is not None and named[1] in steps
