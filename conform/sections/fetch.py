"""Section 7: fetch, sessions, offsets and order."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from klamm.conform.case import Absent, Section, expect
from klamm.conform.connection import error_name, expect_error
from klamm.conform.lab import Lab, batch, fetch_request
from klamm.conform.sections.produce import stored
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import each_header, read_header
from klamm.protocol.records.record import read_records

SECTION = Section(7, "fetch", "Fetch, sessions, offsets and order")
NONE = ErrorCode.NONE
SESSIONS = "KIP-227"
LIST = "Kafka protocol guide: ListOffsets"
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def filled(lab: Lab, *batches: tuple[str, ...]) -> str:
    """A topic with these batches in partition 0."""
    topic = await lab.topic()
    for values in batches:
        expect_error((await lab.produce(topic, batch(*values))).error_code, NONE)
    return topic


async def offset_at(lab: Lab, topic: str, timestamp: int, at_least: int = 1, **more: Any) -> Any:
    """The response of ListOffsets for partition 0."""
    part = messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **more)
    rows = [messages.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
    version = lab.version("ListOffsets", 9, at_least)
    response = await (await lab.leader(topic)).ask(messages.ListOffsetsRequest(replica_id=-1, topics=rows), version)
    return response.topics[0].partitions[0]


async def _offset_is(lab: Lab, topic: str, timestamp: int, offset: int, **more: Any) -> None:
    answer = await offset_at(lab, topic, timestamp, **more)
    expect_error(answer.error_code, NONE)
    expect(answer.offset == offset, f"offset {answer.offset} in place of {offset}")


@SECTION.must(1, "Records come back in the order in which they were produced, with ascending offsets.", "Kafka documentation: guarantees")
async def order(lab: Lab) -> None:
    topic = await filled(lab, ("a", "b"), ("c",), ("d", "e"))
    records = await lab.until(lambda: stored(lab, topic), lambda found: len(found) == 5)
    expect([each.value for each in records] == [b"a", b"b", b"c", b"d", b"e"], "another order")
    expect([each.offset for each in records] == [0, 1, 2, 3, 4], "other offsets")


@SECTION.must(2, "A fetch from the middle of a batch has the whole batch.", "Kafka protocol guide: Fetch")
async def middle(lab: Lab) -> None:
    topic = await filled(lab, ("a", "b", "c"), ("d",))
    data = bytes((await lab.fetch(topic, 1)).records)
    expect(read_header(data).base_offset == 0, f"base offset {read_header(data).base_offset}")


@SECTION.must(3, "A fetch at the end of the log has no records and no error.", "Kafka protocol guide: Fetch")
async def at_end(lab: Lab) -> None:
    answer = await lab.fetch(await filled(lab, ("a",)), 1)
    expect_error(answer.error_code, NONE)
    expect(not answer.records, "there are records")


@SECTION.must(4, "High watermark, last stable offset and log start offset are there.", "KIP-98, KIP-107")
async def watermarks(lab: Lab) -> None:
    answer = await lab.fetch(await filled(lab, ("a", "b")), 0, version=lab.version("Fetch", 12, 5))
    found = answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
    expect(found == (2, 2, 0), f"{found} in place of (2, 2, 0)")


@SECTION.must(5, "The first batch is complete even if it is above max bytes.", "KIP-74")
async def first_batch(lab: Lab) -> None:
    topic = await filled(lab, ("x" * 5000,), ("y",))
    answer = await lab.fetch(topic, 0, of_partition={"partition_max_bytes": 1}, max_bytes=1)
    data = bytes(answer.records)
    expect(len(data) >= read_header(data).size, "the batch is cut")


@SECTION.must(6, "Max bytes of a partition limits what comes after the first batch.", "KIP-74")
async def partition_limit(lab: Lab) -> None:
    topic = await filled(lab, ("x" * 1000,), ("y" * 1000,), ("z" * 1000,))
    data = bytes((await lab.fetch(topic, 0, of_partition={"partition_max_bytes": 1200})).records)
    expect(len(data) <= 1200, f"{len(data)} bytes")


@SECTION.must(7, "Max bytes of a request limits what comes after the first batch.", "KIP-74")
async def request_limit(lab: Lab) -> None:
    topic = await filled(lab, ("x" * 1000,), ("y" * 1000,), ("z" * 1000,))
    data = bytes((await lab.fetch(topic, 0, max_bytes=1200)).records)
    expect(len(data) <= 1200, f"{len(data)} bytes")


@SECTION.must(8, "A fetch of an empty log waits for max wait if min bytes is above 0.", "Kafka protocol guide: Fetch")
async def max_wait(lab: Lab) -> None:
    topic = await lab.topic()
    begun = time.monotonic()
    await lab.fetch(topic, 0, max_wait_ms=500, min_bytes=1)
    expect(time.monotonic() - begun >= 0.4, "it did not wait")


@SECTION.must(9, "A fetch that waits gets records as soon as they are there.", "Kafka protocol guide: Fetch")
async def woken(lab: Lab) -> None:
    topic = await lab.topic()
    connection = await lab.leader(topic)
    sent = await connection.send(fetch_request(topic, max_wait_ms=60_000, min_bytes=1), lab.version("Fetch", 12, 4))
    await lab.produce(topic, batch("a"))
    answer = (await connection.receive(sent)).responses[0].partitions[0]
    expect(answer.records, "no records")


@SECTION.must(10, "A fetch with min bytes 0 does not wait.", "Kafka protocol guide: Fetch")
async def no_wait(lab: Lab) -> None:
    await lab.fetch(await lab.topic(), 0, max_wait_ms=60_000, min_bytes=0)


@SECTION.must(11, "A partition with an error does not let the fetch wait.", "Apache Kafka: ReplicaManager.fetchMessages")
async def error_at_once(lab: Lab) -> None:
    answer = await lab.fetch(await lab.topic(), 99, max_wait_ms=60_000, min_bytes=1)
    expect_error(answer.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)


@SECTION.must(12, "A fetch with a newer leader epoch is UNKNOWN_LEADER_EPOCH.", "KIP-320")
async def epochs(lab: Lab) -> None:
    version = lab.version("Fetch", 12, 9)
    answer = await lab.fetch(await lab.topic(), version=version, of_partition={"current_leader_epoch": 99})
    expect_error(answer.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH)


@SECTION.must(13, "A consumer is not sent to another replica without a rack.", "KIP-392")
async def preferred_replica(lab: Lab) -> None:
    answer = await lab.fetch(await filled(lab, ("a",)), version=lab.version("Fetch", 12, 11))
    expect(answer.preferred_read_replica == -1, f"replica {answer.preferred_read_replica}")


@SECTION.must(14, "Fetch by topic id has the records of the topic.", "KIP-516, Fetch 13")
async def by_id(lab: Lab) -> None:
    version = lab.version("Fetch", 17, 13)
    topic = await filled(lab, ("a",))
    request = fetch_request("")
    request = request._replace(topics=[request.topics[0]._replace(topic_id=await lab.topic_id(topic))])
    response = await (await lab.leader(topic)).ask(request, version)
    answer = response.responses[0].partitions[0]
    expect_error(answer.error_code, NONE)
    expect(answer.records, "no records")


@SECTION.must(15, "Fetch of an unknown topic id is UNKNOWN_TOPIC_ID.", "KIP-516, Fetch 13")
async def unknown_id(lab: Lab) -> None:
    version = lab.version("Fetch", 17, 13)
    request = fetch_request("")
    request = request._replace(topics=[request.topics[0]._replace(topic_id=b"\x07" * 16)])
    response = await (await lab.connect()).ask(request, version)
    expect_error(response.responses[0].partitions[0].error_code, ErrorCode.UNKNOWN_TOPIC_ID)


# sessions


async def _session(lab: Lab, topic: str) -> tuple[Any, int, int]:
    """A connection, the version and the id of a new session with partition 0."""
    version = lab.version("Fetch", 12, 7)
    connection = await lab.leader(topic)
    response = await connection.ask(fetch_request(topic, session_epoch=0), version)
    expect_error(response.error_code, NONE)
    expect(response.session_id != 0, "the server made no session")
    return connection, version, response.session_id


def _next(session_id: int, epoch: int, **more: Any) -> Any:
    return fetch_request("")._replace(topics=[], session_id=session_id, session_epoch=epoch, **more)


@SECTION.should(16, "A fetch with session epoch 0 makes a session.", SESSIONS)
async def new_session(lab: Lab) -> None:
    await _session(lab, await lab.topic())


@SECTION.must(17, "The response to an incremental fetch names only partitions with news.", SESSIONS)
async def incremental(lab: Lab) -> None:
    topic = await lab.topic()
    connection, version, session_id = await _session(lab, topic)
    response = await connection.ask(_next(session_id, 1), version)
    expect_error(response.error_code, NONE)
    expect(not response.responses, "a partition without news is named")
    await lab.produce(topic, batch("a"))
    response = await connection.ask(_next(session_id, 2), version)
    expect([each.topic for each in response.responses] == [topic], "the partition with news is not named")


@SECTION.must(18, "A wrong session epoch is INVALID_FETCH_SESSION_EPOCH.", SESSIONS)
async def wrong_session_epoch(lab: Lab) -> None:
    connection, version, session_id = await _session(lab, await lab.topic())
    response = await connection.ask(_next(session_id, 5), version)
    expect_error(response.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


@SECTION.must(19, "An unknown session is FETCH_SESSION_ID_NOT_FOUND.", SESSIONS)
async def unknown_session(lab: Lab) -> None:
    topic = await lab.topic()
    response = await (await lab.leader(topic)).ask(_next(12345, 1), lab.version("Fetch", 12, 7))
    expect_error(response.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


@SECTION.must(20, "A partition that is forgotten is not in the session any more.", SESSIONS)
async def forgotten(lab: Lab) -> None:
    topic = await lab.topic()
    connection, version, session_id = await _session(lab, topic)
    gone = [messages.FetchRequest.ForgottenTopic(topic=topic, partitions=(0,))]
    await connection.ask(_next(session_id, 1, forgotten_topics_data=gone), version)
    await lab.produce(topic, batch("a"))
    response = await connection.ask(_next(session_id, 2), version)
    expect_error(response.error_code, NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    expect(not response.responses, "the partition is named")


@SECTION.must(21, "Session epoch -1 ends the session.", SESSIONS)
async def last_of_session(lab: Lab) -> None:
    topic = await lab.topic()
    connection, version, session_id = await _session(lab, topic)
    response = await connection.ask(fetch_request(topic, session_id=session_id, session_epoch=-1), version)
    expect(response.session_id == 0, f"session {response.session_id}")
    response = await connection.ask(_next(session_id, 1), version)
    expect_error(response.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


@SECTION.must(22, "A session remembers the fetch offset that it was given last.", SESSIONS)
async def session_offset(lab: Lab) -> None:
    topic = await filled(lab, ("a",), ("b",))
    connection, version, session_id = await _session(lab, topic)
    await connection.ask(fetch_request(topic, 2, session_id=session_id, session_epoch=1), version)
    await lab.produce(topic, batch("c"))
    response = await connection.ask(_next(session_id, 2), version)
    data = bytes(response.responses[0].partitions[0].records)
    expect(read_header(data).base_offset == 2, f"base offset {read_header(data).base_offset}")


# offsets


@SECTION.must(23, "The latest offset is that of the next record, the earliest that of the first one.", LIST)
async def ends(lab: Lab) -> None:
    topic = await filled(lab, ("a", "b", "c"))
    await _offset_is(lab, topic, LATEST, 3)
    await _offset_is(lab, topic, EARLIEST, 0)


@SECTION.must(24, "ListOffsets by time has the first record at or after it.", LIST)
async def by_time(lab: Lab) -> None:
    topic = await lab.topic()
    now = int(time.time() * 1000) - 60_000
    for at in (0, 1000, 2000):
        await lab.produce(topic, batch("a", timestamp=now + at))
    await _offset_is(lab, topic, now, 0)
    await _offset_is(lab, topic, now + 1, 1)
    await _offset_is(lab, topic, now + 1000, 1)
    await _offset_is(lab, topic, now + 1001, 2)


@SECTION.must(25, "ListOffsets by a time after the last record has offset -1.", LIST)
async def by_late_time(lab: Lab) -> None:
    topic = await filled(lab, ("a",))
    await _offset_is(lab, topic, int(time.time() * 1000) + 3_600_000, -1)


@SECTION.must(26, "ListOffsets by time finds a record within a batch.", LIST)
async def within_batch(lab: Lab) -> None:
    from klamm.protocol.records.record import Record, encode_batch

    topic = await lab.topic()
    now = int(time.time() * 1000) - 60_000
    await lab.produce(topic, encode_batch([Record(number, now + number * 10, None, b"a") for number in range(5)]))
    await _offset_is(lab, topic, now + 25, 3)


@SECTION.must(27, "The offset of the largest timestamp is that of its record.", "KIP-734, ListOffsets 7")
async def max_timestamp(lab: Lab) -> None:
    topic = await lab.topic()
    now = int(time.time() * 1000) - 60_000
    for at in (0, 5000, 2000):
        await lab.produce(topic, batch("a", timestamp=now + at))
    await _offset_is(lab, topic, MAX_TIMESTAMP, 1, at_least=7)


@SECTION.must(28, "The leader epoch of an offset is there.", "KIP-320, ListOffsets 4")
async def epoch_of_offset(lab: Lab) -> None:
    answer = await offset_at(lab, await filled(lab, ("a",)), EARLIEST, 4)
    expect(answer.leader_epoch >= 0, f"leader epoch {answer.leader_epoch}")


@SECTION.must(29, "ListOffsets with a newer leader epoch is UNKNOWN_LEADER_EPOCH.", "KIP-320")
async def list_with_epoch(lab: Lab) -> None:
    answer = await offset_at(lab, await lab.topic(), LATEST, 4, current_leader_epoch=99)
    expect_error(answer.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH)


# deleted records


async def delete_records(lab: Lab, topic: str, offset: int) -> Any:
    """The response of DeleteRecords for partition 0."""
    part = messages.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    rows = [messages.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])]
    request = messages.DeleteRecordsRequest(topics=rows, timeout_ms=5000)
    return (await (await lab.leader(topic)).ask(request, lab.version("DeleteRecords"))).topics[0].partitions[0]


@SECTION.must(30, "After DeleteRecords the log begins at that offset.", "KIP-107")
async def after_delete(lab: Lab) -> None:
    topic = await filled(lab, ("a",), ("b",), ("c",))
    answer = await delete_records(lab, topic, 2)
    expect_error(answer.error_code, NONE)
    expect(answer.low_watermark == 2, f"low watermark {answer.low_watermark}")
    await _offset_is(lab, topic, EARLIEST, 2)
    expect_error((await lab.fetch(topic, 0)).error_code, ErrorCode.OFFSET_OUT_OF_RANGE)


@SECTION.must(31, "DeleteRecords with offset -1 deletes up to the high watermark.", "KIP-107")
async def delete_all(lab: Lab) -> None:
    topic = await filled(lab, ("a", "b"))
    answer = await delete_records(lab, topic, -1)
    expect(answer.low_watermark == 2, f"low watermark {answer.low_watermark}")


@SECTION.must(32, "DeleteRecords behind the high watermark is OFFSET_OUT_OF_RANGE.", "KIP-107")
async def delete_too_much(lab: Lab) -> None:
    answer = await delete_records(lab, await filled(lab, ("a",)), 9)
    expect_error(answer.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)


@SECTION.must(33, "A fetch of several partitions has each of them.", "Kafka protocol guide: Fetch")
async def several(lab: Lab) -> None:
    topic = await lab.topic()
    other = await lab.topic()
    for name in (topic, other):
        await lab.produce(name, batch(name))
    if (await lab.metadata(topic)).topics[0].partitions[0].leader_id != (await lab.metadata(other)).topics[0].partitions[0].leader_id:
        raise Absent("the leaders of the two topics differ")
    request = fetch_request(topic)
    request = request._replace(topics=[*request.topics, *fetch_request(other).topics])
    response = await (await lab.leader(topic)).ask(request, lab.version("Fetch", 12, 4))
    found = {each.topic: bytes(each.partitions[0].records or b"") for each in response.responses}
    expect(set(found) == {topic, other}, f"{len(found)} topics")
    for name, data in found.items():
        records = [one for at, header in each_header(data) for one in read_records(data, header, at)]
        expect([one.value for one in records] == [name.encode()], "records of another topic")


@SECTION.must(34, "A fetch that waits ends when its client goes, and the server serves others.", "Apache Kafka: SocketServer")
async def client_goes(lab: Lab) -> None:
    topic = await lab.topic()
    connection = await lab.leader(topic)
    await connection.send(fetch_request(topic, max_wait_ms=30_000, min_bytes=1), lab.version("Fetch", 12, 4))
    connection.close()
    await asyncio.sleep(0)
    expect_error((await lab.produce(topic, batch("a"))).error_code, NONE)


@SECTION.must(35, "The aborted transactions of a read_uncommitted fetch are null or empty.", "KIP-98")
async def no_aborted(lab: Lab) -> str:
    answer = await lab.fetch(await filled(lab, ("a",)))
    expect(not answer.aborted_transactions, "there are some")
    return error_name(answer.error_code)
