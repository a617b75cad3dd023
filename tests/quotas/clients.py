"""Clients with a client id of their own, and quotas that are in force when the function that sets them returns."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from typing import Any

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.kafka import OwnedBroker, request, wait_for
from klamm.tests.stories.both import answers

WINDOW_S = 10
"""Ten of the eleven samples: what a rate is measured over at its beginning."""
_numbers = itertools.count(1)
API_VERSIONS = messages.ApiVersionsRequest(client_software_name="test", client_software_version="1")


def throttle_of(size: int, bound: int) -> int:
    """The throttle time in ms of a client that has recorded this size alone."""
    return round(size * 1000 / bound) - WINDOW_S * 1000


def unique(name: str) -> str:
    """A name that no other test uses."""
    return f"{name}-{next(_numbers)}"


class QuotaClient:
    """One connection. Responses come in the order of the requests; `sent` and `received` are sizes in bytes, without the length."""

    def __init__(self, broker: OwnedBroker, client_id: str, address: str = "127.0.0.1", port: int | None = None) -> None:
        """`port` is that of the first listener unless given."""
        self.client_id = client_id
        self.sent = self.received = 0
        self._socket = socket.create_connection(("127.0.0.1", port or broker.port), timeout=60, source_address=(address, 0))
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> QuotaClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, message: Any, version: int) -> None:
        name = type(message).__name__.removesuffix("Request")
        frame = messages.encode_request(KEYS[name], version, 1, self.client_id, messages.encode(message, version))
        self.sent = len(frame) - 4
        self._socket.sendall(frame)

    def receive(self, name: str, version: int) -> Any:
        """The next response. Raises ConnectionError if the connection is closed instead."""
        head = self._stream.read(4)
        if len(head) < 4:
            raise ConnectionResetError("closed by the broker")
        payload = self._stream.read(struct.unpack(">i", head)[0])
        self.received = len(payload)
        _, offset = messages.decode_response_header(KEYS[name], version, payload)
        return messages.decode(f"{name}Response", version, payload, offset)[0]

    def ask(self, message: Any, version: int) -> Any:
        self.send(message, version)
        return self.receive(type(message).__name__.removesuffix("Request"), version)

    def throttle_ms(self) -> int:
        """The throttle time in a response to ApiVersions."""
        throttled: int = self.ask(API_VERSIONS, 3).throttle_time_ms
        return throttled

    def seconds_until_served(self) -> float:
        """How long a request waits for its response."""
        begun = time.monotonic()
        self.ask(API_VERSIONS, 3)
        return time.monotonic() - begun


def set_quotas(
    broker: OwnedBroker, entity: dict[str, str | None], seen_by: OwnedBroker | None = None, **quotas: float | None
) -> None:
    """Set quotas of an entity, None removes one; returns when the broker, or another one that is to see it, has applied them."""
    alter(broker, entity, quotas)
    marker = unique("marker")
    alter(broker, {"client-id": marker}, {"request_percentage": 0})

    def applied() -> bool:
        with QuotaClient(seen_by or broker, marker) as client:
            return client.throttle_ms() > 0

    wait_for(applied, "the broker applies the quotas")  # it reads changes in their order
    alter(broker, {"client-id": marker}, {"request_percentage": None})


def alter(broker: OwnedBroker, entity: dict[str, str | None], quotas: dict[str, float | None]) -> None:
    names = [{"entityType": type_, "entityName": name} for type_, name in entity.items()]
    ops = [{"key": key, "value": value or 0, "remove": value is None} for key, value in quotas.items()]
    value = {"entries": [{"entity": names, "ops": ops}]}
    (entry,) = request(broker.port, answers.request("AlterClientQuotas", 1, value), 1).entries
    assert entry.error_code == 0, entry.error_message


def create(broker: OwnedBroker, topic: str) -> None:
    """A topic with one partition that has a leader."""
    (row,) = request(broker.port, requests.create_topic(topic, [[0]]), 7).topics
    assert row.error_code == 0, row.error_message


def produce(topic: str, size: int, *, acks: int = 1) -> messages.ProduceRequest:
    kind = messages.ProduceRequest
    partition = kind.PartitionProduceData(index=0, records=record_batch(b"v" * size, 1))
    data = [kind.TopicProduceData(name=topic, partition_data=[partition])]
    return kind(transactional_id=None, acks=acks, timeout_ms=5000, topic_data=data)


def fetch(topic: str, offset: int = 0, *, session_id: int = 0, epoch: int = -1, partitions: bool = True) -> messages.FetchRequest:
    kind = messages.FetchRequest
    row = kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [kind.FetchTopic(topic=topic, partitions=[row])] if partitions else []
    return kind(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=topics, rack_id=""
    )
