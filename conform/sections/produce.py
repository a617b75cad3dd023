"""Section 6: produce and sequence numbers."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from klamm.conform.case import Section, expect
from klamm.conform.connection import error_name, expect_error
from klamm.conform.lab import Lab, batch
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import CONTROL, Codec, read_header
from klamm.protocol.records.compression import compress
from klamm.protocol.records.record import Record, encode_batch, encode_record, read_records, seal

SECTION = Section(6, "produce", "Produce and sequence numbers")
NONE = ErrorCode.NONE
GUIDE = "Kafka protocol guide: Produce"
IDEMPOTENCE = "KIP-98"


class Producer(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int

    def batch(self, sequence: int, *values: str, **more: Any) -> bytes:
        """A batch with a sequence number."""
        return batch(*values, producer_id=self.id, producer_epoch=self.epoch, base_sequence=sequence, **more)


async def producer(lab: Lab) -> Producer:
    """A new idempotent producer."""
    request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000, producer_id=-1, producer_epoch=-1)
    answer = await lab.until_error(lambda: lab.ask(request), lambda response: response, NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    expect_error(answer.error_code, NONE, what="InitProducerId")
    return Producer(answer.producer_id, answer.producer_epoch)


async def written(lab: Lab, topic: str, records: bytes | None, error: ErrorCode = NONE, offset: int | None = None, **more: Any) -> Any:
    """The response of a partition, which has to have this error and offset."""
    answer = await lab.produce(topic, records, **more)
    expect_error(answer.error_code, error)
    expect(offset is None or answer.base_offset == offset, f"base offset {answer.base_offset} in place of {offset}")
    return answer


async def stored(lab: Lab, topic: str, offset: int = 0) -> list[Record]:
    """The records of partition 0 from this offset on."""
    data = bytes((await lab.fetch(topic, offset, max_wait_ms=1000, min_bytes=1)).records or b"")
    at, found = 0, []
    while at < len(data):
        header = read_header(data, at)
        found += read_records(data, header, at)
        at += header.size
    return found


@SECTION.must(1, "The first batch has offset 0, and the next one the offset after its last record.", GUIDE)
async def offsets(lab: Lab) -> None:
    topic = await lab.topic()
    await written(lab, topic, batch("a", "b", "c"), offset=0)
    await written(lab, topic, batch("d"), offset=3)
    await written(lab, topic, batch("e"), offset=4)


@SECTION.must(2, "A topic with CreateTime keeps the times of the records and responds -1.", "KIP-32")
async def create_time(lab: Lab) -> None:
    topic = await lab.topic()
    answer = await written(lab, topic, batch("a", timestamp=(now := int(time.time() * 1000) - 5000)))
    expect(answer.log_append_time_ms == -1, f"log append time {answer.log_append_time_ms}")
    expect((await stored(lab, topic))[0].timestamp == now, "another timestamp is stored")


@SECTION.must(3, "A topic with LogAppendTime has the time of the broker, and the response says it.", "KIP-32")
async def append_time(lab: Lab) -> None:
    topic = await lab.topic(message_timestamp_type="LogAppendTime")
    answer = await written(lab, topic, batch("a", timestamp=1000))
    expect(answer.log_append_time_ms > 1000, f"log append time {answer.log_append_time_ms}")
    expect((await stored(lab, topic))[0].timestamp == answer.log_append_time_ms, "another timestamp is stored")


@SECTION.must(4, "Produce with acks 0 has no response.", GUIDE)
async def no_acks(lab: Lab) -> None:
    topic = await lab.topic()
    connection = await lab.leader(topic)
    await connection.send(lab.produce_request(topic, batch("a"), acks=0), lab.version("Produce", 12, 3))
    expect_error((await connection.ask(messages.ApiVersionsRequest(), 0)).error_code, NONE)
    records = await lab.until(lambda: stored(lab, topic), len)
    expect([each.value for each in records] == [b"a"], "the record is not there")


@SECTION.must(5, "Produce with acks 0 and an error closes the connection.", "Apache Kafka: KafkaApis.handleProduceRequest")
async def no_acks_error(lab: Lab) -> None:
    topic = await lab.topic()
    connection = await lab.leader(topic)
    await connection.send(lab.produce_request(topic, batch("a"), acks=0, partition=9), lab.version("Produce", 12, 3))
    await connection.expect_closed("acks 0 with an unknown partition")


@SECTION.must(6, "Produce with acks 1 is appended.", GUIDE)
async def one_ack(lab: Lab) -> None:
    await written(lab, await lab.topic(), batch("a"), acks=1, offset=0)


@SECTION.must(7, "A batch with a wrong CRC is CORRUPT_MESSAGE, and is not appended.", GUIDE)
async def bad_crc(lab: Lab) -> None:
    topic = await lab.topic()
    data = bytearray(batch("a"))
    data[17] ^= 1
    await written(lab, topic, bytes(data), ErrorCode.CORRUPT_MESSAGE)
    await written(lab, topic, batch("a"), offset=0)


async def _compressed(lab: Lab, codec: Codec) -> None:
    topic = await lab.topic()
    values = [f"value {number}" for number in range(50)]
    await written(lab, topic, batch(*values, codec=codec), offset=0)
    found = [each.value.decode() for each in await stored(lab, topic) if each.value is not None]
    expect(found == values, f"{len(found)} records came back")


@SECTION.must(8, "Batches that are compressed with gzip come back.", "KIP-98: message format 2")
async def gzip(lab: Lab) -> None:
    await _compressed(lab, Codec.GZIP)


@SECTION.must(9, "Batches that are compressed with snappy come back.", "KIP-98: message format 2")
async def snappy(lab: Lab) -> None:
    await _compressed(lab, Codec.SNAPPY)


@SECTION.must(10, "Batches that are compressed with lz4 come back.", "KIP-98: message format 2")
async def lz4(lab: Lab) -> None:
    await _compressed(lab, Codec.LZ4)


@SECTION.must(11, "Batches that are compressed with zstd come back since Produce 7.", "KIP-110")
async def zstd(lab: Lab) -> None:
    lab.version("Produce", 12, 7)
    lab.version("Fetch", 12, 10)
    await _compressed(lab, Codec.ZSTD)


@SECTION.must(12, "A batch that is compressed with zstd is UNSUPPORTED_COMPRESSION_TYPE before Produce 7.", "KIP-110")
async def zstd_too_early(lab: Lab) -> None:
    records = batch("a", codec=Codec.ZSTD)
    await written(lab, await lab.topic(), records, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, at_most=6)


@SECTION.must(13, "Two batches for one partition in one request are INVALID_RECORD.", "Apache Kafka: ProduceRequest.validateRecords")
async def two_batches(lab: Lab) -> None:
    await written(lab, await lab.topic(), batch("a") + batch("b"), ErrorCode.INVALID_RECORD)


@SECTION.must(14, "Records that come back have the keys, values and headers that were sent, null ones too.", "KIP-82")
async def headers(lab: Lab) -> None:
    now = int(time.time() * 1000)
    sent = [
        Record(0, now, b"key", b"value", ((b"one", b"1"), (b"one", None), (b"", b""))),
        Record(1, now, None, None),
        Record(2, now, b"", b""),
    ]
    topic = await lab.topic()
    await written(lab, topic, encode_batch(sent))
    expect(await stored(lab, topic) == sent, "the records differ")


@SECTION.must(15, "Each idempotent producer gets an id of its own, with epoch 0.", IDEMPOTENCE)
async def producer_ids(lab: Lab) -> None:
    first, second = await producer(lab), await producer(lab)
    expect(first.id >= 0 and first.id != second.id, f"producer ids {first.id} and {second.id}")
    expect(first.epoch == second.epoch == 0, f"epochs {first.epoch} and {second.epoch}")


@SECTION.must(16, "Batches whose sequence numbers follow each other are appended.", IDEMPOTENCE)
async def in_sequence(lab: Lab) -> None:
    topic, one = await lab.topic(), await producer(lab)
    await written(lab, topic, one.batch(0, "a", "b"), offset=0)
    await written(lab, topic, one.batch(2, "c"), offset=2)


@SECTION.must(17, "A batch that is sent again gets the same offset, and is appended once.", IDEMPOTENCE)
async def duplicate(lab: Lab) -> None:
    topic, one = await lab.topic(), await producer(lab)
    await written(lab, topic, one.batch(0, "a", "b"), offset=0)
    await written(lab, topic, one.batch(0, "a", "b"), offset=0)
    expect(len(await stored(lab, topic)) == 2, "it was appended twice")


@SECTION.must(18, "The last five batches of a producer are known as duplicates.", "KIP-98: max.in.flight.requests.per.connection up to 5")
async def five_duplicates(lab: Lab) -> None:
    topic, one = await lab.topic(), await producer(lab)
    for number in range(5):
        await written(lab, topic, one.batch(number, "a"), offset=number)
    for number in range(5):
        await written(lab, topic, one.batch(number, "a"), offset=number)
    expect(len(await stored(lab, topic)) == 5, "a batch was appended twice")


@SECTION.must(19, "A gap in the sequence numbers is OUT_OF_ORDER_SEQUENCE_NUMBER.", IDEMPOTENCE)
async def gap(lab: Lab) -> None:
    topic, one = await lab.topic(), await producer(lab)
    await written(lab, topic, one.batch(0, "a"))
    await written(lab, topic, one.batch(2, "b"), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    await written(lab, topic, one.batch(1, "c"), offset=1)


@SECTION.must(20, "A new epoch begins with sequence number 0.", "KIP-360")
async def new_epoch(lab: Lab) -> None:
    topic, one = await lab.topic(), await producer(lab)
    await written(lab, topic, one.batch(0, "a"))
    await written(lab, topic, one._replace(epoch=1).batch(1, "b"), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    await written(lab, topic, one._replace(epoch=1).batch(0, "b"), offset=1)


@SECTION.must(21, "A batch of an older epoch is INVALID_PRODUCER_EPOCH.", IDEMPOTENCE)
async def old_epoch(lab: Lab) -> None:
    topic, one = await lab.topic(), await producer(lab)
    await written(lab, topic, one._replace(epoch=1).batch(0, "a"))
    await written(lab, topic, one.batch(0, "b"), ErrorCode.INVALID_PRODUCER_EPOCH)


@SECTION.must(22, "The sequence numbers of each partition are counted alone.", IDEMPOTENCE)
async def by_partition(lab: Lab) -> None:
    topic, one = await lab.topic(2), await producer(lab)
    await written(lab, topic, one.batch(0, "a"), offset=0)
    await written(lab, topic, one.batch(0, "b"), offset=0, partition=1)
    await written(lab, topic, one.batch(1, "c"), offset=1, partition=1)


@SECTION.must(23, "The sequence number after 2147483647 is 0.", IDEMPOTENCE)
async def sequence_wraps(lab: Lab) -> None:
    topic, one = await lab.topic(), await producer(lab)
    await written(lab, topic, one.batch(2**31 - 2, "a", "b"), offset=0)
    await written(lab, topic, one.batch(0, "c"), offset=2)


@SECTION.must(24, "A record without a key is INVALID_RECORD in a compacted topic.", "Apache Kafka: LogValidator")
async def compacted_without_key(lab: Lab) -> None:
    topic = await lab.topic(cleanup_policy="compact")
    await written(lab, topic, batch("a"), ErrorCode.INVALID_RECORD)
    await written(lab, topic, batch("a", key=b"k"), offset=0)


@SECTION.must(25, "The response names the records of a batch that are wrong.", "KIP-467")
async def record_errors(lab: Lab) -> None:
    lab.version("Produce", 12, 8)
    topic = await lab.topic(cleanup_policy="compact")
    now = int(time.time() * 1000)
    records = [Record(0, now, b"k", b"a"), Record(1, now, None, b"b"), Record(2, now, b"k", b"c"), Record(3, now, None, b"d")]
    answer = await written(lab, topic, encode_batch(records), ErrorCode.INVALID_RECORD)
    found = [each.batch_index for each in answer.record_errors]
    expect(found == [1, 3], f"records {found}")


@SECTION.must(26, "A control batch of a client is INVALID_RECORD.", "Apache Kafka: LogValidator")
async def control_batch(lab: Lab) -> None:
    await written(lab, await lab.topic(), batch("a", attributes=CONTROL, key=b"\0\0\0\1"), ErrorCode.INVALID_RECORD)


@SECTION.must(27, "A batch that counts more records than it has is refused, and is not appended.", "Apache Kafka: LogValidator")
async def wrong_count(lab: Lab) -> None:
    header = read_header(batch("a"))
    body = encode_record(Record(0, header.base_timestamp, None, b"a"), 0, header.base_timestamp)
    wrong = seal(header._replace(record_count=5, last_offset_delta=4), body)
    topic = await lab.topic()
    answer = await lab.produce(topic, wrong)
    expect(answer.error_code != NONE, "it was accepted")
    await written(lab, topic, batch("a"), offset=0)


@SECTION.must(28, "A compressed batch whose offsets do not ascend is refused, and is not appended.", "Apache Kafka: LogValidator")
async def wrong_offsets(lab: Lab) -> None:
    header = read_header(batch("a", "b"))
    body = b"".join(encode_record(Record(each, header.base_timestamp, None, b"a"), 0, header.base_timestamp) for each in (0, 0))
    wrong = seal(header._replace(attributes=int(Codec.GZIP)), compress(Codec.GZIP, body))
    topic = await lab.topic()
    answer = await lab.produce(topic, wrong)
    expect(answer.error_code != NONE, "it was accepted")
    await written(lab, topic, batch("a"), offset=0)


@SECTION.must(29, "A batch whose compressed data is not valid is refused, and is not appended.", "Apache Kafka: LogValidator")
async def junk(lab: Lab) -> None:
    wrong = seal(read_header(batch("a"))._replace(attributes=int(Codec.GZIP)), b"not gzip")
    topic = await lab.topic()
    answer = await lab.produce(topic, wrong)
    expect(answer.error_code != NONE, "it was accepted")
    await written(lab, topic, batch("a"), offset=0)


@SECTION.must(30, "A batch of an unknown magic is refused.", GUIDE)
async def unknown_magic(lab: Lab) -> None:
    data = bytearray(batch("a"))
    data[16] = 9
    topic = await lab.topic()
    connection = await lab.leader(topic)
    sent = connection.frame(lab.produce_request(topic, bytes(data)), lab.version("Produce", 12, 3))
    await connection.write(sent.frame)
    answer = await connection.payload()
    expect(answer is None or sent.correlation_id.to_bytes(4, "big") == answer[:4], "another correlation id")
    expect(not (await lab.fetch(topic)).high_watermark, "it was appended")


@SECTION.must(31, "A batch of message format 1 is INVALID_RECORD since Produce 3.", "KIP-98: Produce 3 has message format 2")
async def old_magic(lab: Lab) -> None:
    data = bytes(8) + (22).to_bytes(4, "big") + bytes(4) + b"\x01\0" + bytes(8) + b"\xff" * 8
    topic = await lab.topic()
    await written(lab, topic, data, ErrorCode.INVALID_RECORD)


@SECTION.must(32, "A time too far in the future is INVALID_TIMESTAMP if the topic says so.", "KIP-937")
async def future(lab: Lab) -> None:
    topic = await lab.topic(message_timestamp_after_max_ms="1000")
    later = int(time.time() * 1000) + 3_600_000
    await written(lab, topic, batch("a", timestamp=later), ErrorCode.INVALID_TIMESTAMP)


@SECTION.must(33, "The response has the log start offset, 0 in a new log.", "Produce 5")
async def log_start(lab: Lab) -> None:
    lab.version("Produce", 12, 5)
    answer = await written(lab, await lab.topic(), batch("a"))
    expect(answer.log_start_offset == 0, f"log start offset {answer.log_start_offset}")


@SECTION.must(34, "A request without topics has a response without topics.", GUIDE)
async def nothing(lab: Lab) -> None:
    response = await lab.ask(messages.ProduceRequest(acks=1, timeout_ms=1000), 12, 3)
    expect(not response.responses, f"{len(response.responses)} topics")


@SECTION.must(35, "A partition without records is refused with an error of its own, or has a response.", GUIDE)
async def no_records(lab: Lab) -> str:
    topic = await lab.topic()
    answer = await lab.produce(topic, b"")
    return error_name(answer.error_code)


@SECTION.must(36, "min.insync.replicas above the number of replicas counts as that number.", "Apache Kafka: Partition.effectiveMinIsr")
async def more_than_replicas(lab: Lab) -> None:
    await written(lab, await lab.topic(min_insync_replicas="2"), batch("a"), offset=0)
