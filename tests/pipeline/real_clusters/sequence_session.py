"""A producer with sequence numbers that repeats a batch and leaves a gap, a consumer that asks for the offset of a time, and a client that
authenticates: frame by frame, because no library does so when it is asked to."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.harness.client import Client
from klamm.tests.harness.waits import eventually_asked

FIRST_MS = 1_700_000_000_000
"""The time of the record with sequence number 0. Each record is a second younger than the one before it."""


async def live_with_sequences(host: str, port: int, topic: str) -> None:
    """Two batches, the second one again, one behind a gap. Then offsets of times between reads. The broker leads partition 0."""
    client = Client(host, port)
    given = await eventually_asked(lambda: _producer_id(client), "there is a producer id")
    rows = [await _produce(client, topic, given, sequence) for sequence in (0, 1, 1, 5)]
    assert [row.error_code for row in rows] == [0, 0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert [row.base_offset for row in rows[:3]] == [0, 1, 1]
    assert await _read(client, topic, 1) == 2
    for timestamp, offset in ((FIRST_MS - 1, 0), (FIRST_MS + 1, 1), (FIRST_MS + 1_001, -1), (-1, 2)):
        assert await _offset_of(client, topic, timestamp) == offset
    assert await _read(client, topic, 1) == 2
    await client.close()


async def _producer_id(client: Client) -> Any:
    """What InitProducerId gives; None until the broker has a block of producer ids."""
    given = await client.ask(messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
    assert given.error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return None if given.error_code else given


async def _produce(client: Client, topic: str, given: Any, sequence: int) -> Any:
    batch = encode_batch(
        [Record(0, FIRST_MS + 1_000 * sequence, None, b"%d" % sequence)], producer_id=given.producer_id,
        producer_epoch=given.producer_epoch, base_sequence=sequence,
    )
    kind = messages.ProduceRequest
    data = [kind.TopicProduceData(topic, partition_data=[kind.PartitionProduceData(0, batch)])]
    response = await client.ask(kind(None, -1, 30_000, data), 8)
    return response.responses[0].partition_responses[0]


async def _read(client: Client, topic: str, offset: int) -> int:
    """Fetch from this offset; the high watermark. There are records."""
    kind = messages.FetchRequest
    rows = [kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    request = kind(replica_id=-1, max_wait_ms=30_000, min_bytes=1, session_epoch=-1, topics=[kind.FetchTopic(topic=topic, partitions=rows)])
    response = await client.ask(request, 11)
    (row,) = response.responses[0].partitions
    assert (row.error_code, bool(row.records)) == (0, True)
    return int(row.high_watermark)


async def _offset_of(client: Client, topic: str, timestamp: int) -> int:
    kind = messages.ListOffsetsRequest
    rows = [kind.ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    response = await client.ask(kind(-1, 0, [kind.ListOffsetsTopic(topic, rows)]), 5)
    (row,) = response.topics[0].partitions
    assert row.error_code == 0
    return int(row.offset)


async def live_authenticated(host: str, port: int, user: str, password: str) -> None:
    """A client of a listener with SASL that authenticates with PLAIN and asks for metadata."""
    client = Client(host, port)
    assert (await client.ask(messages.ApiVersionsRequest("test", "1"), 3)).error_code == 0
    assert (await client.ask(messages.SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
    assert (await client.ask(messages.SaslAuthenticateRequest(f"\0{user}\0{password}".encode()), 2)).error_code == 0
    assert (await client.ask(messages.MetadataRequest(topics=None), 12)).brokers
    await client.close()
