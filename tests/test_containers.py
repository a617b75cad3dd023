"""The compose file and the Dockerfile name commands, options, files and properties that exist. tests/images runs them."""

from __future__ import annotations

import importlib.util
import re
import signal
from pathlib import Path
from typing import Any

import click
import yaml

from klamm.cli.main import klamm
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.properties import parse_properties

ROOT = Path(__file__).resolve().parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:-(\w+)\}", r"\1", (ROOT / "docker-compose.yml").read_text()))
"""The file with the defaults of its variables."""
BROKERS = {name: service for name, service in COMPOSE["services"].items() if name.startswith("klamm-")}


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Options and arguments of `klamm ARGUMENTS`, as the verb itself parses them."""
    context = click.Context(klamm, **klamm.context_settings)
    verb = klamm.get_command(context, arguments[0])
    assert verb is not None, arguments
    return verb.make_context(arguments[0], arguments[1:], parent=context).params


def broker_config(service: dict[str, Any]) -> BrokerConfig:
    """The configuration that a broker's container starts with."""
    options = parsed(service["command"])
    (source,) = [volume.split(":")[0] for volume in service["volumes"] if volume.split(":")[1] == str(options["file"])]
    properties = parse_properties((ROOT / source).read_text())
    return BrokerConfig(properties | dict(options["override"]))


def seconds(service: dict[str, Any]) -> int:
    """How long a service may take to stop."""
    return int(service["stop_grace_period"].removesuffix("s"))


def test_a_zookeeper_and_three_brokers() -> None:
    assert list(COMPOSE["services"]) == ["zookeeper", "klamm-1", "klamm-2", "klamm-3", "spark-master", "spark-worker", "pipeline"]


def test_spark_runs_the_pipeline_on_the_lake_that_the_brokers_write() -> None:
    services = COMPOSE["services"]
    lake = {name for name, service in services.items() if "lake:/lake" in service.get("volumes", ())}
    assert lake == {*BROKERS, "spark-master", "spark-worker", "pipeline"}
    assert parsed(services["pipeline"]["command"][:2]) is not None
    assert services["pipeline"]["command"][1:3] == ["run", "/lake"]
    master, host, port = services["spark-master"]["command"]
    assert (master, host) == ("master", "spark-master")
    assert services["spark-worker"]["command"][:2] == ["worker", f"spark://{host}:{port}"]
    assert services["pipeline"]["command"][-1] == f"spark://{host}:{port}"
    targets = set(re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert {service["build"]["target"] for service in services.values() if isinstance(service.get("build"), dict)} <= targets


def test_the_pipeline_waits_for_the_master_it_names() -> None:
    services = COMPOSE["services"]
    entry = services["pipeline"]["entrypoint"]
    assert entry[:4] == services["spark-master"]["entrypoint"] + ["wait"]
    assert entry[4:6] == services["spark-master"]["command"][1:]
    assert entry[6:] == ["klamm"]


def test_zookeeper_outlives_brokers_that_are_stopped_at_the_same_time() -> None:
    zookeeper = COMPOSE["services"]["zookeeper"]
    assert signal.Signals[zookeeper["stop_signal"]] in {signal.SIGURG, signal.SIGCHLD, signal.SIGWINCH}, "a signal that a process ignores"
    for service in BROKERS.values():
        config = broker_config(service)
        attempts_ms = config.get("controlled.shutdown.max.retries") * config.get("controlled.shutdown.retry.backoff.ms")
        assert attempts_ms < seconds(zookeeper) * 1000 / 2
        assert seconds(service) > seconds(zookeeper)


def test_what_is_written_is_in_volumes_and_the_rest_of_the_file_system_is_read_only() -> None:
    for service in BROKERS.values():
        assert service["read_only"] is True
        folders = {volume.split(":")[1] for volume in service["volumes"]}
        assert any(broker_config(service).get("log.dirs").startswith(f"{folder}/") for folder in folders)
    volumes = [volume for name in (*BROKERS, "zookeeper") for volume in COMPOSE["services"][name]["volumes"] if not volume.startswith(".")]
    assert {volume.split(":")[0] for volume in volumes} == set(COMPOSE["volumes"])


def test_every_property_is_known_and_the_values_will_do() -> None:
    for service in BROKERS.values():
        assert not broker_config(service).unknown


def test_brokers_differ_in_id_and_address() -> None:
    configs = [broker_config(service) for service in BROKERS.values()]
    assert [config.broker_id for config in configs] == [1, 2, 3]
    advertised = [endpoint for config in configs for endpoint in config.advertised_listeners]
    assert len({(endpoint.host, endpoint.port) for endpoint in advertised}) == 6


def test_only_this_machine_reaches_the_brokers_without_authentication() -> None:
    assert {port.split(":")[0] for service in BROKERS.values() for port in service["ports"]} == {"127.0.0.1"}


def test_a_service_is_healthy_within_a_second_of_its_first_response() -> None:
    """By the interval: podman-compose fails on `start_interval`, and the buildah of Debian 12 on `--start-interval`."""
    checks = re.findall(r"^HEALTHCHECK --interval=(\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {*checks, COMPOSE["services"]["zookeeper"]["healthcheck"]["interval"]} == {"1s"}


def test_what_is_advertised_can_be_reached() -> None:
    for name, service in BROKERS.items():
        config = broker_config(service)
        bound = {listener.name: listener.port for listener in config.listeners}
        published = {host: inner for _, host, inner in (port.split(":") for port in service["ports"])}
        for endpoint in config.advertised_listeners:
            if endpoint.name == "INTERNAL":
                assert (endpoint.host, endpoint.port) == (name, bound["INTERNAL"])
            else:
                assert (endpoint.host, int(published[str(endpoint.port)])) == ("localhost", bound["EXTERNAL"])


def test_brokers_wait_for_the_zookeeper_they_name() -> None:
    for service in BROKERS.values():
        host = broker_config(service).get("zookeeper.connect").split(":")[0]
        assert host in COMPOSE["services"]
        assert service["depends_on"] == {host: {"condition": "service_healthy"}}
        assert "healthcheck" in COMPOSE["services"][host]


def test_the_images_run_commands_that_exist_on_ports_that_are_used() -> None:
    text = (ROOT / "Dockerfile").read_text()
    entry, of_pods = (yaml.safe_load(line) for line in re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE))
    commands = [yaml.safe_load(f"[{command}]") for command in re.findall(r"^CMD \[(.*)\]$", text, re.MULTILINE)]
    assert entry == ["klamm"]
    assert of_pods[:2] == ["python", "-m"] and importlib.util.find_spec(of_pods[2]) is not None
    assert [command[0] for command in commands] == ["serve", "broker"]
    assert all(parsed(command) for command in commands)
    of_serve, of_broker = (set(ports.split()) for ports in re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE))
    first = parsed(commands[0])["port"]
    assert of_serve == {"9090", *(str(first + number) for number in range(3))}, "no ranges: docker-java cannot read them"
    assert of_broker == {str(listener.port) for service in BROKERS.values() for listener in broker_config(service).listeners}
    checks = re.findall(r'"-m", "(klamm[\w.]+)", "(\d+)"', text)
    assert [importlib.util.find_spec(module) is not None for module, _ in checks] == [True, True]
    assert [port for _, port in checks] == ["9092", "19092"]
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {"constraints.txt", "pyproject.toml", "README.md", "LICENSE", "NOTICE", "distributions"} & set(ignored)
