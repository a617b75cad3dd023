"""The tutorials of Python, Node, Go, Java and Rust, from an empty folder to a green test, with the built packages in place of the checkout.

Each page's files are written and its commands run as they are printed. A test that a page says fails does so and prints the requests of its
client; then what the page says is taken away, and it passes. KLAMM_DIST names a folder with packages and
a venv in place of building them.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from klamm.distributions import packages, wheels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
CHECKOUT = "../klamm/dist"
"""Where the pages say that the packages are."""
WITHIN_S = 880


class Tutorial:
    """A page, and the folder that its reader works in."""

    def __init__(self, page: str, folder: Path, dist: Path, environ: dict[str, str]) -> None:
        self.text = (TUTORIALS / page).read_text().replace(CHECKOUT, str(dist))
        self.folder = folder
        self._environ = environ
        self._exports = ""
        self.files = dict(re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```", self.text, re.MULTILINE | re.DOTALL))
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)
        *self.install, self.test = [text.strip() for language, text in blocks if language in ("", "sh")]

    def write(self, without: str | None = None) -> None:
        """Write the files; `without` must be in one of them and is left out."""
        assert without is None or any(without in text for text in self.files.values())
        for name, text in self.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text if without is None else text.replace(without, ""))

    def run(self, commands: str) -> tuple[int, str]:
        """Exit code and output of commands, whose exports stay."""
        begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        script = "\n".join(line for line in commands.splitlines() if not line.startswith("pip install"))
        self._exports += "".join(f"{line}\n" for line in script.splitlines() if line.startswith("export "))
        done = subprocess.run(
            ["bash", "-ec", self._exports + script], cwd=self.folder, env=self._environ, text=True, check=False, timeout=WITHIN_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{script.splitlines()[-1:]}: {time.monotonic() - begin:.1f} s, {cpu_s:.1f} CPU s")
        return done.returncode, done.stdout

    def prepare(self) -> None:
        for block in self.install:
            code, said = self.run(block)
            assert code == 0, said
        self.write()

    def passes(self) -> str:
        code, said = self.run(self.test)
        assert code == 0, said
        return said


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all packages."""
    if named := os.environ.get("KLAMM_DIST"):
        return Path(named)
    folder = tmp_path_factory.mktemp("dist")
    wheels.build(folder, wheels.source_date_epoch())
    packages.build(folder)
    return folder


@pytest.fixture(scope="module")
def environ(dist: Path) -> dict[str, str]:
    """The environment of somebody who has installed the wheels and nothing else of Klamm."""
    venv = dist / "venv"
    if not venv.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        klamm, zookeeper = sorted(dist.glob("*.whl"))
        install = (venv / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
        subprocess.run([*install, f"{klamm}[testing,control]", zookeeper, "pytest"], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KLAMM", "PYTHON", "VIRTUAL_ENV", "PYTEST"))}
    return kept | {"PATH": f"{venv}/bin:{os.environ['PATH']}", "CARGO_TARGET_DIR": str(ROOT / ".venv" / "cargo")}


@pytest.mark.parametrize("page", ["test_in_node.md", "test_in_go.md", "test_in_java.md"])
def test_a_test_of_the_tutorial_fails_with_the_requests_of_its_client_and_passes_after_the_change(
    page: str, dist: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    if page == "test_in_java.md":
        (tmp_path / ".mvn").mkdir()
        (tmp_path / ".mvn" / "maven.config").write_text(f"-Dmaven.repo.local={local_repository(tmp_path)}\n")
    if page == "test_in_go.md":
        environ = environ | go_cache(tmp_path)
    tutorial = Tutorial(page, tmp_path, dist, environ)
    tutorial.prepare()
    code, said = tutorial.run(tutorial.test)
    assert code != 0
    assert re.search(r"^\s*> \S+Z  broker \d  Produce v\d+  \S*  NOT_LEADER_OR_FOLLOWER$", said, re.MULTILINE), said
    without = re.search(r"^Without `(.*?)` the producer", tutorial.text, re.MULTILINE)
    assert without is not None
    tutorial.write(without[1])
    tutorial.passes()


def test_the_tutorial_in_rust_passes(dist: Path, environ: dict[str, str], tmp_path: Path) -> None:
    tutorial = Tutorial("test_in_rust.md", tmp_path, dist, environ)
    tutorial.prepare()
    assert "1 passed" in tutorial.passes()


def test_the_tutorial_in_python_passes(dist: Path, environ: dict[str, str], tmp_path: Path) -> None:
    tutorial = Tutorial("test_my_client.md", tmp_path, dist, environ)
    (program,) = re.findall(r"^```python\n(.*?)^```", tutorial.text, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_client.py").write_text(program)
    assert f"{program.count('def test_')} passed" in tutorial.passes()


def local_repository(folder: Path) -> Path:
    """Maven's own repository with hard links, so that nothing is downloaded again and nothing of the test is left in it."""
    target = folder / "repository"
    mine = Path.home() / ".m2" / "repository"
    if mine.exists():
        shutil.copytree(mine, target, copy_function=os.link, ignore=shutil.ignore_patterns("klamm"))
    return target


def go_cache(folder: Path) -> dict[str, str]:
    """A module cache of the test's own, which is filled from that of this user."""
    mine, proxy = subprocess.run(["go", "env", "GOMODCACHE", "GOPROXY"], capture_output=True, text=True, check=True).stdout.split()
    own = folder.parent / f"{folder.name}-cache"
    return {"GOMODCACHE": str(own), "GOPROXY": f"file://{mine}/cache/download,{proxy}", "GOFLAGS": "-modcacherw"}
