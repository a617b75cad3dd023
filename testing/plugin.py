"""The plugin of pytest: fixtures `klamm` and `klamm_cluster`, the marker `klamm`, and a transcript of the cluster for tests that fail.

Every run of pytest beside an installed Klamm imports this file, so it imports pytest alone; clusters are imported when a test uses one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from klamm.testing.blocking_cluster import BlockingCluster
    from klamm.testing.per_test import Clusters, PerTest

MARKER = """\
klamm(brokers=3, config={...}, broker_config={2: {...}}, topics=[...], as_version="2.8", processes=True, tls=True, sasl="PLAIN", \
users={...}, acls=True, own=True): \
the fixture `klamm` of this test is a cluster of its own, \
which starts and ends with the test"""

MAX_BROKERS = 100
T = TypeVar("T")
_CLUSTERS: pytest.StashKey[Clusters] = pytest.StashKey()
_PER_TEST: pytest.StashKey[PerTest] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("klamm", "clusters of Klamm")
    brokers = "brokers of the cluster that the tests share"
    journal = "folder for the journals of clusters, for `klamm journal` and `klamm report`"
    group.addoption("--klamm-brokers", type=int, metavar="N", help=f"{brokers} (default: the ini option klamm_brokers, or 3)")
    group.addoption("--klamm-journal", metavar="DIR", help=journal)
    verdicts = "with a journal: the report of a test that failed has the verdict of the conformance rules on it"
    group.addoption("--klamm-verdicts", action="store_true", help=verdicts)
    html = "with a journal: a test that failed has a page about the run of its cluster, in the folder of journals"
    group.addoption("--klamm-report", action="store_true", help=html)
    parser.addini("klamm_brokers", brokers, default="3")
    parser.addini("klamm_journal", journal, default="")
    parser.addini("klamm_config", "properties of all brokers, one `name=value` per line", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    _brokers(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    clusters = config.stash.get(_CLUSTERS, None)
    if clusters is not None:
        clusters.close()


@pytest.fixture(scope="session")
def klamm_cluster(request: pytest.FixtureRequest) -> BlockingCluster:
    """The cluster that tests share, a `klamm.testing.BlockingCluster`: one for each process of pytest."""
    clusters = _clusters(request.config)
    clusters.is_lent = True
    return _or_fail(lambda: clusters.shared)


@pytest.fixture
def klamm(request: pytest.FixtureRequest) -> Iterator[BlockingCluster]:
    """A cluster for this test, a `klamm.testing.BlockingCluster`: the shared one, or with `@pytest.mark.klamm(…)` one of its own.

    `topic_name` gives names of its own. After the test its faults and holds are gone, and brokers that it stopped run again. A fault that
    hit nothing and a hold that was not reached fail the test, unless they have `may_miss=True`.
    """
    from klamm.testing.per_test import PerTest, marked

    test = _or_fail(lambda: PerTest(_clusters(request.config), marked(request.node), request.node.nodeid))
    request.node.stash[_PER_TEST] = test
    try:
        yield test.cluster
    finally:
        test.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test that passed fails if one of its faults or holds missed."""
    result = yield
    test = item.stash.get(_PER_TEST, None)
    if test is not None and (missed := test.missed()):
        pytest.fail("\n".join(missed), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test that failed has a section with what clients and the cluster did."""
    report = yield
    test = item.stash.get(_PER_TEST, None)
    if test is not None and report.failed:
        report.sections.append(("klamm", test.text()))
        if item.config.getoption("--klamm-verdicts"):
            report.sections.append(("klamm verdicts", test.verdicts()))
        if item.config.getoption("--klamm-report"):
            report.sections.append(("klamm report", test.report()))
    return report


def _or_fail(make: Callable[[], T]) -> T:
    """What this makes; an error of the user is one line, without the lines of Klamm's code."""
    try:
        return make()
    except ValueError as error:
        problem = str(error)
    except ModuleNotFoundError as error:
        extra = "testing,control" if error.name == "aiohttp" else "testing"
        problem = f"{error}: install klamm[{extra}]"
    pytest.fail(problem, pytrace=False)


def _clusters(config: pytest.Config) -> Clusters:
    """The clusters of this process. Raises ValueError."""
    clusters = config.stash.get(_CLUSTERS, None)
    if clusters is None:
        from klamm.testing.per_test import Clusters

        clusters = config.stash[_CLUSTERS] = Clusters(
            _brokers(config), config.getini("klamm_config"), config.getoption("--klamm-journal") or config.getini("klamm_journal"),
            getattr(config, "workerinput", {}).get("workerid"),
        )
    return clusters


def _brokers(config: pytest.Config) -> int:
    given = config.getoption("--klamm-brokers")
    text = config.getini("klamm_brokers") if given is None else str(given)
    if not text.isdigit() or not 1 <= int(text) <= MAX_BROKERS:
        raise pytest.UsageError(f"{'klamm_brokers' if given is None else '--klamm-brokers'}: {text!r} is not from 1 to {MAX_BROKERS}")
    return int(text)
