"""Requests that kazoo does not have or encodes too slowly, as objects for its request queue; and the errors that ZooKeeper returns.

kazoo gets the bytes of a request from it, and lets it parse the response. The requests here have their type in their own bytes (kazoo
writes no type if `type` is None), so kazoo does not treat them as requests of that type. An operation of a Multi is bytes: its caller can
measure it, and a Multi only joins them. `size_of` measures a request before it is sent, because ZooKeeper closes the connection if it is
too large. The response of a successful Multi is parsed only if requested, because most callers only need to know that it succeeded.
ZooKeeper has MultiRead since 3.6. All of this runs in kazoo's thread.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from klamm.controller.values import StoreRefused

CREATE, DELETE, GET_DATA, SET_DATA, GET_CHILDREN, CHECK = 1, 2, 4, 5, 8, 13
MULTI_READ, ERROR = 22, -1
_MULTI, _SET_WATCHES = 14, 101

pack_int = struct.Struct(">i").pack
_read_int = struct.Struct(">i").unpack_from
read_header_and_int = struct.Struct(">iBii").unpack_from
_header = struct.Struct(">iBi").unpack_from
_stat = struct.Struct(">qqqqiiiq").unpack_from
_join = b"".join

HEADER_SIZE, STAT_SIZE, VERSION_IN_STAT = 9, 68, 32
END = struct.pack(">iBi", -1, 1, -1)
_CREATE, _DELETE, _SET_DATA, _CHECK, _READ_DATA, _READ_CHILDREN = (
    struct.pack(">iBi", kind, 0, -1) for kind in (CREATE, DELETE, SET_DATA, CHECK, GET_DATA, GET_CHILDREN)
)
# An ACL with all permissions for everybody, and the flags of the types of znodes.
_OPEN_TO_ALL = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
_PERSISTENT, _EPHEMERAL, _SEQUENTIAL = (_OPEN_TO_ALL + pack_int(flags) for flags in (0, 1, 2))
# Bytes of a request of kazoo beside its path and its data, and of one with a list beside its rows; at most.
_HEAD_AND_ACL_BYTES, HEAD_AND_END_BYTES = 64, 32


class Znode(NamedTuple):
    """Data of a znode, and the fields of its Stat that are used. Times are in milliseconds; `ephemeral_owner` is 0 for a persistent znode.
    """

    data: bytes | None
    version: int
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int
    cversion: int
    """How often a child was created or deleted."""


class ZkError(StoreRefused):
    """ZooKeeper refused a request. `repeated`: an earlier attempt may have succeeded, but its response was lost with the connection."""

    def __init__(self, code: int, repeated: bool = False) -> None:
        super().__init__(f"ZooKeeper error {code}")
        self.code = code
        self.repeated = repeated


class ConnectionLost(ZkError):
    """The connection was lost before the response. It is not known whether the request succeeded."""

    def __init__(self, code: int = -4, repeated: bool = False, *, was_sent: bool = False) -> None:
        super().__init__(code, repeated)
        self.was_sent = was_sent


class TooLarge(ZkError):
    """The request is too large for ZooKeeper. It was not sent."""

    def __init__(self, code: int = -5, repeated: bool = False) -> None:
        super().__init__(code, repeated)


class BadPath(ZkError):
    """A path cannot be encoded, so no znode has it. The request was not sent."""

    def __init__(self, code: int = -8, repeated: bool = False) -> None:
        super().__init__(code, repeated)


class ClosesConnection(ZkError):
    """ZooKeeper closed the connection at each attempt of this request, the last time with no other request in progress.

    It may have taken effect.
    """

    def __init__(self) -> None:
        super().__init__(-4, repeated=True)


class Unimplemented(ZkError):
    """The server is too old for the request."""


class NoNode(ZkError):
    """The znode, or the parent of the znode to create, does not exist."""


class BadVersion(ZkError):
    """The znode has another version than the expected one."""


class NodeExists(ZkError):
    """The znode to create exists."""


class NotEmpty(ZkError):
    """The znode to delete has children."""


class SessionExpired(ZkError):
    """The session is over."""

    def __init__(self, code: int = -112, repeated: bool = False) -> None:
        super().__init__(code, repeated)


ERRORS: dict[int, type[ZkError]] = {
    -4: ConnectionLost,
    -6: Unimplemented,
    -101: NoNode,
    -103: BadVersion,
    -110: NodeExists,
    -111: NotEmpty,
    -112: SessionExpired,
}
NO_NODE, BAD_VERSION, NODE_EXISTS, NOT_EMPTY = -101, -103, -110, -111


def error(code: int) -> ZkError:
    return ERRORS.get(code, ZkError)(code)


class MultiFailed(ZkError):
    """A Multi had no effect, because operation number `index` failed with `code`."""

    def __init__(self, index: int, code: int, repeated: bool = False) -> None:
        super().__init__(code, repeated)
        self.index = index

    def cause(self) -> ZkError:
        return ERRORS.get(self.code, ZkError)(self.code, self.repeated)


def utf8_size(text: str) -> int:
    """Size of a text in bytes as it is sent. Raises UnicodeEncodeError."""
    return len(text) if text.isascii() else len(text.encode())


def size_of(request: Any) -> int:
    """Size of a request in bytes, at least that of the bytes that are sent. Raises BadPath."""
    try:
        if request.type is None:
            size: int = request.size()
            return size
        data = getattr(request, "data", None)
        return utf8_size(request.path) + (0 if data is None else len(data)) + _HEAD_AND_ACL_BYTES
    except UnicodeEncodeError:
        raise BadPath from None


class Operations:
    """Encodes the operations of a Multi. Paths are below `prefix`. All raise BadPath."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def _name(self, path: str) -> bytes:
        try:
            return self._prefix + path.encode()
        except UnicodeEncodeError:
            raise BadPath from None

    def check(self, path: str, version: int) -> bytes:
        name = self._name(path)
        return _join((_CHECK, pack_int(len(name)), name, pack_int(version)))

    def create(self, path: str, data: bytes | None, ephemeral: bool = False) -> bytes:
        name = self._name(path)
        content = pack_int(-1) if data is None else pack_int(len(data)) + data
        return _join((_CREATE, pack_int(len(name)), name, content, _EPHEMERAL if ephemeral else _PERSISTENT))

    def create_numbered(self, prefix: str, data: bytes) -> bytes:
        """Create a znode whose name ends with the next sequence number of its parent."""
        name = self._name(prefix)
        return _join((_CREATE, pack_int(len(name)), name, pack_int(len(data)), data, _SEQUENTIAL))

    def set_data(self, path: str, data: bytes, version: int) -> bytes:
        name = self._name(path)
        return _join((_SET_DATA, pack_int(len(name)), name, pack_int(len(data)), data, pack_int(version)))

    def delete(self, path: str, version: int = -1) -> bytes:
        name = self._name(path)
        return _join((_DELETE, pack_int(len(name)), name, pack_int(version)))


