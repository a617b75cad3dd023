"""Two settings of a process that runs thousands of tests: a plugin of pytest. Together they are a tenth of its CPU time.

Test modules and 15,000 collected tests are millions of objects that live until the end. The garbage collector does not look at them again,
and collects as seldom as in a broker.

Altair imports jsonschema, which makes 38 parsers of internationalized addresses when `rfc3987_syntax` is installed: two seconds in each
process. No schema of Altair has such an address, and the package is only there because a tool for releases asks for it.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, cast

import pytest

from klamm.machine.collector import collect_seldom, keep_present_objects


def pytest_configure(config: pytest.Config) -> None:
    collect_seldom()
    cast(Any, sys.modules).setdefault("rfc3987_syntax", None)  # an import of it raises ImportError, as if it were not installed


def pytest_collection_finish(session: pytest.Session) -> None:
    keep_present_objects()


def pytest_unconfigure(config: pytest.Config) -> None:
    gc.unfreeze()  # or libraries that count their objects at the end of the process report them
