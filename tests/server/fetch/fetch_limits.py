"""What a Fetch gives at many limits, told to a cluster of any kind: `tell` returns lines of text.

Apache Kafka ends the records of a partition at the limit, in the middle of a batch. Each line has a question and, for each partition of the
response, its error code, the number of bytes, the whole batches or messages in them as base offsets, and a CRC-32 of the bytes. Bytes that
the cluster compressed itself have no CRC.

    python -m klamm.tests.server.fetch.fetch_limits --record

asks a real Apache Kafka and writes `fetch_limits.txt`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.batches import records_of
from klamm.tests.harness.client import Client
from klamm.tests.harness.kafka import KafkaBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import eventually_asked
from klamm.tests.reference.jars import jars
from klamm.zk.embedded.server import EmbeddedZooKeeper

FILE = Path(__file__).with_suffix(".txt")
VERSIONS = (0, 2, 3, 4, 11, 12, 16)
MOST = 1 << 24
_PLAIN = ["(a*100)", "(b*50,c*50)", "(k=d*100)", "(e*20)", "(f*90,g*90,h*90)", "(i)"]
TOPICS: dict[str, tuple[dict[str, str], list[list[str]]]] = {
    "plain": ({}, [_PLAIN]),
    "many": ({"segment.bytes": "400"}, [_PLAIN * 2]),
    "three": ({}, [["(a*100)", "(b*100)"], ["(c*150)", "(d*60)"], ["(e*200)", "(f*10)"]]),
    "packed": ({}, [["gzip(a*300,b*300)", "snappy(c*300)", "lz4(d*300)", "(e*30)"]]),
    "zstd": ({}, [["(a*100)", "(b*100)", "zstd(c*100)", "(d*100)"]]),
    "zstd-first": ({}, [["zstd(c*100)", "(d*100)"]]),
    "big": ({}, [["(a*70000)", "(b*70000)", "(c*150000)", "(d*100)"]]),
    "tiny": ({}, [["(a,b,c,d,e,f,g,h)"] * 4]),
}
"""By topic: its configs, and the batches of each partition."""

Question = tuple[str, Sequence[tuple[int, int, int]], int]
"""Topic, (partition, offset, limit of the partition) of each, limit of the request."""


def questions() -> list[Question]:
    """All that is asked, in each version."""
    asked: list[Question] = []
    sizes = (0, 1, 11, 12, 17, 61, 100, 168, 169, 170, 180, 196, 230, 250, 350, 380, 500, 700, 1000, MOST)
    asked += [("plain", [(0, 0, size)], MOST) for size in sizes]
    asked += [("plain", [(0, 0, MOST)], size) for size in (0, 1, 100, 180, 250, 500)]
    asked += [("plain", [(0, 2, size)], MOST) for size in (1, 150, 200, 250, 600)]
    asked += [("plain", [(0, 8, size)], MOST) for size in (1, 69, 70, 100)]
    asked += [("many", [(0, offset, size)], MOST) for offset in (0, 3, 5, 9) for size in (1, 180, 300, 450, MOST)]
    asked += [("three", [(p, 0, MOST) for p in range(3)], size) for size in (1, 168, 200, 400, 500, 600, 700, 900, MOST)]
    asked += [("three", [(p, 0, 200) for p in range(3)], size) for size in (1, 200, 300, 500, MOST)]
    asked += [("three", [(0, 0, 10), (1, 0, 250), (2, 0, 100)], MOST), ("three", [(2, 2, 10), (1, 0, 10), (0, 0, 200)], 400)]
    asked += [("packed", [(0, 0, size)], MOST) for size in (1, 100, 200, 250, 300, 400, MOST)]
    asked += [("zstd", [(0, 0, size)], MOST) for size in (1, 200, 350, 450, 600, MOST)]
    asked += [("zstd", [(0, 2, MOST)], MOST), ("zstd-first", [(0, 0, 100)], MOST), ("zstd-first", [(0, 0, MOST)], MOST)]
    asked += [("big", [(0, offset, size)], MOST) for offset in (0, 1) for size in (1, 70_100, 140_000, 141_000, 250_000, 290_300, MOST)]
    asked += [("tiny", [(0, offset, size)], MOST) for offset in (0, 3) for size in (1, 120, 150, 250, 400, MOST)]
    return asked


async def tell(address: tuple[str, int]) -> list[str]:
    """Write the topics, then ask everything."""
    client = Client(*address)
    try:
        await write(client)
        return await ask(client)
    finally:
        await client.close()


async def write(client: Client) -> None:
    """Create the topics with their records."""
    kind = messages.ProduceRequest
    for topic, (configs, partitions) in TOPICS.items():
        (made,) = (await client.ask(requests.create_topic(topic, partitions=len(partitions), factor=1, configs=configs), 5)).topics
        assert made.error_code == 0, made
        for index, batches in enumerate(partitions):
            for each in batches:
                data = [kind.PartitionProduceData(index=index, records=records_of([each]))]
                message = kind(acks=-1, timeout_ms=10_000, topic_data=[kind.TopicProduceData(name=topic, partition_data=data)])

                async def produced(message: Any = message) -> bool:
                    answer = await client.ask(message, 8)
                    return answer.responses[0].partition_responses[0].error_code == 0

                await eventually_asked(produced, f"the records of {topic} are written")


async def written(client: Client) -> None:
    """Wait until the broker leads the topics and has their records."""

    async def look() -> bool:
        rows = [messages.FetchRequest.FetchPartition(partition=0, partition_max_bytes=1)]
        topics = [messages.FetchRequest.FetchTopic(topic=topic, partitions=rows) for topic in TOPICS]
        response = await client.ask(messages.FetchRequest(max_wait_ms=0, max_bytes=MOST, session_epoch=-1, topics=topics), 11)
        given = [row for topic in response.responses for row in topic.partitions]
        return all(row.error_code == 0 and row.high_watermark > 0 for row in given)

    await eventually_asked(look, "the broker has its records")


async def ask(client: Client) -> list[str]:
    """The answers, a line for each question and those versions that say the same."""
    lines = []
    metadata = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=topic) for topic in TOPICS])
    ids = {topic.name: topic.topic_id for topic in (await client.ask(metadata, 11)).topics}
    for question in questions():
        answers: dict[str, list[str]] = {}
        for version in VERSIONS:
            answers.setdefault(await _answer(client, question, version, ids), []).append(str(version))
        topic, partitions, most = question
        what = " ".join(f"{topic}-{index}@{offset},max={limit}" for index, offset, limit in partitions)
        lines += [f"{what} max={most} v{','.join(versions)}: {answer}" for answer, versions in answers.items()]
    return lines


async def _answer(client: Client, question: Question, version: int, ids: dict[str, bytes]) -> str:
    topic, partitions, most = question
    kind = messages.FetchRequest
    rows = [kind.FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=limit) for p, offset, limit in partitions]
    name: dict[str, Any] = {"topic": topic} if version < 13 else {"topic_id": ids[topic]}
    message = kind(max_wait_ms=0, min_bytes=0, max_bytes=most, session_epoch=-1, topics=[kind.FetchTopic(partitions=rows, **name)])
    response = await client.ask(message, version)
    given = response.responses[0].partitions
    return "; ".join(f"{row.error_code} {_text(bytes(row.records or b''))}" for row in given)


def _text(data: bytes) -> str:
    whole, at, is_packed = [], 0, False
    while len(data) - at >= 23 and (end := at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")) <= len(data):
        is_packed = is_packed or (data[at + 16] < 2 and data[at + 17] & 7 != 0)
        whole.append(str(int.from_bytes(data[at : at + 8], "big")))
        at = end
    return f"{len(data)} bytes [{' '.join(whole)}]" + ("" if is_packed else f" {crc32(data):08x}")


def told_to_kafka(zookeeper: str, chroot: str, folder: Path) -> list[str]:
    """Tell it to a new Apache Kafka."""
    tree = Tree(zookeeper, chroot)
    broker = KafkaBroker(jars(), tree, folder, 1)
    try:
        broker.start()
        return asyncio.run(tell(("127.0.0.1", broker.port)))
    finally:
        broker.stop()
        tree.close()


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description="Ask Apache Kafka and write its answers")
    parser.add_argument("--record", action="store_true", required=True)
    parser.parse_args()
    zookeeper = EmbeddedZooKeeper()
    try:
        with tempfile.TemporaryDirectory() as folder:
            lines = told_to_kafka(zookeeper.start(), "/fetch-limits", Path(folder))
    finally:
        zookeeper.stop()
    FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} lines")


if __name__ == "__main__":
    main()
