"""The collector of a program that serves."""

from __future__ import annotations

import subprocess
import sys

from klamm.machine.collector import THRESHOLDS


def test_nothing_is_collected_while_the_modules_of_a_broker_are_imported() -> None:
    program = """
import gc, sys
from klamm.cli import start
sys.argv = ["klamm", "--version"]
before = [row["collections"] for row in gc.get_stats()]
try:
    start.main()
except SystemExit:
    pass
import klamm.server.broker_server, klamm.server.run
print(before == [row["collections"] for row in gc.get_stats()], gc.get_threshold())
"""
    lines = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines[-1] == f"True {THRESHOLDS}"
