"""A ZooKeeper in memory, for sessions of this process: the real ZkSession and everything above it run on it unchanged.

It takes the requests that a session hands to its connection, in the order of each connection, one on each turn of the loop, and keeps what
matters of the real one: versions, transaction ids, ephemeral nodes, multis that are all or nothing, one-shot watches whose news come
before the answers of later requests. It is trusted because the contract of the store is proven on it and on the real one.

A connection can be lost and come back in the same session, a session can expire, a process can die: `lose`, `expire`, `kill`.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from kazoo.protocol.serialization import Create, Delete, Exists, GetChildren, GetData, SetData
from kazoo.protocol.states import ZnodeStat

from klamm.zk.session.connection import Change, Link, OnLink, OnWatch, Watch
from klamm.zk.session.kazoo_connection import MAX_REQUEST_BYTES
from klamm.zk.session.requests import (
    BAD_VERSION,
    CHECK,
    CREATE,
    DELETE,
    END,
    ERROR,
    GET_CHILDREN,
    GET_DATA,
    HEADER_SIZE,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    SET_DATA,
    ConnectionLost,
    Multi,
    SessionExpired,
    SetWatches,
    TooLarge,
    error,
    pack_int,
    size_of,
)
from klamm.zk.session.session import SessionChange, WriteHook, ZkSession

_EPHEMERAL, _SEQUENCE = 1, 2
_ROLLED_BACK = -2
_header = struct.Struct(">iBi")
_stat = struct.Struct(">qqqqiiiqiiq")
_int = struct.Struct(">i")


class Operation(NamedTuple):
    """One of a multi; which fields count depends on its kind."""

    kind: int
    path: str
    data: bytes | None = None
    version: int = -1
    flags: int = 0


class Refused(Exception):
    """A transaction did nothing: operation number `index` cannot be done."""

    def __init__(self, index: int, code: int) -> None:
        super().__init__(f"operation {index}: {code}")
        self.index = index
        self.code = code


class Znode:
    """A node and its Stat."""

    __slots__ = ("children", "created", "czxid", "data", "mzxid", "owner", "version")

    def __init__(self, data: bytes | None, czxid: int, owner: int) -> None:
        self.data = data
        self.czxid = self.mzxid = czxid
        self.version = 0
        self.owner = owner
        self.children: dict[str, None] = {}
        self.created = 0

    def stat(self) -> bytes:
        size = 0 if self.data is None else len(self.data)
        return _stat.pack(self.czxid, self.mzxid, 0, 0, self.version, 0, 0, self.owner, size, len(self.children), self.mzxid)

    def kazoo_stat(self) -> ZnodeStat:
        return ZnodeStat(*_stat.unpack(self.stat()))


OnCommit = Callable[[Operation, int], None]
"""(operation, session that did it, 0 for the world outside)"""


class SimulatedZooKeeper:
    """The tree, and the connections to it. Its own methods are the world outside, which needs no session."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(None, 0, 0)}
        self.zxid = 100
        self.requests = 0
        self.connections: list[SimulatedConnection] = []
        self.on_commit: OnCommit = lambda operation, session: None
        self.on_missing: Callable[[str], None] = lambda path: None
        """Told of the path where a session wanted to delete one node, behind its fence, that is not there."""
        self._sessions = 0

    def connect(self, hosts: str, session_timeout_ms: int, on_link: OnLink, on_watch: OnWatch) -> SimulatedConnection:
        return SimulatedConnection(self, on_link, on_watch)

    def new_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def end_session(self, session: int) -> None:
        """Its ephemeral nodes go."""
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            self.commit([Operation(DELETE, path)])

    # --- the world outside ---

    def get(self, path: str) -> Znode | None:
        return self.nodes.get(path)

    def children(self, path: str) -> list[str]:
        node = self.nodes.get(path)
        return [] if node is None else list(node.children)

    def create(self, path: str, data: bytes | None, owner: int = 0) -> None:
        """Create a node, and its parents where they are missing."""
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            self.create(parent, None)
        self.commit([Operation(CREATE, path, data)])
        self.nodes[path].owner = owner

    def set(self, path: str, data: bytes | None) -> None:
        self.commit([Operation(SET_DATA, path, data)])

    def delete_tree(self, path: str) -> None:
        node = self.nodes.get(path)
        if node is not None:
            for name in list(node.children):
                self.delete_tree(f"{path}/{name}")
            self.commit([Operation(DELETE, path)])

    def place(self, path: str, data: bytes | None, version: int | None = None, czxid: int | None = None) -> None:
        """As if it had always been so: nobody is told, and no transaction is counted."""
        parent, _, name = path.rpartition("/")
        if parent and parent not in self.nodes:
            self.place(parent, None)
        node = self.nodes.get(path)
        if node is None:
            node = self.nodes[path] = Znode(data, self.zxid, 0)
            self.nodes[parent or "/"].children[name] = None
        node.data = data
        node.version = node.version if version is None else version
        node.czxid = node.czxid if czxid is None else czxid

    def take_away(self, path: str) -> None:
        """As if it had never been there."""
        node = self.nodes.get(path)
        if node is not None:
            for name in list(node.children):
                self.take_away(f"{path}/{name}")
            parent, _, name = path.rpartition("/")
            del self.nodes[path], self.nodes[parent or "/"].children[name]

    # --- transactions ---

    def commit(self, operations: Sequence[Operation], session: int = 0) -> list[str | None]:
        """All operations or none; the path of each that is a creation. Raises Refused."""
        undo: list[Callable[[], None]] = []
        made: list[str | None] = []
        self.zxid += 1
        for index, operation in enumerate(operations):
            try:
                made.append(self._apply(operation, session, undo))
            except Refused as refused:
                for step in reversed(undo):
                    step()
                self.zxid -= 1
                raise Refused(index, refused.code) from None
        for operation, path in zip(operations, made, strict=True):
            done = operation if path is None else operation._replace(path=path)
            if done.kind != CHECK:
                self._fire(done)
                self.on_commit(done, session)
        return made

    def _apply(self, operation: Operation, session: int, undo: list[Callable[[], None]]) -> str | None:
        kind, path, data, version, flags = operation
        node = self.nodes.get(path)
        if kind == CREATE:
            return self._create(path, data, session if flags & _EPHEMERAL else 0, bool(flags & _SEQUENCE), undo)
        if node is None:
            raise Refused(0, NO_NODE)
        if version not in (-1, node.version):
            raise Refused(0, BAD_VERSION)
        if kind == SET_DATA:
            undo.append(partial(_restore, node, node.data, node.version, node.mzxid))
            _restore(node, data, node.version + 1, self.zxid)
        elif kind == DELETE:
            if node.children:
                raise Refused(0, NOT_EMPTY)
            parent, _, name = path.rpartition("/")
            siblings = self.nodes[parent or "/"].children
            before = dict(siblings)
            del self.nodes[path], siblings[name]
            undo += [partial(siblings.update, before), siblings.clear]
            undo.append(partial(self.nodes.__setitem__, path, node))
        return None

    def _create(self, path: str, data: bytes | None, owner: int, numbered: bool, undo: list[Callable[[], None]]) -> str:
        parent = self.nodes.get(path.rpartition("/")[0] or "/")
        if parent is None:
            raise Refused(0, NO_NODE)
        if numbered:
            path += f"{parent.created:010d}"
        if path in self.nodes:
            raise Refused(0, NODE_EXISTS)
        name = path.rpartition("/")[2]
        self.nodes[path] = Znode(data, self.zxid, owner)
        parent.children[name] = None
        parent.created += 1
        undo.append(partial(parent.children.__delitem__, name))
        undo.append(partial(self.nodes.__delitem__, path))
        return path

    def _fire(self, operation: Operation) -> None:
        kind, path = operation.kind, operation.path
        parent = path.rpartition("/")[0] or "/"
        change = {CREATE: Change.CREATED, DELETE: Change.DELETED, SET_DATA: Change.CHANGED}[kind]
        for connection in list(self.connections):
            connection.fire(connection.data_watchers, path, change)
            if kind == DELETE:
                connection.fire(connection.child_watchers, path, change)
            if kind != SET_DATA:
                connection.fire(connection.child_watchers, parent, Change.CHILD)

    # --- requests ---

    def serve(self, connection: SimulatedConnection, request: Any) -> Any:
        """The answer of a request, or the exception it is answered with."""
        self.requests += 1
        match request:
            case GetData():
                node = self.nodes.get(request.path)
                if node is None:
                    return error(NO_NODE)
                connection.arm(connection.data_watchers, request.path, request.watcher)
                return node.data, node.kazoo_stat()
            case Exists():
                connection.arm(connection.data_watchers, request.path, request.watcher)
                node = self.nodes.get(request.path)
                return None if node is None else node.kazoo_stat()
            case GetChildren():
                node = self.nodes.get(request.path)
                if node is None:
                    return error(NO_NODE)
                connection.arm(connection.child_watchers, request.path, request.watcher)
                return list(node.children)
            case Create():
                return self._single(Operation(CREATE, request.path, request.data, flags=request.flags), connection.session)
            case SetData():
                return self._single(Operation(SET_DATA, request.path, request.data, request.version), connection.session)
            case Delete():
                return self._single(Operation(DELETE, request.path, version=request.version), connection.session)
            case Multi():
                return request.deserialize(self._multi(list(map(_operation, request.operations)), connection.session), 0)
            case SetWatches():
                return self._set_watches(connection, request)
            case _:
                return request.deserialize(self._multi_read(request.serialize()), 0)

    def _single(self, operation: Operation, session: int) -> Any:
        try:
            (made,) = self.commit([operation], session)
        except Refused as refused:
            return error(refused.code)
        return self.nodes[operation.path].kazoo_stat() if operation.kind == SET_DATA else made

    def _multi(self, operations: list[Operation], session: int) -> bytes:
        parts: list[bytes] = []
        try:
            made = self.commit(operations, session)
        except Refused as refused:
            if refused.code == NO_NODE and refused.index == 1 == len(operations) - 1 and operations[1].kind == DELETE:
                self.on_missing(operations[1].path)
            for index in range(len(operations)):
                code = 0 if index < refused.index else refused.code if index == refused.index else _ROLLED_BACK
                parts.append(_header.pack(ERROR, 0, code) + pack_int(code))
            return b"".join((*parts, END))
        for operation, path in zip(operations, made, strict=True):
            parts.append(_header.pack(operation.kind, 0, 0))
            if path is not None:
                parts.append(_text(path))
            elif operation.kind == SET_DATA:
                parts.append(self.nodes[operation.path].stat())
        return b"".join((*parts, END))

    def _set_watches(self, connection: SimulatedConnection, request: SetWatches) -> None:
        """The request enters its watches into the connection's table while it is serialised."""
        before = set(connection.data_watchers)
        request.serialize()
        for path in [path for path in connection.data_watchers if path not in before and path not in self.nodes]:
            connection.fire(connection.data_watchers, path, Change.DELETED)

    def _multi_read(self, request: bytes) -> bytes:
        parts = []
        for kind, path in _reads(request):
            node = self.nodes.get(path)
            if node is None:
                parts.append(_header.pack(ERROR, 0, NO_NODE) + pack_int(NO_NODE))
            elif kind == GET_DATA:
                data = pack_int(-1) if node.data is None else pack_int(len(node.data)) + node.data
                parts.append(_header.pack(kind, 0, 0) + data + node.stat())
            else:
                assert kind == GET_CHILDREN
                parts.append(_header.pack(kind, 0, 0) + pack_int(len(node.children)) + b"".join(map(_text, node.children)))
        return b"".join((*parts, END))


