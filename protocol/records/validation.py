"""What a leader does to the records of a Produce request before they are stored: checks them, gives them offsets, epoch and timestamps.

`assign` takes the bytes of one partition and returns the bytes to store, or raises `Refused` with the error code of this partition. A batch
of magic 2 that nothing has to change is copied once, with base offset and leader epoch patched in; its CRC stays the one of the producer.

Source: `LogValidator`, `UnifiedLog.append` and `ProduceRequest.validateRecords` of Apache Kafka 3.9.1; specification of the wire protocol,
sections 6, 12 (Records) and 13.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    Buffer,
    Codec,
    CorruptRecords,
    batch_size,
    computed_crc,
    read_header,
    with_leader_fields,
    write_header,
)

LONGEST = 2**63 - 1


class Origin(Enum):
    """Who appends: a client by Produce, or a coordinator of this broker, whose batches need fewer checks."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class Refused(Exception):
    """The records are not appended.

    `message` is the text of the response, None where Kafka gives none; `record_errors` are (index in the batch, text) of single records.
    `names_log_start`: whether the response of Apache Kafka has the log start offset beside this error, and not -1.
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
    """`compression.type`; None is `producer`: as the producer has it."""
    level: int | None = None
    """`compression.gzip.level`, `.lz4.level` or `.zstd.level` of that codec; None is the codec's default."""
    max_message_bytes: int = 1048588
    log_append_time: bool = False
    timestamp_before_max_ms: int = LONGEST
    timestamp_after_max_ms: int = LONGEST
    is_compacted: bool = False
    """Whether `cleanup.policy` has `compact`: each record needs a key."""


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


def assign(
    records: Buffer,
    version: int,
    base_offset: int,
    leader_epoch: int,
    rules: AppendRules,
    now_ms: int,
    origin: Origin = Origin.CLIENT,
) -> Assigned:
    """Check the records of one partition and return them as they are stored from `base_offset` on.

    `version` is that of the Produce request. Raises Refused.
    """
    header = _only_batch(records)
    _check_header(records, header, rules, origin)
    last_offset = base_offset + header.last_offset_delta
    stored = BatchHeader(base_offset, header[1], leader_epoch, *header[3:])
    if not rules.log_append_time:
        data = with_leader_fields(records, header, base_offset, leader_epoch)
        return Assigned(data, [stored], header.max_timestamp, last_offset, -1)
    changed = bytearray(records[: header.size])
    stored = stored._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    changed[:HEADER_SIZE] = write_header(stored)
    stored = stored._replace(crc=computed_crc(changed, 0, header.size))
    changed[:HEADER_SIZE] = write_header(stored)
    return Assigned(bytes(changed), [stored], now_ms, last_offset, now_ms)


def _only_batch(records: Buffer) -> BatchHeader:
    """The header of the one batch that a Produce request from version 3 on may hold."""
    try:
        size = batch_size(records, 0)
        if size is None or size > len(records):
            raise Refused(ErrorCode.INVALID_RECORD, "Produce requests must have at least one record batch per partition")
        if records[16] != MAGIC:
            raise Refused(ErrorCode.INVALID_RECORD, "Produce requests are only allowed to contain record batches with magic version 2")
        if size < HEADER_SIZE:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes is smaller than its header")
        if size != len(records):
            following = batch_size(records, size)
            if following is not None and size + following <= len(records):
                raise Refused(ErrorCode.INVALID_RECORD, "Produce requests are only allowed to contain exactly one record batch")
    except CorruptRecords as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return read_header(records)


def _check_header(records: Buffer, header: BatchHeader, rules: AppendRules, origin: Origin) -> None:
    if origin is Origin.CLIENT and header.base_offset != 0:
        raise _invalid(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    if header.size > rules.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {header.size} bytes which exceeds the maximum configured value of {rules.max_message_bytes}.",
        )
    if computed_crc(records, 0, header.size) != header.crc:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})")
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {header.attributes & CODEC_MASK}", names_log_start=True
        )
    if origin is Origin.CLIENT:
        if header.last_offset_delta < 0 or header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
            raise _invalid(f"Inconsistent last offset delta {header.last_offset_delta} and count of records {header.record_count}")
        if header.is_control:
            raise _invalid("Clients are not allowed to write control records")
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise _invalid(f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}")
    if header.attributes & LOG_APPEND_TIME and not rules.log_append_time:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime.", names_log_start=True)


def _invalid(reason: str) -> Refused:
    return Refused(ErrorCode.INVALID_RECORD, reason, names_log_start=True)


def costs_much(records: Buffer, rules: AppendRules) -> bool:
    """Whether `assign` of these records takes so long that it should run in a thread: a recompression, or more than 256 KiB."""
    if len(records) > 256 * 1024:
        return True
    if len(records) < HEADER_SIZE:
        return False
    return rules.compression is not None and (records[22] & CODEC_MASK) != rules.compression
