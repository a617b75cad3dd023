"""The command of a suite that does not end is cut off, with all that it started, and what it said is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.tests.clients.suites.conftest import run_in


@pytest.mark.slow
def test_a_command_that_does_not_end_leaves_its_output_and_no_process(tmp_path: Path) -> None:
    assert run_in(tmp_path, ["sh", "-c", "(echo begun; sleep 600) & wait"], {}, within_s=3) == "begun\n"
