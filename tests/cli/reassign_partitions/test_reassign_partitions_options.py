"""Options of `klamm reassign-partitions` that do not go together, and servers that cannot be reached: one line, exit code 1."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from klamm.cli.main import klamm
from klamm.cli.reassign_partitions import znodes
from klamm.cli.reassign_partitions.options import Action, check
from klamm.cli.reassign_partitions.verb import command
from klamm.cli.tools import client as tool_client
from klamm.cli.tools.client_properties import BadClientProperties, client_settings
from klamm.tests.cli.running import call, run

GROUP = click.Context(klamm, **klamm.context_settings)
FILE = ("--reassignment-json-file", "no-such-file.json")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Accepts no connection by itself; `silent` says whether somebody tried."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


def address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def assert_nobody_connected(listener: socket.socket) -> None:
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.requirement("R179-30")
@pytest.mark.parametrize("ways", [("--bootstrap-server", "--zookeeper"), ()], ids=["both", "neither"])
def test_both_or_neither_of_bootstrap_server_and_zookeeper_is_refused_before_any_connection(
    listener: socket.socket, ways: tuple[str, ...]
) -> None:
    said = call("reassign-partitions", "--list", *(word for way in ways for word in (way, address(listener))))
    assert (said.returncode, said.stdout) == (1, "")
    assert "--bootstrap-server" in said.stderr and "--zookeeper" in said.stderr and said.stderr.count("\n") == 1
    assert_nobody_connected(listener)


@pytest.mark.requirement("R179-31")
def test_progress_with_zookeeper_is_refused_before_any_connection(listener: socket.socket) -> None:
    said = call("reassign-partitions", "--zookeeper", address(listener), "--progress", *FILE)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == "klamm reassign-partitions: --progress needs --bootstrap-server; it cannot be used with --zookeeper\n"
    assert_nobody_connected(listener)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "exactly one of --generate, --execute, --verify, --cancel, --list, --progress is needed"),
        (("--list", "--execute"), "exactly one of --generate, --execute, --verify, --cancel, --list, --progress is needed"),
        (("--execute",), "--execute needs --reassignment-json-file"),
        (("--verify",), "--verify needs --reassignment-json-file"),
        (("--cancel",), "--cancel needs --reassignment-json-file"),
        (("--progress",), "--progress needs --reassignment-json-file"),
        (("--generate", "--broker-list", "1"), "--generate needs --topics-to-move-json-file"),
        (("--generate", "--topics-to-move-json-file", "x"), "--generate needs --broker-list"),
        (("--list", *FILE), "--reassignment-json-file cannot be used with --list"),
        (("--list", "--throttle", "0"), "--throttle cannot be used with --list"),
        (("--execute", *FILE, "--throttle", "-5"), "--throttle -5 is not a rate; -1 means no throttle"),
        (
            ("--execute", *FILE, "--replica-alter-log-dirs-throttle", "-5"),
            "--replica-alter-log-dirs-throttle -5 is not a rate; -1 means no throttle",
        ),
        (("--verify", *FILE, "--throttle", "-1"), "--throttle cannot be used with --verify"),
        (("--verify", *FILE, "--additional"), "--additional cannot be used with --verify"),
        (("--execute", *FILE, "--preserve-throttles"), "--preserve-throttles cannot be used with --execute"),
        (("--execute", *FILE, "--watch"), "--watch cannot be used with --execute"),
        (("--execute", *FILE, "--broker-list", "1"), "--broker-list cannot be used with --execute"),
        (("--progress", *FILE, "--timeout", "0"), "--timeout cannot be used with --progress"),
        (("--execute", *FILE, "--disable-rack-aware"), "--disable-rack-aware cannot be used with --execute"),
    ],
)
def test_an_option_that_does_not_belong_or_is_missing_is_one_line(arguments: tuple[str, ...], line: str) -> None:
    context = command.make_context("reassign-partitions", ["--bootstrap-server", "localhost:1", *arguments], parent=GROUP)
    with pytest.raises(click.UsageError) as refused:
        check(context.params)
    assert refused.value.message == line


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--cancel", *FILE), "--cancel needs --bootstrap-server"),
        (("--execute", *FILE, "--additional"), "--additional needs --bootstrap-server"),
        (("--execute", *FILE, "--replica-alter-log-dirs-throttle", "1"), "--replica-alter-log-dirs-throttle needs --bootstrap-server"),
        (("--list", "--command-config", "x"), "--command-config needs --bootstrap-server"),
    ],
)
def test_what_only_brokers_know_is_refused_with_zookeeper(arguments: tuple[str, ...], line: str) -> None:
    context = command.make_context("reassign-partitions", ["--zookeeper", "localhost:1", *arguments], parent=GROUP)
    with pytest.raises(click.UsageError, match=line):
        check(context.params)


@pytest.mark.parametrize("action", Action)
def test_every_action_is_accepted_with_what_it_needs(action: Action) -> None:
    needed = {
        Action.LIST: (), Action.GENERATE: ("--topics-to-move-json-file", "t", "--broker-list", "1"),
    }.get(action, FILE)
    context = command.make_context("reassign-partitions", ["--bootstrap-server", "localhost:1", f"--{action.value}", *needed], parent=GROUP)
    assert check(context.params) is action


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--execute", *FILE), "klamm: no-such-file.json: No such file or directory"),
        (("--execute", "--reassignment-json-file", "/"), "klamm: /: Is a directory"),
        (("--list", "--command-config", "no-such-file"), "klamm: no-such-file: No such file or directory"),
        (
            ("--execute", *FILE, "--throttle", "fast"),
            "klamm reassign-partitions: Invalid value for '--throttle': 'fast' is not a whole number",
        ),
        (("--execute", *FILE, "--throttle", str(2**63)), "does not fit into 64 bits"),
        (("--generate", "--topics-to-move-json-file", "x", "--broker-list", "a"), "klamm: x: No such file or directory"),
    ],
)
def test_files_and_numbers_are_checked_before_any_connection(listener: socket.socket, arguments: tuple[str, ...], line: str) -> None:
    said = call("reassign-partitions", "--bootstrap-server", address(listener), *arguments)
    assert (said.returncode, said.stdout) == (1, "")
    assert line in said.stderr and said.stderr.count("\n") == 1
    assert_nobody_connected(listener)


def test_log_dirs_are_refused_with_zookeeper(listener: socket.socket, tmp_path: Path) -> None:
    file = tmp_path / "moves.json"
    file.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/data"]}]}))
    said = call("reassign-partitions", "--zookeeper", address(listener), "--execute", "--reassignment-json-file", file)
    assert said.returncode == 1 and said.stderr.endswith("log_dirs need --bootstrap-server; they cannot be used with --zookeeper\n")
    assert_nobody_connected(listener)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool waits half a second for the cluster instead of ten."""
    for module in (tool_client, znodes):
        monkeypatch.setattr(module, "CONNECT_MS", 500)


