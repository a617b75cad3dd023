"""The files of docs/examples that others copy are what they say: parsed all, and run where this machine can."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from klamm.configs.releases.kafka_releases import RELEASES
from klamm.tests.harness.pytest_plugin import plugin_arguments

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "docs" / "examples"
WORKFLOW: dict[str, Any] = yaml.safe_load((EXAMPLES / "github" / "klamm.yml").read_text())
CONTAINERS = EXAMPLES / "testcontainers"


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = WORKFLOW["jobs"][job]["steps"]
    return found


def script(job: str, **matrix: str) -> str:
    """What the last step of a job runs, with the values of a matrix."""
    text: str = steps(job)[-1]["run"]
    for name, value in matrix.items():
        text = text.replace(f"${{{{ matrix.{name.replace('_', '-')} }}}}", value)
    assert "${{" not in text
    return text


def run(text: str, folder: Path, environ: dict[str, str] | None = None) -> str:
    """Run a step as the runner of GitHub does, with the programs of this environment first on PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    environ = {**os.environ, "PATH": path, "PYTEST_ADDOPTS": " ".join(plugin_arguments())} | (environ or {})
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the files of the example for pytest."""
    for file in (EXAMPLES / "pytest").glob("*.py"):
        shutil.copy(file, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "Makefile").write_text("test:\n\tpytest -q -p no:cacheprovider -k record\n")
    return tmp_path


def test_the_workflow_names_actions_with_versions_and_releases_that_exist() -> None:
    assert list(WORKFLOW["jobs"]) == ["service-container", "fixture", "command-line", "judge"]
    for job in WORKFLOW["jobs"].values():
        for step in job["steps"]:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) if "uses" in step else step["run"]
        assert set(job.get("strategy", {}).get("matrix", {}).get("as-version", ())) <= set(RELEASES)


def test_the_service_container_has_the_variable_and_the_port_of_the_image() -> None:
    service = WORKFLOW["jobs"]["service-container"]["services"]["klamm"]
    assert service["image"].endswith("/klamm-serve")
    (published,) = service["ports"]
    host = published.partition(":")[0]
    assert service["env"] == {"KLAMM_ADVERTISED": f"localhost:{host}"}
    assert WORKFLOW["jobs"]["service-container"]["env"] == {"KAFKA_BOOTSTRAP_SERVERS": f"localhost:{host}"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_step_with_the_fixture_passes_on_an_older_kafka(project: Path) -> None:
    assert "2 passed" in run(script("fixture", as_version="2.8"), project)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_step_with_the_command_line_gives_its_cluster_to_the_tests_and_ends_it(project: Path) -> None:
    assert "1 passed" in run(script("command-line", as_version="2.8"), project)


BAD_MEMBER = """
import os, socket
host, port = os.environ["KAFKA_BOOTSTRAP_SERVERS"].split(",")[0].split(":")
frame = bytes.fromhex("000d00000000000100036261640001 67ffff")  # LeaveGroup 0 of client "bad", with a member id that is null
with socket.create_connection((host, int(port))) as connection:
    connection.sendall(len(frame).to_bytes(4, "big") + frame)
    assert connection.recv(1) == b""
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("tests", "code", "said"), [("pytest -q -p no:cacheprovider -k record", 0, "0 warnings"), ("python bad.py", 3, "K-01")]
)
def test_the_job_that_judges_fails_on_a_violation_and_its_page_says_which(project: Path, tests: str, code: int, said: str) -> None:
    (project / "Makefile").write_text(f"test:\n\t{tests}\n")
    (project / "bad.py").write_text(BAD_MEMBER)
    test, judge = (step["run"] for step in steps("judge") if step.get("name") in ("test", "judge"))
    run(test, project)
    assert f"ended with {code}" in run(f"({judge}) || code=$?; echo ended with ${{code:-0}}", project, {"GITHUB_STEP_SUMMARY": "page.md"})
    page = (project / "page.md").read_text()
    assert page.startswith("### Rules of the Kafka protocol\n```\n") and page.endswith("\n```\n") and said in page
    suite = ElementTree.parse(project / "klamm-rules.xml").getroot()
    assert int(suite.attrib["failures"]) == (code != 0) and int(suite.attrib["tests"]) > 50
    assert (project / "klamm-report.html").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_three_smallest_tests_pass(project: Path) -> None:
    assert "3 passed" in run("pytest -q -p no:cacheprovider test_smallest.py", project)


def test_the_examples_in_containers_parse_and_add_a_fault_and_a_hold() -> None:
    examples = sorted(CONTAINERS.iterdir())
    assert [example.suffix for example in examples] == [".java", ".mjs", ".go", ".py"]
    for example in examples:
        text = example.read_text()
        assert all(word in text for word in ("klamm-serve", "NOT_LEADER_OR_FOLLOWER", "ZooKeeperWrite")), example.name
    compile((CONTAINERS / "test_orders.py").read_text(), "test_orders.py", "exec")
    subprocess.run(["node", "--check", CONTAINERS / "orders.test.mjs"], check=True)
    formatted = subprocess.run(["gofmt", "-l", CONTAINERS / "orders_test.go"], check=True, capture_output=True, text=True)
    assert formatted.stdout == ""
