"""A long journal of a broker that does everything right, into which faults are put, so that finding them can be counted.

Clients send heartbeats on several connections, and a controller tells the broker of ten partitions, whose leaders change all the time.
Every so often a fault is put in, of a kind drawn from the seed. A fault is one row, and everything after it is right again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey

UPDATE = messages.UpdateMetadataRequest
PARTITIONS = 10
CONNECTIONS = 8
IDS = [1, 2, 3]
TOPIC_ID = bytes(range(16))

KINDS = {
    "order": "W-01",
    "version": "W-02",
    "truncation": "W-09",
    "leader epoch": "C-01",
    "isr": "C-02",
    "controller epoch": "C-03",
}
"""Kind of fault → the rule that must find it."""

ALSO = {"leader epoch": frozenset({"C-05", "C-19"}), "version": frozenset({"W-05"}), "controller epoch": frozenset({"C-01"})}
"""Kind of fault → other rules that it breaks too, at the same row or its request."""


@dataclass
class Faulty:
    """A journal being written, and what was put in."""

    journal: Any
    seed: int
    faults: dict[str, set[int]] = field(default_factory=lambda: {kind: set() for kind in KINDS})
    """Kind → seqs that its rule must flag."""
    _leader_epochs: list[int] = field(default_factory=lambda: [5] * PARTITIONS)

    def write(self, exchanges: int, every: int) -> None:
        """So many exchanges, and a fault in place of each `every`th one."""
        draw = random.Random(self.seed)
        self._start()
        for number in range(exchanges):
            if number % every == every - 1:
                kind = draw.choice(sorted(KINDS))
                self.faults[kind].add(self._put_in(kind, draw))
            elif draw.random() < 0.3:
                self._update(draw.randrange(PARTITIONS))
            else:
                self._heartbeat(draw.randrange(CONNECTIONS))

    def _start(self) -> None:
        apis = [[int(api.key), api.min_version, api.max_version] for api in messages.APIS.values() if not api.draft]
        apis = [[key, low, 3 if key == ApiKey.HEARTBEAT else high] for key, low, high in apis]
        self.journal.event("broker_started", broker=1, output={"broker": 1, "version": "3.9.1", "ibp": "3.9", "listeners": ["PLAINTEXT"]})
        self.journal.event("advertised", input={"listener": "PLAINTEXT"}, output={"apis": apis})

    def _put_in(self, kind: str, draw: random.Random) -> int:
        conn, partition = draw.randrange(CONNECTIONS), draw.randrange(PARTITIONS)
        makers: dict[str, Callable[[], int]] = {
            "order": lambda: self._overtake(conn),
            "version": lambda: self._heartbeat(conn, version=4),
            "truncation": lambda: self._heartbeat(conn, cut=1 + draw.randrange(2)),
            "leader epoch": lambda: self._update(partition, falls=True),
            "isr": lambda: self._update(partition, out_of_isr=True),
            "controller epoch": lambda: self._update(partition, controller_epoch=6),
        }
        return makers[kind]()

    def _heartbeat(self, conn: int, *, version: int = 3, cut: int = 0) -> int:
        request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        asked = self.journal.request(conn, ApiKey.HEARTBEAT, version, request)
        body = messages.encode(messages.HeartbeatResponse(), version)
        return int(self.journal.response(conn, asked, body[: len(body) - cut]))

    def _overtake(self, conn: int) -> int:
        request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        first, second = (self.journal.request(conn, ApiKey.HEARTBEAT, 3, request) for _ in range(2))
        self.journal.response(conn, second, messages.HeartbeatResponse())
        return int(self.journal.response(conn, first, messages.HeartbeatResponse()))

    def _update(self, partition: int, *, falls: bool = False, out_of_isr: bool = False, controller_epoch: int = 7) -> int:
        """UpdateMetadata of one partition, with the next leader epoch; the request's seq."""
        epoch = self._leader_epochs[partition] + (-1 if falls else 1)
        if not falls:
            self._leader_epochs[partition] = epoch
        leader = IDS[epoch % len(IDS)]
        state = UPDATE.UpdateMetadataPartitionState(
            partition_index=partition, controller_epoch=controller_epoch, leader=leader, leader_epoch=epoch,
            isr=[each for each in IDS if not out_of_isr or each != leader], zk_version=epoch, replicas=IDS,
        )
        topic = UPDATE.UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
        endpoint = UPDATE.UpdateMetadataEndpoint(port=9092, host="h", listener="PLAINTEXT", security_protocol=0)
        brokers = [UPDATE.UpdateMetadataBroker(id=each, endpoints=[endpoint]) for each in IDS]
        request = UPDATE(controller_id=2, controller_epoch=controller_epoch, broker_epoch=1, topic_states=[topic], live_brokers=brokers)
        asked = self.journal.request(CONNECTIONS, ApiKey.UPDATE_METADATA, 8, request)
        self.journal.response(CONNECTIONS, asked, messages.UpdateMetadataResponse())
        return int(asked)
