"""Names for what a test makes: a path of ZooKeeper, a topic, a group, a transactional id."""

from __future__ import annotations

import uuid


def unique_name(what: str) -> str:
    """A name that begins with `what` and that no other test uses."""
    return f"{what}-{uuid.uuid4().hex[:8]}"
