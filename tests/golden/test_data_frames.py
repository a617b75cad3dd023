"""Produce, Fetch, ListOffsets and their neighbours: recorded frames sent to a broker, its responses beside those of a real Kafka.

The cases of raw.jsonl.gz about records were one sequence: two topics are created, good and bad batches produced to them in several
versions, then read back. They are sent in their order, each on a connection of its own, and every response is compared field by field;
records are compared as what they hold, because compressed bytes depend on the library. Requests with default bodies follow.
"""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol import json_form, messages
from klamm.tests.harness.batches import texts_of
from klamm.tests.harness.kafka import OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.protocol import golden
from klamm.tests.reference.jars import jars
from klamm.tests.stories.both.stage import Target

RECORDS = ("create-topic", "produce-", "fetch-", "listoffsets-")
DATA_KEYS = (0, 1, 2, 21, 22, 23, 34, 35, 61)
SILENCE_S = 0.5
"""After this a request counts as one that is not answered."""
REFUSED_BY_KLAMM = {"produce-null-records"}
"""Never answered by Apache Kafka, which has the connection blocked from then on (docs/spec/wire.md, section 13)."""


def cases() -> list[dict[str, Any]]:
    """The cases of raw.jsonl.gz about records, in their order."""
    defaults = tuple(f"default:{key}:" for key in DATA_KEYS)
    return [row for row in golden.lines("raw.jsonl.gz") if row["case"].startswith((*RECORDS, *defaults))]


@pytest.fixture(params=["klamm", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.reference])])
def broker(request: pytest.FixtureRequest, zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[OwnedBroker]:
    """One broker, alone in its cluster."""
    tree = Tree(zookeeper, chroot)
    target = Target(request.param, jars() if request.param == "kafka" else None)
    made = target.broker(tree, tmp_path, 0, {"log.retention.ms": -1})
    try:
        yield made.start()
    finally:
        made.kill()
        tree.close()


async def sent(port: int, frame: bytes) -> bytes | str:
    """The payload of the response to a frame, or `closed` or `no answer`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(frame)
        async with asyncio.timeout(5 if expects_response(frame) else SILENCE_S):
            return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
    except TimeoutError:
        return "no answer"
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed"
    finally:
        writer.close()


def expects_response(frame: bytes) -> bool:
    """Whether a request is one that is answered: all but Produce without acknowledgement."""
    header, offset = messages.decode_request_header(frame[4:])
    if header.api_key != messages.ApiKey.PRODUCE:
        return True
    return bool(messages.decode("ProduceRequest", header.api_version, frame[4:], offset)[0].acks)


def shown(row: dict[str, Any], payload: bytes | str) -> Any:
    """A response as JSON, without what differs from run to run."""
    if isinstance(payload, str):
        return payload
    header, _ = messages.decode_request_header(bytes.fromhex(row["frames"][-1])[4:])
    name, version = f"{messages.APIS[header.api_key].name}Response", header.api_version
    _, offset = messages.decode_response_header(header.api_key, version, payload)
    message, end = messages.decode(name, version, payload, offset)
    assert end == len(payload), row["case"]
    return comparable(json_form.to_json(message, version))


def comparable(value: Any) -> Any:
    """Records as what they hold; topic ids, directories and sizes of volumes are left out."""
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: each for name, each in value.items() if name not in ("topicId", "logDir", "totalBytes", "usableBytes")}
    return {name: batches(each) if name == "records" else comparable(each) for name, each in kept.items()}


def batches(records: str | None) -> list[str] | None:
    return None if records is None else list(texts_of(base64.b64decode(records)))


async def test_recorded_requests_about_records_are_answered_as_by_a_real_broker(broker: OwnedBroker) -> None:
    different, compared = {}, 0
    for row in cases():
        outcome = shown(row, await sent(broker.port, bytes.fromhex(row["frames"][-1])))
        if row["case"] in REFUSED_BY_KLAMM:
            continue
        expected = comparable(row["decoded"]) if row["result"] == "answered" else row["result"]
        compared += 1
        if outcome != expected:
            different[row["case"]] = (expected, outcome)
    print(f"{compared} cases compared, {len(different)} different")
    for case, (expected, outcome) in different.items():
        print(f"{case}\n  expected {expected}\n  but was  {outcome}")
    assert not different
    assert compared == 307
