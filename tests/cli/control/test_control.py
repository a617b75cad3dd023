"""`klamm control` against a cluster of `klamm serve`: every route has a command, tables and JSON, failures in one line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer

from klamm.cli.control.verb import COMMANDS
from klamm.control import client as control_client
from klamm.control.bodies import EffectBody, FaultBody, FilterBody
from klamm.control.verbs.routes import ROUTES
from klamm.tests.cli.conftest import Start
from klamm.tests.cli.control.examples import EXAMPLES, name_of, route_of
from klamm.tests.cli.running import call
from klamm.tests.harness.waits import wait_for

Cluster = dict[str, Any]


def control(*arguments: object) -> str:
    """The output of a command that succeeds."""
    done = call("control", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def in_json(*arguments: object) -> dict[str, Any]:
    response: dict[str, Any] = json.loads(control(*arguments, "--json"))
    return response


@contextmanager
def consuming(bootstrap: str, group: str) -> Iterator[None]:
    """A consumer of a group that polls until the end."""
    over = threading.Event()

    def poll() -> None:
        consumer = KafkaConsumer("orders", bootstrap_servers=bootstrap, group_id=group, client_id="pod")
        while not over.is_set():
            consumer.poll(timeout_ms=100)
        consumer.close(autocommit=False, timeout_ms=500)  # brokers are gone by then

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_examples_name_every_route_and_every_command() -> None:
    assert {name for name, _ in EXAMPLES} == {name_of(route) for route in ROUTES}
    assert {command.split()[0] for _, command in EXAMPLES} | {"events"} == set(COMMANDS)


def test_every_route_is_called_by_its_example(start: Start, zookeeper: str, chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    running = start(
        "serve", "--port", "0", "--json", "--zookeeper", zookeeper + chroot, "--control-port", "0", "--topic", "orders:3:3",
        "--config", "group.initial.rebalance.delay.ms=0",
    )
    cluster = running.ready()
    monkeypatch.setenv("KLAMM_CONTROL", cluster["control"])
    called: list[str] = []
    real = control_client._OPENER.open

    def recorded(request: urllib.request.Request, timeout: float) -> object:
        called.append(route_of(request.get_method(), urlsplit(request.full_url).path))
        return real(request, timeout=timeout)

    monkeypatch.setattr(control_client._OPENER, "open", recorded)
    with consuming(cluster["bootstrap_servers"], "billing"):
        wait_for(lambda: any(g["state"] == "Stable" for g in in_json("groups")["groups"]), "the group is stable")
        epochs: list[int] = []
        producer = Producer({"bootstrap.servers": cluster["bootstrap_servers"], "transactional.id": "payments-1", "log_level": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", b"x")
        producer.flush(30)
        for name, command in EXAMPLES:
            if command.startswith("expire"):
                epochs.append(wait_for(lambda: registered_after(max(epochs, default=0)), "broker 3 is registered again"))
            called.clear()
            control(*command.split())
            assert called == [name], command
    assert in_json("holds") == {"holds": []}


def test_a_command_waits_as_long_as_the_api_may(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    number, real = in_json("hold", "DeletionQueued", "--nth", "9")["id"], control_client._OPENER.open
    timeouts: list[float] = []

    def recorded(request: urllib.request.Request, timeout: float) -> object:
        timeouts.append(timeout - control_client.TIMEOUT_S)
        return real(request, timeout=timeout)

    monkeypatch.setattr(control_client._OPENER, "open", recorded)
    control("wait-for-configs", "--timeout-ms", "90000")
    assert call("control", "holds", number, "--wait", "--timeout-ms", "10").returncode == 1
    control("holds", number)
    assert timeouts == pytest.approx([90, 0.01, 0])
    control("unhold", number)


def registered_after(epoch: int) -> int | None:
    """The epoch of broker 3 if it is higher, all its replicas are in sync, and the controller has processed all events."""
    controller, broker = in_json("controller"), in_json("brokers", 3)
    in_sync = all(3 in partition["isr"] for partition in in_json("topic", "orders")["partitions"])
    is_idle = controller["event"] is None and controller["queue"] == 0
    return broker["epoch"] if in_sync and is_idle and broker["epoch"] > epoch else None


def test_hold_waits_until_the_phase_is_reached_and_release_lets_it_go_on(cluster: Cluster) -> None:
    number = in_json("hold", "PartitionsAppeared")["id"]
    (row,) = [line for line in control("holds").splitlines() if line.startswith(f"{number} ")]
    assert row.split() == [str(number), "PartitionsAppeared", "-", "armed", "0", "-"]
    producer = KafkaProducer(bootstrap_servers=cluster["bootstrap_servers"], max_block_ms=30_000)
    sent: list[object] = []
    thread = threading.Thread(target=lambda: sent.append(producer.send("appears", b"x").get(30)))
    thread.start()
    assert in_json("holds", number, "--wait")["state"] == "reached"
    assert "controller_epoch=" in control("controller")
    assert not sent
    assert control("release", number).splitlines()[1].split()[3] == "released"
    thread.join()
    producer.close()
    assert sent


def test_values_of_where_are_json_or_text_and_a_field_named_twice_has_one_of_them(cluster: Cluster) -> None:
    made = in_json("hold", "DeletionQueued", "--where", "topic=a", "--where", "topic=b*", "--count", "2", "--nth", "3")
    shown = in_json("holds", made["id"])
    assert (shown["where"], shown["count"], shown["nth"]) == ({"topic": ["a", "b*"]}, 2, 3)
    made = in_json("hold", "ReassignmentForgotten", "--where", "partition=0", "--where", 'topic="7"')
    assert in_json("holds", made["id"])["where"] == {"partition": 0, "topic": "7"}


def test_a_slow_disk_is_a_fault_whose_hits_are_operations_of_logs(cluster: Cluster) -> None:
    number = in_json("fault", "--topic", "slow", "--disk", "append", "--slow-disk-ms", 50)["id"]
    assert in_json("faults", number)["effect"] == {"slow_disk_ms": 50}
    with KafkaProducer(bootstrap_servers=cluster["bootstrap_servers"]) as producer:
        producer.send("slow", b"x").get(30)
    lines = control("faults", number, "--hits", "1").splitlines()
    assert lines[3].split() == ["TIME", "BROKER", "DISK", "TOPIC", "PARTITION"]
    assert lines[4].split()[2:] == ["append", "slow", "0"]


def test_a_fault_of_all_options_is_the_same_in_the_api(cluster: Cluster) -> None:
    made = in_json(
        "fault", "--api", "Produce", "--versions", "3-9", "--broker", 1, "--from-broker", 2, "--client-id", "pod*", "--topic", "orders",
        "--partition", 0,
        "--error", "NOT_LEADER_OR_FOLLOWER", "--message", "moved", "--delay-ms", 5, "--first", 2, "--after", 1, "--probability", 0.5,
        "--seed", 9, "--direction", "response", "--while", "broker=3:down",
    )
    shown = in_json("faults", made["id"])
    assert shown["filter"] == {
        "api": "Produce", "versions": [3, 9], "broker": 1, "from_broker": 2, "client_id": "pod*", "direction": "response",
        "topic": "orders", "partition": 0, "while": {"broker": 3, "state": "down"},
    }
    assert shown["effect"] == {"error": "NOT_LEADER_OR_FOLLOWER", "message": "moved", "delay_ms": 5}
    assert (shown["first"], shown["after"], shown["probability"], shown["seed"]) == (2, 1, 0.5, 9)


def test_a_link_is_cut_in_both_directions_unless_it_is_one_way(cluster: Cluster) -> None:
    assert len(in_json("link", 1, 2, "--cut")["faults"]) == 2
    (number,) = in_json("link", 2, 3, "--cut", "--one-way")["faults"]
    shown = in_json("faults", number)["filter"]
    assert (shown["from_broker"], shown["broker"]) == (2, 3)
    assert control("unfault", "--all").startswith("removed ")


def test_the_condition_of_a_fault_is_checked(cluster: Cluster) -> None:
    for text, reason in (("hold=x", "is none of hold=ID"), ("hold=99", "there is no hold 99"), ("phase=FailoverLoad", "did you mean")):
        done = call("control", "fault", "--api", "Produce", "--drop", "--while", text)
        assert done.returncode and reason in done.stderr and "Traceback" not in done.stderr


def test_the_options_of_fault_are_the_fields_of_its_body() -> None:
    from klamm.cli.control import fault

    assert set(fault.FILTER) == set(FilterBody.__struct_fields__)
    assert set(fault.EFFECT) == set(EffectBody.__struct_fields__)
    assert {*fault.LIMITS, "filter", "effect"} == set(FaultBody.__struct_fields__)
    options = {param.name for param in fault.command.params} - {"control", "token", "as_json"}
    assert options == {*fault.FILTER, *fault.EFFECT, *fault.LIMITS} - {"api"} | {"api_name"}


@pytest.mark.parametrize(
    "effect",
    [
        ("--error", "NOT_LEADER_OR_FOLLOWER"), ("--delay-ms", "5"), ("--drop",), ("--close", "amid"), ("--corrupt",), ("--truncate", "7"),
        ("--correlation-id", "5"), ("--lose-response",), ("--throttle-time-ms", "3"), ("--value", "throttleTimeMs=3"),
    ],
    ids=lambda effect: effect[0][2:],
)
def test_every_effect_is_taken_by_the_api(cluster: Cluster, effect: tuple[str, ...]) -> None:
    made = in_json("fault", "--api", "Produce", "--client-id", "nobody", *effect)
    name = effect[0][2:].replace("-", "_").replace("value", "values")
    assert name in in_json("faults", made["id"])["effect"]


def test_a_fault_that_hits_has_its_hits_and_the_requests_have_the_error(cluster: Cluster) -> None:
    made = in_json("fault", "--api", "Produce", "--topic", "orders", "--error", "NOT_LEADER_OR_FOLLOWER", "--first", 1)
    producer = KafkaProducer(bootstrap_servers=cluster["bootstrap_servers"], client_id="faulted", retries=5)
    producer.send("orders", b"x", partition=0).get(30)
    producer.close()
    table = control("faults", made["id"], "--hits", 1).splitlines()
    assert table[1].split()[-3:] == ["1", "1", "yes"]
    assert table[4].split()[2:4] == ["faulted", "Produce"]
    found = in_json("requests", "--client-id", "faulted", "--error", "NOT_LEADER_OR_FOLLOWER")["requests"]
    assert in_json("requests", "--client-id", "faulted", "--api", "Produce", "--error", "any")["requests"] == found
    refused = call("control", "requests", "--error", "NOT_LEADER")
    assert (refused.returncode, "did you mean NOT_LEADER_OR_FOLLOWER?" in refused.stderr) == (1, True)
    assert [each["api"] for each in found] == ["Produce"]
    lines = control("requests", "--client-id", "faulted", "--topic", "orders", "--api", "Produce").splitlines()
    assert [line.split()[6] for line in lines[1:]] == ["NOT_LEADER_OR_FOLLOWER", "-"]


def test_follow_prints_requests_as_they_come(cluster: Cluster, start: Start) -> None:
    running = start("control", "requests", "--follow", "--json", "--client-id", "followed", "--api", "Metadata")
    for _ in range(2):
        KafkaProducer(bootstrap_servers=cluster["bootstrap_servers"], client_id="followed").close()
    first, second = (json.loads(running.line()) for _ in range(2))
    assert first["client_id"] == second["client_id"] == "followed"
    assert first["number"] < second["number"]
    running.signal(signal.SIGINT)
    assert (running.ended(), running.stderr) == (0, "")


def test_events_are_those_after_a_number(cluster: Cluster) -> None:
    made = in_json("hold", "DeletionPropagated")
    seen: list[dict[str, Any]] = []
    number = 0
    while not seen:
        event = json.loads(control("events", "--after", number, "--count", 1, "--json"))
        number = event["number"]
        seen = [event] if event["kind"] == "hold" and event["data"]["id"] == made["id"] else []
    assert seen[0]["data"]["phase"] == "DeletionPropagated"
    assert control("events", "--after", number - 1, "--count", 1).startswith(f"{number}  hold  ")


def test_a_topic_is_created_with_the_replicas_and_configs_that_are_given(cluster: Cluster) -> None:
    assert control("create-topic", "placed", "--replicas", "3:1,1:2", "--config", "retention.ms=7") == "topic placed is created\n"
    assert [each["replicas"] for each in in_json("topic", "placed")["partitions"]] == [[3, 1], [1, 2]]
    assert control("delete-topic", "placed") == "topic placed is deleted\n"


def test_phases_are_described_by_name(cluster: Cluster) -> None:
    assert "field topic" in control("phases", "DeletionQueued")
    assert in_json("phases", "DeletionQueued")["fields"]["topic"] == "string"
    done = call("control", "phases", "DeletionQueue")
    assert (done.returncode, done.stderr) == (1, "klamm: there is no phase 'DeletionQueue'; did you mean DeletionQueued?\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("release", 99), "there is no hold 99"),
        (("hold", "Unheard"), "Unheard"),
        (("broker", "kill", 9), "there is no broker 9; the cluster has 1 to 3"),
        (("fault", "--api", "Produce", "--error", "NOT_LEADR"), "there is no error 'NOT_LEADR'; did you mean"),
        (("fault", "--api", "Produce"), "the effect is empty"),
        (("topic", "a/b?c"), "there is no topic 'a/b?c'"),
        (("group", "unheard-of"), "no running broker has group 'unheard-of'"),
        (("clock", "advance", -1), "No such option '-1'"),
    ],
)
def test_an_error_of_the_api_is_one_line_and_exit_code_1(cluster: Cluster, arguments: tuple[object, ...], reason: str) -> None:
    done = call("control", *arguments)
    assert (done.returncode, done.stdout) == (2 if "No such" in reason else 1, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("hold", "X", "--where", "topic"), ("create-topic", "t", "--config", "x"),
        ("create-topic", "t", "--replicas", "1;2"),
        ("unhold",), ("unhold", 1, "--all"), ("unfault",), ("faults", "--hits", 1), ("holds", "--wait"),
        ("fault", "--versions", "x"), ("group", "g", "--rebalance", "--expire-all"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(arguments: tuple[object, ...]) -> None:
    done = call("control", "--control", "127.0.0.1:1", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_without_an_address_the_reason_is_one_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KLAMM_CONTROL", raising=False)
    done = call("control", "holds")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--control URL, or the environment variable KLAMM_CONTROL" in done.stderr


def test_an_api_that_cannot_be_reached_is_one_line_and_exit_code_1() -> None:
    done = call("control", "holds", "--control", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "klamm: cannot reach the control API at http://127.0.0.1:1: Connection refused\n"


def test_a_port_that_is_no_control_api_is_one_line_and_exit_code_1(cluster: Cluster) -> None:
    done = call("control", "holds", "--control", f"{cluster['control']}/unheard-of")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    broker = cluster["bootstrap_servers"].split(",")[0]
    done = call("control", "holds", "--control", broker)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_options_may_stand_before_the_command_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLAMM_CONTROL", "127.0.0.1:1")
    at = ("control", "--control", cluster["control"], "--json")
    for command in (("controller",), ("brokers",)):
        done = call(*at, *command)
        assert done.returncode == 0
        assert json.loads(done.stdout)
    assert call("control", "controller", "--control", cluster["control"], "move").returncode == 0


def test_a_token_is_sent(start: Start, zookeeper: str, chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--brokers", 1, "--port", 0, "--json", "--control-port", 0, "--control-token", "secret")
    monkeypatch.setenv("KLAMM_CONTROL", start("serve", "--zookeeper", zookeeper + chroot, *arguments).ready()["control"])
    assert "the token is missing or wrong" in call("control", "brokers").stderr
    assert "running" in control("brokers", "--token", "secret")
    monkeypatch.setenv("KLAMM_CONTROL_TOKEN", "secret")
    assert "running" in control("brokers")


def test_neither_aiohttp_nor_a_part_of_the_server_is_imported() -> None:
    """The client of the control API needs the standard library and the table of verbs alone."""
    code = (
        "import sys\nfrom klamm.cli.control.verb import command\n"
        "for name in command.list_commands(None): command.get_command(None, name)\n"
        "print(*(m for m in sys.modules if m.startswith(('aiohttp', 'msgspec', 'klamm.control', 'klamm.server', 'klamm.protocol'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        "klamm.control", "klamm.control.client", "klamm.control.json_object", "klamm.control.verbs", "klamm.control.verbs.table",
    }
