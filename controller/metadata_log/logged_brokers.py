"""The brokers of the metadata log: what was logged of each last, and the records that follow from what is in ZooKeeper now.

A broker is there by its ephemeral znode in `/brokers/ids`, or else by a registration in `/cluster/brokers` that is not OFFLINE: an Apache
Kafka broker wins (RREG-14). Source: the record table of controller 25.1.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from klamm.controller.values import Broker, BrokerRegistration, BrokerState
from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.nouns import ZERO_UUID, Endpoint
from klamm.protocol.records.metadata_records import MetadataRecord, encode_value

log = logging.getLogger("klamm.controller")

_PORTS = range(2**16)


class _Logged(NamedTuple):
    """A broker as the log has it."""

    by_request: bool
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool


class LoggedBrokers:
    """Brokers by id, from both places in ZooKeeper. Each method returns the values of the records to append."""

    def __init__(self) -> None:
        self._ephemerals: dict[int, Broker] = {}
        self._registrations: dict[int, BrokerRegistration] = {}
        self._shutting_down: set[int] = set()
        """Of those with an ephemeral znode."""
        self._logged: dict[int, _Logged] = {}

    def ephemerals_read(self, brokers: Mapping[int, Broker]) -> list[bytes]:
        """`/brokers/ids` holds these and no others."""
        changed = [b for b, broker in brokers.items() if self._ephemerals.get(b) != broker]
        gone = [b for b in self._ephemerals if b not in brokers]
        for b in gone:
            del self._ephemerals[b]
        return [*self._settle(gone), *self._ephemerals_changed(brokers[b] for b in changed)]

    def ephemeral_read(self, broker: Broker) -> list[bytes]:
        """The znode of one broker is this one."""
        return self._ephemerals_changed((broker,))

    def _ephemerals_changed(self, brokers: Iterable[Broker]) -> list[bytes]:
        changed = list(brokers)
        for broker in changed:
            before = self._ephemerals.get(broker.id)
            if before is None or before.epoch != broker.epoch:
                self._shutting_down.discard(broker.id)
            self._ephemerals[broker.id] = broker
        return self._settle([broker.id for broker in changed])

    def registrations_read(self, registrations: Mapping[int, BrokerRegistration]) -> list[bytes]:
        """`/cluster/brokers` holds these and no others."""
        gone = [b for b in self._registrations if b not in registrations]
        self._registrations = dict(registrations)
        return self._settle([*gone, *registrations])

    def registrations_written(self, registrations: Iterable[BrokerRegistration]) -> list[bytes]:
        """These were written, in this order."""
        values = []
        for registration in registrations:
            self._registrations[registration.id] = registration
            values += self._settle((registration.id,))
        return values

    def shutdown_began(self, broker_id: int) -> list[bytes]:
        """A broker with an ephemeral znode requested a controlled shutdown. Nothing follows for other brokers, and the second time."""
        if broker_id not in self._ephemerals:
            return []
        self._shutting_down.add(broker_id)
        return self._settle((broker_id,))

    def snapshot(self) -> list[bytes]:
        """All brokers as the log has them."""
        values = (_value(_register_record(b, broker)) for b, broker in self._logged.items())
        return [value for value in values if value is not None]

    def _settle(self, broker_ids: Iterable[int]) -> list[bytes]:
        """Bring the log to what is known of these brokers now."""
        values = []
        for b in broker_ids:
            before, after = self._logged.get(b), self._known(b)
            if before == after:
                continue
            encoded = [_value(record) for record in _records(b, before, after)]
            if None in encoded and before is not None:  # it is left out of the log, as a broker that cannot be read
                encoded, after = [_value(messages.UnregisterBrokerRecord(broker_id=b, broker_epoch=before.epoch))], None
            if after is None or None in encoded:
                self._logged.pop(b, None)
            else:
                self._logged[b] = after
            values += [value for value in encoded if value is not None]
        return values

    def _known(self, broker_id: int) -> _Logged | None:
        broker = self._ephemerals.get(broker_id)
        if broker is not None:
            leaving = broker_id in self._shutting_down
            return _Logged(False, broker.epoch, broker.endpoints, broker.rack, fenced=False, in_controlled_shutdown=leaving)
        found = self._registrations.get(broker_id)
        if found is None or found.state is BrokerState.OFFLINE:
            return None
        fenced, leaving = found.state is BrokerState.FENCED, found.state is BrokerState.STOPPING
        return _Logged(True, found.epoch, found.endpoints, found.rack, fenced=fenced, in_controlled_shutdown=leaving)


def _records(b: int, before: _Logged | None, after: _Logged | None) -> list[MetadataRecord]:
    """What brings a broker in the log from one to the other, which are not equal."""
    if after is None:
        assert before is not None
        return [messages.UnregisterBrokerRecord(broker_id=b, broker_epoch=before.epoch)]
    if before is not None and before[:4] == after[:4]:
        match before[4:], after[4:]:
            case (False, False), (True, False):
                return [messages.FenceBrokerRecord(id=b, epoch=after.epoch)]
            case (True, False), (False, False):
                return [messages.UnfenceBrokerRecord(id=b, epoch=after.epoch)]
            case (False, False), (False, True):
                return [messages.BrokerRegistrationChangeRecord(broker_id=b, broker_epoch=after.epoch, in_controlled_shutdown=1)]
    records: list[MetadataRecord] = [_register_record(b, after)]
    if before is not None and not before.by_request and after.by_request:  # its ephemeral znode went, and the registration counts again
        records.insert(0, messages.UnregisterBrokerRecord(broker_id=b, broker_epoch=before.epoch))
    return records


def _register_record(b: int, broker: _Logged) -> messages.RegisterBrokerRecord:
    """Ports have 16 bits there: an endpoint with another one, which Apache Kafka can store, is left out."""
    record = messages.RegisterBrokerRecord
    endpoints = [
        record.BrokerEndpoint(name=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol)
        for e in broker.endpoints
        if e.port in _PORTS
    ]
    return record(
        broker_id=b, incarnation_id=ZERO_UUID, broker_epoch=broker.epoch, end_points=endpoints, features=[], rack=broker.rack,
        fenced=broker.fenced, in_controlled_shutdown=broker.in_controlled_shutdown,
    )


def _value(record: MetadataRecord) -> bytes | None:
    """The value of a record; None, and a line in the log, where it cannot be written."""
    try:
        return encode_value(record)
    except (LocalProtocolError, ValueError, struct.error) as problem:
        log.error("a broker is left out of the metadata log: %s: %s", problem, record)
        return None
