"""Reads and writes of ZooKeeper as phases: each can be held or fail, or its broker be killed, before it is sent and after its response.

A request that fails is repeated, as after a lost connection. Before it is sent nothing has happened; after its response a write has taken
effect and only the response is lost. The session ends all requests that are held when it ends. Imported only while somebody steers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from kazoo.protocol.serialization import Create, Delete, Exists, GetChildren, GetData, SetData

from klamm.controller.values import StoreLost, StoreRefused
from klamm.seams.steering import Steering
from klamm.seams.value_class import dataclass
from klamm.zk.session.requests import CHECK, ConnectionLost, Multi, MultiRead, MultiReadChildren, operation_type_and_path

When = Literal["before", "after"]
WriteOperation = Literal["create", "set", "delete", "multi"]
ReadOperation = Literal["get", "exists", "children"]

READS = (GetData, Exists, GetChildren, MultiRead)
_WRITE_OPERATIONS: dict[type[Any], WriteOperation] = {Create: "create", SetData: "set", Delete: "delete"}


@dataclass(frozen=True, slots=True)
class ZooKeeperWrite:
    """A broker writes to ZooKeeper: the write is about to be sent (`before`), or its response is there and nobody knows it (`after`)."""

    broker_id: int
    controller_epoch: int
    when: When
    operation: WriteOperation
    paths: tuple[str, ...]
    number: int


@dataclass(frozen=True, slots=True)
class ZooKeeperRead:
    """A broker reads data, existence or children of znodes: the read is about to be sent (`before`), or its response is there (`after`).
    With `watches` it sets a watch."""

    broker_id: int
    controller_epoch: int
    when: When
    operation: ReadOperation
    paths: tuple[str, ...]
    watches: bool
    number: int


class SteeredSession(Protocol):
    """What is needed of a session (`ZkSession`)."""

    steering: Steering | None
    writer: Callable[[], tuple[int, int]]
    held_requests: set[asyncio.Future[None]]
    generation: int
    chroot: str

    async def attempt(self, number: int, request: Any) -> Any:
        """Send a write."""

    def submit_read(self, request: Any) -> Awaitable[Any]:
        """Send a read."""


async def steered(session: SteeredSession, number: int, request: Any) -> Any:
    """One attempt of a write, which may be held before and after it. Raises as a write does; ConnectionLost if it is to fail."""
    broker_id, epoch = session.writer()
    operation, paths = _described_write(request, len(session.chroot))

    def phase(when: When) -> ZooKeeperWrite:
        return ZooKeeperWrite(broker_id, epoch, when, operation, paths, number)

    return await _between(session, phase, lambda: session.attempt(number, request))


def wants_reads(steering: Steering) -> bool:
    """Whether there is a hold for reads."""
    return steering.wants_any(ZooKeeperRead)


async def steered_read(session: SteeredSession, number: int, request: Any) -> Any:
    """One attempt of a read, as `steered`."""
    broker_id, epoch = session.writer()
    operation, paths, watches = _described_read(request, len(session.chroot))

    def phase(when: When) -> ZooKeeperRead:
        return ZooKeeperRead(broker_id, epoch, when, operation, paths, watches, number)

    return await _between(session, phase, lambda: session.submit_read(request))


async def _between(
    session: SteeredSession, phase: Callable[[When], ZooKeeperWrite | ZooKeeperRead], send: Callable[[], Awaitable[Any]]
) -> Any:
    generation = session.generation
    await _reach(session, phase("before"))
    if session.generation != generation:
        raise StoreLost("the ZooKeeper session is over")
    response = await send()
    await _reach(session, phase("after"))
    return response


async def _reach(session: SteeredSession, phase: ZooKeeperWrite | ZooKeeperRead) -> None:
    steering = session.steering
    if steering is None or not steering.wants_any(type(phase)):
        return
    going: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def go_on() -> None:
        if not going.done():
            going.set_result(None)

    def fail(error: BaseException) -> None:
        if not going.done():
            going.set_exception(error if isinstance(error, (StoreLost, StoreRefused)) else ConnectionLost())

    held = steering.park(phase, go_on, phase.broker_id, fail)
    if held is None:
        return
    session.held_requests.add(going)
    try:
        await going
    finally:
        session.held_requests.discard(going)
        held.drop()


def _described_write(request: Any, prefix: int) -> tuple[WriteOperation, tuple[str, ...]]:
    """What a write does, and its paths below the chroot; of a multi all that it changes."""
    if isinstance(request, Multi):
        operations = map(operation_type_and_path, request.operations)
        return "multi", tuple(path[prefix:] for kind, path in operations if kind != CHECK)
    return _WRITE_OPERATIONS[type(request)], (request.path[prefix:],)


def _described_read(request: Any, prefix: int) -> tuple[ReadOperation, tuple[str, ...], bool]:
    """What a read wants, its paths below the chroot, and whether it sets a watch. The chroot itself is `/`."""
    if isinstance(request, MultiRead):
        return "children" if isinstance(request, MultiReadChildren) else "get", tuple(request.paths), False
    operation: ReadOperation = "exists" if isinstance(request, Exists) else "children" if isinstance(request, GetChildren) else "get"
    return operation, (request.path[prefix:] or "/",), request.watcher is not None
