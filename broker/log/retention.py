"""Retention: deletes segments before the log start offset, segments that are too old, and segments beyond the size limit of the log.

Only segments below the high watermark are deleted, the oldest first, up to the first one that must stay. If all segments can be deleted, a
new active segment is rolled first. Source: `UnifiedLog.deleteOldSegments` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.broker.log.log import Log
from klamm.broker.log.segment import Segment

log_ = logging.getLogger(__name__)


def delete_old_segments(log: Log, now_ms: int) -> int:
    """Delete the segments that retention allows to delete; returns their number."""
    count = _delete(log, _ends_before(log), now_ms)
    config = log.config
    if not config.delete:
        return count
    if config.retention_bytes >= 0:
        count += _delete(log, _beyond(log.size_bytes - config.retention_bytes), now_ms)
    if config.retention_ms >= 0:
        count += _delete(log, _older_than(now_ms - config.retention_ms), now_ms)
    if count:
        log_.debug("%r: retention deleted %d segments", log, count)
    return count


def _delete(log: Log, may_go: Callable[[Segment, int], bool], now_ms: int) -> int:
    """Delete segments, the oldest first, while `may_go(segment, offset after it)` is true; returns their number."""
    segments = log.segments
    count = 0
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        end = log.log_end_offset if is_last else segments[index + 1].base_offset
        if (is_last and segment.size == 0) or log.high_watermark < end or log.next_offset < end or not may_go(segment, end):
            break
        count += 1
    if count == 0:
        return 0
    if count == len(segments):
        if log.log_end_offset < log.next_offset:  # not all of it is written
            count -= 1
        elif log.storage is not None:
            log.roll(now_ms)
    if count:
        log.delete_segments(count)
    return count


def _ends_before(log: Log) -> Callable[[Segment, int], bool]:
    start = log.log_start_offset
    last = log.segments[-1] if log.segments else None
    return lambda segment, end: segment is not last and end <= start


def _beyond(surplus: int) -> Callable[[Segment, int], bool]:
    left = surplus

    def may_go(segment: Segment, end: int) -> bool:
        nonlocal left
        if left - segment.size < 0:
            return False
        left -= segment.size
        return True

    return may_go


def _older_than(moment_ms: int) -> Callable[[Segment, int], bool]:
    return lambda segment, end: segment.largest_timestamp < moment_ms
