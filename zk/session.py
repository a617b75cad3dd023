"""One broker's ZooKeeper session: reads, writes and watches as coroutines, paths below the session's chroot.

Every method waits a lost connection out and repeats its request; an error then says `repeated`, because the first try may have
succeeded. When the session is over meanwhile, StoreLost is raised. A new session is opened at once and for ever; `generation` tells one
from the next. Watches are one-shot. One that was armed when the connection went is reported as Change.MISSED when the same session is
connected again, since ZooKeeper and kazoo have both forgotten it, and dropped when the session is over.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import accumulate
from typing import Any, TypeVar

from kazoo.protocol.serialization import Create, Delete, Exists, GetChildren, GetData, SetData
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from klamm.controller.values import StoreLost
from klamm.zk.connection import Change, Connection, Link, Watch, WatchCallback
from klamm.zk.reachability import check_address, why_silent
from klamm.zk.requests import (
    ConnectionLost,
    Multi,
    MultiRead,
    MultiReadChildren,
    MultiReadVersions,
    Node,
    NodeExists,
    NoNode,
    Operations,
    SessionExpired,
    SetWatches,
    Unimplemented,
    ZkError,
)

log = logging.getLogger(__name__)

# What one request may hold: well below the server's limit, and small enough that several are on their way at a time.
BATCH_BYTES = 900_000
BATCH_OPERATIONS = 1000
BATCH_WATCHES = 10_000

T = TypeVar("T")

_STOP_LIMIT_S = 0.5
_REOPEN_AFTER_S = 1.0
_EPHEMERAL, _SEQUENCE = 1, 2


class ZkUnavailable(Exception):
    """No ZooKeeper answered in time, or its address or chroot cannot be used; the text is one line."""


class SessionChange(Enum):
    """What happened to the session or its connection."""

    SUSPENDED = auto()
    RECONNECTED = auto()
    EXPIRED = auto()
    NEW_SESSION = auto()


class ZkSession:
    """A session at `hosts` (`host:port[,host:port…][/chroot]`), renewed whenever it expires."""

    def __init__(self, hosts: str, session_timeout_ms: int, on_session: Callable[[SessionChange], None] | None = None) -> None:
        """`on_session` gets the changes after `start`, in order, on the loop."""
        servers, slash, chroot = hosts.partition("/")
        self.servers = servers
        self.chroot = "".join(f"/{part}" for part in chroot.split("/") if part) if slash else ""
        self._session_timeout_ms = session_timeout_ms
        self._on_session = on_session
        self.ops = Operations(self.chroot)
        self.generation = 1
        self.session_id = 0
        self.is_connected = False
        self.connections = 0
        self._connection: Connection | None = None
        self._started = False
        self._stopped = False
        self._waiters: list[asyncio.Future[None]] = []
        self._missed: list[Watch] = []
        self._has_multi_read = True

    async def start(self, connection_timeout_ms: int) -> None:
        """Connect and create the chroot. Raises ZkUnavailable when that does not succeed in time."""
        try:
            check_address(self.servers)
        except ValueError as problem:
            raise ZkUnavailable(str(problem)) from problem
        self._open()
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                await self.reconnected(self.generation)
                await self._create_chroot()
        except (TimeoutError, StoreLost):
            await self.stop()
            cause = await why_silent(self.servers)
            raise ZkUnavailable(f"no ZooKeeper answers at {self.servers} within {connection_timeout_ms} ms ({cause})") from None
        except ZkError as problem:
            await self.stop()
            raise ZkUnavailable(f"cannot create {self.chroot} in ZooKeeper at {self.servers}: {problem}") from problem
        self._started = True

    async def stop(self) -> None:
        """End the session, and with it its ephemeral nodes. Whoever waits gets StoreLost."""
        connection = self._end()
        if connection is not None:
            await connection.close(_STOP_LIMIT_S)

    def sever(self) -> None:
        """Cut the connection for ever. The session, with its ephemeral nodes, lasts until it expires. Whoever waits gets StoreLost."""
        connection = self._end()
        if connection is not None:
            connection.sever()

    def _end(self) -> Connection | None:
        """Wake whoever waits; the connection to give up, None where there is none or it was given up before."""
        if self._stopped:
            return None
        self._stopped = True
        self.is_connected = False
        self._wake()
        return self._connection

    async def end_severed(self, limit_s: float) -> None:
        """End a session that was severed before it expires. Raises TimeoutError when no ZooKeeper answers."""
        if self._connection is not None and self.session_id != 0:
            await self._connection.end_severed(limit_s)

    async def reconnected(self, generation: int) -> None:
        """Wait until the session of that generation is connected; StoreLost when it is over."""
        while True:
            if self._stopped or self.generation != generation:
                raise StoreLost("the ZooKeeper session is over")
            if self.is_connected:
                return
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def get(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Data and Stat, None when there is no node (which arms nothing)."""
        try:
            data, stat = await self.call(GetData(self._full(path), self._watch(path, watch)))
        except NoNode:
            return None
        return _to_node(data, stat)

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Stat without data. Arms also where there is no node."""
        stat = await self.call(Exists(self._full(path), self._watch(path, watch)))
        return None if stat is None else _to_node(None, stat)

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """Names of the children in order, none when there is no node (which arms nothing)."""
        try:
            return sorted(await self.call(GetChildren(self._full(path), self._watch(path, watch))))
        except NoNode:
            return []

    async def create(self, path: str, data: bytes | None, ephemeral: bool = False, sequence: bool = False, makepath: bool = False) -> str:
        """Create a node open to all and return its path. Raises NodeExists, NoNode (no parent; `makepath` makes it, with null data)."""
        flags = (_EPHEMERAL if ephemeral else 0) | (_SEQUENCE if sequence else 0)
        request = Create(self.chroot + path, data, OPEN_ACL_UNSAFE, flags)
        while True:
            try:
                created: str = await self.call(request)
                return created[len(self.chroot) :]
            except NoNode:
                parent = path.rpartition("/")[0]
                if not makepath or not parent:
                    raise
            try:
                await self.create(parent, None, makepath=True)
            except NodeExists:
                continue

    async def set(self, path: str, data: bytes, version: int = -1) -> Node:
        """Replace the data and return the new Stat. Raises NoNode, BadVersion."""
        return _to_node(None, await self.call(SetData(self.chroot + path, data, version)))

    async def delete(self, path: str, version: int = -1) -> bool:
        """Delete a node; False when there is none. Raises BadVersion, NotEmpty."""
        try:
            await self.call(Delete(self.chroot + path, version))
        except NoNode:
            return False
        return True

    async def multi(self, operations: Sequence[bytes], results: bool = False) -> list[Any]:
        """All operations (made by `ops`) or none. Raises MultiFailed. With `results`: a path, a Node or None of each."""
        answer: list[Any] | None = await self.call(Multi(operations, results))
        return [result[len(self.chroot) :] if isinstance(result, str) else result for result in answer or ()]

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Nodes in the order asked, None where there is none. Raises the first other error."""
        nodes = await self.read_each(paths)
        for node in nodes:
            if isinstance(node, ZkError):
                raise node
        return nodes

    async def read_each(self, paths: Sequence[str]) -> list[Any]:
        """As `read_many`, with a ZkError in the place of a node that cannot be read."""
        return await self._read(MultiRead, paths)

    async def read_versions(self, paths: Sequence[str]) -> list[tuple[bytes | None, int] | None]:
        """(data, version) in the order asked, None where there is no node."""
        return await self._read(MultiReadVersions, paths)

    async def read_by(self, requests: Sequence[Any], first: Sequence[Any] = ()) -> list[Any] | None:
        """Joined answers of multiReads, sent behind the requests `first`; None where the server knows no multiRead (before 3.6)."""
        if self._has_multi_read:
            try:
                answers = await self.call_all([*first, *requests])
                return [result for answer in answers[len(first) :] for result in answer]
            except Unimplemented:
                log.info("ZooKeeper at %s knows no multiRead; nodes are read one by one", self.servers)
                self._has_multi_read = False
        return None

    async def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Names of the children of each, None where there is no node."""
        return await self._read(MultiReadChildren, paths)

    async def arm_data_watches(self, paths: Sequence[str], watch: WatchCallback) -> None:
        """Arm a data watch on each path without reading it; where there is no node it fires at once as DELETED."""
        await self.call_all(self._arm(paths, watch))

    async def watch_and_read(self, paths: Sequence[str], watch: WatchCallback) -> list[tuple[bytes | None, int] | None]:
        """Arm as `arm_data_watches`, then read (data, version) as `read_versions`."""
        while True:
            connections = self.connections
            found = await self._read(MultiReadVersions, paths, self._arm(paths, watch))
            if connections == self.connections:
                return found
            # The connection was lost on the way: some data may be older than its watch.

    def _arm(self, paths: Sequence[str], watch: WatchCallback) -> list[SetWatches]:
        connection = self._connected_or_last()
        return [
            SetWatches({self.chroot + path: Watch(watch, path, connection) for path in batch}, lambda: connection.data_watchers)
            for batch in batches(paths, len, BATCH_WATCHES)
        ]

    async def call(self, request: Any) -> Any:
        """Send a request until it is answered. Raises what it is answered with, StoreLost when the session ends before."""
        generation = self.generation
        repeated = False
        while True:
            try:
                return await self._connected_or_last().submit(request)
            except ConnectionLost:
                repeated = True
                await self.reconnected(generation)
            except SessionExpired:
                raise StoreLost("the ZooKeeper session expired") from None
            except ZkError as problem:
                problem.repeated = repeated
                raise

    async def call_all(self, requests: Iterable[Any]) -> list[Any]:
        """Send requests one behind the other without waiting in between; answers in the same order. Raises the first error."""
        answers = await asyncio.gather(*map(self.call, requests), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def _read(self, kind: type[MultiRead], paths: Sequence[str], first: Sequence[Any] = ()) -> list[Any]:
        """Send the requests `first`, then read. Single reads where the server knows no multiRead (it drops the connection)."""
        found = await self.read_by([kind(self.chroot, batch) for batch in batches(paths, len)], first)
        if found is not None:
            return found
        await self.call_all(first)
        if kind is MultiReadChildren:
            return await asyncio.gather(*(self._children_or_none(path) for path in paths))
        nodes = await asyncio.gather(*map(self.get, paths))
        return nodes if kind is MultiRead else [None if node is None else (node.data, node.version) for node in nodes]

    async def _children_or_none(self, path: str) -> list[str] | None:
        try:
            names: list[str] = await self.call(GetChildren(self.chroot + path, None))
        except NoNode:
            return None
        return names

    async def _create_chroot(self) -> None:
        path = ""
        for part in self.chroot.split("/")[1:]:
            path += f"/{part}"
            try:
                await self.call(Create(path, None, OPEN_ACL_UNSAFE, 0))
            except NodeExists:
                continue

    def _full(self, path: str) -> str:
        return self.chroot if path == "/" and self.chroot else self.chroot + path

    def _watch(self, path: str, callback: WatchCallback | None) -> Watch | None:
        return None if callback is None else Watch(callback, path, self._connected_or_last())

    def _connected_or_last(self) -> Connection:
        if self._connection is None:
            raise RuntimeError("the ZooKeeper session was not started")
        return self._connection

    def _open(self) -> None:
        if not self._stopped:
            if self._connection is not None:
                self._connection.abandon()
            self._connection = Connection(self.servers, self._session_timeout_ms, self._linked, self._fired)
            self._connection.open()

    def _linked(self, connection: Connection, link: Link, session_id: int) -> None:
        if connection is not self._connection:
            return
        try:
            self._change(link, session_id)
        finally:
            self._wake()

    def _change(self, link: Link, session_id: int) -> None:
        match link:
            case Link.CONNECTED:
                self.is_connected = True
                self.connections += 1
                same = session_id == self.session_id
                self.session_id = session_id
                missed, self._missed = self._missed, []
                if self._started:
                    self._tell(SessionChange.RECONNECTED if same else SessionChange.NEW_SESSION)
                for watch in missed if same else ():
                    watch.callback(Change.MISSED, watch.path)
            case Link.SUSPENDED:
                self.is_connected = False
                self._tell(SessionChange.SUSPENDED)
            case Link.EXPIRED | Link.CLOSED:
                self.is_connected = False
                self._missed.clear()
                if self.session_id != 0:
                    self.session_id = 0
                    self.generation += 1
                    self._tell(SessionChange.EXPIRED)
                if link is Link.CLOSED:
                    # kazoo's thread has ended over something it did not expect.
                    asyncio.get_running_loop().call_later(_REOPEN_AFTER_S, self._open)

    def _tell(self, change: SessionChange) -> None:
        if self._started and self._on_session is not None:
            self._on_session(change)

    def _fired(self, watch: Watch, change: Change) -> None:
        if change is Change.MISSED:
            self._missed.append(watch)
        else:
            watch.callback(change, watch.path)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def batches(items: Sequence[T], size: Callable[[T], int], count: int = BATCH_OPERATIONS) -> list[Sequence[T]]:
    """Cut a list so that each part fits into one request."""
    return [items[start:end] for start, end in spans(map(size, items), count)]


def spans(sizes: Iterable[int], count: int = BATCH_OPERATIONS) -> Iterator[tuple[int, int]]:
    """Where to cut what has these sizes so that each part fits into one request: (start, end)."""
    # A request adds about this much to each entry: its header, its lengths, its rights.
    ends = list(accumulate(size + 64 for size in sizes))
    start = before = 0
    while start < len(ends):
        end = min(start + count, bisect_right(ends, before + BATCH_BYTES, start))
        end = max(end, start + 1)
        yield start, end
        start, before = end, ends[end - 1]


def _to_node(data: bytes | None, stat: ZnodeStat) -> Node:
    return Node(data, stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.mtime, stat.ephemeralOwner)
