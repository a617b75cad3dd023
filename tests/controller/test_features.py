"""Brokers that do not support what the cluster has finalised (controller 3.2, 4.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from klamm.controller.brokers.startup_and_failure import unsupported_features
from klamm.tests.controller.stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    one = Stage(finalized_features={"fa": 2})
    yield one
    await one.close()


def supporting(stage: Stage, *broker_ids: int, features: tuple[tuple[str, int, int], ...] = (("fa", 1, 3),)) -> None:
    """Brokers of the world that have these features in their nodes."""
    for broker_id in broker_ids:
        stage.world.start_broker(broker_id)
        stage.world.brokers[broker_id] = stage.world.brokers[broker_id]._replace(features=features)


@pytest.mark.parametrize(
    ("supported", "bad"),
    [({}, ["fa 2"]), ({"fa": (1, 1)}, ["fa 2"]), ({"fa": (3, 9)}, ["fa 2"]), ({"fa": (2, 2)}, []), ({"fa": (1, 5), "fb": (1, 1)}, [])],
)
def test_a_level_must_be_between_the_lowest_and_the_highest_version(supported: dict[str, tuple[int, int]], bad: list[str]) -> None:
    assert unsupported_features(supported, {"fa": 2}) == bad
    assert unsupported_features(supported, {}) == []


async def test_a_fail_over_leaves_out_brokers_that_do_not_support_what_is_finalised(stage: Stage) -> None:
    supporting(stage, 1, 2)
    supporting(stage, 3, features=(("fa", 3, 4),))
    await stage.open(4)
    assert sorted(stage.cluster.brokers) == [1, 2]
    assert not [line for line in stage.since(0) if line.startswith(("UMR 3", "UMR 4", "LISR 3", "LISR 4"))]


async def test_one_that_comes_is_told_nothing_and_no_partition_gets_it(stage: Stage) -> None:
    supporting(stage, 1)
    await stage.open()
    await stage.create("t", (1, 2))
    mark = stage.mark()
    await stage.start(2)
    assert sorted(stage.cluster.brokers) == [1]
    assert stage.state("t") == "1 e0 [1] v0"
    assert stage.since(mark) == ["UMR 1:", "UMR 1: t-0 1 e0 [1] v0 off[2]"]


async def test_one_that_bounces_without_its_features_is_gone(stage: Stage) -> None:
    supporting(stage, 1, 2)
    await stage.open()
    await stage.create("t", (2, 1))
    assert stage.state("t") == "2 e0 [2, 1] v0"
    stage.world.bounce_broker(2)
    await stage.settle()
    assert sorted(stage.cluster.brokers) == [1]
    assert stage.state("t") == "1 e1 [1] v1"
