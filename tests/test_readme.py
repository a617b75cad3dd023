"""The Python programs in README.md run as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


def test_the_readme_has_a_test_of_a_client_and_a_program() -> None:
    assert ["pytest" in program for program in programs()] == [True, False]


def test_the_test_of_a_client_has_ten_lines_and_passes(tmp_path: Path) -> None:
    program = programs()[0]
    assert len([line for line in program.splitlines() if line]) == 10
    (tmp_path / "test_client.py").write_text(program)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_client.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_program_runs(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", programs()[1]], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.splitlines()
    assert (first.count(","), second.count(":")) == (2, 1 + second.count(","))


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README.read_text()))
def test_every_link_of_the_readme_leads_to_a_file(link: str) -> None:
    assert (README.parent / link).exists()
