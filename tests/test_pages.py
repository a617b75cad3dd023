"""The computed pages of docs/ are current, and every mark names a requirement that exists."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


@cache
def load_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "tests" / "pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_computed_pages_are_current() -> None:
    checked = subprocess.run([sys.executable, ROOT / "tests" / "pages.py"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_mark_names_a_known_requirement() -> None:
    pages = load_pages()
    assert set(pages.marks()) <= set(pages.requirements())


def test_every_requirement_has_a_test_that_names_it_but_for_one_that_asks_for_nothing() -> None:
    pages = load_pages()
    assert not pages.open_requirements(), "no test names these"
    assert pages.empty_requirements() == {"RREG-23"}
    assert not pages.empty_requirements() & set(pages.marks())


def test_the_table_of_requirements_lists_those_of_the_specification() -> None:
    """Each has a paragraph of its own in docs/spec/controller.md; 131 in all."""
    specified = re.findall(r"^\* \*\*(R[0-9A-Z]+-\d+)\*\*", (ROOT / "docs" / "spec" / "controller.md").read_text(), re.MULTILINE)
    assert sorted(load_pages().requirements()) == sorted(specified)
    assert len(specified) == 131


def test_marks_are_found_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n"
        'pytestmark = pytest.mark.requirement("A-1")\n'
        '@pytest.mark.requirement("A-2", "A-3")\n'
        "def test_plain(): pass\n"
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("A-4"))])\n'
        "async def test_cases(x): pass\n"
        "class TestMany:\n"
        '    @pytest.mark.requirement("A-5")\n'
        "    def test_inner(self): pass\n"
    )
    assert load_pages().marks(tmp_path) == {
        "A-1": ["test_sample.py"],
        "A-2": ["test_sample.py::test_plain"],
        "A-3": ["test_sample.py::test_plain"],
        "A-4": ["test_sample.py::test_cases"],
        "A-5": ["test_sample.py::test_inner"],
    }


MOST = 220
"""Characters of a line of prose: longer ones cannot be read in a diff. Rows of tables, code, headings and
forms of JSON (docs/journal.md) are one line each."""


def test_lines_of_pages_can_be_read_in_a_diff() -> None:
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    long: list[str] = []
    for name in filter(None, listed.split("\0")):
        is_code = False
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            if len(line) > MOST and name != "docs/journal.md" and not is_code and not line.lstrip().startswith(("|", "#")):
                long.append(f"{name}:{number}: {len(line)}")
    assert long == []
