"""The modules for Node, Go and the JVM: they are built as packages, and their own tests drive clusters with the clients of the language."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.control.verbs.openapi import openapi
from klamm.distributions.modules import FILES, ROOT

BUILT = ("dist", "node_modules", "target")


def run(*command: object, cwd: Path) -> str:
    """The output of a command whose clusters are those of this checkout. Fails if the command fails."""
    assert shutil.which(str(command[0])) is not None, f"the module needs {command[0]}: install it"
    environ = {**os.environ, "KLAMM": str(Path(sys.executable).parent / "klamm")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the module that the test's parameter names."""
    return Path(shutil.copytree(ROOT / request.param, tmp_path / request.param, ignore=shutil.ignore_patterns(*BUILT)))


@pytest.mark.parametrize("place", FILES)
def test_the_functions_of_the_verbs_are_those_of_the_table(place: str) -> None:
    assert (ROOT / place).read_text() == FILES[place](openapi()), "run `make pages`"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["node"], indirect=True)
def test_the_module_for_node(module: Path) -> None:
    run("npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", cwd=module)
    packed = run("npm", "pack", "--silent", cwd=module)
    assert packed.splitlines()[-1] == "klamm-0.1.0.tgz"
    tests = ("test/cluster.test.mjs", "test/smallest.test.mjs")
    assert "# fail 0" in run("node", "--test", "--test-reporter=tap", *tests, cwd=module)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["go"], indirect=True)
def test_the_module_for_go(module: Path) -> None:
    assert run("gofmt", "-l", ".", cwd=module) == ""
    run("go", "vet", "./...", cwd=module)
    assert "ok" in run("go", "test", "-count=1", "./...", cwd=module / "clients")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["jvm"], indirect=True)
def test_the_module_for_the_jvm(module: Path) -> None:
    run("mvn", "-q", "-B", "verify", cwd=module)
    assert (module / "target" / "klamm-0.1.0.jar").exists()


def test_what_is_true_unless_it_is_given_can_be_false_in_go() -> None:
    """A bool that is left out if it is false would never say so: a link could be cut in both directions only."""
    assert re.search(r"^\tBoth +\*bool +`", FILES["go/operations.go"](openapi()), re.MULTILINE)