class Multi:
    """Several operations, all or none of which take effect. The response is None. With `results` it has for each operation the created
    path, the Stat as a Znode without data, or None.
    """

    type = None

    def __init__(self, operations: Sequence[bytes], results: bool = False) -> None:
        self.operations = operations
        self._results = results

    def __repr__(self) -> str:
        return f"Multi({len(self.operations)} operations)"

    def size(self) -> int:
        return sum(map(len, self.operations)) + HEAD_AND_END_BYTES

    def serialize(self) -> bytes:
        return _join((pack_int(_MULTI), *self.operations, END))

    def deserialize(self, buffer: bytes, offset: int) -> list[Any] | MultiFailed | None:
        kind, _, _ = _header(buffer, offset)
        if kind == ERROR:
            return self._failure(buffer, offset)
        return self._parse(buffer, offset) if self._results else None

    def _failure(self, buffer: bytes, offset: int) -> MultiFailed:
        """The failure. Operations before the failed one have code 0, those after it a rollback code."""
        index = 0
        while True:
            kind, _, _, code = read_header_and_int(buffer, offset)
            if kind != ERROR:
                raise ValueError(f"operation {index} of a failed multi has type {kind}")
            if code != 0:
                return MultiFailed(index, code)
            offset += HEADER_SIZE + 4
            index += 1

    def _parse(self, buffer: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        for _ in self.operations:
            kind, _, _ = _header(buffer, offset)
            offset += HEADER_SIZE
            if kind == CREATE:
                (length,) = _read_int(buffer, offset)
                offset += 4
                results.append(buffer[offset : offset + length].decode())
                offset += length
            elif kind == SET_DATA:
                results.append(_node(None, buffer, offset))
                offset += STAT_SIZE
            else:
                results.append(None)
        return results


class MultiVersions(Multi):
    """A Multi whose response has the new version for each operation: that of the Stat, 0 for a created znode, None for others.

    The response to a creation has no Stat, but a new znode has version 0.
    """

    def __init__(self, operations: Sequence[bytes]) -> None:
        super().__init__(operations, True)

    def _parse(self, buffer: bytes, offset: int) -> list[Any]:
        versions: list[Any] = []
        for _ in self.operations:
            kind, _, _ = _header(buffer, offset)
            offset += HEADER_SIZE
            if kind == SET_DATA:
                versions += _read_int(buffer, offset + VERSION_IN_STAT)
                offset += STAT_SIZE
            elif kind == CREATE:
                offset += 4 + _read_int(buffer, offset)[0]
                versions.append(0)
            else:
                versions.append(None)
        return versions


def path_with_data(operation: bytes) -> str | None:
    """The path, including the prefix, of an operation that sets or creates a znode; None if the new znode has no data."""
    (length,) = _read_int(operation, HEADER_SIZE)
    end = HEADER_SIZE + 4 + length
    return None if _read_int(operation, end)[0] < 0 else operation[HEADER_SIZE + 4 : end].decode()


def operation_type_and_path(operation: bytes) -> tuple[int, str]:
    """The type and the path, including the prefix, of an operation of a Multi."""
    (kind,), (length,) = _read_int(operation, 0), _read_int(operation, HEADER_SIZE)
    return kind, operation[HEADER_SIZE + 4 : HEADER_SIZE + 4 + length].decode()


class MultiRead:
    """Reads many znodes at one point in time. The response has for each path a Znode, None if it does not exist, or another error."""

    type = None
    _kind = _READ_DATA
    _each_fails_alone = True

    def __init__(self, prefix: str, paths: Sequence[str]) -> None:
        self._prefix = prefix
        self.paths = paths

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.paths)} paths)"

    def size(self) -> int:
        """Raises UnicodeEncodeError."""
        each = utf8_size(self._prefix) + HEADER_SIZE + 5
        return sum(map(utf8_size, self.paths)) + each * len(self.paths) + HEAD_AND_END_BYTES

    def serialize(self) -> bytes:
        parts = [pack_int(MULTI_READ)]
        kind, prefix = self._kind, self._prefix.encode()
        for path in self.paths:
            name = prefix + path.encode()
            parts.append(_join((kind, pack_int(len(name)), name, b"\0")))
        parts.append(END)
        return _join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Any] | ZkError:
        results: list[Any] = []
        for _ in self.paths:
            kind, _, _, first = read_header_and_int(buffer, offset)
            offset += HEADER_SIZE + 4
            if kind == ERROR:
                if first != NO_NODE and not self._each_fails_alone:
                    return error(first)
                results.append(None if first == NO_NODE else error(first))
                continue
            result, offset = self._read(buffer, offset, first)
            results.append(result)
        return results

    def _read(self, buffer: bytes, offset: int, length: int) -> tuple[Any, int]:
        end = offset + max(length, 0)
        return _node(buffer[offset:end] if length >= 0 else None, buffer, end), end + STAT_SIZE


