"""The journals into which violations are put: of two small clusters of Klamm that did everything right, kept beside this file.

    python -m klamm.tests.pipeline.injected.recording [NAME ...]       # records them again

`controllers` is the story of `own_cluster.py` without consumer groups and transactions, `clients` is those with two brokers. They are kept
because a violation is put at a place that a search finds, and in another recording some places are missing. Whoever records them again
runs the tests of this directory: an injection that finds no place fails.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from klamm.journal.reading import open_segment, segments
from klamm.journal.segments import table_schema
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.pipeline.real_clusters.own_cluster import CONFIG, OwnStory
from klamm.zk.embedded.server import EmbeddedZooKeeper

HERE = Path(__file__).resolve().parent
TABLES = ("frames", "events")
RUN = "recorded"


def recorded(name: str) -> list[dict[str, Any]]:
    """The rows of a journal that is kept; those of frames have a column `frame`."""
    return [row for table in TABLES for row in pq.read_table(HERE / f"{name}.{table}.parquet").to_pylist()]


async def controllers(story: OwnStory) -> None:
    """Deaths, elections, reassignments, moves of the controller, and a little traffic of clients."""
    await story.topics()
    await story.strangers()
    await asyncio.to_thread(_produce_and_fetch, story.bootstrap)
    await story.deaths()
    await story.unclean()
    await story.moves()
    await story.blacklist()
    await story.cluster.move_controller()
    await story.metadata()
    await story.deletion()


async def clients(story: OwnStory) -> None:
    """Consumers in groups, producers with transactions."""
    await story.groups()
    await story.transactions()


STORIES = {"controllers": (controllers, 4), "clients": (clients, 2)}
"""Name → what happens, and the number of brokers."""


def _produce_and_fetch(bootstrap: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "writer"})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "client.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])
    for _ in range(3):
        producer.produce("t", b"record", partition=0)
        producer.flush()
        assert consumer.poll(10) is not None
    consumer.close()


async def record(name: str, lake: Path) -> None:
    """Let a cluster live, with its journal in this lake."""
    happens, brokers = STORIES[name]
    zookeeper = EmbeddedZooKeeper()
    config = {**CONFIG, "klamm.journal.dir": str(lake), "klamm.journal.run": RUN}
    cluster = LocalCluster(brokers, zookeeper=zookeeper.start(), config=config, topics=[SeedTopic("t", 4, min(3, brokers))])
    await cluster.start()
    try:
        await happens(OwnStory(cluster))
    finally:
        await cluster.stop()
        zookeeper.stop()


def keep(name: str, lake: Path) -> None:
    """Write the journals of a lake to the files beside this one."""
    for table in TABLES:
        parts = [open_segment(s.path) for s in segments(lake) if s.table == table]
        batches = [pa.Table.from_batches(part).select(table_schema(table).names).cast(table_schema(table)) for part in parts]
        rows = pa.concat_tables(batches).sort_by([("node_id", "ascending"), ("seq", "ascending")])
        pq.write_table(rows, HERE / f"{name}.{table}.parquet", compression="zstd", compression_level=19)


def main() -> None:
    for name in sys.argv[1:] or STORIES:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(record(name, Path(folder)))
            keep(name, Path(folder))


if __name__ == "__main__":
    main()
