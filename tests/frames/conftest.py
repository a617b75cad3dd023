"""Fixtures of tests that start a broker of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.tests.harness.tree import Tree


@pytest.fixture
def own_tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    made = Tree(zookeeper, chroot)
    yield made
    made.close()
