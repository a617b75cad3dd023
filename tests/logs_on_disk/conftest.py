"""Fixtures: brokers as processes, with log directories of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree


@pytest.fixture
def members(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Callable[..., Members]]:
    """Makes the members of a cluster; only Klamm's can be started without the jars of Kafka."""
    made: list[Members] = []

    def make(settings_of: Callable[[int], dict[str, Any]] = lambda _: {}, jars: Path = Path()) -> Members:
        made.append(Members(jars, Tree(zookeeper, chroot), tmp_path, settings_of))
        return made[-1]

    yield make
    for members in made:
        members.close()
        members.tree.close()
