"""The config `preferred_leader_blacklist` (KIP-491): what it may be, where it may be set, how it is shown."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.blacklist import BLACKLIST, listed_brokers, with_brokers, without_brokers
from klamm.configs.definitions.types import ConfigError, ConfigType
from klamm.configs.describe import ConfigSource, describe_broker
from klamm.server.configs.properties_log import log_properties
from klamm.server.security.authorizer import Operation
from klamm.tests.configs.conftest import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, describing
from klamm.tests.services import Denying

LIST = "preferred_leader_blacklist"
OK, NOT_KNOWN, BAD_CONFIG, BAD_REQUEST = 0, -1, 40, 42
DEFAULT = "brokers/<default>"

VALID = [
    ("", set()),
    ("1", {1}),
    ("1,10,65", {1, 10, 65}),
    (" 5 ,6,5", {5, 6}),
    ("65, 1\t,10 ", {1, 10, 65}),
    ("+5,05", {5}),
    ("0", {0}),
    ("2147483647", {2147483647}),
]
INVALID = ["x", "1,x", "-1", "1,-1", "1,,2", "1,", ",", "1.0", "1;2", "[1]", "1 2", "2147483648", "0x1"]


@pytest.mark.requirement("R491-1", "R491-2")
@pytest.mark.parametrize(("text", "listed"), VALID)
async def test_a_list_of_ids_is_stored_as_it_is_and_blanks_repetitions_and_order_mean_nothing(node, text, listed):
    assert BLACKLIST.name == LIST and listed_brokers({}) == set()
    assert listed_brokers({LIST: text}) == listed
    assert await node.increment((BROKER, "", [(LIST, SET, text)])) == [OK]
    assert await node.stored(DEFAULT) == {LIST: text}
    assert await node.replace((BROKER, "", [(LIST, text)])) == [OK]


@pytest.mark.requirement("R491-2")
@pytest.mark.parametrize("text", INVALID)
async def test_an_element_that_is_no_broker_id_is_refused_and_nothing_is_stored(node, text):
    with pytest.raises(ConfigError):
        listed_brokers({LIST: text})
    assert await node.increment((BROKER, "", [(LIST, SET, "7")])) == [OK]
    announced = await node.announced()
    assert await node.increment((BROKER, "", [(LIST, SET, text)]), (BROKER, "", [])) == [BAD_REQUEST, BAD_REQUEST], "named twice"
    assert await node.increment((BROKER, "", [(LIST, SET, text)])) == [BAD_REQUEST]
    assert await node.increment((BROKER, "", [(LIST, APPEND, text)])) == [BAD_REQUEST]
    assert await node.increment((BROKER, "", [(LIST, SUBTRACT, text)])) == [BAD_REQUEST]
    assert await node.replace((BROKER, "", [(LIST, text)])) == [BAD_REQUEST]
    assert await node.stored(DEFAULT) == {LIST: "7"} and await node.announced() == announced


@pytest.mark.requirement("R491-3")
async def test_it_is_set_for_all_brokers_at_once_only(node):
    for name in ("0", "+00"):
        for operation in (SET, APPEND, SUBTRACT):
            assert await node.increment((BROKER, name, [(LIST, operation, "1")])) == [BAD_REQUEST]
        assert await node.replace((BROKER, name, [(LIST, "1")])) == [BAD_REQUEST]
    assert await node.increment((BROKER, "1", [(LIST, SET, "1")])) == [BAD_REQUEST]
    assert await node.stored("brokers/0") is None and await node.stored(DEFAULT) is None


@pytest.mark.requirement("R491-3")
async def test_append_and_subtract_change_the_set_and_set_replaces_it(node):
    steps = [
        (APPEND, "3", "3"),
        (APPEND, "5,3", "3,5"),
        (SUBTRACT, "3,9", "5"),
        (SUBTRACT, "5", ""),
        (SET, " 5 ,6,5", " 5 ,6,5"),
        (APPEND, " 7 ", "5,6,7"),
        (SET, " 5 ,6,5", " 5 ,6,5"),
        (SUBTRACT, "5", "6"),
        (SET, "1,2", "1,2"),
    ]
    for operation, value, then in steps:
        assert await node.increment((BROKER, "", [(LIST, operation, value)])) == [OK]
        assert await node.stored(DEFAULT) == {LIST: then}
    assert await node.replace((BROKER, "", [(LIST, "9")])) == [OK]
    assert await node.stored(DEFAULT) == {LIST: "9"}
    assert await node.replace((BROKER, "", [])) == [OK]
    assert await node.stored(DEFAULT) == {}


@pytest.mark.requirement("R491-3")
def test_the_set_after_append_and_subtract():
    assert with_brokers("", "1") == "1" and with_brokers("2,1", "3,1,3") == "2,1,3"
    assert without_brokers("1,2,1", "1") == "2" and without_brokers("", "1") == ""


async def test_validate_only_stores_nothing(node):
    assert await node.increment((BROKER, "", [(LIST, SET, "1")]), validate_only=True) == [OK]
    assert await node.increment((BROKER, "", [(LIST, SET, "x")]), validate_only=True) == [BAD_REQUEST]
    assert await node.stored(DEFAULT) is None


@pytest.mark.requirement("R491-4")
async def test_it_is_shown_with_the_source_of_the_default_of_all_brokers(node):
    await node.increment((BROKER, "", [(LIST, SET, " 5 ,6,5"), ("min.insync.replicas", SET, "2")]))
    await node.eventually(lambda: LIST in node.config.dynamic_default)
    for version in range(1, 5):
        for name, value, keys in (("", " 5 ,6,5", None), ("", " 5 ,6,5", [LIST]), ("0", "5,6,5", None), ("0", "5,6,5", [LIST])):
            (result,) = await node.describe((BROKER, name, keys), version=version, include_synonyms=True)
            row = {row.name: row for row in result.configs}[LIST]
            assert (row.value, row.read_only, row.config_source, row.is_sensitive) == (value, False, 3, False)
            synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms]
            assert synonyms == [(LIST, " 5 ,6,5", 3), *([(LIST, "", 5)] if name else [])]
            if version >= 3:
                assert row.config_type == ConfigType.LIST


@pytest.mark.requirement("R491-4")
async def test_delete_restores_the_empty_list(node):
    await node.increment((BROKER, "", [(LIST, SET, "5")]))
    await node.eventually(lambda: LIST in node.config.dynamic_default)
    await node.increment((BROKER, "", [(LIST, DELETE, None)]))
    await node.eventually(lambda: LIST not in node.config.dynamic_default)
    assert await node.stored(DEFAULT) == {}
    (result,) = await node.describe((BROKER, "0", [LIST]))
    assert [(row.name, row.value, row.config_source) for row in result.configs] == [(LIST, "", 5)]
    assert await node.values(BROKER, "", LIST) == {}


async def test_while_it_is_not_set_a_client_that_does_not_name_it_sees_no_difference(brokers):
    own = {"zookeeper.connect": "z:1", "my.plugin": "x"}
    assert describe_broker(BrokerConfig(own)) == describe_broker(BrokerConfig({**own, "kip491.enable": "off"}))
    node = await brokers(0)
    request = describing((BROKER, "0", None), (BROKER, "", None), include_synonyms=True, include_documentation=True)
    before = await node.request_encoded(request, 4)
    await node.increment((BROKER, "", [(LIST, SET, "5")]))
    await node.eventually(lambda: LIST in node.config.dynamic_default)
    assert await node.request_encoded(request, 4) != before
    await node.increment((BROKER, "", [(LIST, DELETE, None)]))
    await node.eventually(lambda: LIST not in node.config.dynamic_default)
    assert await node.request_encoded(request, 4) == before


@pytest.mark.requirement("R491-15")
async def test_there_is_no_list_of_a_topic(node):
    assert await node.increment((TOPIC, "t1", [(LIST, SET, "1")])) == [BAD_CONFIG]
    assert await node.increment((TOPIC, "t1", [(LIST, APPEND, "1")])) == [BAD_CONFIG]
    assert await node.replace((TOPIC, "t1", [(LIST, "1")])) == [BAD_CONFIG]
    assert await node.stored("topics/t1") == {"retention.ms": "1000"}


@pytest.mark.requirement("R491-19")
async def test_with_kip491_off_it_is_a_key_that_nobody_knows_as_on_apache_kafka(brokers):
    node = await brokers(0, **{"kip491.enable": "off"})
    assert await node.increment((BROKER, "", [(LIST, SET, "1,x")])) == [OK]
    assert await node.increment((BROKER, "0", [(LIST, SET, "-1")])) == [OK]
    assert await node.increment((BROKER, "", [(LIST, APPEND, "1")])) == [NOT_KNOWN]
    await node.eventually(lambda: LIST in node.config.dynamic_own)
    assert await node.stored(DEFAULT) == {LIST: "1,x"} and await node.stored("brokers/0") == {LIST: "-1"}
    (result,) = await node.describe((BROKER, "", [LIST]))
    assert [(row.value, row.is_sensitive, row.config_source) for row in result.configs] == [(None, True, 3)]


@pytest.mark.requirement("R491-19")
async def test_what_others_have_stored_where_it_does_not_belong_is_left_out(node, caplog):
    """A tool that writes to ZooKeeper, or a broker that does not know the key."""
    await node.admin_zk.write_config("brokers", "0", {LIST: "1", "min.insync.replicas": "2"})
    await node.admin_zk.write_config("brokers", "<default>", {LIST: "1,x", "log.cleaner.backoff.ms": "7"})
    await node.eventually(lambda: node.config.get("log.cleaner.backoff.ms") == 7)
    assert LIST not in node.config.dynamic_own and LIST not in node.config.dynamic_default
    assert node.config.get("min.insync.replicas") == 2
    assert "can be set for all brokers at once only" in caplog.text and "'x' is not the id of a broker" in caplog.text


def test_in_the_properties_file_it_has_no_effect_and_a_warning_says_so(caplog):
    config = BrokerConfig({"zookeeper.connect": "z:1", LIST: "1"})
    assert LIST not in config.static and LIST not in config.unknown
    with caplog.at_level(logging.WARNING):
        log_properties(config, "")
    assert f"property {LIST} is ignored: it can only be set for all brokers, as a dynamic config" in caplog.text
    off = BrokerConfig({"zookeeper.connect": "z:1", LIST: "1", "kip491.enable": "off"})
    (row,) = [row for row in describe_broker(off) if row.name == LIST]
    assert (row.value, row.sensitive, row.source) == (None, True, ConfigSource.STATIC_BROKER) and LIST in off.unknown


async def test_who_may_not_alter_the_cluster_may_not_set_it(node):
    node.services = replace(node.services, authorizer=Denying((Operation.ALTER_CONFIGS, "kafka-cluster")))
    assert await node.increment((BROKER, "", [(LIST, SET, "1")])) == [31]
    assert await node.increment((BROKER, "", [(LIST, SET, "x")])) == [BAD_REQUEST], "values are looked at first, as in Kafka"
    assert await node.stored(DEFAULT) is None
