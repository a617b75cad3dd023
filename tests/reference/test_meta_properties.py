"""A broker whose log directory says in `meta.properties` whose it is: a real one and Klamm's start, or refuse to, alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import NoJars, jars

OWN, OTHER = "AAAAAAAAQACAAAAAAAAAAA", "BBBBBBBBQACAAAAAAAAAAA"
Make = Callable[..., OwnedBroker]


@pytest.fixture(params=["klamm", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.reference])])
def make(request: pytest.FixtureRequest, zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Make]:
    """A broker of each kind on a cluster with the id OWN, and the `meta.properties` of its log directory."""
    tree = Tree(zookeeper, chroot)
    tree.put("/cluster/id", {"version": "1", "id": OWN})
    made: list[OwnedBroker] = []

    def one(broker_id: int, *lines: str) -> OwnedBroker:
        data = tmp_path / "data"
        data.mkdir()
        (data / "meta.properties").write_text("".join(f"{line}\n" for line in lines))
        if request.param == "klamm":
            made.append(OwnedBroker(tree, tmp_path, broker_id, log_dirs=data))
        else:
            try:
                made.append(KafkaBroker(jars(), tree, tmp_path, broker_id, log_dirs=data))
            except NoJars as problem:
                pytest.fail(str(problem), pytrace=False)
        return made[-1]

    yield one
    for broker in made:
        broker.kill()
    tree.close()


@pytest.mark.parametrize(
    "lines",
    [
        ("version=0", f"cluster.id={OTHER}", "broker.id=7"),
        ("version=0", f"cluster.id={OWN}", "broker.id=8"),
        pytest.param((f"cluster.id={OTHER}",), marks=pytest.mark.slow),
        pytest.param(("version=1", f"cluster.id={OWN}", "node.id=7"), marks=pytest.mark.slow),
        pytest.param(("version=0", f"cluster.id={OWN}", "broker.id=seven"), marks=pytest.mark.slow),
    ],
    ids=["another cluster", "another broker", "another cluster, no version", "KRaft", "no number"],
)
def test_log_directory_of_somebody_else_ends_the_start(make: Make, lines: tuple[str, ...]) -> None:
    broker = make(7, *lines)
    with pytest.raises(AssertionError, match="broker 7 ended with 1: "):
        broker.start()
    assert broker.tree.children("/brokers/ids") == []


@pytest.mark.parametrize(
    ("configured", "lines", "outcome"),
    [
        (7, ("version=0", f"cluster.id={OWN}", "broker.id=7"), 7),
        pytest.param(7, ("broker.id=7",), 7, marks=pytest.mark.slow),
        (-1, ("version=0", f"cluster.id={OWN}", "broker.id=1005"), 1005),
    ],
    ids=["its own", "without version and cluster", "no id configured"],
)
def test_log_directory_of_its_own_is_taken_with_its_id(make: Make, configured: int, lines: tuple[str, ...], outcome: int) -> None:
    broker = make(configured, *lines).launch()
    broker.wait(lambda: broker.tree.children("/brokers/ids") == [str(outcome)], "registered")
