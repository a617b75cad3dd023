"""A real broker as a test's own process: it starts, says so, stops in order, and never outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.tests.harness.kafka import KafkaBroker, wait_for
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import NoJars, jars

pytestmark = [pytest.mark.slow, pytest.mark.reference]


@pytest.fixture
def broker(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[KafkaBroker]:
    try:
        folder = jars()
    except NoJars as problem:
        pytest.fail(str(problem), pytrace=False)
    tree = Tree(zookeeper, chroot)
    broker = KafkaBroker(folder, tree, tmp_path, 7)
    yield broker
    broker.kill()
    tree.close()


def is_running(pid: int) -> bool:
    """Whether a process of this id runs; one that ended and is not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_starts_stops_starts_again_and_is_killed(broker: KafkaBroker) -> None:
    broker.start()
    assert broker.known() == ([7], 7)
    assert broker.stop() in (0, 128 + signal.SIGTERM)
    assert not broker.alive() and broker.tree.broker_epoch(7) == -1
    broker.start()
    first = broker.pid()
    assert is_running(first)
    broker.kill()
    assert not broker.alive() and not is_running(first)
    assert [line.text for line in broker.lines() if line.text == "[KafkaServer id=7] started"] == ["[KafkaServer id=7] started"] * 2
    assert broker.errors() == []


_OWNER = """
import sys, time
from pathlib import Path
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.kafka import KafkaBroker
tree = Tree(sys.argv[1], sys.argv[2])
broker = KafkaBroker(Path(sys.argv[3]), tree, Path(sys.argv[4]), 8).launch()
print(broker.pid(), flush=True)
time.sleep(600)
"""


def test_it_dies_with_an_owner_that_is_killed(broker: KafkaBroker, zookeeper: str, chroot: str, tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, zookeeper, f"{chroot}-8", str(broker.jars), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        wait_for((tmp_path / "broker-8" / "log").exists, "the broker runs, and has begun its log")
        assert is_running(pid)
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    wait_for(lambda: not is_running(pid), "the broker is gone with its owner")


def test_a_broker_that_cannot_start_says_why(broker: KafkaBroker) -> None:
    broker.settings["log.cleaner.threads"] = "many"
    with pytest.raises(AssertionError, match=r"broker 7 ended with 1: (?s:.*)Invalid value many"):
        broker.start()
