"""What real brokers of older and newer inter-broker protocols said to each other: every frame, and every answer to a controller.

Each broker's part is told once more to our metadata cache, hosted partitions and handlers, life by life; a log directory that failed
in between fails here too. Order within a list is free.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import pytest

from klamm.configs.releases.inter_broker_protocol import MetadataVersion
from klamm.protocol import json_form, messages
from klamm.protocol.nouns import ZERO_UUID, TopicPartition
from klamm.server.apis.handlers import HANDLERS as DISPATCHED
from klamm.tests.broker.story_broker import HANDLERS, answer, new_broker, sorted_lists
from klamm.tests.golden.recording.older_protocols import PROTOCOLS
from klamm.tests.protocol import golden
from klamm.tests.services import make_services

FROM_CONTROLLERS = (4, 5, 6)
"""LeaderAndIsr, StopReplica, UpdateMetadata."""

TRANSACTIONS = {24, 25, 26, 27, 28}
"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit: they need records of format 2."""


class Read(NamedTuple):
    """A decoded frame, and what it is written as."""

    correlation_id: int
    message: Any
    written: bytes


@cache
def recording() -> list[dict[str, Any]]:
    return list(golden.lines("older_protocols.jsonl.gz"))


def lines(*protocols: str) -> list[dict[str, Any]]:
    return [line for line in recording() if line["protocol"] in (protocols or PROTOCOLS)]


def pairs(*protocols: str) -> list[dict[str, Any]]:
    return [line for line in lines(*protocols) if "request" in line]


def read_request(line: dict[str, Any]) -> Read:
    payload = bytes.fromhex(line["request"])
    header, offset = messages.decode_request_header(payload)
    assert (header.api_key, header.api_version) == (line["api_key"], line["api_version"])
    message, end = messages.decode(f"{messages.APIS[header.api_key].name}Request", header.api_version, payload, offset)
    assert end == len(payload)
    return Read(header.correlation_id, message, messages.encode_request(*header, messages.encode(message, header.api_version)))


def read_answer(line: dict[str, Any]) -> Read:
    payload, key, version = bytes.fromhex(line["response"]), line["api_key"], line["api_version"]
    correlation_id, offset = messages.decode_response_header(key, version, payload)
    message, end = messages.decode(f"{messages.APIS[key].name}Response", version, payload, offset)
    assert end == len(payload)
    return Read(correlation_id, message, messages.encode_response(key, version, correlation_id, messages.encode(message, version)))


def test_every_frame_is_read_and_written_again() -> None:
    requests = answers = 0
    for line in pairs():
        request = read_request(line)
        requests += 1
        assert request.written[4:].hex() == line["request"]
        made = json_form.from_json(request.message._type.name, line["api_version"], json_form.to_json(request.message, line["api_version"]))
        assert made == request.message
        if line["response"] is not None:
            response = read_answer(line)
            answers += 1
            assert response.written[4:].hex() == line["response"]
            assert response.correlation_id == request.correlation_id
    print(f"requests tried {requests}, answers {answers}")
    assert requests > 6000
    assert answers > requests * 0.99, "few connections ended before an answer came"


def test_every_version_was_spoken() -> None:
    spoken = {(line["api_key"], line["api_version"]) for line in pairs() if line["response"] is not None}
    for key in FROM_CONTROLLERS:
        api = messages.APIS[key]
        assert {(key, version) for version in range(api.min_version, api.max_version + 1)} <= spoken


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocols_requests(protocol: str) -> None:
    """Which requests there are, in which version, is what we make of the protocol."""
    step = MetadataVersion.of(protocol)
    spoken = {key: {line["api_version"] for line in pairs(protocol) if line["api_key"] == key} for key in (4, 5, 6, 7, 56, 67)}
    wanted = {4: step.leader_and_isr_version, 5: step.stop_replica_version, 6: step.update_metadata_version}
    assert {key: spoken[key] for key in wanted} == {key: {version} for key, version in wanted.items()}
    assert spoken[7] == {step.controlled_shutdown_version}
    assert bool(spoken[56]) == step.has_alter_partition
    assert bool(spoken[67]) == step.has_producer_id_allocation


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_offered_to_clients(protocol: str) -> None:
    """Every API of ours, in the same versions; the finalised features' epoch from 2.7 on; the transactional ones not before 0.11."""
    step = MetadataVersion.of(protocol)
    for line in pairs(protocol):
        if line["api_key"] == messages.ApiKey.API_VERSIONS:
            offered = {row.api_key: (row.min_version, row.max_version) for row in read_answer(line).message.api_keys}
            assert offered.keys() & TRANSACTIONS == (TRANSACTIONS if step.record_version == 2 else set())
            for api in (messages.APIS[key] for key in DISPATCHED):
                if api.draft or (api.key in TRANSACTIONS and api.key not in offered):  # a real Kafka has none of these
                    continue
                assert offered[api.key] == (api.min_version, api.max_version), api.name
            epoch = read_answer(line).message.finalized_features_epoch
            assert (epoch >= 0) == (step.has_feature_versioning and line["api_version"] >= 3), f"{epoch}"


def test_errors_of_a_failed_log_directory_were_answered() -> None:
    """LeaderAndIsr and StopReplica said KAFKA_STORAGE_ERROR, in every version that a broker with a failed directory speaks."""
    for protocol in PROTOCOLS[PROTOCOLS.index("1.0") :]:
        told = {line["api_key"] for line in pairs(protocol) if line["response"] and 56 in partition_errors(line)}
        assert told == {4, 5}, protocol


def partition_errors(line: dict[str, Any]) -> set[int]:
    message = read_answer(line).message
    rows = [row for topic in getattr(message, "topics", []) for row in getattr(topic, "partition_errors", [])]
    return {row.error_code for row in [*rows, *getattr(message, "partition_errors", [])]}


@pytest.mark.parametrize("broker_id", [1, 2])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers_are_the_real_brokers(protocol: str, broker_id: int) -> None:
    """To its controller's requests, and to clients who ask what it knows of the cluster."""
    services = make_services()
    tried: Counter[str] = Counter()
    for line in lines(protocol):
        if line["to"] != broker_id:
            continue
        if "life" in line:
            services = new_broker({"broker_id": broker_id, **line})
            services.replicas.states.logs_found = {TopicPartition(*key): ZERO_UUID for key in line["logs"]}
        if "failed" in line:
            services.replicas.fail_log_dir(TopicPartition(topic, partition) for topic, partition in line["failed"])
        if line.get("api_key") in HANDLERS:
            api, header, body = answer(services, bytes.fromhex(line["request"]))
            if line["response"] is None:
                continue
            tried[api.name] += 1
            ours, _ = messages.decode(f"{api.name}Response", header.api_version, body)
            expected, got = (sorted_lists(json_form.to_json(m, header.api_version)) for m in (read_answer(line).message, ours))
            assert got == expected, f"{line['step']}: {json_form.to_json(read_request(line).message, header.api_version)}"
    print(f"{protocol}, broker {broker_id}: answers compared {dict(tried)}")
    assert set(tried) == {messages.APIS[key].name for key in HANDLERS}
    assert tried.total() > 100
