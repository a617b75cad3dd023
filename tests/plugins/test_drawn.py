"""Which long tests of real processes a run leaves out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.tests.plugins.drawn import DRAWN, ROOT, SUBJECTS, WIDE, is_drawn, newest_files, touched

TESTS = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize('n', range(20))
def test_long(n):
    pass

def test_short():
    pass
"""
RETOLD_AND_SEEDED = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize('n', range(20))
def test_long(n):
    pass

@pytest.mark.slow
@pytest.mark.retold
@pytest.mark.parametrize('n', range(20))
def test_retold(n):
    pass

@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize('n', range(20))
def test_seeds(n):
    pass
"""
NAMES = [f"tests/mixed/test_x.py::test_{number}" for number in range(1000)]


def test_the_folders_exist() -> None:
    assert [folder for folder in (*DRAWN, *SUBJECTS) if not (ROOT / folder).is_dir()] == []
    assert {f"tests/{name}" for names in SUBJECTS.values() for name in names} <= DRAWN


def test_about_the_share_is_drawn_and_the_same_by_the_same_seed() -> None:
    drawn = [name for name in NAMES if is_drawn(name, 7, 30)]
    assert 250 < len(drawn) < 350
    assert drawn == [name for name in NAMES if is_drawn(name, 7, 30)]
    assert drawn != [name for name in NAMES if is_drawn(name, 8, 30)]
    assert set(drawn) < {name for name in NAMES if is_drawn(name, 7, 60)}


@pytest.mark.parametrize(("share", "number"), [(0, 0), (100, 1000)])
def test_none_and_all_can_be_asked_for(share: int, number: int) -> None:
    assert sum(is_drawn(name, 7, share) for name in NAMES) == number


@pytest.mark.parametrize(
    ("file", "folders"),
    [
        ("controller/writes/throttle_removal.py", {"tests/cluster", "tests/controller", "tests/moves"}),
        ("pipeline/rules/answers.py", {"tests/pipeline", "tests/pipeline/injected", "tests/pipeline/real_clusters"}),
        ("broker/log/log.py", {"tests/histories", "tests/logs_on_disk"}),
        ("tests/mixed/data_story.py", {"tests/mixed"}),
        ("tests/controller/test_phases.py", {"tests/controller"}),
        ("tests/records/test_batches.py", set()),
        ("README.md", set()),
    ],
)
def test_a_file_brings_the_tests_of_its_subject(file: str, folders: set[str]) -> None:
    assert touched([file]) == folders


def test_the_newest_commits_are_read_but_for_wide_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(*files: str) -> None:
        for file in files:
            (tmp_path / file).write_text("text")
        subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
        who = ["-c", "user.name=Nobody", "-c", "user.email=nobody@localhost"]
        subprocess.run(["git", *who, "commit", "-q", "-m", "Some"], cwd=tmp_path, check=True)

    monkeypatch.setattr("klamm.tests.plugins.drawn.ROOT", tmp_path)
    assert newest_files() == []
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("old", "one", "two"):
        commit(name)
    commit(*(f"many-{number}" for number in range(WIDE + 1)))
    assert sorted(newest_files()) == ["one", "two"]


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_a_run_leaves_out_what_is_not_drawn_and_says_how_to_repeat_it(tmp_path: Path, workers: str) -> None:
    files = ["tests/mixed/test_mixed.py", "tests/moves/test_moves.py", "tests/records/test_records.py"]
    by_file = [f"tests/pipeline/rules/test_{number}.py" for number in range(4)]
    for file in files + by_file:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = --import-mode=importlib\n")
    command = [sys.executable, "-m", "pytest", "-v", "-n", workers, "-p", "no:cacheprovider", "-p", "klamm.tests.plugins.unstable"]
    command += ["-p", "klamm.tests.plugins.drawn", "--long-share", "40", "--long-seed", "5", "--long-folders", "tests/moves"]
    output = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    long = [number for number in range(20) if is_drawn(f"tests/mixed/test_mixed.py::test_long[{number}]", 5, 40)]
    in_full = [file for file in by_file if is_drawn(file, 5, 40)]
    assert 0 < len(in_full) < 4
    assert f"{len(long) + 20 * (2 + len(in_full)) + len(files + by_file)} passed" in output
    assert all(f"{file}::test_long[19]" in output for file in in_full)
    assert all(f"test_mixed.py::test_long[{number}]" in output for number in long)
    assert output.count("40 % drawn by --long-seed 5; all of these folders: tests/moves") == 2


def test_few_are_retold_and_of_deterministic_tests_only_many_seeds_are_drawn(tmp_path: Path) -> None:
    for folder in ("mixed", "controller"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / f"test_{folder}.py").write_text(RETOLD_AND_SEEDED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  retold\n  many_seeds\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "klamm.tests.plugins.unstable"]
    command += ["-p", "klamm.tests.plugins.drawn", "--long-share", "50", "--long-seed", "5", "--long-folders", ""]
    output = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    def ran(name: str) -> set[int]:
        return {int(number) for number in re.findall(rf"{re.escape(name)}\[(\d+)\] PASSED", output)}

    def drawn(name: str, share: int) -> set[int]:
        return {number for number in range(20) if is_drawn(f"{name}[{number}]", 5, share)}

    mixed, controller = "tests/mixed/test_mixed.py", "tests/controller/test_controller.py"
    assert ran(f"{mixed}::test_long") == drawn(f"{mixed}::test_long", 50)
    assert ran(f"{mixed}::test_retold") == drawn(f"{mixed}::test_retold", 10)
    assert ran(f"{controller}::test_long") == set(range(20))
    assert ran(f"{controller}::test_seeds") == drawn(f"{controller}::test_seeds", 50)


@pytest.mark.slow
def test_all_processes_of_a_run_draw_the_same_without_a_seed(tmp_path: Path) -> None:
    (tmp_path / "tests" / "mixed").mkdir(parents=True)
    (tmp_path / "tests" / "mixed" / "test_mixed.py").write_text(TESTS)
    plugins = '["-p", "klamm.tests.plugins.unstable", "-p", "klamm.tests.plugins.drawn"]'
    (tmp_path / "pyproject.toml").write_text(f'[tool.pytest.ini_options]\nmarkers = ["slow: long"]\naddopts = {plugins}\n')
    command = [sys.executable, "-m", "pytest", "-q", "-n", "3", "-p", "no:cacheprovider"]
    command += ["--long-share", "50", "--long-folders", "", "tests"]
    output = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    (seed,) = set(re.findall(r"drawn by --long-seed (\d+)", output))
    drawn = sum(is_drawn(f"tests/mixed/test_mixed.py::test_long[{number}]", int(seed), 50) for number in range(20))
    assert f"{drawn + 1} passed" in output


def test_a_share_that_is_no_percentage_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "klamm.tests.plugins.unstable", "-p", "klamm.tests.plugins.drawn"]
    command += ["--long-share", "101"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 4
    assert "--long-share 101 is no percentage" in done.stderr
