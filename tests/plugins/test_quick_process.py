"""Each process of a run imports other test modules first, and the collector leaves alone what was collected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
import gc, os
with open("{log}", "a") as log:
    log.write(os.environ["PYTEST_XDIST_WORKER"] + " {name}\\n")

def test_it_is_collected_and_passes():
    assert gc.get_freeze_count() > 10_000
"""


@pytest.mark.slow
def test_each_process_of_a_run_imports_other_modules_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "tests").mkdir()
    for name in "abcd":
        (tmp_path / "tests" / f"test_{name}.py").write_text(MODULE.format(log=log, name=name))
    (tmp_path / "tests" / "test_e.py").write_text("import pytest\npytest.skip('not here', allow_module_level=True)")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\naddopts = --import-mode=importlib\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-p", "klamm.tests.plugins.quick_process"]
    output = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "4 passed, 1 skipped" in output
    lines = [line.split(" ") for line in log.read_text().splitlines()]
    imported = {worker: [name for by, name in lines if by == worker] for worker in ("gw0", "gw1")}
    assert imported == {"gw0": ["a", "c", "b", "d"], "gw1": ["b", "d", "a", "c"]}
