"""Where the records of a Fetch end: in memory and in files as an Apache Kafka 3.9.1 said, whose answers are in `fetch_limits.txt`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import klamm
from klamm.testing import BlockingCluster
from klamm.tests.harness.client import Client
from klamm.tests.harness.names import unique_name
from klamm.tests.server.fetch.fetch_limits import FILE, ask, tell, told_to_kafka, written


def answers() -> list[str]:
    return FILE.read_text(encoding="utf-8").splitlines()


def address(cluster: BlockingCluster) -> tuple[str, int]:
    ((_, host, port),) = cluster.addresses
    return host, port


def test_records_in_memory_end_at_the_limit_amid_a_batch_as_in_apache_kafka(zookeeper: str) -> None:
    with klamm.Cluster(1, zookeeper=f"{zookeeper}/{unique_name('limits')}") as cluster:
        assert asyncio.run(tell(address(cluster))) == answers()


def test_records_in_files_end_at_the_limit_amid_a_batch_as_in_apache_kafka(zookeeper: str, tmp_path: Path) -> None:
    def begin() -> klamm.Cluster:
        return klamm.Cluster(1, zookeeper=path, data_dir=tmp_path)

    async def ask_again() -> list[str]:
        client = Client(*address(again))
        try:
            await written(client)
            return await ask(client)
        finally:
            await client.close()

    path = f"{zookeeper}/{unique_name('limits')}"
    with begin() as cluster:
        assert asyncio.run(tell(address(cluster))) == answers()
    with begin() as again:  # has nothing in memory
        assert asyncio.run(ask_again()) == answers()


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.usefixtures("kafka_jars")
def test_apache_kafka_answers_what_is_in_the_file(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    assert told_to_kafka(zookeeper, chroot, tmp_path) == answers()
