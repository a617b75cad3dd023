"""The arguments of a local cluster. They are checked before anything is started; an error is one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from klamm.protocol.addresses import Address, address_of

MAX_BROKERS = 100
OWN_PROPERTIES = frozenset({"advertised.listeners", "broker.id", "klamm.metrics.port", "listeners", "node.id", "zookeeper.connect"})
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms that a cluster can be given a user for."""
USER = "admin"
"""The user that every cluster with SASL has, which is also that of its brokers."""

EVERY_ADDRESS = frozenset({"", "0.0.0.0", "::"})


_BEFORE_CONFIG = re.compile(r":(?=[^:=]+=)")


class SeedTopic(NamedTuple):
    """A topic to create at start, unless it exists."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> SeedTopic:
        """Parse `NAME:PARTITIONS:RF:KEY=VALUE:…`. Both numbers default to 1, configs are optional. Raises ValueError."""
        shape, *configs = _BEFORE_CONFIG.split(text)
        name, *numbers = shape.split(":")
        if not name or len(numbers) > 2 or not all(number.isascii() and number.isdigit() and int(number) > 0 for number in numbers):
            raise ValueError(f"{text!r} is not NAME:PARTITIONS:RF, such as orders:6:3 or orders:6:3:cleanup.policy=compact")
        partitions, replication_factor = (*map(int, numbers), 1, 1)[:2]
        pairs = [(key.strip(), value.strip()) for key, _, value in (config.partition("=") for config in configs)]
        for key, count in Counter(key for key, _ in pairs).items():
            if count > 1:
                raise ValueError(f"{name}: {key} is named twice")
        return cls(name, partitions, replication_factor, tuple(pairs))


class BadArgument(ValueError):
    """An argument is not valid. `argument` is its name, with the key if it is a mapping; `reason` says in a clause what is wrong."""

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(f"{argument}: {reason}")
        self.argument = argument
        self.reason = reason


def log_directory(data_dir: Path | None, broker_id: int) -> dict[str, str]:
    """The properties that set a broker's log directory below `data_dir`; empty without `data_dir`."""
    return {} if data_dir is None else {"log.dirs": str((data_dir / f"broker-{broker_id}").absolute())}


def with_own_log_directories(config: Mapping[str, str], broker_id: int, brokers: int) -> dict[str, str]:
    """The properties of one broker. If there are several brokers, each has its own folder below each log directory."""
    properties = dict(config)
    for name in {"log.dir", "log.dirs"} & config.keys() if brokers > 1 else ():
        folders = (folder.strip() for folder in config[name].split(","))
        properties[name] = ",".join(f"{folder}/broker-{broker_id}" for folder in folders if folder)
    return properties


class Advertised(NamedTuple):
    """Where clients outside of this machine or container find the brokers: each at its place in the list, those beyond it at the ports
    after the last one.
    """

    listed: tuple[Address, ...]

    @classmethod
    def parse(cls, text: str) -> Advertised:
        """Parse `HOST:PORT[,…]`; an IPv6 address may be in brackets, which its host does not have. Raises ValueError."""
        return cls(tuple(address_of(each.strip()) for each in text.split(",")))

    def of(self, broker_id: int) -> Address:
        """Where clients find this broker. The port may be above 65535."""
        beyond = max(0, broker_id - len(self.listed))
        host, port = self.listed[broker_id - beyond - 1]
        return host, port + beyond


_INTERNAL_DISTANCE = 10_000
"""If clients have an advertised listener of their own, other brokers have one whose port is so much higher, or lower."""


def listener_properties(protocol: str, host: str, port: int, broker_id: int, advertised: Advertised | None = None) -> dict[str, str]:
    """The properties of a broker's listeners. `host` and `port` are those of this broker; an IPv6 address is in brackets.

    With `advertised` clients connect to a listener on every address, which says that it is there; brokers use another one on loopback.
    """
    if advertised is None:
        return {"listeners": f"{protocol}://{host}:{port}"}
    for_clients, its_port = advertised.of(broker_id)
    higher = port + _INTERNAL_DISTANCE
    internal = f"INTERNAL://127.0.0.1:{higher if higher <= 65535 else port - _INTERNAL_DISTANCE}"
    return {
        "listeners": f"{internal},PLAINTEXT://0.0.0.0:{port}",
        "advertised.listeners": f"{internal},PLAINTEXT://{for_clients}:{its_port}",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }


def metrics_endpoint(port: int | None, broker_id: int) -> dict[str, str]:
    """The properties that give a broker its endpoint for metrics, where `port` is that of broker 1, or 0 for free ones; none without it."""
    return {} if port is None else {"klamm.metrics.port": str(0 if port == 0 else port + broker_id - 1)}


def narrowed_apis(as_version: str | None, api_versions: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The properties that make brokers offer the APIs of a version of Apache Kafka, and narrow single APIs: pairs of name and range."""
    ranges = ",".join(f"{name}={wanted}" for name, wanted in api_versions)
    return ({} if as_version is None else {"klamm.as.version": as_version}) | ({"klamm.api.versions": ranges} if ranges else {})


def check_arguments(brokers: int, host: str, port: int, config: Mapping[str, str], metrics_port: int | None = None) -> None:
    """Raises BadArgument."""
    if not 1 <= brokers <= MAX_BROKERS:
        raise BadArgument("brokers", f"{brokers} is not in the range 1 to {MAX_BROKERS}")
    for argument, first in (("port", port), ("metrics_port", metrics_port)):
        if first is not None and not 0 <= first <= 65535:
            raise BadArgument(argument, f"{first} is not in the range 0 to 65535")
        if first is not None and first + brokers - 1 > 65535:
            raise BadArgument(argument, f"{first} leaves no ports for {brokers} brokers")
    if host in EVERY_ADDRESS:
        raise BadArgument(f"host {host}", "clients connect to this address; name one that they can reach")
    for name in sorted(OWN_PROPERTIES & config.keys()):
        raise BadArgument(f"config {name}", "is different for each broker and is set by the other options")


def check_broker_configs(broker_configs: Mapping[int, Mapping[str, str]], brokers: int) -> None:
    """Check which brokers have properties of their own, and their names. Raises BadArgument."""
    for number, config in broker_configs.items():
        if not 1 <= number <= brokers:
            raise BadArgument("broker_config", f"there is no broker {number}; the cluster has 1 to {brokers}")
        for name in sorted(OWN_PROPERTIES & config.keys()):
            raise BadArgument("broker_config", f"{name} is set by the other options")


def with_internal_topics(config: Mapping[str, str] | None, brokers: int) -> dict[str, str]:
    """The properties, and those with which fewer than three brokers can have consumer groups and transactions: as many replicas of the
    offsets topic and the transaction topic as there are brokers. Kafka's defaults ask for three; its sample file for one broker has one.
    """
    replicas = {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3, "transaction.state.log.min.isr": 2}
    return {name: str(min(usual, brokers)) for name, usual in replicas.items() if usual > brokers} | dict(config or {})
