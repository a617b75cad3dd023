"""A cluster of three brokers that the tests of client libraries may use as they like: of Klamm, as its user runs it, or of Apache Kafka."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from klamm.tests.cli.running import Running
from klamm.tests.harness.kafka import KafkaBroker
from klamm.tests.harness.tree import Tree

BROKERS = (1, 2, 3)
SETTINGS = {
    "auto.create.topics.enable": "true",
    "log.retention.ms": "-1",
    "num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "1000",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""What the suites expect of their brokers: some records have times of the last century, ACLs are tested, and consumers that subscribe
together are to be in one generation.
"""
WITHIN_S = 900
"""Longest time of a suite on a busy machine."""
TO_BUILD_S = 300
"""Longest time to download and to build what a suite needs."""


@pytest.fixture
def of_klamm(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[str]:
    """The bootstrap servers of `klamm serve`."""
    configs = [part for name, value in SETTINGS.items() for part in ("--config", f"{name}={value}")]
    served = Running(tmp_path, "serve", "--brokers", len(BROKERS), "--port", 0, "--json", "--zookeeper", zookeeper + chroot, *configs)
    try:
        yield served.ready()["bootstrap_servers"]
    finally:
        served.kill()


@pytest.fixture
def of_kafka(kafka_jars: Path, zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[str]:
    """The bootstrap servers of three Kafka brokers."""
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    tree = Tree(zookeeper, chroot)
    with ExitStack() as stack:
        stack.callback(tree.close)
        brokers = []
        for number in BROKERS:
            (tmp_path / str(number)).mkdir()
            brokers.append(KafkaBroker(kafka_jars, tree, tmp_path / str(number), number, **settings))
            stack.callback(brokers[-1].kill)
            brokers[-1].start()
        yield ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)


@pytest.fixture(params=["klamm", pytest.param("kafka", marks=pytest.mark.reference)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The bootstrap servers of a new cluster."""
    servers: str = request.getfixturevalue(f"of_{request.param}")
    return servers


Run = Callable[[Sequence[object], Mapping[str, str]], str]


@pytest.fixture
def run_suite(tmp_path: Path) -> Run:
    """Run a command in an empty folder, with these environment variables besides; returns its output. It may fail."""
    folder = tmp_path / "suite"
    folder.mkdir()
    return partial(run_in, folder)


def run_in(folder: Path, command: Sequence[object], variables: Mapping[str, str], within_s: float = WITHIN_S + TO_BUILD_S) -> str:
    """The output of a command. What is left of it after this time is ended, with all that it started."""
    env = shutil.which("env")
    assert env is not None
    arguments = [env, *(f"{name}={value}" for name, value in variables.items()), *map(str, command)]
    process = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=within_s)
    except BaseException as end:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        if not isinstance(end, subprocess.TimeoutExpired):
            raise
    return output.decode(errors="replace")
