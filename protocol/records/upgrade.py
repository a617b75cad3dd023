"""Converts messages of magic 0 and 1 to one batch of magic 2 when a leader appends them.

Several uncompressed messages, or one wrapper, become one batch. It has the compression of the messages, or that of the topic.

Source: `LogValidator.convertAndAssignOffsetsNonCompressed` and `validateMessagesAndAssignOffsetsCompressed` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import MAGIC, NO_TIMESTAMP, Codec, CorruptRecords, read_header
from klamm.protocol.records.batch_checks import check_size
from klamm.protocol.records.legacy import LegacyMessage, inner_messages, read_message
from klamm.protocol.records.record import Record, encode_batch
from klamm.protocol.records.record_checks import RecordError, record_errors, refuse_records
from klamm.protocol.records.rules import AppendRules, Assigned, failed, invalid


def upgrade(
    data: bytes,
    batches: Sequence[tuple[int, int, int]],
    base_offset: int,
    leader_epoch: int,
    rules: AppendRules,
    now_ms: int,
    topic_partition: object,
) -> Assigned:
    """Make the batch to store. `batches` are (start, end, magic) of the checked messages in `data`; the first has magic 0 or 1.

    Raises Refused, and the exceptions of `legacy.inner_messages`.
    """
    magic = batches[0][2]
    messages = [read_message(data, start, end) for start, end, each in batches if each < MAGIC]
    numbers = [message.codec_number for message in messages if message.codec_number]
    codec = Codec(numbers[-1]) if numbers else Codec.NONE
    if len(batches) > 1 and codec is not Codec.NONE:
        raise invalid("Compressed outer record has more than one batch")
    target = codec if rules.compression is None else rules.compression
    in_turn = codec is target is Codec.NONE
    accepted: list[LegacyMessage] = []
    for message in messages:
        if message.magic != magic:
            break
        inner = inner_messages(message) if message.codec_number else [message]
        refuse_records(_errors(message, inner, rules, now_ms, topic_partition))
        accepted += inner
        if in_turn:
            _refuse_times(inner)  # each message is converted before the next one is checked
    if any(each != magic for _, _, each in batches):
        raise invalid(f"a batch is of another magic than the first one's {magic}")
    _refuse_times(accepted)
    made = encode_batch(
        [Record(base_offset + index, each.timestamp, each.key, each.value) for index, each in enumerate(accepted)],
        codec=target,
        level=rules.level,
        leader_epoch=leader_epoch,
        append_time_ms=now_ms if rules.log_append_time else None,
    )
    check_size(len(made), rules)
    header = read_header(made)
    return Assigned(made, [header], header.max_timestamp, header.last_offset, now_ms if rules.log_append_time else -1)


def _refuse_times(messages: Sequence[LegacyMessage]) -> None:
    if any(message.timestamp < NO_TIMESTAMP for message in messages):
        raise failed("Invalid negative timestamp")


def _errors(
    outer: LegacyMessage, inner: Sequence[LegacyMessage], rules: AppendRules, now_ms: int, topic_partition: object
) -> Sequence[RecordError]:
    """The errors of the records of one message. Raises CorruptRecords for a wrong CRC inside a wrapper."""
    errors = record_errors(inner, outer.is_log_append_time, rules, now_ms, topic_partition, "LegacyRecordBatch")
    if outer.codec_number:
        strange = [index for index, message in enumerate(inner) if message.magic != outer.magic]
        if not all(message.crc_is_right for message in inner if message.magic == outer.magic):
            raise CorruptRecords(f"Record is corrupt in topic partition {topic_partition}")
        if strange:
            text = f"A record's magic does not match outer magic {outer.magic} in topic partition {topic_partition}"
            errors = [error for error in errors if error.batch_index not in strange]
            errors += [RecordError(ErrorCode.INVALID_RECORD, index, text) for index in strange]
    return errors
