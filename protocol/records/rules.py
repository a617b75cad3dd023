"""The arguments, the result and the error of `validation.assign`: the rules of a topic, the records to store, and why they are refused."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import BatchHeader, Codec
from klamm.seams.value_class import dataclass

LONGEST = 2**63 - 1

class Origin(Enum):
    """Where records come from: a client (Produce), or a coordinator of this broker, whose batches need fewer checks."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class Refused(Exception):
    """The records are refused.

    `message` is the text in the response, None if Kafka does not send one; `record_errors` are (index in the batch, text) of single
    records.
    `names_log_start`: whether Apache Kafka's response contains the log start offset with this error, instead of -1.
    """

    def __init__(
        self,
        code: ErrorCode,
        reason: str,
        *,
        message: str | None = None,
        record_errors: list[tuple[int, str]] | None = None,
        names_log_start: bool = False,
    ) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.message = message
        self.record_errors: list[tuple[int, str]] = [] if record_errors is None else record_errors
        self.names_log_start = names_log_start


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The configs of a topic that say what may be appended and in which form."""

    compression: Codec | None = None
    """`compression.type`; None is `producer`: keep the codec of the producer."""
    level: int | None = None
    """`compression.<codec>.level` of that codec; None is the default of the codec."""
    max_message_bytes: int = 1048588
    log_append_time: bool = False
    timestamp_before_max_ms: int = LONGEST
    timestamp_after_max_ms: int = LONGEST
    is_compacted: bool = False
    """Whether `cleanup.policy` contains `compact`; then each record needs a key."""


class Assigned(NamedTuple):
    """Records that are ready to be stored."""

    data: bytes
    headers: list[BatchHeader]
    """Of the batches in `data`, as stored. Empty when a Produce request before version 3 had no whole batch."""
    max_timestamp: int
    offset_of_max_timestamp: int
    log_append_time_ms: int
    """-1 where records keep the time of their creation."""


NOTHING = Assigned(b"", [], -1, -1, -1)


def invalid(reason: str) -> Refused:
    """INVALID_RECORD for the whole batch, without a text in the response."""
    return Refused(ErrorCode.INVALID_RECORD, reason, names_log_start=True)


def failed(reason: str) -> Refused:
    """UNKNOWN_SERVER_ERROR, because Apache Kafka fails with an exception that has no code."""
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, reason, names_log_start=True)
