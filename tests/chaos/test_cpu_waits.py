"""The time in which a cluster waited for a CPU is measured, and does not count as unavailability."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from klamm.chaos.clients.producers import Gaps
from klamm.chaos.cpu_waits import EVERY_S, PROC, CpuWaits
from klamm.tests.harness.waits import wait_for

BUSY = [sys.executable, "-c", "while True: pass"]


@pytest.mark.skipif(not (PROC / "self" / "schedstat").exists(), reason="this system does not count waits for a CPU")
def test_a_process_that_shares_a_cpu_waits_for_it_and_its_parent_is_asked() -> None:
    cpu = min(os.sched_getaffinity(0))
    parent = subprocess.Popen(["sh", "-c", 'taskset -c "$0" "$@" & taskset -c "$0" "$@" & wait', str(cpu), *BUSY], start_new_session=True)
    try:
        waits = CpuWaits(parent.pid)
        wait_for(lambda: waits.seconds() > EVERY_S, "two processes on one CPU wait for each other")
    finally:
        os.killpg(parent.pid, 9)
        parent.wait()


def test_a_process_that_is_gone_waits_for_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert CpuWaits(gone.pid).seconds() == 0


def test_time_in_which_the_cluster_waits_for_a_cpu_is_no_unavailability() -> None:
    waited_s = 0.0
    gaps = Gaps(2, lambda: waited_s)
    waited_s = 100.0
    gaps.acknowledged(0)
    assert gaps.longest_s[0] > 0 and gaps.longest_working_s[0] == 0
    gaps.acknowledged(0)
    assert gaps.longest_working_s[0] > 0
