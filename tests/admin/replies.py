"""Responses of scripted brokers, each for whatever was requested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from klamm.protocol import messages

Errors = Mapping[tuple[str, int], int]


def elected(errors: Errors | None = None, default: int = 0, everything: tuple[tuple[str, int], ...] = ()) -> Callable[[Any, int], Any]:
    """ElectLeaders: codes by partition; `everything` is what a null list stands for."""

    def reply(body: Any, _version: int) -> Any:
        response = messages.ElectLeadersResponse
        named = [(t.topic, p) for t in body.topic_partitions for p in t.partitions] if body.topic_partitions is not None else everything
        results = [
            response.ReplicaElectionResult(
                topic=topic, partition_result=[response.PartitionResult(partition_id=number, error_code=code, error_message=text(code))]
            )
            for topic, number in named
            for code in [(errors or {}).get((topic, number), default)]
        ]
        return response(replica_election_results=results)

    return reply


def altered(errors: Errors | None = None, default: int = 0, whole: int = 0) -> Callable[[Any, int], Any]:
    """AlterPartitionReassignments."""

    def reply(body: Any, _version: int) -> Any:
        response = messages.AlterPartitionReassignmentsResponse
        if whole:
            return response(error_code=whole, error_message=text(whole))
        return response(
            responses=[
                response.ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        response.ReassignablePartitionResponse(
                            partition_index=one.partition_index, error_code=code, error_message=text(code)
                        )
                        for one in topic.partitions
                        for code in [(errors or {}).get((topic.name, one.partition_index), default)]
                    ],
                )
                for topic in body.topics
            ]
        )

    return reply


def reassigned(errors: Errors | None = None, default: int = 0) -> Callable[[Any, int], Any]:
    """ReassignPartitions and AlterInterbrokerThrottledReplicas, whose responses are alike."""

    def reply(body: Any, _version: int) -> Any:
        response: Any = {
            "ReassignPartitionsRequest": messages.ReassignPartitionsResponse,
            "AlterInterbrokerThrottledReplicasRequest": messages.AlterInterbrokerThrottledReplicasResponse,
        }[type(body).__name__]
        return response(
            topics=[
                response.TopicResult(
                    name=topic.name,
                    partitions=[
                        response.PartitionResult(partition_id=one.partition_id, error_code=code, error_message=text(code))
                        for one in topic.partitions
                        for code in [(errors or {}).get((topic.name, one.partition_id), default)]
                    ],
                )
                for topic in body.topics
            ]
        )

    return reply


def rated(errors: Mapping[int, int] | None = None, default: int = 0) -> Callable[[Any, int], Any]:
    """AlterInterbrokerThrottledRates."""

    def reply(body: Any, _version: int) -> Any:
        response = messages.AlterInterbrokerThrottledRatesResponse
        return response(
            brokers=[
                response.BrokerResult(broker_id=one.broker_id, error_code=code, error_message=text(code))
                for one in body.brokers
                for code in [(errors or {}).get(one.broker_id, default)]
            ]
        )

    return reply


def text(code: int) -> str | None:
    return None if code == 0 else f"code {code}"
