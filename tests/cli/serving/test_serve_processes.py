"""`klamm serve --processes`: each broker is a process of its own."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from kafka.errors import KafkaError

from klamm.tests.cli.conftest import Start
from klamm.tests.cli.running import WITHIN_S, Running
from klamm.tests.cli.served_cluster import topics_at, wait_until_gone, zookeeper_is_gone
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import request
from klamm.tests.harness.waits import wait_for


def runs(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def pids(said: dict) -> list[int]:
    return [broker["pid"] for broker in said["brokers"]]


def wait_until_none_runs(said: dict) -> None:
    wait_for(lambda: not any(map(runs, pids(said))), "no broker runs")


def test_it_says_the_same_as_one_process_and_the_process_ids(serve: Start) -> None:
    said = serve("--processes", "--port", 0, "--json", "--topic", "orders:6:3", "--topic", "audit").ready()
    assert list(said) == ["bootstrap_servers", "brokers", "controller_id", "cluster_id", "zookeeper"]
    assert [list(broker) for broker in said["brokers"]] == [["id", "host", "port", "pid"]] * 3
    assert len(set(pids(said))) == 3
    assert all(map(runs, pids(said)))
    assert topics_at(said["bootstrap_servers"]) == {"orders": 6, "audit": 1}


@pytest.mark.slow
def test_without_json_the_addresses_come_one_a_line(serve: Start) -> None:
    cluster = serve("--processes", "--port", 0, "--brokers", 2)
    assert len({cluster.line(), cluster.line()}) == 2
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0
    assert cluster.rest() == ""


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_stops_all_in_order_and_soon(start: Start, number: signal.Signals) -> None:
    cluster = start("serve", "--processes", "--port", 0, "--json", "--topic", "orders:12:3")
    said = cluster.ready()
    cluster.signal(number)
    assert cluster.ended() == 0
    assert zookeeper_is_gone(said["zookeeper"])
    assert not any(map(runs, pids(said)))
    assert "Traceback" not in cluster.stderr
    assert "ERROR" not in cluster.stderr


def test_one_that_is_killed_is_reported_and_the_others_go_on(serve: Start) -> None:
    cluster = serve("--processes", "--port", 0, "--json", "--topic", "orders:1:3", "--config", "zookeeper.session.timeout.ms=1000")
    said = cluster.ready()
    victim = said["brokers"][-1]
    os.kill(victim["pid"], signal.SIGKILL)
    lost = "; its logs were in memory and are lost"
    cluster.logged(f"broker {victim['id']} (process {victim['pid']}) ended by SIGKILL; the others continue{lost}")
    others = ",".join(f"{broker['host']}:{broker['port']}" for broker in said["brokers"][:-1])

    def still_served() -> bool:
        with suppress(KafkaError):  # until its session has expired, the others name the killed one, and this client may try it
            return topics_at(others) == {"orders": 1}
        return False

    wait_for(still_served, "the others serve")
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0


def test_one_that_is_told_to_stop_leaves_in_order(serve: Start, tmp_path: Path) -> None:
    cluster = serve("--processes", "--port", 0, "--json", "--brokers", 2, "--data-dir", tmp_path)
    victim = cluster.ready()["brokers"][-1]
    os.kill(victim["pid"], signal.SIGTERM)
    cluster.logged(f"broker {victim['id']} (process {victim['pid']}) ended with exit code 0; the others continue")
    assert "in memory" not in cluster.stderr


@pytest.mark.slow
def test_all_stop_in_order_and_the_controller_last_also_one_that_was_elected_later(serve: Start) -> None:
    config = "zookeeper.session.timeout.ms=4000"
    cluster = serve("--processes", "--port", 0, "--json", "--brokers", 4, "--log-level", "info", "--config", config)
    said = cluster.ready()
    first = said["controller_id"]
    os.kill(next(broker["pid"] for broker in said["brokers"] if broker["id"] == first), signal.SIGKILL)
    others = [broker for broker in said["brokers"] if broker["id"] != first]

    def elected() -> int | None:
        shown = {request(broker["port"], requests.metadata([]), 7).controller_id for broker in others}
        return shown.pop() if shown < {broker["id"] for broker in others} and len(shown) == 1 else None

    controller = wait_for(elected, "another controller is elected, and all show it", 60)
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0
    requested = re.findall(r"broker (\d+) requests controlled shutdown", cluster.stderr)
    assert sorted(map(int, requested)) == [broker["id"] for broker in others]
    assert int(requested[-1]) == controller
    assert len(re.findall("controlled shutdown done", cluster.stderr)) == len(others)


def test_when_the_last_broker_has_ended_the_cluster_ends_with_the_reason(serve: Start) -> None:
    cluster = serve("--processes", "--port", 0, "--json", "--brokers", 2)
    for pid in pids(cluster.ready()):
        os.kill(pid, signal.SIGKILL)
    assert cluster.ended() == 1
    assert cluster.stderr.splitlines()[-1] == "klamm: every broker has ended"


def test_killed_it_leaves_no_process_behind(start: Start) -> None:
    cluster = start("serve", "--processes", "--port", 0, "--json")
    said = cluster.ready()
    cluster.kill()
    wait_until_none_runs(said)
    wait_until_gone(said["zookeeper"])


@pytest.mark.slow
def test_a_second_signal_ends_all_at_once(serve: Start) -> None:
    cluster = serve("--processes", "--port", 0, "--json", "--brokers", 2)
    said = cluster.ready()
    for pid in pids(said):
        os.kill(pid, signal.SIGSTOP)
    cluster.signal(signal.SIGTERM)
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() in (0, 128 + signal.SIGTERM)  # two signals may arrive as one
    for pid in filter(runs, pids(said)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    wait_until_none_runs(said)


def test_a_frozen_broker_does_not_hold_up_the_stop(serve: Start) -> None:
    cluster = serve("--processes", "--port", 0, "--json", "--brokers", 2)
    said = cluster.ready()
    os.kill(pids(said)[0], signal.SIGSTOP)
    began = time.monotonic()
    cluster.signal(signal.SIGTERM)
    assert cluster.ended() == 0
    assert time.monotonic() - began < WITHIN_S
    wait_until_none_runs(said)


@pytest.mark.slow
def test_a_taken_port_is_one_line_and_nothing_is_left(start: Start) -> None:
    port = start("serve", "--port", 0, "--json", "--brokers", 1).ready()["brokers"][0]["port"]
    second: Running = start("serve", "--processes", "--port", port, "--json", "--brokers", 2)
    assert second.ended() == 1
    last = second.stderr.splitlines()[-1]  # the port of its second broker may be taken too, by whoever
    assert any(f":{taken}: Address already in use" in last for taken in (port, port + 1)), last
    assert "Traceback" not in second.stderr
