"""What a leader does to the records of a Produce request before they are stored: checks them, gives them offsets, epoch and timestamps.

`assign` takes the bytes of one partition and returns the bytes to store, or raises `Refused` with the error code of this partition. A
batch of magic 2 that nothing has to change is copied once, with base offset and leader epoch patched in, and keeps the producer's CRC.
Its records are checked in place (`scan`), compressed ones after they were decompressed, which is what Apache Kafka does too. Where a
check fails, the records are read one by one to say which of them are at fault (`record_checks`). Recompression compresses the records as
they are under a new header; messages of magic 0 and 1 become one batch of magic 2 (`upgrade`).

Source: `LogValidator`, `UnifiedLog.append` and `ProduceRequest.validateRecords` of Apache Kafka 3.9.1; specification of the wire
protocol, sections 6, 12 (Records) and 13.
"""

from __future__ import annotations

from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_COVERS_FROM,
    DELETE_HORIZON,
    HEADER_SIZE,
    LEADER_FIELDS_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PRODUCER_ID_END,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    Codec,
    CorruptRecords,
    computed_crc,
    pack_leader_fields,
    read_header,
    size_in_request,
    unpack_header,
    with_leader_fields,
)
from klamm.protocol.records.batch_checks import check_codec, check_size, checked_batches
from klamm.protocol.records.checksum import crc32c
from klamm.protocol.records.compression import BadCompression, TooLarge, bound, compress, decompress
from klamm.protocol.records.legacy import BadMessage, each_batch
from klamm.protocol.records.record import encode_record, read_records, seal
from klamm.protocol.records.record_checks import are_in_range, record_errors, refuse_records
from klamm.protocol.records.rules import LONGEST, NOTHING, AppendRules, Assigned, Origin, Refused, failed, invalid
from klamm.protocol.records.scan import BadRecord, Scan, scan, scan_fields
from klamm.protocol.records.upgrade import upgrade

__all__ = ("NOTHING", "AppendRules", "Assigned", "Origin", "Refused", "assign", "assign_as_is", "costs_much")

MUCH = 256 * 1024
"""Bytes whose check takes so long that it should not stop an event loop."""

MUCH_OLD, MUCH_OLD_COMPRESSED = 16 * 1024, 1024
"""The same for messages of magic 0 and 1, which are rewritten one by one."""

SMALL = 4096
"""Bytes of a batch that are copied rather than viewed."""

new_tuple = tuple.__new__
"""Makes a NamedTuple in half the time of its own constructor."""

_KEPT_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL | CONTROL | DELETE_HORIZON


def assign(
    records: Buffer,
    version: int,
    base_offset: int,
    leader_epoch: int,
    rules: AppendRules,
    now_ms: int,
    origin: Origin = Origin.CLIENT,
    topic_partition: object = "the partition",
) -> Assigned:
    """Check the records of one partition and return them as they are stored from `base_offset` on.

    `version` is that of the Produce request. `topic_partition` is for texts. Raises Refused.
    """
    data = records if records.__class__ is bytes else bytes(records)
    if version >= 3:
        assigned = assign_as_is(data, base_offset, leader_epoch, rules, now_ms)
        if assigned is not None:
            return assigned
    try:
        if version < 3 and origin is Origin.CLIENT:
            batches = checked_batches(data, each_batch(data), rules)
            if not batches:
                return NOTHING
            if batches[0][2] < MAGIC:
                return upgrade(data, batches, base_offset, leader_epoch, rules, now_ms, topic_partition)
            if len(batches) > 1:
                raise invalid("Compressed outer record has more than one batch")
            header = read_header(data)
        else:
            header = _only_batch(data, version)
            if header.size > rules.max_message_bytes or header.base_offset or computed_crc(data, 0, header.size) != header.crc:
                checked_batches(data, [(0, header.size, MAGIC)], rules, origin)
        return _assign(data, header, base_offset, leader_epoch, rules, now_ms, origin, topic_partition)
    except CorruptRecords as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except BadRecord as error:
        raise invalid(str(error)) from None
    except (BadCompression, BadMessage) as error:
        raise failed(str(error)) from None
    except TooLarge as error:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"records that decompress to {error}") from None


def assign_as_is(data: bytes, base_offset: int, leader_epoch: int, rules: AppendRules, now_ms: int) -> Assigned | None:
    """The frequent case in as few steps as there are: one good batch without compression that is stored as it is. None for all others.

    Nothing is refused here: where a check fails, the steps of Apache Kafka follow, in its order.
    """
    size = len(data)
    if size < HEADER_SIZE or size > rules.max_message_bytes or rules.compression or rules.log_append_time:
        return None
    fields = unpack_header(data)
    base, length, _, magic, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id, _, sequence, count = fields
    if (
        magic != MAGIC
        or length != size - LOG_OVERHEAD
        or base
        or attributes & ~TRANSACTIONAL
        or count != last_delta + 1
        or count <= 0
        or (producer_id >= 0 and sequence < 0)
    ):
        return None
    view = data if size < SMALL else memoryview(data)  # a small copy is cheaper than a view
    if crc32c(view[CRC_COVERS_FROM:]) != crc:
        return None
    try:
        highest, lowest, _, all_have_keys = scan_fields(data, HEADER_SIZE, size, count, True)
    except BadRecord:
        return None
    if base_timestamp + highest != max_timestamp or (rules.is_compacted and not all_have_keys):
        return None
    lowest += base_timestamp
    if max_timestamp < NO_TIMESTAMP or lowest < -LONGEST or not are_in_range(lowest, max_timestamp, rules, now_ms):
        return None
    stored = b"".join((pack_leader_fields(base_offset, length, leader_epoch), view[LEADER_FIELDS_SIZE:]))
    header = new_tuple(BatchHeader, (base_offset, length, leader_epoch, *fields[3:]))
    return new_tuple(Assigned, (stored, [header], max_timestamp, base_offset + last_delta, -1))


