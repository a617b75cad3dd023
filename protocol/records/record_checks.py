"""Finds the records of a batch that a topic does not accept, and makes the error that names them.

These functions check records one by one. `validation` only calls them if the check of the whole batch shows that some records are invalid,
and for messages of magic 0 and 1.

Source: `LogValidator.validateRecord` and `processRecordErrors` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import NO_TIMESTAMP
from klamm.protocol.records.legacy import LegacyMessage
from klamm.protocol.records.record import Record, wrapped
from klamm.protocol.records.rules import AppendRules, Refused

SHOWN = 3
"""Maximum number of record errors in the text for the whole batch."""


class RecordError(NamedTuple):
    """The error of one record, and the index of the record in the batch."""

    code: ErrorCode
    batch_index: int
    message: str


def record_errors(
    records: Sequence[Record | LegacyMessage],
    is_append_time: bool,
    rules: AppendRules,
    now_ms: int,
    topic_partition: object,
    kind: str,
) -> list[RecordError]:
    """The errors of all records. `is_append_time`: whether the batch has log append time. `kind`: the class name in Kafka's text."""
    errors = []
    for index, record in enumerate(records):
        if rules.is_compacted and record.key is None:
            message = f"Compacted topic cannot accept message without key in topic partition {topic_partition}"
            errors.append(RecordError(ErrorCode.INVALID_RECORD, index, message))
        elif not rules.log_append_time and record.timestamp != NO_TIMESTAMP:
            if is_out_of_range(record.timestamp, rules, now_ms):
                low, high = wrapped(now_ms - rules.timestamp_before_max_ms), wrapped(now_ms + rules.timestamp_after_max_ms)
                message = (
                    f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
                    f"The timestamp should be within [{low}, {high}]"
                )
                errors.append(RecordError(ErrorCode.INVALID_TIMESTAMP, index, message))
        elif is_append_time:
            key, value = (-1 if part is None else len(part) for part in (record.key, record.value))
            if kind == "DefaultRecord":
                key, value = max(key, 0), max(value, 0)
            shown = f"{kind}(offset={record.offset}, timestamp={record.timestamp}, key={key} bytes, value={value} bytes)"
            message = f"Invalid timestamp type in message {shown}. Producer should not set timestamp type to LogAppendTime."
            errors.append(RecordError(ErrorCode.INVALID_TIMESTAMP, index, message))
    return errors


def are_in_range(lowest: int, highest: int, rules: AppendRules, now_ms: int) -> bool:
    """Whether no record between these timestamps can be too old or too far in the future; if not, `is_out_of_range` says it of each."""
    return lowest >= now_ms - rules.timestamp_before_max_ms and highest <= now_ms + rules.timestamp_after_max_ms


def is_out_of_range(timestamp: int, rules: AppendRules, now_ms: int) -> bool:
    """Whether a record is too old or too far in the future."""
    age = wrapped(now_ms - timestamp)
    return age > rules.timestamp_before_max_ms or wrapped(-age) > rules.timestamp_after_max_ms


def refuse_records(errors: Sequence[RecordError]) -> None:
    """Raise Refused with these errors, if there are any."""
    if not errors:
        return
    rows = [(error.batch_index, error.message) for error in errors]
    if any(error.code is ErrorCode.INVALID_TIMESTAMP for error in errors):
        text = "One or more records have been rejected due to invalid timestamp"
        raise Refused(ErrorCode.INVALID_TIMESTAMP, text, message=text, record_errors=rows, names_log_start=True)
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, message in rows[:SHOWN])
    text = (
        f"One or more records have been rejected due to {len(rows)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    raise Refused(ErrorCode.INVALID_RECORD, text, message=text, record_errors=rows, names_log_start=True)
