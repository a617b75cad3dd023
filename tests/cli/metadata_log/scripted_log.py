"""A metadata log of a scripted controller, which treats fetches of observers as the table of the specification says (controller 25.1)."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.primitives import write_uvarint
from klamm.protocol.records.batch import read_header
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.admin.scripted import ScriptedMember

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "metadata_records.jsonl.gz"
IN_THE_LOG = {
    "RegisterBrokerRecord": 1, "UnregisterBrokerRecord": 0, "FenceBrokerRecord": 0, "UnfenceBrokerRecord": 0, "TopicRecord": 0,
    "BrokerRegistrationChangeRecord": 1, "RemoveTopicRecord": 0, "PartitionRecord": 0, "PartitionChangeRecord": 0, "ConfigRecord": 0,
}
"""Types of the log's records, each with the version that is written."""


def golden_rows() -> list[dict[str, Any]]:
    """Records that Kafka's serializer wrote: name, version, JSON and bytes."""
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row for row in rows if "error" not in row and "json" in row and IN_THE_LOG.get(row["name"]) == row["version"]]


def value_of(row: dict[str, Any]) -> bytes:
    """The value of a record: frame version, type, version, body."""
    body = bytes.fromhex(row.get("hex_without") or row["hex"])
    return b"".join((write_uvarint(1), write_uvarint(row["key"]), write_uvarint(row["version"]), body))


def fence(broker_id: int) -> bytes:
    """The value of a FenceBrokerRecord (type 7, version 0) of a broker of epoch 1."""
    return b"\x01\x07\x00" + messages.encode(messages.FenceBrokerRecord(id=broker_id, epoch=1), 0)


class ScriptedLog:
    """The log; `append` may be called while a test runs."""

    def __init__(self, broker: ScriptedMember, controller_epoch: int = 5) -> None:
        self.controller_epoch = controller_epoch
        self.start = 0
        self.batches: list[bytes] = []
        self.fetches: list[Any] = []
        self.batches_per_fetch = 1000
        self._closed = False
        self._changed = threading.Condition()
        broker.versions = {**broker.versions, int(ApiKey.METADATA_FETCH): (0, 0)}
        broker.on(ApiKey.METADATA_FETCH, self._reply)

    @property
    def high_watermark(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.start

    def append(self, *values: bytes, timestamp: int = -1) -> None:
        """One batch."""
        with self._changed:
            first = self.high_watermark
            records = [Record(first + n, timestamp, None, value) for n, value in enumerate(values)]
            self.batches.append(encode_batch(records, leader_epoch=self.controller_epoch))
            self._changed.notify_all()

    def drop(self, offset: int) -> None:
        """The log starts at this offset, which begins a batch."""
        with self._changed:
            self.batches = [batch for batch in self.batches if read_header(batch).base_offset >= offset]
            self.start = offset
            self._changed.notify_all()

    def next_controller(self, *values: bytes) -> None:
        """The log of the next controller epoch."""
        with self._changed:
            self.controller_epoch += 1
            self.start, self.batches = 0, []
            self._changed.notify_all()
        self.append(*values)

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def fetched(self, offset: int) -> bool:
        """Whether somebody waits for this offset of the present log."""
        return any(fetch.fetch_offset == offset and fetch.controller_epoch == self.controller_epoch for fetch in self.fetches)

    def _reply(self, body: Any, _version: int) -> Any:
        self.fetches.append(body)
        with self._changed:
            epoch = self.controller_epoch
            if body.fetch_offset == self.high_watermark and body.controller_epoch == epoch and body.max_wait_ms > 0:
                self._changed.wait_for(
                    lambda: self._closed or (epoch, body.fetch_offset) != (self.controller_epoch, self.high_watermark),
                    body.max_wait_ms / 1000,
                )
            error, records = ErrorCode.NONE, None
            if (body.broker_id, body.broker_epoch) != (-1, -1):
                error = ErrorCode.BROKER_ID_NOT_REGISTERED
            elif body.controller_epoch > self.controller_epoch:
                error = ErrorCode.NOT_CONTROLLER
            elif 0 <= body.controller_epoch < self.controller_epoch:
                error = ErrorCode.FENCED_LEADER_EPOCH
            elif not self.start <= body.fetch_offset <= self.high_watermark:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                wanted = [batch for batch in self.batches if read_header(batch).next_offset > body.fetch_offset]
                records = b"".join(wanted[: self.batches_per_fetch])
            return messages.MetadataFetchResponse(
                error_code=error,
                controller_epoch=self.controller_epoch,
                log_start_offset=self.start,
                high_watermark=self.high_watermark,
                records=records,
            )
