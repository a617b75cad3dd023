"""The tables of releases: what brokers of these releases say, and what Klamm says in their place."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import klamm
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import text_of
from klamm.configs.release_defaults import DEFAULTS, defaults_of
from klamm.configs.releases.kafka_releases import RELEASES, WITH_ZOOKEEPER, is_kafka_4, release_of, versions_in
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.tests.harness.tree import Tree
from klamm.tests.reference import jars
from klamm.tests.reference.releases import Ranges, described, exchange, release_broker

MEASURED = [version for version in jars.RELEASES if release_of(version) in ("1.0", "2.1", "2.4", "2.8", "3.6", "3.9")]
ASKED = (ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_CLUSTER)
"""APIs of which a request is sent in the newest version of the release and in the next one."""


def responds(port: int, ranges: Ranges) -> dict[tuple[str, int], bool]:
    """Name and version of requests → whether there is a response; else the connection was closed."""
    answers = {}
    for key in ASKED:
        newest = ranges.get(key, (0, -1))[1]
        for version in {max(0, newest), min(newest + 1, APIS[key].max_version)}:
            message = getattr(messages, f"{APIS[key].name}Request")()
            answers[APIS[key].name, version] = exchange(port, key, version, messages.encode(message, version)) is not None
    return answers


def test_each_release_has_a_version_whose_jars_can_be_fetched() -> None:
    assert [release_of(version) for version in jars.RELEASES] == list(WITH_ZOOKEEPER)


def test_the_newest_release_has_all_apis_and_versions_of_klamm_but_those_of_drafts() -> None:
    assert versions_in("3.9") == {api.key: (api.min_version, api.max_version) for api in APIS.values() if not api.draft}


def test_no_release_drops_an_api_or_a_version_of_the_release_before() -> None:
    for older, newer in pairwise(WITH_ZOOKEEPER):
        before, after = versions_in(older), versions_in(newer)
        assert all(after[key][1] >= newest for key, (_, newest) in before.items()), newer


@pytest.mark.parametrize("text", ["0.11", "4.5", "2.9", "2", "", "2.8.x", "2.8.1.1", "latest"])
def test_a_text_that_is_no_version_from_1_0_to_4_4_has_no_release(text: str) -> None:
    assert release_of(text) is None


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("version", MEASURED)
def test_klamm_lists_and_refuses_as_a_broker_of_the_release_does(version: str, zookeeper: str, chroot: str, tmp_path: Path) -> None:
    tree = Tree(zookeeper, chroot)
    release = release_of(version)
    assert release is not None
    with release_broker(version, tree, tmp_path) as broker:
        theirs = described(broker.port)
        answered = responds(broker.port, theirs.ranges)
    with klamm.Cluster(1, as_version=version, zookeeper=f"{zookeeper}{chroot}-ours") as cluster:
        ((_, _, port),) = cluster.addresses
        ours = described(port)
        assert responds(port, theirs.ranges) == answered
    assert theirs.ranges == versions_in(release) == ours.ranges
    assert theirs.unsupported == ours.unsupported
    assert True in answered.values()
    assert release == "3.9" or False in answered.values()
    measured = {name: text_of(value) for name, value in defaults_of(release).items() if name in theirs.defaults}
    assert measured == {name: theirs.defaults[name] for name in measured}
    assert set(measured) >= {"inter.broker.protocol.version", "log.message.format.version", "message.max.bytes"}
    differing = {
        name for name, value in ours.defaults.items()
        if name in theirs.defaults and value != theirs.defaults[name] and not name.startswith(("ssl.", "listener", "principal", "log.dir"))
    }
    assert differing <= {"metadata.max.retention.bytes", "socket.connection.setup.timeout.max.ms"}, "they have no meaning with ZooKeeper"
    tree.close()


@pytest.mark.parametrize("release", RELEASES)
def test_the_defaults_of_a_release_are_valid_together_and_shown_as_defaults(release: str) -> None:
    config = BrokerConfig({"zookeeper.connect": "z:1", "klamm.as.version": release})
    protocol = "3.9" if is_kafka_4(release) else release
    assert config.inter_broker_protocol_version.name.startswith(f"{protocol}-IV")
    assert {name: config.get(name) for name in DEFAULTS} == {name: defaults_of(release)[name] for name in DEFAULTS}
    assert config.get("kip179.enable") is False
