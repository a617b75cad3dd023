"""What the machines of all coordinators want done: responses, records to append, and the phases between them.

A machine is the state of one partition of an internal topic: requests come as values with the time, effects go out in order. It reads no
clock, draws nothing and does not wait; `server/coordinators/coordinator_runtime.py` does that for it. Each effect names its key (a group, a
transactional id): what waits for one key does not keep the others waiting.
"""

from __future__ import annotations

from typing import ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from klamm.protocol.errors import ErrorCode

Record = tuple[bytes, bytes | None]
"""Key and value of a record of an internal topic; None deletes the key."""


class Result(Protocol):
    """The result of a request, if it is more than an error code."""

    def failed(self, code: ErrorCode) -> Self:
        """What the client gets in its place if the request fails with this code."""


R_co = TypeVar("R_co", bound=ErrorCode | Result, covariant=True)


class Respond(NamedTuple, Generic[R_co]):
    """The result of the request with this ticket, which stands for a client that waits; the machine got it with the request."""

    key: str
    ticket: object
    result: R_co


class AppendRecords(NamedTuple):
    """Records to append to the partition as one batch, with acks=all.

    The outcome comes back in `appended`, with the same `token`. A key of None: the records belong to several keys. With a producer id they
    are part of its transaction, and `verified` says how that was verified; the machine only hands it on. `timeout_ms` is how long they may
    wait for replicas, None: as long as a request may.
    """

    key: str | None
    token: object
    records: tuple[Record, ...]
    producer_id: int = -1
    producer_epoch: int = -1
    verified: object = None
    timeout_ms: int | None = None


class Phase:
    """A place between two effects at which somebody may hold the key; else there is nothing to do.

    What fails there is what comes next for the key: an append, or responses, whatever is stored.
    """

    __slots__ = ()
    can_fail: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """Who waits while this phase is held."""
        raise NotImplementedError
