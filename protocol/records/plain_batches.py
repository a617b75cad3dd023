"""The quick way of `validation.assign`: batches that nothing has to change but their base offset and leader epoch.

Most producers without idempotence send such batches. They are checked where they are, in the request, and the first bytes that a leader
writes itself are made; the caller joins them with the rest. A batch that is not of this kind, for whatever reason, is not judged here.
"""

from __future__ import annotations

from struct import Struct

from klamm.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, NO_PRODUCER_ID
from klamm.protocol.records.checksum import crc32c
from klamm.protocol.records.scan import BadRecord, scan
from klamm.protocol.records.validation import MUCH, AppendRules

HEAD_SIZE = 17
"""Bytes of a batch that a leader writes: base offset, length, leader epoch, magic."""
_HEADER = Struct(">qiibIhiqqqhii").unpack_from
_HEAD = Struct(">qiib").pack
_CRC_COVERS_FROM = 21


def are_plain(rules: AppendRules) -> bool:
    """Whether batches of a topic with these rules can be appended as they are."""
    return rules.compression is None and not rules.log_append_time and not rules.is_compacted


def plain_batch(
    data: bytes, view: memoryview, start: int, end: int, base_offset: int, leader_epoch: int, rules: AppendRules, now_ms: int
) -> tuple[bytes, int, int] | None:
    """The new head of the batch that is `data[start:end]`, its number of records, and its largest timestamp.

    None when it has to be judged by `assign`: it is compressed, has a producer id, or something is wrong with it. `view` is of `data`.
    """
    size = end - start
    if not HEADER_SIZE <= size <= rules.max_message_bytes or size > MUCH:
        return None
    offset, length, _, magic, crc, attributes, last_delta, base_ms, max_ms, producer_id, _, _, count = _HEADER(data, start)
    if (
        offset
        or attributes
        or magic != MAGIC
        or length != size - LOG_OVERHEAD
        or producer_id != NO_PRODUCER_ID
        or last_delta != count - 1
        or count < 1
        or crc32c(view[start + _CRC_COVERS_FROM : end]) != crc
    ):
        return None
    try:
        highest, lowest, is_consecutive, _ = scan(data, start + HEADER_SIZE, end, count)
    except BadRecord:
        return None
    if (
        not is_consecutive
        or base_ms + highest != max_ms
        or max_ms < -1
        or max_ms > now_ms + rules.timestamp_after_max_ms
        or base_ms + lowest < now_ms - rules.timestamp_before_max_ms
    ):
        return None
    return _HEAD(base_offset, length, leader_epoch, MAGIC), count, max_ms
