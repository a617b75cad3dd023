"""Replays the batches of an offsets partition into its groups: records, and the markers that end transactions."""

from __future__ import annotations

import logging

from klamm.broker.groups.groups import Groups
from klamm.broker.groups.offsets import NO_PRODUCER
from klamm.protocol.records.batch import Buffer, each_header
from klamm.protocol.records.record import ControlType, read_control, read_records

log = logging.getLogger("klamm.broker.groups")


def replay_batches(groups: Groups, data: Buffer) -> int:
    """Replay whole batches; the offset after the last one, -1 if there are none.

    Raises CorruptRecords, BadRecord and BadCompression for batches that cannot be read.
    """
    next_offset = -1
    for position, header in each_header(data):
        records = read_records(data, header, position)
        if header.is_control:
            for record in records:
                kind, _ = read_control(record)
                if kind is not ControlType.UNKNOWN:
                    groups.transaction_ended(header.producer_id, kind is ControlType.COMMIT)
        else:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            groups.load((record.key, record.value, record.offset, producer_id) for record in records)
        next_offset = header.next_offset
    return next_offset
