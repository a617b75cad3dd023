"""The compose file and the Dockerfile name commands, options, files and properties that exist. Nothing is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import yaml

from klamm.cli.main import klamm
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.properties import parse_properties

ROOT = Path(__file__).resolve().parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
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
    (mounted,) = service["configs"]
    assert str(options["file"]) == mounted["target"]
    properties = parse_properties(COMPOSE["configs"][mounted["source"]]["content"])
    return BrokerConfig(properties | dict(options["override"]))


def test_a_zookeeper_and_three_brokers() -> None:
    assert list(COMPOSE["services"]) == ["zookeeper", "klamm-1", "klamm-2", "klamm-3", "spark-master", "spark-worker", "pipeline"]


def test_spark_runs_the_pipeline_on_the_lake_that_the_brokers_write() -> None:
    services = COMPOSE["services"]
    lake = {name for name, service in services.items() if service.get("volumes") == ["lake:/lake"]}
    assert lake == {*BROKERS, "spark-master", "spark-worker", "pipeline"}
    assert parsed(services["pipeline"]["command"][:2]) is not None
    assert services["pipeline"]["command"][1:3] == ["run", "/lake"]
    master, host, port = services["spark-master"]["command"]
    assert (master, host) == ("master", "spark-master")
    assert services["spark-worker"]["command"][:2] == ["worker", f"spark://{host}:{port}"]
    assert services["pipeline"]["command"][-1] == f"spark://{host}:{port}"
    targets = set(re.findall(r"^FROM \S+ AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert {service["build"]["target"] for service in services.values() if isinstance(service.get("build"), dict)} <= targets


def test_every_property_is_known_and_the_values_will_do() -> None:
    for service in BROKERS.values():
        assert not broker_config(service).unknown


def test_brokers_differ_in_id_and_address() -> None:
    configs = [broker_config(service) for service in BROKERS.values()]
    assert [config.broker_id for config in configs] == [1, 2, 3]
    advertised = [endpoint for config in configs for endpoint in config.advertised_listeners]
    assert len({(endpoint.host, endpoint.port) for endpoint in advertised}) == 6


def test_what_is_advertised_can_be_reached() -> None:
    for name, service in BROKERS.items():
        config = broker_config(service)
        bound = {listener.name: listener.port for listener in config.listeners}
        published = dict(port.split(":") for port in service["ports"])
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


def test_the_dockerfile_runs_a_command_that_exists_on_a_port_that_is_used() -> None:
    text = (ROOT / "Dockerfile").read_text()
    (entry,) = set(re.findall(r'^ENTRYPOINT \["(.*)"\]$', text, re.MULTILINE))
    (command,) = re.findall(r"^CMD \[(.*)\]$", text, re.MULTILINE)
    assert entry == "klamm"
    assert parsed(yaml.safe_load(f"[{command}]"))
    exposed = set(re.search(r"^EXPOSE (.*)$", text, re.MULTILINE)[1].split())  # type: ignore[index]
    assert exposed == {str(listener.port) for service in BROKERS.values() for listener in broker_config(service).listeners}
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {"constraints.txt", "pyproject.toml", "README.md", "LICENSE", "NOTICE"} & set(ignored)
