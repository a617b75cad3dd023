"""Members of clusters whose replicas move; only Klamm's can be started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree


@pytest.fixture
def new_members(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Callable[..., Members]]:
    """Makes members with these settings, and with log directories of these names below their folders; they die with the test."""
    made: list[Members] = []

    def make(settings: dict[str, Any], directories: Sequence[str] = ("data",)) -> Members:
        def own(broker_id: int) -> dict[str, Any]:
            return {**settings, "log_dirs": ",".join(str(tmp_path / f"broker-{broker_id}" / name) for name in directories)}

        made.append(Members(Path(), Tree(zookeeper, f"{chroot}-{len(made)}"), tmp_path, own))
        return made[-1]

    yield make
    for members in made:
        members.close()
        members.tree.close()
