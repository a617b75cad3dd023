"""Fixtures for all tests: one real ZooKeeper for all processes of a run, a path of its own in it for every test.

Stories can be written as well as told: `--record` writes what a real Kafka does, `--rewrite` what Klamm does in places that are known to
differ. `--retell` tells all of them to a real Kafka again (see `stories/both/retelling.py`). Then nothing else is run.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from klamm.tests.harness.names import unique_name
from klamm.tests.reference.jars import NoJars, jars
from klamm.tests.stories.both.retelling import Retelling
from klamm.zk.embedded.server import EmbeddedZooKeeper

SEED = "stories_seed"
ZOOKEEPER = pytest.StashKey[str]()
OF_RUN = "zookeeper"

# A busy machine is slow, and no fault of the code under test.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stories")
    group.addoption("--record", action="store_true", help="tell stories to a real Kafka and write what it does into their files")
    group.addoption("--rewrite", action="store_true", help="tell stories to Klamm and write what it does where it is known to differ")
    group.addoption("--retell", action="store_true", help="tell all stories to a real Kafka; sign the code that tells them")
    group.addoption("--stories-alone", action="store_true", help="tell each story to a cluster of its own")
    group.addoption("--stories-seed", type=int, metavar="N", help="draws the tenth of the stories that a real Kafka is told again")
    group.addoption("--stories-share", type=int, default=1, metavar="N", help="tell Klamm one of N stories, drawn by the same seed")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--stories-seed") is None:
        of_run = getattr(config, "workerinput", {}).get(SEED)
        config.option.stories_seed = secrets.randbelow(1_000_000) if of_run is None else of_run
    options = {name: config.getoption(f"--{option}") for name, option in (("seed", "stories-seed"), ("share", "stories-share"))}
    alone = config.getoption("--stories-alone") or config.getoption("--record")
    config.pluginmanager.register(Retelling(retell=config.getoption("--retell"), alone=alone, **options), "retelling")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All processes of a run draw the same stories and share a ZooKeeper."""
    node.workerinput[SEED] = node.config.getoption("--stories-seed")
    node.workerinput[OF_RUN] = _zookeeper_of(node.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Who writes or retells stories runs nothing else."""
    writes = {"record": "told_to_kafka", "rewrite": "told_to_klamm"}.get(_writing(config))
    if config.getoption("--retell"):
        writes = "told_to_kafka"
    if writes is not None:
        kept = [item for item in items if writes in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def _writing(config: pytest.Config) -> str:
    return "record" if config.getoption("--record") else "rewrite" if config.getoption("--rewrite") else "replay"


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of the real Kafka's jars, fetched when it is missing."""
    try:
        return jars()
    except NoJars as problem:
        pytest.fail(str(problem), pytrace=False)


@pytest.fixture(scope="session")
def writing(request: pytest.FixtureRequest) -> str:
    """What is to be done with stories: replay, record or rewrite them."""
    return _writing(request.config)


@pytest.fixture(scope="session")
def zookeeper(pytestconfig: pytest.Config) -> str:
    """Address `host:port` of a real ZooKeeper."""
    of_run: str | None = getattr(pytestconfig, "workerinput", {}).get(OF_RUN)
    return of_run or _zookeeper_of(pytestconfig)


def _zookeeper_of(config: pytest.Config) -> str:
    """The ZooKeeper of this process, which it starts if it is the first to ask. KLAMM_TEST_ZOOKEEPER names one that runs already."""
    if ZOOKEEPER not in config.stash:
        running = os.environ.get("KLAMM_TEST_ZOOKEEPER")
        if not running:
            server = EmbeddedZooKeeper()
            running = server.start()
            config.add_cleanup(server.stop)
        config.stash[ZOOKEEPER] = running
    return config.stash[ZOOKEEPER]


@pytest.fixture
def chroot() -> str:
    """A random path that no other test uses; it does not exist yet."""
    return f"/{unique_name('test')}"