def version_error(records: Buffer, version: int) -> ErrorCode | None:
    """What this version of Produce does not allow in these records; None if nothing. It comes before all other checks of a partition."""
    if version < 3:
        return None
    try:
        _check_version(records, version)
    except CorruptRecords:
        return ErrorCode.CORRUPT_MESSAGE
    except (ApiError, Refused) as refusal:
        return refusal.code
    return None


def refuses_request(records: Buffer, version: int) -> ApiError | None:
    """The error that refuses a whole request of this version with these records of one of its partitions; None if there is none.

    Ahead of all appends Apache Kafka reads the producer ids of batches of magic 2; before version 3 the heads of all batches, and before
    version 7 the codec of the first.
    """
    if version >= 7 and (len(records) < 12 or records[11] >= PRODUCER_ID_END or any(records[8:11])):
        return None  # at once for nearly all requests: the batch is long enough
    try:
        if version < 3:
            position = 0
            while (size := size_in_request(records, position)) is not None and position + size <= len(records):
                if records[position + 16] == MAGIC and size < PRODUCER_ID_END:
                    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
                position += size
            return None
        size = size_in_request(records)
        if size is None or size > len(records) or records[16] != MAGIC:
            return None
        codec = records[22] & CODEC_MASK
        if version < 7 and codec > Codec.ZSTD:
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {codec}")
        if size < PRODUCER_ID_END and version_error(records, version) is None:
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    except CorruptRecords as error:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))
    except ApiError as error:
        return error
    return None


def _check_version(data: Buffer, version: int) -> int:
    """The size of the one batch that a Produce request from version 3 on may hold. Raises Refused, ApiError, and CorruptRecords."""
    size = size_in_request(data)
    if size is None or size > len(data):
        raise Refused(
            ErrorCode.INVALID_RECORD, f"Produce requests with version {version} must have at least one record batch per partition"
        )
    if data[16] != MAGIC:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are only allowed to contain record batches with magic version 2",
        )
    if version < 7 and data[22] & CODEC_MASK > Codec.ZSTD:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {data[22] & CODEC_MASK}")
    if version < 7 and data[22] & CODEC_MASK == Codec.ZSTD:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    if size != len(data):
        following = size_in_request(data, size)
        if following is not None and size + following <= len(data):
            raise Refused(
                ErrorCode.INVALID_RECORD,
                f"Produce requests with version {version} are only allowed to contain exactly one record batch",
            )
    return size


def _only_batch(data: bytes, version: int) -> BatchHeader:
    """The header of the one batch that a Produce request from version 3 on may hold."""
    size = _check_version(data, version)
    if size < HEADER_SIZE:
        raise CorruptRecords(f"Record batch is corrupt (the size {size} is smaller than the minimum allowed overhead {HEADER_SIZE})")
    return read_header(data)


def _assign(
    data: bytes,
    header: BatchHeader,
    base_offset: int,
    leader_epoch: int,
    rules: AppendRules,
    now_ms: int,
    origin: Origin,
    topic_partition: object,
) -> Assigned:
    """One batch of magic 2 whose CRC is right."""
    attributes = header.attributes
    number = attributes & CODEC_MASK
    check_codec(number)
    codec = Codec(number)
    target = codec if rules.compression is None or (attributes & CONTROL and not codec) else rules.compression
    if origin is Origin.CLIENT:
        _check_header(header)
    end = header.size
    count = header.record_count
    if codec is Codec.NONE:
        body = None
        scanned = scan(data, HEADER_SIZE, end, count)
    else:
        body = decompress(codec, data[HEADER_SIZE:end])
        scanned = scan(body, 0, len(body), count, sized=target is not codec)
    lowest, max_timestamp = _check_records(data, header, scanned, rules, now_ms, topic_partition, target is codec)
    if body is not None and target is codec and not scanned.is_consecutive:
        raise failed("key is skipped in PartialDefaultRecord")

    append_time = LOG_APPEND_TIME if rules.log_append_time else 0
    if append_time:
        max_timestamp = now_ms
    last_offset = base_offset + header.last_offset_delta
    log_append_time_ms = now_ms if append_time else -1
    if target is not codec:
        if body is None:
            body = data[HEADER_SIZE:end]
        _check_producer(header)
        if lowest < NO_TIMESTAMP:
            raise failed(f"Invalid negative timestamp {lowest}")
        made = _recompressed(header, body, scanned, target, base_offset, leader_epoch, rules, max_timestamp)
        stored = read_header(made)
        return Assigned(made, [stored], max_timestamp, stored.last_offset, log_append_time_ms)
    if attributes & LOG_APPEND_TIME == append_time and header.max_timestamp == max_timestamp:
        stored = BatchHeader(base_offset, header[1], leader_epoch, *header[3:])
        return Assigned(
            with_leader_fields(data, header, base_offset, leader_epoch), [stored], max_timestamp, last_offset, log_append_time_ms
        )
    stored = header._replace(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes & _KEPT_ATTRIBUTES | append_time,
        max_timestamp=max_timestamp,
    )
    changed = seal(stored, data[HEADER_SIZE:end])
    return Assigned(changed, [read_header(changed)], max_timestamp, last_offset, log_append_time_ms)


