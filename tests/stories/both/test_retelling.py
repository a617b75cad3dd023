"""Which stories a real Kafka is told again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from klamm.tests.stories.both import retelling
from klamm.tests.stories.both.retelling import ROOT, code_of, digest, is_told_by_present_code, telling_code, tenth
from klamm.tests.stories.both.story_file import read_all

HERE = Path(__file__).parent


def test_telling_code_is_what_the_conftest_imports_directly_or_not() -> None:
    names = {str(file.relative_to(ROOT)) for file in telling_code(HERE)}
    assert {"tests/stories/both/conftest.py", "tests/stories/both/command_views.py", "tests/harness/kafka.py"} <= names
    assert not any(name.rpartition("/")[2].startswith("test_") or not name.startswith("tests/") for name in names)
    assert "tests/tools/Admin.java" in {str(file.relative_to(ROOT)) for file in telling_code(ROOT / "tests" / "tools")}


def test_comments_and_docstrings_do_not_change_a_digest_and_code_does(tmp_path: Path) -> None:
    file = tmp_path / "telling.py"
    file.write_text('"""One text."""\n\n# why\nX = 1\n')
    first = digest([file])
    file.write_text('"""Another\ntext."""\nX = 1\n"""What X is."""\n')
    assert digest([file]) == first
    file.write_text("X = 2\n")
    assert digest([file]) != first


def test_a_text_that_is_used_is_code() -> None:
    assert code_of('"""Doc."""\nsay("""\nthis\n""")\n') == 'say("""\nthis\n""")'


def test_a_folder_without_a_digest_is_told_whole(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("X = 1\n")
    assert not is_told_by_present_code(tmp_path)
    (tmp_path / retelling.DIGEST_FILE).write_text(digest(telling_code(tmp_path)) + "\n")
    assert is_told_by_present_code(tmp_path)
    (tmp_path / "conftest.py").write_text("X = 2\n")
    assert not is_told_by_present_code(tmp_path)


def test_a_seed_draws_the_same_tenth_again() -> None:
    names = [f"story-{number}" for number in range(95)]
    assert len(tenth(names, 1)) == 10
    assert tenth(names, 1) == tenth(names[::-1], 1) != tenth(names, 2)
    assert tenth(names[:1], 1) == {"story-0"}


def test_a_run_names_its_seed_and_deselects_the_other_stories() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "reference", "--stories-seed", "7", str(HERE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    told = [line for line in done.stdout.splitlines() if "::test_kafka_does_it_again[" in line]
    stories = sum(len(file.stories) for file in read_all(HERE))
    if is_told_by_present_code(HERE):
        assert len(told) == len(tenth([str(number) for number in range(stories)], 7))
        assert f"{len(told)} of {stories} stories, drawn by --stories-seed 7" in done.stdout
        assert "skipped" not in done.stdout and "deselected" in done.stdout
    else:
        assert len(told) == stories
        assert f"all {stories} stories" in done.stdout
