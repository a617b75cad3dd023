"""A command is run when there is a Spark master, and not before."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from klamm.pipeline.spark.cluster import wait_for_master
from klamm.tests.harness.ports import free_ports

WAIT = (sys.executable, "-m", "klamm.pipeline.spark.cluster", "wait")


def test_a_command_is_run_once_something_listens_and_not_before() -> None:
    (port,) = free_ports(1)
    command = [*WAIT, "127.0.0.1", str(port), "echo", "there is a master"]
    with socket.socket() as master, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        master.bind(("127.0.0.1", port))
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(2)
        master.listen()
        assert waiting.communicate(timeout=60)[0] == "there is a master\n"
        assert waiting.returncode == 0


def test_a_master_that_does_not_start_in_time_is_an_error() -> None:
    (port,) = free_ports(1)
    with pytest.raises(ConnectionRefusedError):
        wait_for_master("127.0.0.1", port, within_s=0.1)


@pytest.mark.parametrize("words", [("wait",), ("wait", "localhost", "7077")])
def test_a_command_is_needed(words: tuple[str, ...]) -> None:
    done = subprocess.run([*WAIT[:-1], *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.partition(":")[0]) == (2, "usage")