class SimulatedConnection:
    """A session's connection to the tree: `klamm.zk.session.connection.Connection`, with ways to break it."""

    def __init__(self, zk: SimulatedZooKeeper, on_link: OnLink, on_watch: OnWatch) -> None:
        self._zk = zk
        self._on_link = on_link
        self._on_watch = on_watch
        self._connected = False
        self._waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._answering: list[asyncio.Future[Any]] = []
        self.session = 0
        self.data_watchers: defaultdict[str, set[Any]] = defaultdict(set)
        self.child_watchers: defaultdict[str, set[Any]] = defaultdict(set)

    def open(self) -> None:
        self.session = self._zk.new_session()
        self._zk.connections.append(self)
        self._link(Link.CONNECTED)

    async def close(self, limit_s: float) -> None:
        self.kill()
        self._fail(SessionExpired())

    def abandon(self) -> None:
        self.kill()

    def sever(self) -> None:
        self.kill()

    async def end_severed(self, limit_s: float) -> None:
        """`sever` has ended the session."""

    def submit(self, request: Any, *, alone: bool = False) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if not self._connected:
            future.set_exception(ConnectionLost())
        elif size_of(request) > MAX_REQUEST_BYTES:
            future.set_exception(TooLarge())
        else:
            self._waiting.append((request, future))
            loop.call_soon(self._serve)
        return future

    def report(self, watch: Watch, change: Change) -> None:
        asyncio.get_running_loop().call_soon(self._fired, watch, change, self.session)

    def arm(self, table: defaultdict[str, set[Any]], path: str, watch: Watch | None) -> None:
        if watch is not None:
            table[path].add(watch)

    def fire(self, table: defaultdict[str, set[Any]], path: str, change: Change) -> None:
        for watch in table.pop(path, ()):
            self.report(watch, change)

    # --- faults ---

    def lose(self, served: bool = True) -> None:
        """The connection is lost and comes back; what was on its way is `served`, or lost too. Watches are gone."""
        if not self._connected:
            return
        self._drain(served)
        self._connected = False
        self._fail(ConnectionLost())
        self._link(Link.SUSPENDED)
        for table in (self.data_watchers, self.child_watchers):
            for watches in list(table.values()):
                for watch in watches:
                    self._on_watch(watch, Change.MISSED)
            table.clear()
        asyncio.get_running_loop().call_soon(self._reconnect, self.session)

    def cut(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def pause(self) -> None:
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError

    async def end_session(self, limit_s: float) -> None:
        self.expire()

    def expire(self) -> None:
        """The session is over; a new one begins at once."""
        ended, self.session = self.session, 0
        self._connected = False
        self.data_watchers.clear()
        self.child_watchers.clear()
        self._fail(SessionExpired())
        self._link(Link.EXPIRED)
        self._zk.end_session(ended)
        asyncio.get_running_loop().call_soon(self._reconnect, self._zk.new_session())

    def kill(self) -> None:
        """The process is dead: what it had sent is served, its session ends, nobody is answered."""
        if self in self._zk.connections:
            self._drain(served=True)
            self._zk.connections.remove(self)
            self._connected = False
            self._zk.end_session(self.session)

    def _reconnect(self, session: int) -> None:
        if self in self._zk.connections and not self._connected:
            self.session = session
            self._link(Link.CONNECTED)

    def _link(self, link: Link) -> None:
        self._connected = link is Link.CONNECTED
        self._on_link(self, link, self.session if self._connected else 0)

    def _drain(self, served: bool) -> None:
        while self._waiting:
            request, future = self._waiting.popleft()
            self._answering.append(future)
            if served:
                self._zk.serve(self, request)

    def _serve(self) -> None:
        if self._waiting:
            request, future = self._waiting.popleft()
            self._answering.append(future)
            answer = self._zk.serve(self, request)
            asyncio.get_running_loop().call_soon(self._answer, future, answer)

    def _answer(self, future: asyncio.Future[Any], answer: Any) -> None:
        if future not in self._answering:
            return
        self._answering.remove(future)
        if not future.done():
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _fail(self, problem: Exception) -> None:
        futures = [*self._answering, *(future for _, future in self._waiting)]
        self._answering.clear()
        self._waiting.clear()
        for future in futures:
            if not future.done():
                future.set_exception(problem)

    def _fired(self, watch: Watch, change: Change, session: int) -> None:
        if session == self.session and self in self._zk.connections:
            self._on_watch(watch, change)


class SimulatedSession(ZkSession):
    """A session that is connected as soon as it is made."""

    def __init__(
        self,
        zk: SimulatedZooKeeper,
        on_session: Callable[[SessionChange], None] | None = None,
        write_hook: WriteHook | None = None,
        chroot: str = "",
    ) -> None:
        super().__init__(f"memory:1{chroot}", 6000, on_session, connect=self._connected_to(zk), write_hook=write_hook)
        self.before_request: Callable[[], None] = lambda: None
        """Called before every request, reads too; it may raise."""
        self._open()
        self._started = True

    def _submit(self, request: Any) -> Awaitable[Any]:
        self.before_request()
        return super()._submit(request)

    def _connected_to(self, zk: SimulatedZooKeeper) -> Callable[[str, int, OnLink, OnWatch], SimulatedConnection]:
        def connect(hosts: str, session_timeout_ms: int, on_link: OnLink, on_watch: OnWatch) -> SimulatedConnection:
            self.line = zk.connect(hosts, session_timeout_ms, on_link, on_watch)
            return self.line

        return connect


def _restore(node: Znode, data: bytes | None, version: int, mzxid: int) -> None:
    node.data, node.version, node.mzxid = data, version, mzxid


def _text(value: str) -> bytes:
    data = value.encode()
    return pack_int(len(data)) + data


def _string(buffer: bytes, offset: int) -> tuple[bytes | None, int]:
    (length,) = _int.unpack_from(buffer, offset)
    offset += 4
    return (None, offset) if length < 0 else (buffer[offset : offset + length], offset + length)


def _operation(content: bytes) -> Operation:
    """An operation of a multi from its bytes."""
    kind, _, _ = _header.unpack_from(content)
    path, offset = _string(content, HEADER_SIZE)
    assert path is not None
    if kind in (CHECK, DELETE):
        return Operation(kind, path.decode(), version=_int.unpack_from(content, offset)[0])
    data, offset = _string(content, offset)
    (last,) = _int.unpack_from(content, len(content) - 4)
    if kind == SET_DATA:
        return Operation(kind, path.decode(), data, last)
    assert kind == CREATE
    return Operation(kind, path.decode(), data, flags=last)


def operations_of(request: Any) -> list[Operation]:
    """What a write does, whatever kind of request it is."""
    match request:
        case Multi():
            return list(map(_operation, request.operations))
        case Create():
            return [Operation(CREATE, request.path, request.data, flags=request.flags)]
        case SetData():
            return [Operation(SET_DATA, request.path, request.data, request.version)]
        case Delete():
            return [Operation(DELETE, request.path, version=request.version)]
    raise AssertionError(request)


def _reads(request: bytes) -> Iterator[tuple[int, str]]:
    """(kind, path) of each read of a multiRead."""
    offset = 4
    while True:
        kind, _, _ = _header.unpack_from(request, offset)
        if kind == -1:
            return
        path, offset = _string(request, offset + HEADER_SIZE)
        assert path is not None
        yield kind, path.decode()
        offset += 1
