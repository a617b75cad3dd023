"""Produce, Fetch, ListOffsets, and what producers are told of themselves: rules K-04, K-05, F-01 to F-03, O-01, O-02, T-07."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from struct import Struct
from typing import Any

from klamm.pipeline.decode.fields import HEADER_BYTES, NO_ID
from klamm.pipeline.decode.flaws import Flaw, partitions_of, repeated
from klamm.pipeline.decode.json_codec import Body

_BATCH = Struct(">qi4xb4x2xi").unpack_from
"""Of the header of a batch: base offset, length behind it, magic, last offset within the batch."""
_BEFORE_LENGTH_ENDS = 12
_OF_BATCHES = 3
"""Version of Produce since which records are one batch of magic 2 (KIP-98)."""
_WRITTEN = (0, 3, 6, 7, 20, 46, 56)
"""Codes that come with a base offset: the records were written before the wait for replicas failed, or before this request."""
_HEAD_BYTES, _HEAD_TEXT = 27, 40
"""Bytes that `_BATCH` reads, and characters of base64 that have them whole."""


def produce(version: int, body: Body) -> Iterator[Flaw]:
    """K-04."""
    rows = list(partitions_of(body.get("topicData"), "partitionData", "index"))
    for name, index in repeated((name, index) for name, index, _ in rows):
        yield "K-04", f"names {name}-{index} twice"
    if version < _OF_BATCHES:
        return
    for name, index, row in rows:
        records = row.get("records")
        if not records or records["size"] < HEADER_BYTES:
            size = records["size"] if records else 0
            yield "K-04", f"{name}-{index} has {size} bytes of records, which is not a batch"
            continue
        header = _header(records)
        if header is None:
            continue
        _, length, magic, last = header
        if magic != 2:
            yield "K-04", f"{name}-{index} has records of magic {magic} in version {version}"
        elif length + _BEFORE_LENGTH_ENDS != records["size"]:
            yield "K-04", f"{name}-{index} has {records['size']} bytes of records, and its batch {length + _BEFORE_LENGTH_ENDS}"
        elif last < 0:
            yield "K-04", f"{name}-{index} has a batch whose last offset is {last}"


def _header(records: Any) -> tuple[int, ...] | None:
    """What `_BATCH` reads; None if the journal cut the frame before its end."""
    head = b64decode(records["head"][:_HEAD_TEXT])
    return _BATCH(head) if len(head) >= _HEAD_BYTES else None


def produced(version: int, body: Body) -> Iterator[Flaw]:
    """O-01."""
    for name, index, row in partitions_of(body.get("responses"), "partitionResponses", "index"):
        offset, code = row["baseOffset"], row["errorCode"]
        if code == 0 and offset < 0:
            yield "O-01", f"{name}-{index} has base offset {offset} without an error"
        elif code not in _WRITTEN and offset >= 0:
            yield "O-01", f"{name}-{index} has base offset {offset} with error <error {code}>"


def fetch(version: int, body: Body) -> Iterator[Flaw]:
    """K-05."""
    for topic in body.get("topics") or ():
        if topic.get("topicId") == NO_ID:
            yield "K-05", "asks for a topic whose id is zero"
            return
        rows = topic.get("partitions") or ()
        for row in rows:
            if row["fetchOffset"] < 0 or row["partition"] < 0:
                yield "K-05", f"asks for offset {row['fetchOffset']} of {topic.get('topic') or topic.get('topicId')}-{row['partition']}"
        if len(rows) > 1:
            for index in repeated(row["partition"] for row in rows):
                yield "K-05", f"names {topic.get('topic') or topic.get('topicId')}-{index} twice"


def fetched(version: int, body: Body) -> Iterator[Flaw]:
    """F-01, F-03, and F-02 unless the request asked for committed records."""
    for topic in body.get("responses") or ():
        for row in topic.get("partitions") or ():
            if row.get("errorCode") == 0:
                yield from _fetched(f"{topic.get('topic') or topic.get('topicId')}-{row['partitionIndex']}", row)


_OFFSETS = {"highWatermark": "high watermark", "lastStableOffset": "last stable offset", "logStartOffset": "log start offset"}


def _fetched(name: str, row: Any) -> Iterator[Flaw]:
    if row.get("abortedTransactions"):
        yield "F-02", f"{name} has {len(row['abortedTransactions'])} aborted transactions, and all records were asked for"
    for field, what in _OFFSETS.items():
        if row.get(field, 0) < 0:
            yield "F-01", f"{name} has {what} {row[field]} without an error"
    records = row.get("records")
    header = _header(records) if records and records["size"] >= HEADER_BYTES else None
    if header is not None:
        offset, _, magic, last = header
        if magic == 2 and (offset < 0 or last < 0):
            yield "F-03", f"{name} has a batch from {offset} whose last offset is {last} higher"


def listed(version: int, body: Body) -> Iterator[Flaw]:
    """O-02. Version 0 has lists of offsets instead."""
    for name, index, row in partitions_of(body.get("topics")) if version else ():
        offset, code = row["offset"], row["errorCode"]
        if offset < -1 or row["timestamp"] < -1 or (code != 0 and offset >= 0):
            yield "O-02", f"{name}-{index} has offset {offset}, timestamp {row['timestamp']} and error <error {code}>"
        elif row.get("leaderEpoch", -1) < -1:
            yield "O-02", f"{name}-{index} has leader epoch {row['leaderEpoch']}"


def initialized(version: int, body: Body) -> Iterator[Flaw]:
    """T-07."""
    told = body["producerId"], body["producerEpoch"]
    if (min(told) < 0) != (body["errorCode"] != 0):
        yield "T-07", f"gives producer id {told[0]} and epoch {told[1]} with error <error {body['errorCode']}>"
