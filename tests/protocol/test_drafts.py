"""Messages that no Kafka ever wrote: the bytes are set by hand from their documents."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError


def int16(n: int) -> bytes:
    return n.to_bytes(2, "big", signed=True)


def int32(n: int) -> bytes:
    return n.to_bytes(4, "big", signed=True)


def int64(n: int) -> bytes:
    return n.to_bytes(8, "big", signed=True)


def string(text: str) -> bytes:
    return int16(len(text)) + text.encode()


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


NULL_STRING = int16(-1)
NONE, ONE, TWO = int32(0), int32(1), int32(2)


def agree(message: Any, version: int, data: bytes) -> None:
    """Written exactly so, and read from exactly that."""
    assert messages.encode(message, version) == data
    assert messages.decode(type(message).__name__, version, data) == (message, len(data))


@pytest.mark.requirement("R183-1")
def test_elect_preferred_leaders_is_version_0_of_key_43() -> None:
    request, response = messages.ElectLeadersRequest, messages.ElectLeadersResponse
    assert messages.APIS[43][:5] == (43, "ElectLeaders", 0, 2, 2)
    topics = [request.TopicPartitions("t", (0, 7))]
    agree(request(topic_partitions=topics, timeout_ms=9), 0, ONE + string("t") + TWO + int32(0) + int32(7) + int32(9))
    agree(request(topic_partitions=None, timeout_ms=9), 0, int32(-1) + int32(9))
    agree(request(topic_partitions=[], timeout_ms=9), 0, NONE + int32(9))
    results = [response.PartitionResult(0, 0, None), response.PartitionResult(7, 80, "no")]
    data = ONE + string("t") + TWO + int32(0) + int16(0) + NULL_STRING + int32(7) + int16(80) + string("no")
    agree(response(3, 0, [response.ReplicaElectionResult("t", results)]), 0, int32(3) + data)
    agree(response(3, 41, [response.ReplicaElectionResult("t", results)]), 1, int32(3) + int16(41) + data)
    agree(request(1, topics, 9), 1, b"\x01" + ONE + string("t") + TWO + int32(0) + int32(7) + int32(9))
    agree(request(1, topics, 9), 2, b"\x01\x02" + compact("t") + b"\x03" + int32(0) + int32(7) + b"\x00" + int32(9) + b"\x00")
    with pytest.raises(LocalProtocolError, match="electionType"):
        messages.encode(request(1, [], 9), 0)


def test_reassign_partitions() -> None:
    request, response = messages.ReassignPartitionsRequest, messages.ReassignPartitionsResponse
    assert (request().timeout, request().throttle) == (10000, 2**63 - 1)
    data = ONE + string("t") + ONE + int32(5) + TWO + int32(2) + int32(1) + int32(77) + b"\x01" + int64(1024) + b"\x00"
    agree(request([request.Topic("t", [request.Partition(5, (2, 1))])], 77, True, 1024, False), 0, data)
    data = int32(4) + ONE + string("t") + ONE + int32(5) + int16(39) + string("why")
    agree(response(4, [response.TopicResult("t", [response.PartitionResult(5, 39, "why")])]), 0, data)


def test_alter_interbroker_throttled_rates() -> None:
    request, response = messages.AlterInterbrokerThrottledRatesRequest, messages.AlterInterbrokerThrottledRatesResponse
    data = ONE + int32(1) + int64(10) + int64(20) + b"\x01" + int32(77) + b"\x00"
    agree(request([request.BrokerRate(1, 10, 20)], True, 77, False), 0, data)
    agree(response([response.BrokerResult(1, 8, None)]), 0, ONE + int32(1) + int16(8) + NULL_STRING)


def test_alter_interbroker_throttled_replicas() -> None:
    request, response = messages.AlterInterbrokerThrottledReplicasRequest, messages.AlterInterbrokerThrottledReplicasResponse
    tail = b"\x01" + int32(77) + b"\x00"
    head = ONE + string("t") + ONE + int32(5)
    for version, partition, lists in ((0, (5, (3,)), ONE + int32(3)), (1, (5, (), (3,), None), ONE + int32(3) + int32(-1))):
        agree(request([request.Topic("t", [request.Partition(*partition)])], True, 77, False), version, head + lists + tail)
    rows = [response.TopicResult("t", [response.PartitionResult(5, 3, None)])]
    agree(response(0, rows), 0, head + int16(3) + NULL_STRING)
    agree(response(6, rows), 1, int32(6) + head + int16(3) + NULL_STRING)


@pytest.mark.requirement("RREG-1")
def test_register_broker() -> None:
    request, response = messages.RegisterBrokerRequest, messages.RegisterBrokerResponse
    endpoint = int32(9092) + compact("host") + compact("PLAINTEXT") + int16(0) + b"\x00"
    agree(request(1, None, [request.Endpoint(9092, "host", "PLAINTEXT", 0)]), 0, int32(1) + b"\x00\x02" + endpoint + b"\x00")
    agree(request(1, "r", []), 0, int32(1) + compact("r") + b"\x01\x00")
    agree(response(0, 101, "taken", -1, 2), 0, int32(0) + int16(101) + compact("taken") + int64(-1) + b"\x02\x00")
    agree(request(1, None, [], b"s"), 0, int32(1) + b"\x00\x01" + b"\x01\x90\x4e\x02\x02s")
    tagged = int32(1) + b"\x00\x01" + b"\x01\x63\x02hi"
    assert messages.decode("RegisterBrokerRequest", 0, tagged) == (request(1, None, []), len(tagged))
    tagged = int32(1) + b"\x00\x02" + endpoint[:-1] + b"\x01\x07\x01x" + b"\x00"
    assert messages.decode("RegisterBrokerRequest", 0, tagged) == (
        request(1, None, [request.Endpoint(9092, "host", "PLAINTEXT", 0)]),
        len(tagged),
    )
    assert messages.APIS[100][:5] == (100, "RegisterBroker", 0, 0, 0)


@pytest.mark.requirement("RREG-1")
def test_metadata_fetch() -> None:
    request, response = messages.MetadataFetchRequest, messages.MetadataFetchResponse
    assert (request().controller_epoch, request().max_bytes) == (-1, 1048576)
    agree(request(1, 2, 3, 4, 5, 6, True), 0, int32(1) + int64(2) + int32(3) + int64(4) + int32(5) + int32(6) + b"\x01\x00")
    fields = int32(1) + int64(2) + int32(3) + int64(4) + int32(5) + int32(6) + b"\x01"
    agree(request(1, 2, 3, 4, 5, 6, True, b"s"), 0, fields + b"\x01\x90\x4e\x02\x02s")
    head = int32(0) + int16(0) + b"\x01\x02" + int32(3) + int64(4) + int64(5)
    for records, data in ((None, b"\x00"), (b"", b"\x01"), (b"batch", b"\x06batch")):
        agree(response(0, 0, 1, 2, 3, 4, 5, records), 0, head + data + b"\x00")
    tagged = int32(1) + int64(2) + int32(3) + int64(4) + int32(5) + int32(6) + b"\x00" + b"\x01\x63\x02hi"
    assert messages.decode("MetadataFetchRequest", 0, tagged) == (request(1, 2, 3, 4, 5, 6, False), len(tagged))
    assert messages.APIS[101][:5] == (101, "MetadataFetch", 0, 0, 0)
