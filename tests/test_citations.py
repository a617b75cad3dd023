"""Every citation of the specification, in code, tests and docs, names a heading or a requirement of docs/spec/.

Citations in comments, docstrings and pages are words: "controller 6.3", "layout 3.4 to 3.6", "wire 5.2". Titles of stories cite sections of
controller.md by their numbers alone: "== The leader epoch after the last one (8)". Requirements are cited by their ids: R183-7.
Files of the checkout are cited by their paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from klamm.tests.prose import prose

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "docs" / "spec"
FILES = {"controller": "controller.md", "layout": "zookeeper-layout.md", "wire": "wire.md", "ctl": "controller.md"}
"""Word of a citation → the file that it means."""
NUMBERS = r"§?(\d+(?:\.\d+)?(?:(?:,| and| to|-|,? or) ?§?\d+(?:\.\d+)?)*)"
CITATION = re.compile(rf"(?<![/\w])`?(controller|layout|zookeeper-layout|wire|ctl)(?:\.md)?`? {NUMBERS}")
MAY_CITE = re.compile(r"(?:controller|layout|wire|ctl)(?:\.md)?`?[\s#]+§?\d")
"""In Python source, where a citation may go over the end of a line. A file without one is not parsed."""
REQUIREMENT = re.compile(r"\b(R(?:183|179|491|704|EG)-\d+)\b")
NAMED_FILE = re.compile(r"(?<![\w/.<{*-])((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|md|txt|toml|json|java))\b")
STORY = re.compile(r"^== .*\(([^()]*)\)$", re.MULTILINE)


def headings(name: str) -> set[str]:
    """Numbers of the sections of a file of the specification: "3", "3.1", …"""
    return set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", (SPEC / name).read_text(), re.MULTILINE))


def requirements() -> set[str]:
    return set(re.findall(r"^\* \*\*(R[0-9A-Z]+-\d+)\*\*", (SPEC / "controller.md").read_text(), re.MULTILINE))


@cache
def sources(*suffixes: str) -> list[Path]:
    """Files of the checkout with these suffixes."""
    found: list[Path] = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in (".venv", ".git", ".typing", "build")]
        found += [Path(folder, name) for name in names if name.endswith(suffixes)]
    return sorted(found)


@cache
def cited() -> list[tuple[Path, str, str]]:
    """(file, word, numbers) of each citation of a section."""
    return list(_cited())


def _cited() -> Iterator[tuple[Path, str, str]]:
    for path in sources(".py"):
        source = path.read_text()
        for text in prose(source) if MAY_CITE.search(source) else ():
            for word, numbers in CITATION.findall(text):
                yield path, word.removeprefix("zookeeper-"), numbers
    for path in sources(".md"):
        for word, numbers in CITATION.findall(path.read_text()):
            yield path, word.removeprefix("zookeeper-"), numbers


@pytest.mark.parametrize("name", sorted(set(FILES.values())))
def test_every_cited_section_exists(name: str) -> None:
    known = headings(name)
    unknown = [
        f"{path.relative_to(ROOT)}: {word} {number}"
        for path, word, numbers in cited()
        if FILES[word] == name
        for number in re.findall(r"\d+(?:\.\d+)?", numbers)
        if number not in known
    ]
    assert not unknown, "\n".join(unknown)


def test_every_section_that_a_story_cites_exists() -> None:
    known = headings("controller.md")
    unknown = [
        f"{path.name}: {number} in ({numbers})"
        for path in sorted((ROOT / "tests" / "stories").rglob("*.txt"))
        for numbers in STORY.findall(path.read_text())
        for number in re.findall(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w-])", numbers)
        if number not in known
    ]
    assert not unknown, "\n".join(unknown)


def test_every_cited_requirement_exists() -> None:
    known = requirements()
    unknown = [
        f"{path.relative_to(ROOT)}: {requirement}"
        for path in sources(".py", ".md", ".txt", ".toml")
        for requirement in REQUIREMENT.findall(path.read_text())
        if requirement not in known
    ]
    assert not unknown, "\n".join(unknown)


def test_the_sections_of_the_specification_cite_sections_that_exist() -> None:
    """`§` without a file means the file itself, in the three files that have numbered sections."""
    unknown = []
    of_other_files = re.compile(r"(?:`(?:controller|wire|zookeeper-layout)\.md`|layout) §\d+(?:\.\d+)?(?:, §\d+(?:\.\d+)?)*")
    for name in sorted(set(FILES.values())):
        text = of_other_files.sub("", (SPEC / name).read_text())
        unknown += [f"{name}: §{number}" for number in re.findall(r"§(\d+(?:\.\d+)?)", text) if number not in headings(name)]
    assert not unknown, "\n".join(unknown)


def test_every_file_that_a_comment_a_docstring_or_a_text_names_exists() -> None:
    """Paths begin at the root, at a folder above the file that names them, or at one that is named often."""
    folders = {entry.name for entry in ROOT.iterdir() if entry.is_dir()}
    unknown = []
    for path in sources(".py", ".toml"):
        if "/" not in (source := path.read_text()) or path.parent == ROOT / "tests" / "plugins":  # their tests make files up
            continue
        for named in set(NAMED_FILE.findall(source)):
            bases = [folder for folder in path.parents if folder.is_relative_to(ROOT)] + [ROOT / "tests", ROOT / "docs"]
            if named.partition("/")[0] in folders and not any((base / named).exists() for base in bases):
                unknown.append(f"{path.relative_to(ROOT)}: {named}")
    assert not unknown, "\n".join(unknown)
