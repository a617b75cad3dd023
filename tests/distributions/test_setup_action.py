"""The action for GitHub: its steps are run by bash, as a runner does, with the files that a runner gives them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
import yaml

from klamm.distributions.setup.judge.verdicts import as_junit, as_markdown

SETUP = Path(__file__).resolve().parents[2] / "distributions" / "setup"
FILES = ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")


class Job:
    """The state of a job between its steps."""

    def __init__(self, folder: Path) -> None:
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
                command, cwd=self.folder, env=self.environ | environ | self.values("GITHUB_ENV"), text=True, check=False, timeout=240,
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


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_has_a_cluster_and_at_its_end_verdicts_and_a_report(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.use(SETUP, {"package": "none", "arguments": "--brokers 1 --topic orders"}) == 0, job.read("stderr")
    named = job.values("GITHUB_ENV")
    assert job.values("GITHUB_OUTPUT") == {"bootstrap-servers": named["KLAMM_BOOTSTRAP"], "control": named["KLAMM_CONTROL"]}
    test = 'echo first | klamm produce orders --bootstrap-server "$KLAMM_BOOTSTRAP"'
    subprocess.run(["bash", "-c", test], env=job.environ | named, check=True)
    pid = int(job.read("klamm/pid"))

    assert job.use(SETUP / "judge", {}) == 0, job.read("stderr")
    assert not Path(f"/proc/{pid}/cmdline").exists() or Path(f"/proc/{pid}/cmdline").read_text() == ""
    outputs = job.values("GITHUB_OUTPUT")
    suite = Xml.parse(outputs["junit"]).getroot()
    assert int(suite.get("tests", "0")) > 20 and suite.get("failures") == "0"
    assert re.match(r"### Klamm: no violations, \d\d rules exercised\n", job.read("GITHUB_STEP_SUMMARY"))
    assert "<html" in Path(outputs["report"]).read_text()


@pytest.mark.slow
def test_a_cluster_that_cannot_start_fails_its_step_with_the_reason(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.use(SETUP, {"package": "none", "arguments": "--as-version 0.1"}) != 0
    assert "0.1" in job.read("stderr")


def test_a_broken_rule_is_a_test_case_that_fails_and_a_row_of_the_summary() -> None:
    violation = {"run_id": "r", "rule": "W-01", "severity": "error", "node_id": 1, "detail": "a <b> | c", "lines": ["a frame"]}
    stats = [{"run_id": "r", "rule": rule, "checked": checked, "violated": 0} for rule, checked in (("W-01", 2), ("W-02", 3), ("W-03", 0))]
    verdicts = json.loads(json.dumps({"violations": [violation], "stats": stats, "complete": True}))
    suite = Xml.fromstring(as_junit(verdicts))
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert suite.findtext("testcase[@name='W-01']/failure") == "a <b> | c\na frame"
    assert "| W-01 | error | 1 | a &lt;b> \\| c |" in as_markdown(verdicts)


def test_ends_of_jobs_are_judged_by_the_action_beside_the_one_that_starts() -> None:
    for action in (SETUP, SETUP / "judge"):
        described = yaml.safe_load((action / "action.yml").read_text())
        steps = {step.get("id") for step in described["runs"]["steps"]}
        for output in described["outputs"].values():
            named = re.fullmatch(r"\${{ steps\.(\w+)\.outputs\.[\w-]+ }}", output["value"])
            assert named is not None and named[1] in steps
