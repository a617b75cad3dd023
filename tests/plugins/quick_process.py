"""What a process does that runs thousands of tests: a plugin of pytest. In a checkout that has run before it saves a tenth of the CPU time.

Test modules and 15,000 collected tests are millions of objects that live until the end. The garbage collector does not look at them again.
It collects what tests leave less often than by default, but so often that clients which nobody closed do not live on for minutes.

Altair imports jsonschema, which makes 38 parsers of internationalized addresses when `rfc3987_syntax` is installed: two seconds in each
process. No schema of Altair has such an address, and the package is only there because a tool for releases asks for it.

In a fresh checkout pytest rewrites the assertions of each test module, forty seconds of CPU time for all of them, and keeps the bytecode.
The processes of a run (`--processes`) do that before the collection, each for a part of the modules.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from _pytest.assertion.rewrite import PYC_TAIL, get_cache_dir
from _pytest.pathlib import ImportMode, import_path

from klamm.machine.collector import keep_present_objects

THRESHOLDS = (10_000, 10, 10)
FEW = 50
"""So many modules are compiled by the collection alone."""


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(*THRESHOLDS)
    cast(Any, sys.modules).setdefault("rfc3987_syntax", None)  # an import of it raises ImportError, as if it were not installed


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    config = session.config
    processes = config.getoption("--processes")
    if processes < 2 or config.args != config.getini("testpaths"):
        return
    files = [file for path in config.args for file in sorted((config.rootpath / path).rglob("test_*.py")) if not _is_compiled(file)]
    if len(files) <= FEW:
        return
    for pid in [_compile_and_exit(files[number::processes], config.rootpath) for number in range(processes)]:
        os.waitpid(pid, 0)


def _is_compiled(file: Path) -> bool:
    bytecode = get_cache_dir(file) / (file.stem + PYC_TAIL)
    return bytecode.exists() and bytecode.stat().st_mtime >= file.stat().st_mtime


def _compile_and_exit(files: list[Path], root: Path) -> int:
    """Import these modules in a process of its own, whose id is returned."""
    pid = os.fork()
    if pid == 0:
        try:
            for file in files:
                with suppress(Exception, pytest.skip.Exception):  # the collection imports it again, and reports what is wrong
                    import_path(file, mode=ImportMode.importlib, root=root, consider_namespace_packages=False)
        finally:
            os._exit(0)
    return pid


def pytest_collection_finish(session: pytest.Session) -> None:
    keep_present_objects()
    # Or libraries that count their objects at the end of the process report them. Not before: pytest lets the collector look through all
    # objects several times at the end of a run.
    atexit.register(gc.unfreeze)
