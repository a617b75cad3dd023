"""The end of reassignments: entries leave `/admin/reassign_partitions` (controller 11.3 B7, 11.5, 26).

Apart from the procedure itself (`reassignment/procedure.py`) because the deletion of a topic ends reassignments too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from klamm.controller.events.catalogue import ZkPartitionReassignment
from klamm.controller.events.causes import WATCH_FIRED
from klamm.controller.term.term import Term
from klamm.controller.writes.throttle_removal import remove_when_idle
from klamm.protocol.nouns import Ints, TopicPartition


async def remove_entries(term: Term, is_over: Callable[[TopicPartition, Ints], bool]) -> None:
    """Take entries out of the znode, if it exists; without the last one it is deleted, and then looked for again."""
    entries = await term.store.reassignments()
    if entries is None:
        return
    rest = {key: target for key, target in entries.items() if not is_over(key, target)}
    if rest and len(rest) == len(entries):
        return
    await term.store.write_reassignments(rest)
    if not rest:
        term.put(ZkPartitionReassignment(), WATCH_FIRED)


async def forget_topics(term: Term, names: Iterable[str]) -> None:
    """Topics that were being reassigned are deleted: nothing of their reassignments is left."""
    gone = frozenset(names)
    await remove_entries(term, lambda key, _: key.topic in gone)
    await remove_when_idle(term)
