"""Fixtures of the mixed clusters: Kafka's jars, and members on a ZooKeeper path of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree


@pytest.fixture
def new_members(zookeeper: str, chroot: str, tmp_path: Path, kafka_jars: Path) -> Iterator[Callable[..., Members]]:
    """Makes members, on a path and in a folder of their own each time; closes all of them."""
    made: list[Members] = []

    def make(settings_of: Callable[[int], dict[str, Any]] = lambda _: {}) -> Members:
        folder = tmp_path / f"members-{len(made)}"
        folder.mkdir()
        made.append(Members(kafka_jars, Tree(zookeeper, f"{chroot}-{len(made)}"), folder, settings_of))
        return made[-1]

    yield make
    for members in made:
        members.close()
        members.tree.close()


@pytest.fixture
def members(new_members: Callable[..., Members]) -> Members:
    """Members of one cluster; none is started."""
    return new_members()
