"""The tests in other languages in docs/examples/control: each starts a cluster, and its client sends again after a fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "control"

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    """The output of a command that finds `klamm`. Fails if the command fails."""
    assert shutil.which(str(command[0])) is not None, f"the example needs {command[0]}: install it"
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environ, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_example_of_node_passes(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "node" / "control.test.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(Path(sys.prefix) / "node" / "node_modules")
    assert "# pass 1" in run("node", "--test", "--test-reporter=tap", cwd=tmp_path)


def test_the_example_of_go_passes(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "go", tmp_path / "go")
    assert run("go", "test", "./...", cwd=tmp_path / "go").startswith("ok")


@pytest.mark.reference
def test_the_example_of_java_passes(kafka_jars: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "java" / "ControlExample.java", tmp_path)
    assert run("java", "-cp", f"{kafka_jars}/*", "ControlExample.java", cwd=tmp_path) == "passed\n"
