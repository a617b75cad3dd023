"""Replays the batches of a partition of the transaction topic."""

from __future__ import annotations

from klamm.broker.transactions.transactions import Transactions
from klamm.protocol.records.batch import Buffer, each_header
from klamm.protocol.records.record import read_records


def replay_batches(transactions: Transactions, data: Buffer) -> int:
    """Replay whole batches; the offset after the last one, -1 if there are none.

    Raises CorruptRecords, BadRecord and BadCompression for batches that cannot be read.
    """
    next_offset = -1
    for position, header in each_header(data):
        if not header.is_control:
            transactions.load((record.key, record.value, record.offset) for record in read_records(data, header, position))
        next_offset = header.next_offset
    return next_offset
