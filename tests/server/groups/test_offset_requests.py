"""Metadata of offsets is measured alike by OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from klamm.broker.groups.requests import OffsetCommit
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import TopicPartition
from klamm.server.groups.offset_requests import with_short_metadata
from klamm.tests.services import broker_config, make_context, make_services


def test_metadata_is_as_long_as_java_says() -> None:
    services = make_services(config=broker_config(offset_metadata_max_bytes=4))
    texts = ["", "four", "fives", "ÄÖÜß", "\U0001f600\U0001f600", "\U0001f600\U0001f600x"]
    offsets = {TopicPartition("t", index): OffsetCommit(1, -1, text, 1) for index, text in enumerate(texts)}
    for key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT):
        short = with_short_metadata(make_context(services, key, 3), offsets)
        assert [partition.partition for partition in short] == [0, 1, 3, 4]
