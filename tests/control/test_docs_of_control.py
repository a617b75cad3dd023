"""The examples of docs/control.md work as they are printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from klamm.tests.cli.running import Running

PAGE = Path(__file__).resolve().parents[2] / "docs" / "control.md"
WAITING = ("?hits=", "?wait=", "-sN")
"""What waits for a client."""


@pytest.mark.slow
def test_the_examples_with_curl_succeed(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```\n(curl .*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    commands = [each.strip() for block in blocks for each in re.split(r"^(?=curl |\{)", block, flags=re.MULTILINE)]
    chosen = [each for each in commands if each.startswith("curl") and not any(word in each for word in WAITING)]
    assert len(chosen) > 8
    running = Running(
        tmp_path, "serve", "--port", "0", "--json", "--zookeeper", zookeeper + chroot, "--control-port", "0", "--topic", "orders:1:3"
    )
    try:
        environ = {**os.environ, "CONTROL": running.ready()["control"]}
        for command in chosen:
            done = subprocess.run(["bash", "-c", command], env=environ, capture_output=True, text=True, check=True, timeout=60)
            assert "error" not in json.loads(done.stdout), command
    finally:
        running.kill()
