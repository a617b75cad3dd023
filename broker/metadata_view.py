"""A broker's view of the metadata log: the brokers, its own registration among them (RegisterBroker, controller 25.1).

The log also has topics, partitions and configs. A broker gets these from UpdateMetadata and from ZooKeeper, like all brokers of a cluster,
so it skips their records.

A view begins empty at the start of the log of one controller epoch and applies batches in the order of their offsets. Records follow the
record table of the specification. A record that does not fit the view is an error of the log, because a log has no gaps and is complete;
then the caller drops the view with `restart`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.nouns import NO_EPOCH, Endpoint
from klamm.protocol.records.metadata_records import (
    RECORDS,
    MetadataRecord,
    decode_batches,
    decode_place,
    is_broker_record,
    prefix,
    value_places,
)


class ViewedBroker(NamedTuple):
    """A broker that is not OFFLINE. `epoch` is the epoch of its registration, or the czxid of its ephemeral znode."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool


class MetadataView:
    """The brokers after all records before `next_offset`. Only `apply` and `restart` change it."""

    def __init__(self) -> None:
        self.controller_epoch = NO_EPOCH
        """Controller epoch of the viewed log, -1 if there is none yet."""
        self.next_offset = 0
        """Offset of the next record to apply, from which to fetch."""
        self.brokers: dict[int, ViewedBroker] = {}

    def restart(self, controller_epoch: int, offset: int) -> None:
        """Empty the view. The next record is at `offset`, the start of the log of this controller epoch."""
        self.controller_epoch, self.next_offset = controller_epoch, offset
        self.brokers = {}

    def apply(self, batches: bytes, controller_epoch: int, on_broker: Callable[[MetadataRecord], None] | None = None) -> None:
        """Apply whole batches of the log of this controller epoch. `on_broker` gets each record about a broker after it was applied.

        Records before `next_offset` are skipped. A view without a log becomes a view of this log. Raises RemoteProtocolError for invalid
        batches, another controller epoch, a gap, or a record that does not fit; the records before it have been applied then.
        """
        if self.controller_epoch == NO_EPOCH:
            self.controller_epoch = controller_epoch
        for header, position in decode_batches(batches):
            if not header.leader_epoch == self.controller_epoch == controller_epoch:
                raise RemoteProtocolError(
                    f"controller epoch {header.leader_epoch} in a batch, {controller_epoch} of the log, {self.controller_epoch} of the view"
                )
            if header.base_offset > self.next_offset:
                raise RemoteProtocolError(f"offset {self.next_offset} is missing: the next batch begins at {header.base_offset}")
            for offset, (start, end) in enumerate(value_places(batches, header, position), header.base_offset):
                if offset < self.next_offset:
                    continue
                try:
                    record = self._apply(batches, start, end)
                except KeyError as problem:
                    raise RemoteProtocolError(f"the record at offset {offset} does not fit the records before it: {problem}") from None
                self.next_offset = offset + 1
                if record is not None and on_broker is not None and is_broker_record(record):
                    on_broker(record)

    def _apply(self, data: bytes, start: int, end: int) -> MetadataRecord | None:
        """Apply one record, and return it if it is about a broker. Raises KeyError for one that does not fit."""
        if data[start : start + 3] in _OTHERS:
            return None
        record = decode_place(data, start, end)
        change = _APPLY.get(type(record).__name__)
        if change is None:
            return None
        change(self, record)
        return record

    def _register(self, record: messages.RegisterBrokerRecord) -> None:
        endpoints = tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points)
        self.brokers[record.broker_id] = ViewedBroker(
            record.broker_id, record.broker_epoch, endpoints, record.rack, record.fenced, record.in_controlled_shutdown
        )

    def _unregister(self, record: messages.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _fence(self, record: messages.FenceBrokerRecord) -> None:
        self.brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=True)

    def _unfence(self, record: messages.UnfenceBrokerRecord) -> None:
        self.brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=False)

    def _change_registration(self, record: messages.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        self.brokers[record.broker_id] = broker

    def _broker(self, broker_id: int, epoch: int) -> ViewedBroker:
        broker = self.brokers[broker_id]
        if broker.epoch != epoch:
            raise KeyError(broker_id)
        return broker


_APPLY: dict[str, Callable[..., None]] = {
    "RegisterBrokerRecord": MetadataView._register,
    "UnregisterBrokerRecord": MetadataView._unregister,
    "FenceBrokerRecord": MetadataView._fence,
    "UnfenceBrokerRecord": MetadataView._unfence,
    "BrokerRegistrationChangeRecord": MetadataView._change_registration,
}
_OTHERS = frozenset(prefix(name) for name in RECORDS.keys() - _APPLY.keys())
"""The first bytes of records that are not about brokers. Most records are of this kind; they are not decoded."""
