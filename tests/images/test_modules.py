"""The modules for Node, Go and the JVM start `klamm-serve` in a container at free ports. A fault reaches it, and its journal is judged."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.distributions.modules import ROOT
from klamm.tests.harness.waits import wait_for
from klamm.tests.images.containers import ENVIRON

pytestmark = [pytest.mark.slow, pytest.mark.images, pytest.mark.timeout(900)]

IMAGE = {"KLAMM_IMAGE": "localhost/klamm-serve-judging", "KLAMM_DOCKER": "podman", "TESTCONTAINERS_RYUK_DISABLED": "true"}
"""Ryuk is an image that cannot be had here."""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest, judging_image: None) -> Path:
    """A copy of the module that the test's parameter names."""
    built = shutil.ignore_patterns("dist", "node_modules", "target")
    return Path(shutil.copytree(ROOT / request.param, tmp_path / request.param, ignore=built))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    """The address of podman where it looks like Docker's daemon, for Testcontainers."""
    socket = tmp_path / "podman.sock"
    with subprocess.Popen(["podman", "system", "service", "--time=0", f"unix://{socket}"], env=ENVIRON) as process:
        try:
            wait_for(socket.exists, "the socket of podman")
            yield f"unix://{socket}"
        finally:
            process.terminate()


def run(folder: Path, *command: str, **more: str) -> str:
    done = subprocess.run(command, cwd=folder, env={**ENVIRON, **IMAGE, **more}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("module", ["node"], indirect=True)
def test_a_container_of_the_module_for_node(module: Path) -> None:
    run(module, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
    run(module, "npm", "run", "build")
    said = run(module, "node", "--test", "--test-reporter=tap", "test/container.test.mjs")
    assert "# pass 2\n" in said, said


@pytest.mark.parametrize("module", ["go"], indirect=True)
def test_a_container_of_the_module_for_go(module: Path) -> None:
    said = run(module / "clients", "go", "test", "-count=1", "-v", "-run=InAContainer", "./...")
    assert re.search(r"^--- PASS: TestAFaultReachesAClusterInAContainer", said, re.MULTILINE), said


@pytest.mark.parametrize("module", ["jvm"], indirect=True)
def test_a_container_of_the_module_for_the_jvm(module: Path, service: str) -> None:
    run(module, "mvn", "-q", "-B", "test", "-Dtest=KlammContainerTest", DOCKER_HOST=service)
    assert 'tests="1" errors="0" skipped="0" failures="0"' in next((module / "target" / "surefire-reports").glob("*.xml")).read_text()
