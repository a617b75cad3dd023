"""Produce under ACLs: of many partitions in one request, of requests that came together, and after an ACL was taken away."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import TRANSACTIONAL
from klamm.protocol.records.record import Record, encode_batch
from klamm.protocol.security.acls import ALLOW, Entry, Pattern
from klamm.seams.pace import SLICE
from klamm.server.security.acl_authorizer import AclAuthorizer
from klamm.server.security.authorizer import ANONYMOUS, Operation, ResourceType
from klamm.tests.server.logged_broker import GOOD, Logged, asked_for
from klamm.tests.server.produce.produce_connection import Connection, payload, rows_of, together
from klamm.tests.services import broker_config
from klamm.zk.session.session import ZkSession

TOPIC, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
WRITES = (Entry(str(ANONYMOUS), "*", Operation.WRITE, ALLOW),)
DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def acls(*writable: Pattern) -> AclAuthorizer:
    """The authorizer of a broker that allows everybody to write to these, and knows no ZooKeeper."""
    made = AclAuthorizer(broker_config(), ZkSession("127.0.0.1:1", 6000))
    for pattern in writable:
        made.index.put(pattern, WRITES)
    return made


def named_often(topic: str, count: int) -> messages.ProduceRequest.TopicProduceData:
    part = messages.ProduceRequest.PartitionProduceData
    return messages.ProduceRequest.TopicProduceData(topic, partition_data=[part(index, GOOD) for index in range(count)])


@pytest.mark.parametrize("count", [50, 3 * SLICE])
async def test_of_many_partitions_in_one_request_each_has_the_error_of_its_topic(count: int, caplog: pytest.LogCaptureFixture) -> None:
    authorizer = acls(Pattern(TOPIC, "t"))
    logged = Logged(authorizer)
    logged.services = replace(logged.services, acls=authorizer)
    topics = [named_often("secret", count), named_often("t", count), named_often("hidden", 1)]
    with caplog.at_level(logging.INFO, "klamm.server.security.denial_log"):
        response = await logged.response(messages.ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics))
    codes = {topic.name: [row.error_code for row in topic.partition_responses] for topic in response.responses}
    assert codes["secret"] == [DENIED] * count and codes["hidden"] == [DENIED]
    assert codes["t"][:6] == [0, 0, 6, 56, 0, 3] and set(codes["t"][5:]) == {3}
    assert (await logged.log(0)).log_end_offset == 1
    denials = [record.getMessage() for record in caplog.records if "is Denied" in record.getMessage()]
    assert [line.partition("resource = ")[2] for line in denials] == [
        "Topic:LITERAL:secret for request = Produce", "Topic:LITERAL:hidden for request = Produce",
    ], "one line for each topic, however many partitions"


async def test_requests_that_came_together_are_appended_together_while_an_acl_allows_it() -> None:
    authorizer = acls(Pattern(TOPIC, "t"))
    connection = await Connection.made(authorizer)
    first = payload(asked_for(("t", 0, GOOD)))
    assert rows_of((await together(connection, first, first, first))[0]) == [(77, 0, 0), (77, 0, 1), (77, 0, 2)]
    authorizer.index.put(Pattern(TOPIC, "t"), ())
    for _ in range(2):
        response, queue = await together(connection, first, first)
        assert rows_of(response) == [(77, DENIED, -1)]
        assert queue.left == [first]
    assert connection.end() == 3
    authorizer.index.put(Pattern(TOPIC, "t"), WRITES)
    assert rows_of((await together(connection, first, first))[0]) == [(77, 0, 3), (77, 0, 4)]


@pytest.mark.parametrize("names_id", [True, False])
async def test_transactional_requests_that_came_together_need_the_transactional_id(names_id: bool) -> None:
    allowed = [Pattern(TOPIC, "t"), *([Pattern(TRANSACTIONAL_ID, "other")] if names_id else [])]
    connection = await Connection.made(acls(*allowed))
    records = encode_batch([Record(0, 1, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    first = payload(asked_for(("t", 0, records), transactional_id="tx" if names_id else None))
    response, queue = await together(connection, first, first)
    assert rows_of(response) == [(77, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]
    assert queue.left == [first]
    assert connection.end() == 0
