"""The tables against answers of a real Kafka 3.9.1: every row of DescribeConfigs, in every state that was recorded."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from klamm import cli, server
from klamm.configs import tables
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.definition import READ_ONLY
from klamm.configs.definitions.types import ConfigType, text_of
from klamm.configs.describe import ConfigSource, DescribedConfig, describe_broker, describe_default_broker, describe_topic
from klamm.configs.dynamic import DYNAMIC
from klamm.configs.tables.broker import BROKER, MEANINGFUL, QUOTAS, SWITCHES, TOPICS

GOLDEN = json.loads(gzip.decompress((Path(__file__).parent.parent / "golden" / "describe_configs.json.gz").read_bytes()))
TOPIC, BROKER_RESOURCE = 2, 4


def test_sizes():
    assert len(TOPICS) == 36
    assert sum(not key.internal for key in BROKER.values()) == 314
    assert sum(key.internal for key in BROKER.values()) == 14
    assert len(DYNAMIC) == 89
    assert set(BROKER) >= MEANINGFUL
    assert not set(SWITCHES) & set(BROKER) and not set(QUOTAS) & set(BROKER)


def test_each_config_has_one_row():
    """The last of two rows would count, without a word."""
    texts = [path.read_bytes() for path in Path(tables.__file__).parent.glob("*.json") if path.name != "clients.json"]
    names = [row["name"] for text in texts for row in json.loads(text)]
    assert len(names) == sum(map(len, (BROKER, TOPICS, SWITCHES, QUOTAS)))


def test_what_the_server_reads_means_something():
    rooms = [Path(server.__file__).parent, Path(cli.__file__).parent]
    of_clients = {"client_properties.py"}
    sources = [path.read_text() for room in rooms for path in room.rglob("*.py") if path.name not in of_clients]
    read = {name for source in sources for name in re.findall(r'"([a-z0-9.]+)"', source)} & set(BROKER)
    assert "zookeeper.connect" in read
    assert read <= MEANINGFUL


def test_every_config_is_documented_in_a_sentence():
    for key in (*BROKER.values(), *TOPICS.values(), *SWITCHES.values(), *QUOTAS.values()):
        assert key.documentation.endswith(".") and key.documentation[0].isupper(), key.name


def test_defaults_are_fit():
    for key in (*BROKER.values(), *TOPICS.values(), *SWITCHES.values()):
        if key.default is not None:
            assert key.parse(str(text_of(key.default))) == key.default, key.name


def test_topics_take_their_defaults_from_configs_of_the_same_type():
    for key in TOPICS.values():
        if key.server is not None:
            assert BROKER[key.server].type is key.type, key.name


def shape(row: DescribedConfig) -> tuple[Any, ...]:
    synonyms = [(s.name, s.value, int(s.source)) for s in row.synonyms]
    return row.value, row.read_only, int(row.source), row.sensitive, int(row.type), synonyms


def recorded_shape(row: dict[str, Any]) -> tuple[Any, ...]:
    synonyms = [(s["name"], s["value"], s["source"]) for s in row["synonyms"]]
    return row["value"], row["readOnly"], row["configSource"], row["isSensitive"], row["configType"], synonyms


def test_recorded_states():
    """One broker goes through what a real one went through, and describes itself alike each time: sources, synonyms, values in force."""
    config: BrokerConfig | None = None
    own: dict[str, str] = {}
    rows = 0
    for case in GOLDEN["cases"]:
        config = config or BrokerConfig(case["static"])
        config.apply_dynamic(case["default"], own)
        own = case["own"]
        config.apply_dynamic(case["default"], own)
        for result in case["results"]:
            if result["type"] == TOPIC:
                described = describe_topic(case["topics"][result["name"]], config)
            elif result["name"]:
                described = describe_broker(config)
            else:
                described = describe_default_broker(config)
            ours = {row.name: shape(row) for row in described}
            theirs = {row["name"]: recorded_shape(row) for row in result["configs"]}
            assert ours == theirs, f"{case['case']}: {result['type']} {result['name']!r}"
            rows += len(theirs)
    assert rows > 2000


@pytest.mark.parametrize(
    "answer", GOLDEN["recorded"], ids=lambda answer: f"v{answer['version']}-type{answer['type']}-{len(answer['configs'])}"
)
def test_answers_to_clients(answer):
    """What clients were answered by brokers of which we know the properties only from the answer itself."""
    expected = {row["name"]: row for row in answer["configs"]}
    static = {"zookeeper.connect": "z:1"}
    stored = {}
    for name, row in expected.items():
        if row["configSource"] == 4:
            static[name if answer["type"] == BROKER_RESOURCE else TOPICS[name].server or name] = row["value"]
        elif row["configSource"] == 1:
            stored[name] = row["value"]
    config = BrokerConfig(static)
    described = describe_broker(config) if answer["type"] == BROKER_RESOURCE else describe_topic(stored, config)
    for row in described:
        theirs = expected.pop(row.name)
        assert (row.value, row.read_only, int(row.source), row.sensitive) == (
            theirs["value"],
            theirs["readOnly"],
            theirs["configSource"],
            theirs["isSensitive"],
        ), row.name
        if "configType" in theirs:
            assert row.type == theirs["configType"], row.name
    assert not expected


def test_nothing_of_ours_is_shown():
    switches = {"kip183.legacy.v0": "off", "kip704.recovery.mode": "delay:5", "registerbroker.enable": "on"}
    config = BrokerConfig({"zookeeper.connect": "z:1", **switches})
    assert not {row.name for row in describe_broker(config)} & set(SWITCHES)
    assert (config.get("kip183.legacy.v0"), config.get("registerbroker.enable"), config.get("kip179.enable")) == (False, True, True)
    assert config.get("kip704.recovery.mode") == "delay:5"


def test_the_recovery_mode_is_shown_where_it_is_a_dynamic_config_or_named():
    mode = "kip704.recovery.mode"
    config = BrokerConfig({"zookeeper.connect": "z:1", mode: "manual", "preferred_leader_blacklist": "1"})
    assert config.misplaced == ("preferred_leader_blacklist",)
    (named,) = (row for row in describe_broker(config, [mode]) if row.name == mode)
    assert (named.value, named.read_only, named.source) == ("manual", False, ConfigSource.STATIC_BROKER)
    assert config.apply_dynamic({mode: "delay:5"}, {mode: "instant", "kip179.enable": "false"}).changed == {mode}
    assert (config.get(mode), config.get("kip179.enable")) == ("instant", True), "the others are read-only"
    (shown,) = (row for row in describe_broker(config) if row.name == mode)
    assert [(s.value, int(s.source)) for s in shown.synonyms] == [("instant", 2), ("delay:5", 3), ("manual", 4), ("instant", 5)]
    config.apply_dynamic({mode: "soon"}, {})
    assert config.get(mode) == "manual"


def test_unknown_and_internal_names_are_shown_when_set():
    config = BrokerConfig({"zookeeper.connect": "z:1", "my.plugin": "secret", "log.initial.task.delay.ms": " 5"})
    rows = {row.name: row for row in describe_broker(config)}
    assert len(rows) == 316
    assert (rows["my.plugin"].value, rows["my.plugin"].sensitive, rows["my.plugin"].type) == (None, True, ConfigType.UNKNOWN)
    assert (rows["log.initial.task.delay.ms"].value, rows["log.initial.task.delay.ms"].read_only) == (" 5", True)


def test_documentation():
    config = BrokerConfig({"zookeeper.connect": "z:1"})
    config.apply_dynamic({}, {"leader.replication.throttled.rate": "5", "nobody.knows": "x"})
    undocumented = {row.name for row in describe_broker(config) if row.documentation is None}
    assert undocumented == {"leader.replication.throttled.rate", "nobody.knows"}
    assert all(row.documentation for row in describe_topic({}, config))
    assert BROKER["min.insync.replicas"].mode is not READ_ONLY
