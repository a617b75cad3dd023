"""DescribeLogDirs and AlterReplicaLogDirs, of logs in memory and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.security.authorizer import Operation
from klamm.tests.server.apis.directory_moves import codes, moved
from klamm.tests.server.brokers import create_topic, knows, node, request
from klamm.tests.server.logged_broker import GOOD, Logged, asked_for
from klamm.tests.services import Denying, respond

DESCRIBE, ALTER = 35, 34
DESCRIBE_VERSIONS = range(messages.APIS[DESCRIBE].min_version, messages.APIS[DESCRIBE].max_version + 1)
ALTER_VERSIONS = range(messages.APIS[ALTER].min_version, messages.APIS[ALTER].max_version + 1)


def described(*partitions: tuple[str, int]) -> Any:
    asked = messages.DescribeLogDirsRequest
    return asked(topics=[asked.DescribableLogDirTopic(topic=topic, partitions=(index,)) for topic, index in partitions])


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {(topic.name, part.partition_index): part.partition_size for topic in result.topics for part in topic.partitions}


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
async def test_logs_in_memory_are_in_one_directory_with_their_sizes(version: int) -> None:
    logged = Logged()
    await logged.rows(asked_for(("t", 0, GOOD)))
    response = await respond(logged.services, messages.DescribeLogDirsRequest(topics=None), version)
    (directory,) = response.results
    assert (response.error_code, directory.error_code, directory.log_dir) == (0, 0, logged.services.config.log_dirs[0])
    assert sizes(directory) == {("t", 0): len(GOOD), ("t", 1): 0, ("t", 2): 0, ("t", 4): 0, ("__consumer_offsets", 0): 0}
    budget = logged.services.logs.environment.budget
    expected = (budget.limit, budget.limit - budget.used) if version >= 4 else (-1, -1)
    assert (directory.total_bytes, directory.usable_bytes) == expected


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
async def test_a_log_that_the_cleaner_cannot_read_has_its_uncleanable_bytes_in_a_tagged_field(version: int) -> None:
    logged = Logged()
    await logged.rows(asked_for(("t", 0, GOOD)))
    before = await respond(logged.services, described(("t", 0), ("t", 1)), version)
    log = logged.services.logs.get("t", 0)
    assert log is not None
    logged.services.logs._cleaner._mark(log, "a record that cannot be read")
    response = await respond(logged.services, described(("t", 0), ("t", 1)), version)
    expected = {("t", 0): 0, ("t", 1): -1} if version >= 2 else {("t", 0): -1, ("t", 1): -1}
    rows = [(topic.name, part) for topic in response.results[0].topics for part in topic.partitions]
    assert {(name, part.partition_index): part.uncleanable_bytes for name, part in rows} == expected
    assert [part._replace(uncleanable_bytes=-1) for _, part in rows] == [p for topic in before.results[0].topics for p in topic.partitions]


async def test_only_the_partitions_that_are_asked_for_and_here_are_described() -> None:
    response = await respond(Logged().services, described(("t", 1), ("t", 9), ("unknown", 0), ("t", 1), ("t", 3)), 4)
    assert sizes(response.results[0]) == {("t", 1): 0}
    assert sizes((await respond(Logged().services, described(), 4)).results[0]) == {}


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
async def test_log_directories_need_describe_on_the_cluster(version: int) -> None:
    services = Logged(Denying((Operation.DESCRIBE, "kafka-cluster"))).services
    response = await respond(services, messages.DescribeLogDirsRequest(topics=None), version)
    assert (response.error_code, response.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED if version >= 3 else 0, [])


@pytest.mark.parametrize("version", ALTER_VERSIONS)
async def test_a_move_is_refused_for_the_directory_first_then_for_the_partition(version: int) -> None:
    logged = Logged()
    here = logged.services.config.log_dirs[0]
    for path in ("/no/such/dir", "relative", ""):
        response = await respond(logged.services, moved(path, ("t", 0), ("unknown", 0)), version)
        assert codes(response) == [("t", 0, ErrorCode.LOG_DIR_NOT_FOUND), ("unknown", 0, ErrorCode.LOG_DIR_NOT_FOUND)]
    response = await respond(logged.services, moved(here, ("t", 0), ("t", 2), ("t", 3), ("t", 9)), version)
    assert codes(response) == [
        ("t", 0, ErrorCode.NONE),
        ("t", 2, ErrorCode.NONE),
        ("t", 3, ErrorCode.KAFKA_STORAGE_ERROR),
        ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_a_move_needs_alter_on_the_cluster() -> None:
    services = Logged(Denying((Operation.ALTER, "kafka-cluster"))).services
    response = await respond(services, moved(services.config.log_dirs[0], ("t", 0)), 2)
    assert codes(response) == [("t", 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]


async def test_logs_on_disk_are_in_the_directory_that_has_their_files(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    broker = node(zookeeper + chroot, 1, log_dirs=",".join(paths))
    await broker.start()
    try:
        await knows(broker, 1)
        await create_topic(broker, "t", {0: [1], 1: [1]})
        batch = record_batch(b"value")
        await request(broker, 0, 9, asked_for(("t", 0, batch)))
        response = await request(broker, DESCRIBE, 4, messages.DescribeLogDirsRequest(topics=None))
        found = {directory.log_dir: sizes(directory) for directory in response.results}
        assert {path: set(Path(path).glob("t-*")) for path in paths} == {
            path: {Path(path) / f"{topic}-{index}" for topic, index in logs} for path, logs in found.items()
        }
        assert {key: size for logs in found.values() for key, size in logs.items()} == {("t", 0): len(batch), ("t", 1): 0}
        assert all(0 < directory.usable_bytes < directory.total_bytes for directory in response.results)
        home = next(path for path, logs in found.items() if ("t", 0) in logs)
        assert codes(await request(broker, ALTER, 2, moved(home, ("t", 0)))) == [("t", 0, ErrorCode.NONE)]
    finally:
        await broker.stop()
