"""Metadata of offsets is measured alike by OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from klamm.broker.groups.requests import OffsetCommit
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.apis.offset_requests import topic_codes, usable_partitions, with_short_metadata
from klamm.server.security.authorizer import Operation
from klamm.tests.services import Denying, broker_config, make_context, make_services


def test_metadata_is_as_long_as_java_says() -> None:
    services = make_services(config=broker_config(offset_metadata_max_bytes=4))
    texts = ["", "four", "fives", "ÄÖÜß", "\U0001f600\U0001f600", "\U0001f600\U0001f600x"]
    offsets = {TopicPartition("t", index): OffsetCommit(1, -1, text, 1) for index, text in enumerate(texts)}
    for key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT):
        short = with_short_metadata(make_context(services, key, 3), offsets)
        assert [partition.partition for partition in short] == [0, 1, 3, 4]


async def test_a_topic_that_may_not_be_read_and_is_named_twice_has_a_code_for_each_of_its_partitions() -> None:
    services = make_services(authorizer=Denying((Operation.READ, "t")))
    topic = messages.OffsetCommitRequest.OffsetCommitRequestTopic
    part = messages.OffsetCommitRequest.OffsetCommitRequestPartition
    named = [topic(name="t", partitions=[part(partition_index=index, committed_offset=1)]) for index in (0, 1)]
    usable, refused = await usable_partitions(make_context(services, ApiKey.OFFSET_COMMIT, 8), named)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (usable, topic_codes(refused, {})) == ({}, {"t": [(0, denied), (1, denied)]})
