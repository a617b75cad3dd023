"""Apache Kafka 3.9.1 and 4.4.0 behind the proxy: clients of Java and of librdkafka stay there, in all versions that they choose."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import klamm
from klamm.pipeline.quick.check import check_quickly
from klamm.protocol.apis import ApiKey
from klamm.proxy.proxy import Proxy
from klamm.server.local.loop_thread import LoopThread
from klamm.tests.harness.kafka import KafkaBroker, java_command
from klamm.tests.harness.tree import Tree
from klamm.tests.journal.cluster_rows import rows
from klamm.tests.proxy.clusters import write_and_read
from klamm.tests.reference import newest_kafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79


@pytest.fixture(scope="module")
def newest_jars() -> Path:
    """The jars of Kafka 4.4.0."""
    return newest_kafka.jars()


def java(jars: Path, name: str, *arguments: str) -> str:
    """What a tool of Kafka prints."""
    done = subprocess.run(
        java_command(jars, name, *arguments), capture_output=True, text=True, timeout=120, check=False, env=os.environ | {"LANG": "C"}
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def work(jars: Path, behind: str) -> None:
    """Clients of librdkafka and of Java write and read; they know no address but those of the proxy."""
    bootstrap = behind.split(",")[0]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("t", 3, 1), NewTopic("j", 2, 1)]).values():
        future.result(30)
    values, known = write_and_read(bootstrap)
    assert len(values) == 30 and known == set(behind.split(","))
    perf = "--topic", "j", "--num-records", "2000", "--record-size", "100", "--throughput", "-1"
    assert "2000 records sent" in java(
        jars, "org.apache.kafka.tools.ProducerPerformance", *perf, "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"
    )
    read = java(
        jars, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", "j", "--from-beginning",
        "--max-messages", "2000", "--group", "java", "--timeout-ms", "60000",
    )
    assert len(read.splitlines()) == 2000


def check(lake: Path, unjudged: Collection[str] = ()) -> dict[int, set[int]]:
    """The rules but these say nothing against the journal. Returns the versions of the responses by API."""
    checked = check_quickly(lake)
    found = {(verdict.rule, verdict.detail) for verdict in checked.judgement.verdicts if verdict.severity == "error"}
    assert {each for each in found if each[0] not in unjudged} == set()
    used: dict[int, set[int]] = {}
    for row in rows(lake, "frames"):
        if row["dir"] == 1 and row["api_key"] is not None:
            used.setdefault(row["api_key"], set()).add(row["api_version"])
    return used


def test_clients_of_kafka_4_stay_behind_the_proxy_in_its_newest_versions(newest_jars: Path, tmp_path: Path) -> None:
    thread = LoopThread("proxy")
    with newest_kafka.running(newest_jars, tmp_path / "kafka") as bootstrap:
        host, _, port = bootstrap.rpartition(":")
        plain = Proxy([(host, int(port))], lake=tmp_path / "lake", run="one")
        thread.call(plain.start())
        try:
            told = plain.bootstrap
            work(newest_jars, told)
            java(
                newest_jars, "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", told, "--alter", "--entity-type", "groups",
                "--entity-name", "sharing", "--add-config", "share.auto.offset.reset=earliest",
            )
            read = java(
                newest_jars, "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", told, "--topic", "j",
                "--group", "sharing", "--max-messages", "500", "--timeout-ms", "60000",
            )
            assert len(read.splitlines()) == 500
        finally:
            thread.call(plain.stop())
            thread.close()
        with klamm.Proxy(bootstrap) as proxy, proxy.fault(api="Produce", topic="t", error="NOT_LEADER_OR_FOLLOWER", first=2) as fault:
            write_and_read(proxy.bootstrap_servers)
            assert fault.hits == 2
            sent = java(
                newest_jars, "org.apache.kafka.tools.ProducerPerformance", "--topic", "j", "--num-records", "500", "--record-size", "100",
                "--throughput", "-1", "--producer-props", f"bootstrap.servers={proxy.bootstrap_servers}", "--transactional-id", "x",
                "--transaction-duration-ms", "50",
            )
            assert "500 records sent" in sent
            assert proxy.requests(api="AddPartitionsToTxn")
    used = check(tmp_path / "lake", ("W-05", "W-09"))  # these two know the versions of Kafka 3.9 only
    newest = {ApiKey.METADATA: 13, ApiKey.PRODUCE: 13, ApiKey.FETCH: 18, ApiKey.FIND_COORDINATOR: 6, SHARE_FETCH: 2}
    assert {key: max(used[key]) for key in newest} == newest


def test_clients_of_kafka_3_9_stay_behind_the_proxy(kafka_jars: Path, zookeeper: str, chroot: str, tmp_path: Path) -> None:
    tree = Tree(zookeeper, chroot)
    brokers = [KafkaBroker(kafka_jars, tree, tmp_path, number) for number in (1, 2)]
    try:
        for each in brokers:
            each.start()
        with klamm.Proxy(f"127.0.0.1:{brokers[0].port}", journal=tmp_path / "lake", run="one") as proxy:
            assert len(proxy.bootstrap_servers.split(",")) == 2
            work(kafka_jars, proxy.bootstrap_servers)
    finally:
        for each in brokers:
            each.kill()
    used = check(tmp_path / "lake")
    newest = {ApiKey.METADATA: 12, ApiKey.PRODUCE: 11, ApiKey.FETCH: 17, ApiKey.FIND_COORDINATOR: 6}
    assert {key: max(used[key]) for key in newest} == newest
