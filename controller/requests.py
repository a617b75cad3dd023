"""Events that answer somebody. Each carries the future of the one who asked, and knows its answer when it is preempted.

An event is processed or preempted (the queue was cleared: session expiry, shutdown), never both (controller 2).
"""

from __future__ import annotations

from asyncio import Future
from dataclasses import dataclass
from typing import Any

from klamm.controller.values import Election, TopicPartition
from klamm.protocol.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect leaders of these partitions; dict[TopicPartition, ElectionResult]."""

    partitions: tuple[TopicPartition, ...]
    election: Election
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker asks to leave; list of the partitions it still leads."""

    broker_id: int
    broker_epoch: int
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader proposes ISRs; an AlterPartitionResponse."""

    request: Any
    version: int
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker asks for a block of producer ids; (first id, count)."""

    broker_id: int
    broker_epoch: int
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class ListReassignments:
    """Which of these partitions (None: of all) are being reassigned; dict[TopicPartition, Assignment], topics together."""

    partitions: tuple[TopicPartition, ...] | None
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered:
    """A broker answered LeaderAndIsr."""

    broker_id: int
    broker_epoch: int
    response: Any


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered:
    """A broker answered a StopReplica that deletes."""

    broker_id: int
    broker_epoch: int
    response: Any


Asked = ElectLeaders | ControlledShutdown | AlterPartition | AllocateProducerIds | ListReassignments
Answered = LeaderAndIsrAnswered | StopReplicaAnswered


def refuse(asked: Asked, error: ErrorCode, message: str | None = None) -> None:
    """Answer with an error, if nobody has answered yet."""
    if not asked.future.done():
        asked.future.set_exception(ApiError(error, message))


def preempt(asked: Asked) -> None:
    """The answer of an event that will not be processed: another controller has to do it."""
    moved = ErrorCode.STALE_CONTROLLER_EPOCH if isinstance(asked, ControlledShutdown) else ErrorCode.NOT_CONTROLLER
    refuse(asked, moved)
