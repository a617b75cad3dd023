"""Produce: records are refused, each partition with its reason; clients that only want to see it offered are served."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import Role
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.apis import produce
from klamm.server.authorizer import Authorizer
from klamm.server.context import CloseConnection
from klamm.server.services import Services
from klamm.tests.services import DenyAll, make_context, make_services

VERSIONS = range(messages.APIS[0].min_version, messages.APIS[0].max_version + 1)


def broker(authorizer: Authorizer | None = None) -> Services:
    """Broker 1, which leads t-0; broker 2 leads t-1; t-2 is offline here."""
    metadata = MetadataCache(1)
    told = messages.UpdateMetadataRequest
    states = [
        told.UpdateMetadataPartitionState(partition_index=p, leader=leader, leader_epoch=p + 5, isr=(1, 2), replicas=(1, 2))
        for p, leader in enumerate((1, 2, 1))
    ]
    ends = {i: told.UpdateMetadataEndpoint(port=9000 + i, host=f"h{i}", listener="PLAINTEXT") for i in (1, 2)}
    brokers = [told.UpdateMetadataBroker(id=i, rack=f"r{i}", endpoints=[end]) for i, end in ends.items()]
    topic = told.UpdateMetadataTopicState(topic_name="t", topic_id=bytes(16), partition_states=states)
    metadata.update(told(controller_id=1, topic_states=[topic], live_brokers=brokers))
    services = make_services(metadata=metadata, authorizer=authorizer)
    services.replicas.fail_log_dir([("t", 2), ("t", 0)])
    leading = services.replicas.get("t", 0)
    assert leading is not None
    leading.offline, leading.role = False, Role.LEADER
    return services


def request(*partitions: tuple[str, int], acks: int = -1) -> Any:
    asked = messages.ProduceRequest
    data = [(name, asked.PartitionProduceData(index=index, records=b"")) for name, index in partitions]
    topics = [asked.TopicProduceData(name=name, partition_data=[part]) for name, part in data]
    return asked(acks=acks, timeout_ms=1000, topic_data=topics)


def answered(version: int, asked: Any, at: Services) -> list[Any]:
    body = messages.encode(produce.handle(make_context(at, 0, version), asked), version)
    decoded, end = messages.decode("ProduceResponse", version, body)
    assert end == len(body)
    return [row for topic in decoded.responses for row in topic.partition_responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_partition_is_refused_with_its_reason(version: int) -> None:
    rows = answered(version, request(("t", 0), ("t", 1), ("t", 2), ("t", 9), ("unknown", 0)), broker())
    assert [row.error_code for row in rows] == [
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert {row.base_offset for row in rows} == {-1}
    assert [row.error_message for row in rows if row.error_message] == ([produce.NO_RECORDS] if version >= 8 else [])


def test_the_leader_is_named_to_those_who_can_read_it() -> None:
    response = produce.handle(make_context(broker(), 0, 10), request(("t", 1), ("t", 0)))
    assert isinstance(response, messages.ProduceResponse)
    moved, refused = (topic.partition_responses[0].current_leader for topic in response.responses)
    assert (moved.leader_id, moved.leader_epoch) == (2, 6)
    assert (refused.leader_id, refused.leader_epoch) == (-1, -1)
    assert [tuple(row) for row in response.node_endpoints] == [(2, "h2", 9002, "r2")]


def test_acks_that_cannot_be() -> None:
    assert [row.error_code for row in answered(9, request(("t", 0), acks=2), broker())] == [ErrorCode.INVALID_REQUIRED_ACKS]


def test_who_may_not_write_learns_nothing_else() -> None:
    rows = answered(9, request(("t", 0), ("unknown", 0)), broker(DenyAll()))
    assert [row.error_code for row in rows] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2


def test_without_acks_the_connection_is_closed() -> None:
    with pytest.raises(CloseConnection):
        produce.handle(make_context(broker(), 0, 9), request(("t", 0), acks=0))
    assert produce.handle(make_context(broker(), 0, 9), request(acks=0)) is None
