"""Fenced writes of partition states (layout 3.5): conditional updates, and creations with missing parents.

Nearly always the whole multi succeeds, so `Entry` objects are made only after a failure. Then the bad entry is taken out. If that is not
enough, one read finds all entries that would fail. A repeated write may find the result of its first attempt: a state with our bytes and
the next version counts as written. A creation includes the partition's own znode, and the `partitions` znode of the topic if it is the
first of this topic in the list. If one of these exists already, one read finds all that exist, and they are left out. If one is missing,
because the multi that should create it was delayed, it is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from klamm.controller.values import StateWrite, WriteOutcome
from klamm.zk.layout import paths
from klamm.zk.layout.topics import encode_state
from klamm.zk.session.batches import BATCH_OPERATIONS, batches, spans
from klamm.zk.session.requests import NO_NODE, NODE_EXISTS, MultiFailed, utf8_size
from klamm.zk.session.session import ZkSession
from klamm.zk.store.fenced_writes import Entry, Fence, outcome_of, together
from klamm.zk.store.state_requests import updates

# Approximate bytes of a state operation, without the topic name and the ISR.
_STATE_BYTES = 220
# How often parents are created again if another client deletes them.
_PARENT_ATTEMPTS = 3


class _Update(Entry):
    """A write of one state."""

    __slots__ = ("write",)

    def __init__(self, write: StateWrite, operations: Sequence[bytes]) -> None:
        super().__init__(operations)
        self.write = write


class _Creation(_Update):
    """The creation of one state, and of parents that are not known to exist."""

    __slots__ = ("_attempts", "_parents", "_session")

    def __init__(self, session: ZkSession, write: StateWrite, is_first_of_topic: bool) -> None:
        self._session = session
        self._attempts = 0
        root, own = paths.partitions_path(write.topic), paths.partition_path(write.topic, write.partition)
        self._parents: tuple[str, ...] = (root, own) if is_first_of_topic else (own,)
        super().__init__(write, self._operations(write))

    def _operations(self, write: StateWrite) -> list[bytes]:
        create = self._session.ops.create
        state = create(paths.state_path(write.topic, write.partition), self._session.topic_nodes.encode_state(write.state))
        return [*(create(path, None) for path in self._parents), state]

    def parents(self) -> Iterator[str]:
        yield from self._parents

    def is_parent(self, operation: int) -> bool:
        return operation < len(self._parents)

    def leave_out(self, existing: Set[str]) -> None:
        self._parents = tuple(path for path in self._parents if path not in existing)
        self.operations = self._operations(self.write)

    def put_parents_in(self) -> bool:
        """Add the parents again. False after too many attempts."""
        self._attempts += 1
        self._parents = (paths.partitions_path(self.write.topic), paths.partition_path(self.write.topic, self.write.partition))
        self.operations = self._operations(self.write)
        return self._attempts < _PARENT_ATTEMPTS


class StateWriter:
    """Writes partition states with fenced multis."""

    def __init__(self, session: ZkSession, fence: Fence) -> None:
        self._session = session
        self._fence = fence

    async def write(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        operations = updates(self._session.chroot, self._session.topic_nodes, writes)
        parts = await together(self._write(writes[start:end], operations[start:end]) for start, end in spans(map(len, operations)))
        return [outcome for part in parts for outcome in part]

    async def _write(self, writes: Sequence[StateWrite], operations: Sequence[bytes]) -> list[WriteOutcome]:
        try:
            await self._fence.multi(operations)
            return [WriteOutcome.OK] * len(writes)
        except MultiFailed as failure:
            entries = [_Update(write, (operation,)) for write, operation in zip(writes, operations, strict=True)]
            if failure.repeated:
                await self._settle_all(entries, entries[failure.index], 0, failure)
            else:
                entries[failure.index].outcome = outcome_of(failure.code)
            await self._fence.write([entry for entry in entries if entry.outcome is None], self._settle_all)
            return [WriteOutcome.FAILED if entry.outcome is None else entry.outcome for entry in entries]

    async def create(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        topics: set[str] = set()
        parts = await together(self._create(part, topics) for part in batches(writes, _size, BATCH_OPERATIONS // 3))
        return [outcome for part in parts for outcome in part]

    async def _create(self, writes: Sequence[StateWrite], topics: set[str]) -> list[WriteOutcome]:
        """Create a part of the states. `topics` are the topics of earlier parts."""
        entries = []
        for write in writes:
            entries.append(_Creation(self._session, write, write.topic not in topics))
            topics.add(write.topic)
        return await self._fence.write(entries, self._settle_creation)

    async def _settle_all(self, sent: Sequence[_Update], entry: _Update, _: int, failure: MultiFailed) -> None:
        """Settle all entries whose znodes do not have the expected version, with one read. If one entry is bad, there may be many."""
        nodes = [paths.state_path(e.write.topic, e.write.partition) for e in sent]
        found = await self._session.read_versions(nodes)
        for path, update, node in zip(nodes, sent, found, strict=True):
            if node is None:
                update.outcome = WriteOutcome.NO_NODE
            elif failure.repeated and _is_ours(update, node):
                update.outcome = WriteOutcome.OK
                self._fence.read(path, node[1])
            elif node[1] != update.write.expected:
                update.outcome = WriteOutcome.BAD_VERSION
        if entry.outcome is None:
            entry.outcome = outcome_of(failure.code)

    async def _settle_creation(self, sent: Sequence[_Creation], entry: _Creation, operation: int, failure: MultiFailed) -> None:
        if failure.repeated:
            await self._find_created(sent)
            if entry.outcome is not None:
                return
        if failure.code == NODE_EXISTS and entry.is_parent(operation):
            nodes = [path for creation in sent for path in creation.parents()]
            found = await self._session.read_versions(nodes)
            existing = {path for path, node in zip(nodes, found, strict=True) if node is not None}
            for creation in sent:
                creation.leave_out(existing)
        elif failure.code != NO_NODE or not entry.put_parents_in():
            entry.outcome = outcome_of(failure.code)

    async def _find_created(self, entries: Sequence[_Creation]) -> None:
        """Settle the states that an earlier attempt has created."""
        nodes = [paths.state_path(e.write.topic, e.write.partition) for e in entries]
        found = await self._session.read_versions(nodes)
        for path, entry, node in zip(nodes, entries, found, strict=True):
            if node is not None and _is_ours(entry, node):
                entry.outcome = WriteOutcome.OK
                self._fence.read(path, node[1])


def _is_ours(update: _Update, node: tuple[bytes | None, int]) -> bool:
    return node == (encode_state(update.write.state), update.write.expected + 1)


def _size(write: StateWrite) -> int:
    return _STATE_BYTES + utf8_size(write.topic) + 11 * len(write.state.isr)
