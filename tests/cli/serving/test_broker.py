"""`klamm broker FILE`: one process per broker, from the file that starts an Apache Kafka broker."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient

from klamm.tests.cli.conftest import Start
from klamm.tests.cli.running import call
from klamm.tests.harness.waits import wait_for

Properties = Callable[..., Path]


def complaint(stderr: str) -> str:
    """The only line that is no news."""
    (line,) = [line for line in stderr.splitlines() if not re.match(r"\S+ \S+ INFO ", line)]
    return line


def test_it_serves_until_a_signal(start: Start, properties: Properties) -> None:
    broker = start("broker", properties())
    broker.logged("is the active controller after")
    port = re.search(r"PLAINTEXT://127\.0\.0\.1:(\d+)", broker.stderr)
    assert port is not None
    with socket.create_connection(("127.0.0.1", int(port[1])), timeout=5):
        pass
    broker.signal(signal.SIGTERM)
    assert broker.ended() == 0
    assert broker.rest() == ""
    assert "Traceback" not in broker.stderr


def test_an_override_wins_over_the_file(start: Start, properties: Properties) -> None:
    broker = start("broker", properties(), "--override", "broker.id=7", "--override", "num.partitions = 3")
    broker.logged("broker 7 serves")


def test_properties_without_meaning_are_listed_once_and_unknown_ones_warned_of(start: Start, properties: Properties) -> None:
    file = properties(num_io_threads=4, log_cleaner_threads=2, no_such_property="x")
    broker = start("broker", file)
    broker.logged("broker 1 serves")
    meaningless = [line for line in broker.stderr.splitlines() if "num.io.threads" in line]
    assert len(meaningless) == 1
    assert "INFO" in meaningless[0]
    assert "log.cleaner.threads" in meaningless[0]
    unknown = [line for line in broker.stderr.splitlines() if "no.such.property" in line]
    assert len(unknown) == 1
    assert "WARNING" in unknown[0]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_partitions": "many"}, "num.partitions"),
        ({"broker_id": "one"}, "broker.id"),
        ({"listeners": "PLAINTEXT//nowhere"}, "listeners"),
        ({"listeners": "SECRET://127.0.0.1:0"}, "SECRET"),
        ({"inter_broker_listener_name": "OTHER"}, "OTHER"),
        ({"inter_broker_protocol_version": "9.9"}, "9.9"),
        ({"auto_leader_rebalance_enable": "perhaps"}, "auto.leader.rebalance.enable"),
    ],
)
def test_a_bad_value_is_one_line(properties: Properties, changes: dict[str, str], named: str) -> None:
    said = call("broker", properties(**changes))
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.count("\n") == 1
    assert said.stderr.startswith("klamm: ")
    assert named in said.stderr


def test_no_zookeeper_named_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\n")
    said = call("broker", file)
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert "zookeeper.connect" in said.stderr


def test_a_taken_port_is_one_line(properties: Properties) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = call("broker", properties(listeners=f"PLAINTEXT://127.0.0.1:{port}"))
    assert said.returncode == 1
    assert re.fullmatch(rf"klamm: .*{port}.* in use", complaint(said.stderr))


def test_an_id_that_is_registered_already_is_one_line(start: Start, properties: Properties, tmp_path: Path) -> None:
    start("broker", properties()).logged("broker 1 serves")
    said = call("broker", properties(log_dirs=tmp_path / "elsewhere"))
    assert said.returncode == 1
    assert re.fullmatch(r"klamm: broker id 1 is already registered.*", complaint(said.stderr))


def test_a_log_directory_in_use_is_one_line(start: Start, properties: Properties, tmp_path: Path) -> None:
    start("broker", properties(broker_id=1, log_dirs=tmp_path / "data")).logged("broker 1 serves")
    said = call("broker", properties(broker_id=1, log_dirs=tmp_path / "data"))
    assert said.returncode == 1
    assert complaint(said.stderr) == f"klamm: log directory {tmp_path}/data is in use by another broker"


def test_a_partition_in_two_directories_is_one_line_with_both_paths(properties: Properties, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "t-0").mkdir(parents=True)
    said = call("broker", properties(log_dirs=f"{tmp_path}/a,{tmp_path}/b"))
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1].startswith(f"klamm: t-0 is in {tmp_path}/a and in {tmp_path}/b: ")
    assert "Traceback" not in said.stderr


def test_log_directories_that_cannot_be_used_are_named(properties: Properties, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    said = call("broker", properties(log_dirs=tmp_path / "file"))
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1] == f"klamm: all log directories have failed: {tmp_path}/file"


def test_an_absent_zookeeper_is_waited_for_then_one_line(properties: Properties) -> None:
    said = call("broker", properties(zookeeper_connect="127.0.0.1:1/somewhere", zookeeper_connection_timeout_ms=700))
    assert said.returncode == 1
    assert "Traceback" not in said.stderr
    assert re.search(r"^klamm: .*127\.0\.0\.1:1", said.stderr.splitlines()[-1])


def test_a_signal_while_it_waits_for_zookeeper_is_heard(start: Start, properties: Properties) -> None:
    broker = start("broker", properties(zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms=60_000))
    broker.logged("127.0.0.1:1")
    broker.signal(signal.SIGINT)
    assert broker.ended() == 128 + signal.SIGINT
    assert "Traceback" not in broker.stderr


def test_brokers_of_three_processes_are_one_cluster(start: Start, properties: Properties) -> None:
    brokers = [start("broker", properties(broker_id=number)) for number in (1, 2, 3)]
    ports = {}
    for number, broker in enumerate(brokers, 1):
        broker.logged(f"broker {number} serves")
        found = re.search(r"PLAINTEXT://127\.0\.0\.1:(\d+)", broker.stderr)
        assert found is not None
        ports[number] = int(found[1])
    admin = KafkaAdminClient(bootstrap_servers=[f"127.0.0.1:{port}" for port in ports.values()])
    try:
        wait_for(
            lambda: {broker["broker_id"]: broker["port"] for broker in admin.describe_cluster()["brokers"]} == ports,
            "clients see the three brokers",
        )
    finally:
        admin.close()
    for broker in brokers:
        broker.signal(signal.SIGTERM)
        assert broker.ended() == 0
