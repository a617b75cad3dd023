"""The answer that says "the whole request failed with this code": for faults, and where a missing permission refuses a request.

A request that ends with the ZooKeeper session is no fault: whoever asks again finds another controller.

Kafka has such an answer for nearly every API: a top-level code where the response has one, and the same code on every element
that the request names. One small function per API builds it from the request, so that a client finds each thing it asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.broker.replica_manager import refuse_leader_and_isr, refuse_stop_replica
from klamm.controller.values import ControllerMoved, StoreLost, StoreRefused
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode

Build = Callable[[Any, int, ErrorCode, str | None], Any]


def response(api_key: int, version: int, request: Any, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR, message: str | None = None) -> Any:
    """A response of this API that carries the code everywhere, or None when the API has no such answer (close the connection)."""
    build = _BUILDERS.get(api_key)
    return None if build is None else build(request, version, code, message)


def code_of(problem: Exception) -> ErrorCode | None:
    """The code that tells a caller of a problem with ZooKeeper; None for any other exception, which is a fault of ours."""
    match problem:
        case StoreLost() | ControllerMoved():
            return ErrorCode.NOT_CONTROLLER
        case StoreRefused():
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return None


def _produce(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    partition_type = messages.ProduceResponse.PartitionProduceResponse
    topics = [
        messages.ProduceResponse.TopicProduceResponse(
            name=topic.name,
            partition_responses=[partition_type(index=part.index, error_code=code, base_offset=-1) for part in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    return None if request.acks == 0 else messages.ProduceResponse(responses=topics)


def _metadata(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    topic_type = messages.MetadataResponse.MetadataResponseTopic
    topics = [topic_type(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or ()]
    return messages.MetadataResponse(topics=topics)


def _create_topics(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    topic_type = messages.CreateTopicsResponse.CreatableTopicResult
    topics = [topic_type(name=topic.name, error_code=code, error_message=message, configs=[]) for topic in request.topics]
    return messages.CreateTopicsResponse(topics=topics)


def _delete_topics(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    result_type = messages.DeleteTopicsResponse.DeletableTopicResult
    if version < 6:
        results = [result_type(name=name, error_code=code) for name in request.topic_names]
    else:
        results = [result_type(name=topic.name, topic_id=topic.topic_id, error_code=code) for topic in request.topics]
    return messages.DeleteTopicsResponse(responses=results)


def _create_partitions(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    result_type = messages.CreatePartitionsResponse.CreatePartitionsTopicResult
    results = [result_type(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
    return messages.CreatePartitionsResponse(results=results)


def _elect_leaders(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    partition_type = messages.ElectLeadersResponse.PartitionResult
    topic_type = messages.ElectLeadersResponse.ReplicaElectionResult
    results = [
        topic_type(
            topic=topic.topic,
            partition_result=[partition_type(partition_id=p, error_code=code, error_message=message) for p in topic.partitions],
        )
        for topic in request.topic_partitions or ()
    ]
    return messages.ElectLeadersResponse(error_code=code if version > 0 else 0, replica_election_results=results)


def _describe_configs(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    row_type = messages.DescribeConfigsResponse.DescribeConfigsResult
    return messages.DescribeConfigsResponse(results=_resources(row_type, request, code, message))


def _alter_configs(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    row_type = messages.AlterConfigsResponse.AlterConfigsResourceResponse
    return messages.AlterConfigsResponse(responses=_resources(row_type, request, code, message))


def _incremental_alter_configs(request: Any, version: int, code: ErrorCode, message: str | None) -> Any:
    row_type = messages.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return messages.IncrementalAlterConfigsResponse(responses=_resources(row_type, request, code, message))


def _resources(row_type: Any, request: Any, code: ErrorCode, message: str | None) -> list[Any]:
    return [
        row_type(error_code=code, error_message=message, resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources
    ]


def _code(name: str) -> Build:
    """A response that says all by its top-level code."""
    return lambda request, version, code, message: messages.message_type(name).top(error_code=code)


def _code_and_message(name: str) -> Build:
    return lambda request, version, code, message: messages.message_type(name).top(error_code=code, error_message=message)


_BUILDERS: dict[int, Build] = {
    0: _produce,
    3: _metadata,
    4: lambda request, version, code, message: refuse_leader_and_isr(request, version, code),
    5: lambda request, version, code, message: refuse_stop_replica(request, version, code),
    6: _code("UpdateMetadataResponse"),
    7: _code("ControlledShutdownResponse"),
    18: _code("ApiVersionsResponse"),
    19: _create_topics,
    20: _delete_topics,
    32: _describe_configs,
    33: _alter_configs,
    37: _create_partitions,
    43: _elect_leaders,
    44: _incremental_alter_configs,
    46: _code_and_message("ListPartitionReassignmentsResponse"),
    56: _code("AlterPartitionResponse"),
    60: _code_and_message("DescribeClusterResponse"),
    67: _code("AllocateProducerIdsResponse"),
}
