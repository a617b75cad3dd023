"""New offsets of a reset: what is requested, and which offset each partition gets (as kafka-consumer-groups --reset-offsets). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from klamm.admin import CommittedOffset, LogOffset, OffsetSpec
from klamm.protocol.nouns import TopicPartition

_DURATION = re.compile(r"(-)?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3})\d*)?S)?)?")


class Target(NamedTuple):
    """Where the offsets are moved to: the name of the option, and its number (an offset, a number of records, or a time in ms)."""

    option: str
    number: int = 0


def time_ms(text: str) -> int:
    """The time of an ISO date and time in ms; UTC if it has no zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str) -> int:
    """The length of an ISO duration such as P1DT2H3M4.5S in ms. Raises ValueError."""
    parts = _DURATION.fullmatch(text)
    if parts is None or not any(parts.groups()[1:]) or text.endswith("T"):
        raise ValueError(f"{text!r} is not a duration like P7D or PT1H30M")
    sign, days, hours, minutes, seconds, fraction = parts.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    return (-1 if sign else 1) * (whole * 1000 + int((fraction or "").ljust(3, "0") or 0))


class Logs(NamedTuple):
    """What is known of the partitions: their first offset, the offset after the last one, and the first one of a time."""

    starts: Mapping[TopicPartition, LogOffset]
    ends: Mapping[TopicPartition, LogOffset]
    at_time: Mapping[TopicPartition, LogOffset]


def new_offsets(
    target: Target, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset | None], logs: Logs
) -> dict[TopicPartition, int]:
    """The new offset of each partition, from the start of its log to its end. Raises ValueError if a partition has no offset to shift."""
    offsets: dict[TopicPartition, int] = {}
    for partition in partitions:
        start, end, current = logs.starts[partition].offset, logs.ends[partition].offset, committed.get(partition)
        match target.option:
            case "to-earliest":
                wanted = start
            case "to-latest":
                wanted = end
            case "to-offset":
                wanted = target.number
            case "to-current":
                wanted = end if current is None else current.offset
            case "shift-by":
                if current is None:
                    raise ValueError(f"Cannot shift offset for partition {partition} since there is no current committed offset")
                wanted = current.offset + target.number
            case _:
                found = logs.at_time[partition].offset
                wanted = end if found < 0 else found
        offsets[partition] = min(max(wanted, start), end)
    return offsets


def specs(target: Target, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetSpec | int]:
    """The times whose offsets have to be looked up; none for targets that are not times."""
    is_time = target.option in ("to-datetime", "by-duration")
    return dict.fromkeys(partitions, max(0, target.number)) if is_time else {}
