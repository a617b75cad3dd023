"""How `klamm serve` ends when something it needs dies, is full or does not answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from klamm.tests.cli.conftest import Start
from klamm.tests.cli.running import Running
from klamm.tests.harness.waits import wait_until_stopped

Properties = Callable[..., Path]

PROMISED_S = 2.0
BUSY_S = 2.0
"""What a busy machine may add. Before there was a limit, these stops took 7.5 s and more."""

FILE_LIMIT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
os.execv(sys.argv[1], sys.argv[1:])
"""
SMALL_DISK = 'mount -t tmpfs -o size=4m tmpfs "$0" && exec "$@"'


def java_of(data_dir: Path) -> int:
    """Process id of the embedded ZooKeeper that keeps its data there."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout.splitlines()
    (pid,) = [int(line.split()[0]) for line in listed if line.split()[1].endswith("/java") and str(data_dir) in line]
    return pid


def fill(zookeeper: str) -> None:
    """Write until the ZooKeeper is gone."""
    client = KazooClient(zookeeper)
    client.start()
    try:
        for number in range(50):
            client.create(f"/filler-{number}", b"x" * 100_000)
        raise AssertionError("it takes everything")
    except KazooException:
        pass
    finally:
        client.stop()
        client.close()


def stopped_within(cluster: Running) -> float:
    """Seconds that a SIGTERM takes to end it."""
    began = time.monotonic()
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0, cluster.stderr
    return time.monotonic() - began


def test_killed_zookeeper_ends_it_with_the_reason(start: Start, tmp_path: Path) -> None:
    cluster = start("serve", "--port", 0, "--json", "--data-dir", tmp_path / "kept")
    cluster.ready()
    os.kill(java_of(tmp_path / "kept"), signal.SIGKILL)
    assert cluster.ended() == 1
    assert cluster.stderr.splitlines()[-1] == "klamm: the embedded ZooKeeper ended: killed by SIGKILL"
    assert "Traceback" not in cluster.stderr


@pytest.mark.parametrize(
    ("within", "reason"),
    [
        ((sys.executable, "-c", FILE_LIMIT), "exit code 0"),
        pytest.param(
            ("unshare", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK), "no space left on the device", marks=pytest.mark.slow
        ),
    ],
    ids=["file too large", "disk full"],
)
def test_zookeeper_that_cannot_write_ends_it_with_the_reason(start: Start, tmp_path: Path, within: Sequence[str], reason: str) -> None:
    if within[0] == "unshare":
        within = (*within, str(tmp_path))
        if subprocess.run([*within, "true"], capture_output=True, check=False).returncode != 0:
            assert "CI" not in os.environ, "CI needs a machine on which `unshare` may mount a small disk"
            pytest.skip("nobody may mount a small disk here; the other case is the same end with another reason")
    cluster = start("serve", "--port", 0, "--json", "--data-dir", tmp_path / "kept", within=within)
    fill(cluster.ready()["zookeeper"])
    assert cluster.ended() == 1
    last = cluster.stderr.splitlines()[-1]
    assert last.startswith("klamm: the embedded ZooKeeper ended: ")
    assert reason in last
    assert "Traceback" not in cluster.stderr


def test_silent_zookeeper_does_not_hold_up_the_stop(start: Start, tmp_path: Path) -> None:
    cluster = start("serve", "--port", 0, "--json", "--data-dir", tmp_path / "kept", "--topic", "orders:6:3")
    cluster.ready()
    pid = java_of(tmp_path / "kept")
    os.kill(pid, signal.SIGSTOP)
    wait_until_stopped(pid)
    assert stopped_within(cluster) < PROMISED_S + BUSY_S
    assert "Traceback" not in cluster.stderr


def test_silent_controller_does_not_hold_up_the_stop(start: Start, properties: Properties, zookeeper: str, chroot: str) -> None:
    controller = start("broker", properties(broker_id=9))
    controller.logged("is the active controller after")
    cluster = start("serve", "--port", 0, "--json", "--zookeeper", zookeeper + chroot)
    cluster.ready()
    controller.signal(signal.SIGSTOP)
    wait_until_stopped(controller.process.pid)
    assert stopped_within(cluster) < PROMISED_S + BUSY_S
    assert "Traceback" not in cluster.stderr
