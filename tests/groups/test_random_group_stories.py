"""Random stories of groups are the same at Apache Kafka and at Klamm; `random_groups.py` tells more of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from klamm.tests.groups.random_groups import GroupPair, compare_all, story


@pytest.mark.slow
@pytest.mark.reference
def test_stories_of_fixed_seeds_are_told_alike(zookeeper: str, tmp_path: Path, kafka_jars: Path) -> None:
    with GroupPair(zookeeper, tmp_path, kafka_jars) as (kafka, own):
        differences = [each for start in (1033, 1041, 1057) for each in asyncio.run(compare_all(kafka, own, range(start, start + 8)))]
    assert not differences, "\n\n".join(each.text() for each in differences)


def test_a_seed_draws_the_same_story() -> None:
    assert story(7) == story(7) != story(8)
