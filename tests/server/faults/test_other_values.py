"""A fault gives fields of a response other values, by path; a path or a value that cannot be is refused."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.control.bodies import FaultBody, convert, fault_of
from klamm.control.refusal import Refused
from klamm.protocol import messages
from klamm.server.faults.other_values import with_values

ROW = messages.MetadataResponse.MetadataResponsePartition


def metadata() -> Any:
    topics = [
        messages.MetadataResponse.MetadataResponseTopic(name=name, partitions=[ROW(partition_index=each, leader_id=1) for each in (0, 1)])
        for name in ("a", "b")
    ]
    return messages.MetadataResponse(topics=topics, controller_id=1)


def leaders(response: Any) -> list[list[int]]:
    return [[row.leader_id for row in topic.partitions] for topic in response.topics]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("topics.partitions.leaderId", [[9, 9], [9, 9]]),
        ("topics[name=b].partitions.leaderId", [[1, 1], [9, 9]]),
        ("topics.partitions[partitionIndex=1].leaderId", [[1, 9], [1, 9]]),
        ("topics[name=c].partitions.leaderId", [[1, 1], [1, 1]]),
    ],
)
def test_a_path_names_the_rows_that_get_the_value(path: str, expected: list[list[int]]) -> None:
    response = metadata()
    assert leaders(with_values(response, 12, {path: 9})) == expected
    assert leaders(response) == [[1, 1], [1, 1]]


def test_a_field_that_the_version_does_not_have_changes_nothing() -> None:
    response = metadata()
    assert with_values(response, 2, {"throttleTimeMs": 9}).throttle_time_ms == 0
    assert with_values(response, 3, {"throttleTimeMs": 9}).throttle_time_ms == 9


def test_a_tagged_field_that_the_response_leaves_out_gets_the_value() -> None:
    form = messages.ProduceResponse
    response = form(responses=[form.TopicProduceResponse("a", partition_responses=[form.PartitionProduceResponse(index=0)])])
    changed = with_values(response, 10, {"responses.partitionResponses.currentLeader.leaderId": 4})
    assert changed.responses[0].partition_responses[0].current_leader.leader_id == 4
    assert messages.encode(with_values(response, 10, {}), 10) == messages.encode(response, 10)


def test_rows_and_bytes_are_as_in_json() -> None:
    row = {"producerId": 5, "firstOffset": 1}
    partition = messages.FetchResponse.PartitionData(partition_index=0, records=b"")
    response = messages.FetchResponse(responses=[messages.FetchResponse.FetchableTopicResponse(topic="a", partitions=[partition])])
    values = {"responses.partitions.abortedTransactions": [row], "responses.partitions.records": "AAE="}
    changed = with_values(response, 12, values).responses[0].partitions[0]
    assert ([tuple(each)[:2] for each in changed.aborted_transactions], changed.records) == ([(5, 1)], b"\0\1")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"topics.partition.leaderId": 9}, "MetadataResponse has no field topics.partition.leaderId"),
        ({"topics.partitions.leaderId.x": 9}, "has no field"),
        ({"topics.partitions.leaderId": "9"}, 'topics.partitions.leaderId is of type int32, and "9" is not'),
        ({"topics.partitions.leaderId": None}, "of type int32, and null is not"),
        ({"topics.partitions": [{"x": 1}]}, "of type array of MetadataResponsePartition"),
        ({"topics.partitions.leaderId": 1 << 31}, "topics.partitions.leaderId is of type int32, and 2147483648 is not"),
        ({"topics.topicId": "id"}, 'topics.topicId is of type uuid, and "id" is not'),
        ({"throttleTimeMs": True}, "of type int32, and true is not"),
    ],
)
def test_a_path_or_a_value_that_cannot_be_is_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(Refused, match=f"^values: .*{text}"):
        fault_of(convert(FaultBody, {"filter": {"api": "Metadata"}, "effect": {"values": values}}), [1])


def test_values_need_an_api() -> None:
    with pytest.raises(Refused, match="the filter has none"):
        fault_of(convert(FaultBody, {"effect": {"values": {"throttleTimeMs": 9}}}), [1])
