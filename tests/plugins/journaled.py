"""Clusters of long tests keep journals in one lake: a plugin of pytest, which `--journal-lake DIR` turns on.

`make test-journals` gives it, and judges the lake when the tests are over: `klamm pipeline run DIR`, `klamm pipeline check DIR`. So what
the long tests do to clusters is seen by the rules of conformance, and a rule that is broken is seen although no test looked there.

Each tree in ZooKeeper of each test is a run of its own, named after the test. Frames are whole but for records, since a rule that compares
what is named in two frames needs all of both. A lake that has grown large gets no further runs. `JOURNALED` names the
tests: elsewhere they write what only a controller may write, or brokers are wrong on purpose.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.kafka import KafkaBroker
from klamm.tests.harness.process import KlammBroker

LAKE_BYTES = 300 << 20
LONGEST_NAME = 60

JOURNALED = (
    "tests/histories/", "tests/server/", "tests/moves/", "tests/blacklist/", "tests/cluster/", "tests/mixed/",
    "tests/registered/test_beside_kafka", "tests/registered/test_cut_off", "tests/registered/test_leaving",
)
"""Where the clusters of tests marked slow keep journals; a real Kafka among the brokers keeps none."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--journal-lake", type=Path, metavar="DIR", help="clusters of some tests marked slow keep journals in this lake")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    lake = item.config.getoption("--journal-lake")
    if lake is None or not _is_journaled(item) or _size(lake) > LAKE_BYTES:
        return (yield)
    name = re.sub(r"[^A-Za-z0-9]+", "-", item.name.removeprefix("test_")).strip("-")[:LONGEST_NAME]
    with _local_clusters(lake.resolve(), name), _processes(lake.resolve(), name):
        return (yield)


def _is_journaled(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None and item.nodeid.startswith(JOURNALED)


def _size(lake: Path) -> int:
    return sum(path.stat().st_size for path in lake.rglob("*.arrows*"))


def _configs(lake: Path, name: str, tree: object) -> dict[str, str]:
    run = f"{name}-{zlib.crc32(str(tree).encode()):08x}"
    return {"klamm.journal.dir": str(lake), "klamm.journal.run": run}


def _local_clusters(lake: Path, name: str) -> Any:
    real = LocalCluster.__init__

    @functools.wraps(real)
    def begin(self: LocalCluster, *arguments: Any, **named: Any) -> None:
        tree = named.get("zookeeper") or named.get("data_dir") or id(self)
        named["config"] = {**_configs(lake, name, tree), **(named.get("config") or {})}
        real(self, *arguments, **named)

    return mock.patch.object(LocalCluster, "__init__", begin)


def _processes(lake: Path, name: str) -> Any:
    real = KlammBroker.__init__

    @functools.wraps(real)
    def begin(self: KlammBroker, *arguments: Any, **properties: Any) -> None:
        real(self, *arguments, **properties)
        if not isinstance(self, KafkaBroker):
            self.settings = {**_configs(lake, name, self.tree.hosts), **self.settings}

    return mock.patch.object(KlammBroker, "__init__", begin)