class MultiReadVersions(MultiRead):
    """A MultiRead with (data, version) for each path, at half the cost. The first error is the error of the whole request."""

    _each_fails_alone = False

    def _read(self, buffer: bytes, offset: int, length: int) -> tuple[Any, int]:
        end = offset + max(length, 0)
        return (buffer[offset:end] if length >= 0 else None, *_read_int(buffer, end + VERSION_IN_STAT)), end + STAT_SIZE


class MultiReadChildren(MultiRead):
    """Reads the names of the children of many znodes. The first error is the error of the whole request."""

    _kind = _READ_CHILDREN
    _each_fails_alone = False

    def _read(self, buffer: bytes, offset: int, length: int) -> tuple[Any, int]:
        names = []
        for _ in range(length):
            (size,) = _read_int(buffer, offset)
            offset += 4
            names.append(buffer[offset : offset + size].decode())
            offset += size
        return names, offset


class SetWatches:
    """Sets data watches on many paths without reading them, like the Java client after a reconnect.

    The server fires watches at once for znodes that are newer than a given transaction id. With the largest id, it only does so for znodes
    that do not exist, as deletions. The watchers are added to kazoo's table when the request is sent, in kazoo's thread, so no event can
    arrive too early.
    """

    type = None

    def __init__(
        self, watchers: Mapping[str, Callable[[Any], None]], table: Callable[[], defaultdict[str, set[Callable[[Any], None]]]]
    ) -> None:
        """`watchers` by full path; `table` returns kazoo's table of data watchers."""
        self._watchers = watchers
        self._table = table

    def __repr__(self) -> str:
        return f"SetWatches({len(self._watchers)} paths)"

    def size(self) -> int:
        """Raises UnicodeEncodeError."""
        return sum(map(utf8_size, self._watchers)) + 4 * len(self._watchers) + HEAD_AND_END_BYTES

    def serialize(self) -> bytes:
        parts = [pack_int(_SET_WATCHES), struct.pack(">qi", 2**63 - 1, len(self._watchers))]
        table = self._table()
        for path, watcher in self._watchers.items():
            table[path].add(watcher)
            name = path.encode()
            parts.append(pack_int(len(name)) + name)
        parts.append(struct.pack(">ii", 0, 0))
        return _join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> None:
        """The response is empty."""


def _node(data: bytes | None, buffer: bytes, offset: int) -> Znode:
    czxid, mzxid, ctime, mtime, version, cversion, _, owner = _stat(buffer, offset)
    return Znode(data, version, czxid, mzxid, ctime, mtime, owner, cversion)
