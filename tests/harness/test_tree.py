"""The tree of the harness: what other sessions do meanwhile does not fail a test."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError

from klamm.tests.harness.tree import Tree


def test_a_node_that_somebody_deletes_between_two_attempts_is_created_again(
    zookeeper: str, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(zookeeper, chroot)
    create, attempts = tree.client.create, []

    def there_at_first(path: str, *arguments: Any, **options: Any) -> Any:
        attempts.append(path)
        if len(attempts) == 1:  # the node is there, and gone when it is written
            raise NodeExistsError
        return create(path, *arguments, **options)

    monkeypatch.setattr(tree.client, "create", there_at_first)
    tree.put("/admin/reassign_partitions", {"version": 1})
    assert tree.json("/admin/reassign_partitions") == {"version": 1}
    tree.put("/admin/reassign_partitions", {"version": 2})
    assert tree.json("/admin/reassign_partitions") == {"version": 2}
    tree.close()
