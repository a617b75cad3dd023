"""All configs, from the files beside this one, and the names of the broker configs that Klamm uses.

Each file has the rows of one area: `definition.py` says what a row has. `valid` is a class of `validators.py` with its arguments. The
rows were compared with a running Kafka 3.9.1.

`BROKER` has the 314 configs of a DescribeConfigs response, and 14 internal configs. It does not have the replication quotas, which in Kafka
exist only as dynamic configs. `TOPICS` has the 36 configs of topics. `SWITCHES` has Klamm's own configs: they are read from the properties
file like any config, but DescribeConfigs does not show them. One that is not read-only can also be set as a dynamic config; then
DescribeConfigs shows it, and `OWN` has it too. A boolean of them can also be written as `on` or `off` (controller Part II).

A config that is in `BROKER` but not in `MEANINGFUL` is accepted, validated and shown, but has no effect. The broker logs this once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from klamm.configs.definitions import validators
from klamm.configs.definitions.blacklist import BLACKLIST
from klamm.configs.definitions.definition import READ_ONLY, ConfigKey, UpdateMode, synonyms, without_listener
from klamm.configs.definitions.types import ConfigType


def _table(*areas: str) -> dict[str, ConfigKey]:
    """Name → row of several files, in their order."""
    texts = (Path(__file__).with_name(f"{area}.json").read_bytes() for area in areas)
    return {row["name"]: _key(row) for text in texts for row in json.loads(text)}


def _key(row: dict[str, Any]) -> ConfigKey:
    typed = {"type": ConfigType[row["type"]], "mode": UpdateMode(row.get("mode", READ_ONLY.value)), "default": _value(row["default"])}
    if "valid" in row:
        arguments = {name: _value(value) for name, value in row["valid"].items() if name != "is"}
        typed["valid"] = getattr(validators, row["valid"]["is"])(**arguments)
    return ConfigKey(**row | typed)


def _value(value: object) -> object:
    """JSON has no tuples."""
    return tuple(value) if isinstance(value, list) else value


BROKER = _table("network", "cluster", "log", "groups", "security", "kraft", "tiered_storage")
TOPICS = _table("topic")
SWITCHES = _table("klamm")
QUOTAS = _table("quotas")
OWN = {key.name: key for key in (BLACKLIST, *SWITCHES.values()) if key.mode is not READ_ONLY}
MEANINGFUL = frozenset(name for name, key in BROKER.items() if key.used)
OF_AUTHORIZER = frozenset({"super.users", "allow.everyone.if.no.acl.found", "authorizer.zookeeper.url"})
"""Properties that the authorizer reads; they are not configs of a broker in Kafka either."""


def client_configs() -> frozenset[str]:
    """Names of the configs of Kafka's clients: admin, producer and consumer of 3.9.1 (`configNames` of their config classes)."""
    return frozenset(json.loads(Path(__file__).with_name("clients.json").read_bytes()))


def key_of(name: str) -> ConfigKey | None:
    """The row of a broker config, of the config of one listener, or of a replication quota; None for an unknown name."""
    for known in (name,) if without_listener(name) is None else synonyms(name):
        key = BROKER.get(known) or QUOTAS.get(known)
        if key is not None:
            return key
    return None
