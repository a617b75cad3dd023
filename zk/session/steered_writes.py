"""Writes to ZooKeeper as phases: each can be held, let fail, or be the point of a crash, before it is sent and after its response.

A write that fails is repeated, as after a lost connection: before it is sent nothing has happened, after its response it has taken effect
and only the response is lost. The session ends all writes that are held when it ends. Imported only while somebody steers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, Protocol

from kazoo.protocol.serialization import Create, Delete

from klamm.controller.values import StoreLost, StoreRefused
from klamm.protocol.steering import Steering
from klamm.protocol.value_class import dataclass
from klamm.zk.session.requests import CHECK, ConnectionLost, Multi, operation_type_and_path

Operation = Literal["create", "set", "delete", "multi"]


@dataclass(frozen=True, slots=True)
class ZooKeeperWrite:
    """A broker writes to ZooKeeper: the write is about to be sent (`before`), or its response is there and nobody knows it (`after`)."""

    broker_id: int
    controller_epoch: int
    when: Literal["before", "after"]
    operation: Operation
    paths: tuple[str, ...]
    number: int


class SteeredSession(Protocol):
    """What is needed of a session (`ZkSession`)."""

    steering: Steering | None
    writer: Callable[[], tuple[int, int]]
    held_writes: set[asyncio.Future[None]]
    generation: int
    chroot: str

    async def attempt(self, number: int, request: Any) -> Any:
        """Send a write."""


async def steered(session: SteeredSession, number: int, request: Any) -> Any:
    """One attempt of a write, which may be held before and after it. Raises as a write does; ConnectionLost if it is to fail."""
    generation = session.generation
    await _reach(session, number, request, "before")
    if session.generation != generation:
        raise StoreLost("the ZooKeeper session is over")
    response = await session.attempt(number, request)
    await _reach(session, number, request, "after")
    return response


async def _reach(session: SteeredSession, number: int, request: Any, when: Literal["before", "after"]) -> None:
    steering = session.steering
    if steering is None or not steering.wants_any(ZooKeeperWrite):
        return
    broker_id, epoch = session.writer()
    operation, paths = _described(request, len(session.chroot))
    going: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def go_on() -> None:
        if not going.done():
            going.set_result(None)

    def fail(error: BaseException) -> None:
        if not going.done():
            going.set_exception(error if isinstance(error, (StoreLost, StoreRefused)) else ConnectionLost())

    held = steering.park(ZooKeeperWrite(broker_id, epoch, when, operation, paths, number), go_on, broker_id, fail)
    if held is None:
        return
    session.held_writes.add(going)
    try:
        await going
    finally:
        session.held_writes.discard(going)
        held.drop()


def _described(request: Any, prefix: int) -> tuple[Operation, tuple[str, ...]]:
    """What a write does, and its paths below the chroot; of a multi all that it changes."""
    if isinstance(request, Multi):
        operations = map(operation_type_and_path, request.operations)
        return "multi", tuple(path[prefix:] for kind, path in operations if kind != CHECK)
    operation: Operation = "create" if isinstance(request, Create) else "delete" if isinstance(request, Delete) else "set"
    return operation, (request.path[prefix:],)
