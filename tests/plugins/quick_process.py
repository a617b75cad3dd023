"""What a process does that runs thousands of tests: a plugin of pytest. In a checkout that has run before it saves a tenth of the CPU time.

Test modules and 15,000 collected tests are millions of objects that live until the end. The garbage collector does not look at them again.
It collects what tests leave less often than by default, but so often that clients which nobody closed do not live on for minutes.

Altair imports jsonschema, which makes 38 parsers of internationalized addresses when `rfc3987_syntax` is installed: two seconds in each
process. No schema of Altair has such an address, and the package is only there because a tool for releases asks for it.

In a fresh checkout pytest rewrites the assertions of each test module, forty seconds of CPU time for all of them, and keeps the bytecode.
The processes of a run would all do so at once. So each of them imports other modules first, and then finds what the others have kept.
"""

from __future__ import annotations

import atexit
import gc
import sys
from contextlib import suppress
from typing import Any, cast

import pytest
from _pytest.pathlib import ImportMode, import_path

from klamm.machine.collector import keep_present_objects

THRESHOLDS = (10_000, 10, 10)


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(*THRESHOLDS)
    cast(Any, sys.modules).setdefault("rfc3987_syntax", None)  # an import of it raises ImportError, as if it were not installed


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    config = session.config
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    number, processes = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    files = sorted(file for path in config.args for file in (config.rootpath / path).rglob("test_*.py"))
    for file in files[number::processes]:
        with suppress(Exception, pytest.skip.Exception):  # the collection imports it again, and reports what is wrong
            import_path(file, mode=ImportMode.importlib, root=config.rootpath, consider_namespace_packages=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    keep_present_objects()
    # Or libraries that count their objects at the end of the process report them. Not before: pytest lets the collector look through all
    # objects several times at the end of a run.
    atexit.register(gc.unfreeze)