def _check_header(header: BatchHeader) -> None:
    """What the header of a client's batch must say."""
    if header.last_offset_delta < 0:
        raise invalid(f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}]")
    if header.record_count <= 0:
        raise invalid(f"Invalid reported count for record batch: {header.record_count}")
    if header.last_offset_delta + 1 != header.record_count:
        raise invalid(f"Inconsistent batch offset range up to {header.last_offset} and count of records {header.record_count}")
    if header.attributes & CONTROL:
        raise invalid("Clients are not allowed to write control records")
    if header.producer_id > -1 and header.base_sequence < 0:
        raise invalid(f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}")


def _check_records(
    data: bytes, header: BatchHeader, scanned: Scan, rules: AppendRules, now_ms: int, topic_partition: object, in_place: bool
) -> tuple[int, int]:
    """The lowest timestamp, and the highest one or -1. Raises Refused for records without key, or with a time that the topic refuses."""
    if header.attributes & LOG_APPEND_TIME:
        lowest = highest = header.max_timestamp
        suspect = rules.log_append_time or highest == -1
    else:
        lowest, highest = header.base_timestamp + scanned.min_delta, header.base_timestamp + scanned.max_delta
        suspect = highest > LONGEST or lowest < -LONGEST - 1
    if rules.is_compacted and not scanned.all_have_keys:
        suspect = True
    elif not rules.log_append_time:
        suspect = suspect or not are_in_range(lowest, highest, rules, now_ms)
    if not suspect:
        return lowest, max(highest, NO_TIMESTAMP)
    is_partial = in_place and bool(header.attributes & CODEC_MASK)
    records = read_records(data, header, sized=not is_partial)
    kind = "PartialDefaultRecord" if is_partial else "DefaultRecord"
    refuse_records(record_errors(records, header.is_log_append_time, rules, now_ms, topic_partition, kind))
    timestamps = [record.timestamp for record in records]
    return min(timestamps), max(NO_TIMESTAMP, *timestamps)


def _check_producer(header: BatchHeader) -> None:
    """What Apache Kafka wants of the producer when it rewrites a batch."""
    if header.producer_id == NO_PRODUCER_ID:
        if header.is_transactional:
            raise failed("Cannot write transactional messages without a valid producer ID")
    elif header.producer_epoch == -1:
        raise failed("Invalid negative producer epoch")
    elif header.base_sequence < 0:
        raise failed("Invalid negative sequence number used")


def _recompressed(
    header: BatchHeader,
    body: bytes,
    scanned: Scan,
    target: Codec,
    base_offset: int,
    leader_epoch: int,
    rules: AppendRules,
    max_timestamp: int,
) -> bytes:
    """The same records under a new header, compressed as the topic has it."""
    new = header._replace(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=target | header.attributes & TRANSACTIONAL | (LOG_APPEND_TIME if rules.log_append_time else 0),
        last_offset_delta=header.record_count - 1,
        max_timestamp=max_timestamp,
    )
    if not scanned.is_consecutive or header.is_log_append_time:
        plain = seal(header._replace(attributes=header.attributes & ~CODEC_MASK), body)
        records = [record._replace(offset=index) for index, record in enumerate(read_records(plain, read_header(plain)))]
        new = new._replace(base_timestamp=records[0].timestamp)
        body = b"".join([encode_record(record, 0, records[0].timestamp) for record in records])
    made = seal(new, compress(target, body, rules.level))
    check_size(len(made), rules)
    return made


def costs_much(records: Buffer, rules: AppendRules) -> bool:
    """Whether `assign` of these records should run in a thread: a recompression, many bytes, or few that decompress to many."""
    size = len(records)
    if size > MUCH:
        return True
    if size < HEADER_SIZE:
        return False
    if records[16] != MAGIC:
        return size > (MUCH_OLD_COMPRESSED if records[17] & CODEC_MASK else MUCH_OLD)
    number = records[22] & CODEC_MASK
    if rules.compression is not None and number != rules.compression:
        return True
    return 0 < number <= Codec.ZSTD and bound(Codec(number), bytes(records[HEADER_SIZE:])) > MUCH