def assert_one_line(said: subprocess.CompletedProcess[str], way: str, line: str) -> None:
    """With --zookeeper the line after the warning."""
    assert (said.returncode, said.stdout) == (1, "")
    assert line in said.stderr.splitlines()[-1]
    lines = [line for line in said.stderr.splitlines() if "not reachable yet" not in line and "no broker is reachable yet" not in line]
    assert len(lines) == (1 if way == "--bootstrap-server" else 2)


@pytest.mark.parametrize(
    ("way", "server", "line"),
    [
        ("--bootstrap-server", "127.0.0.1:1", "127.0.0.1:1 cannot be reached"),
        ("--bootstrap-server", "nonsense:port", "'nonsense:port' is not HOST:PORT"),
        ("--zookeeper", "127.0.0.1:1", "no ZooKeeper responds at 127.0.0.1:1 within 500 ms"),
        ("--zookeeper", "nonsense:port", "bad ZooKeeper address 'nonsense:port'"),
    ],
)
@pytest.mark.usefixtures("soon")
def test_a_server_that_cannot_be_reached_is_one_line_without_a_traceback(way: str, server: str, line: str) -> None:
    assert_one_line(call("reassign-partitions", way, server, "--list"), way, line)


@pytest.mark.usefixtures("soon")
def test_a_server_that_does_not_answer_ends_the_tool_in_time(listener: socket.socket) -> None:
    said = call("reassign-partitions", "--bootstrap-server", address(listener), "--list")
    assert (said.returncode, said.stdout) == (1, "") and said.stderr.count("\n") == 1
    assert "did not respond in time" in said.stderr or "did not end within" in said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", ["--bootstrap-server", "--zookeeper"])
def test_a_process_of_the_tool_waits_ten_seconds_for_a_server_then_ends_with_one_line(way: str) -> None:
    lines = {"--bootstrap-server": "127.0.0.1:1 cannot be reached", "--zookeeper": "no ZooKeeper responds at 127.0.0.1:1 within 10000 ms"}
    assert_one_line(run("reassign-partitions", way, "127.0.0.1:1", "--list"), way, lines[way])


def test_a_zookeeper_without_a_cluster_is_one_line_and_stays_as_it_is(zookeeper: str, chroot: str) -> None:
    said = call("reassign-partitions", "--zookeeper", zookeeper + chroot, "--list")
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1].startswith("klamm: there is no cluster in this ZooKeeper")
    again = call("reassign-partitions", "--zookeeper", zookeeper + chroot, "--list")
    assert again.stderr == said.stderr, "nothing was created"


def test_command_config_becomes_settings_of_the_admin_client(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nclient.id=me\nrequest.timeout.ms=5000\ndefault.api.timeout.ms=7000\nretries=5\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"b\\\\\"c\";\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    settings = client_settings(file)
    assert settings.pop("ssl_context").check_hostname is False
    assert settings == {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "client_id": "me", "request_timeout_ms": 7000,
        "sasl_plain_username": "a", "sasl_plain_password": 'b"c',
    }
    assert client_settings(None) == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("security.protocol=SSL\nssl.truststore.location=/a.jks", "ssl.truststore.location: cannot be read: No such file"),
        ("sasl.jaas.config=Module required;", "has no username"),
        ("sasl.jaas.config=nothing", "needs a control flag"),
        ("request.timeout.ms=soon", "'soon', which is not a number of milliseconds"),
    ],
)
def test_a_command_config_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(BadClientProperties, match=line):
        client_settings(file)
