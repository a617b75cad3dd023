"""The processes of a run compile the test modules of a fresh checkout together, and the collector leaves alone what was collected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from klamm.tests.plugins.quick_process import FEW

MODULE = """
import gc, os
with open("{log}", "a") as log:
    log.write(f"{{os.getpid()}} {name}\\n")

def test_it_is_collected_and_passes():
    assert gc.get_freeze_count() > 10_000
"""


@pytest.mark.slow
def test_each_process_of_a_run_compiles_a_part_of_the_modules_before_they_are_collected(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "tests").mkdir()
    names = [f"{number:02}" for number in range(FEW + 2)]
    for name in names:
        (tmp_path / "tests" / f"test_{name}.py").write_text(MODULE.format(log=log, name=name))
    (tmp_path / "tests" / "test_x.py").write_text("import pytest\npytest.skip('not here', allow_module_level=True)")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\naddopts = --import-mode=importlib\n")
    plugins = [f"-pklamm.tests.plugins.{plugin}" for plugin in ("processes", "quick_process")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, "--processes", "2"]
    imported = []
    for _ in range(2):
        output = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        assert f"{len(names)} passed, 1 skipped" in output
        lines = [line.split(" ") for line in log.read_text().splitlines()]
        imported.append([[name for by, name in lines if by == pid] for pid in dict.fromkeys(by for by, _ in lines)])
        log.unlink()
    assert sorted(imported[0]) == sorted([names[0::2], names[1::2], names])
    assert imported[1] == [names]
