"""Which stories a real Kafka is told again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from klamm.tests.stories.both import retelling
from klamm.tests.stories.both.retelling import ROOT, code_of, digest, drawn, is_told_by_present_code, telling_code
from klamm.tests.stories.both.story_file import read_all

HERE = Path(__file__).parent


def test_telling_code_is_what_the_conftest_imports_directly_or_not() -> None:
    names = {str(file.relative_to(ROOT)) for file in telling_code(HERE)}
    assert {"tests/stories/both/conftest.py", "tests/stories/both/command_views.py", "tests/harness/kafka.py"} <= names
    assert not any(name.rpartition("/")[2].startswith("test_") or not name.startswith("tests/") for name in names)
    assert "tests/tools/Admin.java" in {str(file.relative_to(ROOT)) for file in telling_code(ROOT / "tests" / "tools")}


def test_the_digest_changes_with_the_code_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "telling.py"
    digests = set()
    for text in ("X = 1\n", "X = 2\n", '"""A docstring."""\nX = 1  # a comment\n'):
        file.write_text(text)
        digests.add(digest([file]))
    assert len(digests) == 2


CODE = 'def f(x: int, *, y=1) -> str:\n    """Says it."""\n    say(x, "text")\n'


@pytest.mark.parametrize(
    "other",
    [
        'def f(x, *, y=1):\n    # why\n    say(x, "text")  # type: ignore\n',
        '"""A docstring."""\ndef f(\n    x: str,\n    *,\n    y=1,\n) -> None:\n    say(\n        x,\n        "text",\n    )\n',
    ],
    ids=["comments", "layout"],
)
def test_comments_docstrings_layout_and_annotations_are_no_code(other: str) -> None:
    assert code_of(other) == code_of(CODE)


@pytest.mark.parametrize(
    ("old", "new"), [("y=1", "y=2"), ('"text"', '"other"'), ("*, ", ""), ("say(x,", "say(y,"), ("def f", "async def f"), ("y=1", "y=None")]
)
def test_any_other_change_is_a_change_of_code(old: str, new: str) -> None:
    assert CODE.count(old) == 1
    assert code_of(CODE.replace(old, new)) != code_of(CODE)


def test_where_klamm_keeps_what_a_teller_imports_does_not_count() -> None:
    assert code_of("from klamm.zk import paths\nx = 1") == code_of("from klamm.zk.layout import paths\nx = 1")
    assert code_of("from klamm.tests import a\nx = 1") != code_of("from klamm.tests import b\nx = 1")


def test_a_folder_without_a_digest_is_told_whole(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("X = 1\n")
    assert not is_told_by_present_code(tmp_path)
    (tmp_path / retelling.DIGEST_FILE).write_text(digest(telling_code(tmp_path)) + "\n")
    assert is_told_by_present_code(tmp_path)
    (tmp_path / "conftest.py").write_text("X = 2\n")
    assert not is_told_by_present_code(tmp_path)


def test_a_seed_draws_the_same_stories_again() -> None:
    names = [f"story-{number}" for number in range(95)]
    assert len(drawn(names, 1)) == 10
    assert drawn(names, 1) == drawn(names[::-1], 1) != drawn(names, 2)
    assert drawn(names[:1], 1) == {"story-0"}


def test_a_run_names_its_seed_and_deselects_the_other_stories() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "reference", "--stories-seed", "7", str(HERE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    told = [line for line in done.stdout.splitlines() if "::test_kafka_does_it_again[" in line]
    stories = sum(len(file.stories) for file in read_all(HERE))
    if is_told_by_present_code(HERE):
        assert len(told) == len(drawn([str(number) for number in range(stories)], 7))
        assert f"{len(told)} of {stories} stories, drawn by --stories-seed 7" in done.stdout
        assert " skipped" not in done.stdout and "deselected" in done.stdout
    else:
        assert len(told) == stories
        assert f"all {stories} stories" in done.stdout
