"""Tools whose `--bootstrap-server` nobody serves: the same limit, the reason while they wait, and one line at the end."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from klamm.cli.tools import client as tool_client
from klamm.tests.cli.running import call

TOOLS: dict[str, tuple[str, ...]] = {
    "acls": ("--list",),
    "configs": ("--entity-type", "brokers", "--entity-default", "--describe"),
    "groups list": (),
    "groups reset-offsets": ("g", "--all-topics", "--to-latest"),
    "leader-election": ("--election-type", "preferred", "--all-topic-partitions"),
    "preferred-replica-election": (),
    "reassign-partitions": ("--list",),
}


def arguments(tool: str, server: str) -> tuple[str, ...]:
    return (*tool.split(), "--bootstrap-server", server, *TOOLS.get(tool, ()))


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 ms instead of 10 s for the broker, and 50 ms instead of 1 s before the reason is said."""
    monkeypatch.setattr(tool_client, "CONNECT_MS", 300)
    monkeypatch.setattr(tool_client, "PATIENCE_S", 0.05)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("tool", [*TOOLS, "metadata-log dump"])
def test_a_refused_connection_is_said_while_the_tool_waits_and_once_at_the_end(tool: str) -> None:
    said = call(*arguments(tool, "127.0.0.1:1"))
    first, last = said.stderr.splitlines()
    reason = "the broker at 127.0.0.1:1 cannot be reached: "
    assert first.startswith(f"no broker is reachable yet ({reason}") and first.endswith("Connection refused); trying for up to 0.3 s")
    assert last.startswith(f"klamm: the call did not end within 300 ms: {reason}") and last.endswith("Connection refused")
    assert (said.returncode, said.stdout) == (1, "")


@pytest.mark.usefixtures("limits")
def test_a_server_that_never_responds_is_said_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"127.0.0.1:{listener.getsockname()[1]}"
        first, last = call(*arguments("configs", server)).stderr.splitlines()
    assert first == f"no broker is reachable yet ({server} has not responded); trying for up to 0.3 s"
    assert server in last


@pytest.mark.usefixtures("limits")
def test_properties_may_make_the_limit_shorter_and_not_longer(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    for given_ms, limit in ((200, "0.2 s"), (5000, "0.3 s")):
        config.write_text(f"default.api.timeout.ms={given_ms}\n")
        said = call(*arguments("configs", "127.0.0.1:1"), "--command-config", config)
        assert said.stderr.splitlines()[0].endswith(f"trying for up to {limit}")


def test_all_tools_look_for_a_broker_for_ten_seconds() -> None:
    assert (tool_client.CONNECT_MS, tool_client.PATIENCE_S) == (10_000, 1.0)
