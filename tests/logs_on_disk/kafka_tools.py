"""Kafka's own judge of files in a log directory."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from klamm.tests.harness.kafka import java_command

COMPLAINTS = re.compile(
    r"(?i)mismatch|corrupt|invalid|exception|error|out of order|not found|isvalid: false|trailing|non-consecutive|missing"
)
INDEXES = (".index", ".timeindex")
OTHERS = (".log", ".txnindex", ".snapshot")


def complaints(jars: Path, directories: Iterable[Path]) -> list[str]:
    """What DumpLogSegments finds wrong in all files of logs in these directories: every record is read, every index entry is looked up."""
    files = sorted(file for directory in directories for file in directory.glob("*-*/*"))
    logs = [file for file in files if file.suffix in OTHERS]
    indexes = [file for file in files if file.suffix in INDEXES]
    found = _dump(jars, logs, "--deep-iteration") if logs else []
    for how in ("--index-sanity-check", "--verify-index-only"):
        found += _dump(jars, indexes, how) if indexes else []
    return found


def _dump(jars: Path, files: list[Path], *arguments: str) -> list[str]:
    command = java_command(jars, "kafka.tools.DumpLogSegments", *arguments, "--files", ",".join(map(str, files)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = (done.stdout + done.stderr).splitlines()
    assert sum(line.startswith("Dumping ") for line in lines) == len(files), (done.returncode, lines[-20:])
    wrong = [line for line in lines if COMPLAINTS.search(line) and "isvalid: true" not in line and not line.startswith("Dumping ")]
    return wrong if done.returncode == 0 else [f"exit code {done.returncode}", *lines[-20:]]
