"""What a real Kafka 3.9.1 broker answered, request by request, to a script that played its controller.

Each line of the recording is a request frame and its answer; state builds up from line to line. Here the same requests go to our
metadata cache, hosted partitions and handlers. Order within a list is free, and texts of errors are ours.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.json_form import to_json
from klamm.server.apis import metadata
from klamm.tests.broker.story_broker import answer, new_broker, sorted_lists
from klamm.tests.services import make_context

RECORDING = Path(__file__).parent.parent / "golden" / "broker_story.jsonl.gz"


def lines() -> list[dict[str, Any]]:
    with gzip.open(RECORDING, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_every_answer_is_the_real_brokers() -> None:
    about, *story = lines()
    services = new_broker(about)
    assert len(story) > 250
    for number, line in enumerate(story):
        api, header, body = answer(services, bytes.fromhex(line["request"]))
        recorded = bytes.fromhex(line["response"])
        _, offset = messages.decode_response_header(api.key, header.api_version, recorded)
        expected, got = (
            sorted_lists(to_json(messages.decode(f"{api.name}Response", header.api_version, data, start)[0], header.api_version))
            for data, start in ((recorded, offset), (body, 0))
        )
        assert got == expected, f"line {number}, {api.name} version {header.api_version}: {line['note']}"


def test_kept_bytes_change_nothing() -> None:
    """Every Metadata and DescribeCluster request is answered twice with the same bytes: made anew, then kept."""
    about, *story = lines()
    services, fresh = new_broker(about), new_broker(about)
    for line in story:
        payload = bytes.fromhex(line["request"])
        api, _, first = answer(services, payload)
        if api.key in (3, 60):
            fresh.metadata.encoded.clear()
            for topic in fresh.metadata.topics.values():
                topic.encoded.clear()
            assert answer(services, payload)[2] == first == answer(fresh, payload)[2], line["note"]
        else:
            answer(fresh, payload)


@pytest.mark.parametrize("version", range(13))
def test_a_broker_that_nobody_told_anything_lists_nothing(version: int) -> None:
    services = new_broker({"broker_id": 1, "broker_epoch": 7, "cluster_id": "c"})
    request = messages.MetadataRequest(topics=[] if version == 0 else None)
    body = metadata.handle(make_context(services, 3, version), request)
    assert isinstance(body, bytes)
    response, end = messages.decode("MetadataResponse", version, body)
    assert end == len(body)
    assert (response.brokers, response.topics, response.controller_id) == ([], [], -1)
