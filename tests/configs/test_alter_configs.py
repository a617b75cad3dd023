"""AlterConfigs and IncrementalAlterConfigs: what is refused with which code, what is stored, who hears of it."""

from __future__ import annotations

import importlib
import logging
from dataclasses import replace

import pytest

from klamm.configs.log_levels import COUNTERPARTS, log_levels, set_log_levels
from klamm.server.security.authorizer import Operation
from klamm.tests.configs.conftest import APPEND, BROKER, DELETE, LOGGER, SET, SUBTRACT, TOPIC
from klamm.tests.services import Denying

OK, UNKNOWN, NO_TOPIC, NOT_TOPIC, NOT_CLUSTER, BAD_CONFIG, BAD_REQUEST = 0, -1, 3, 29, 31, 40, 42
LOGGER_NAME = "kafka.server.ConfigAdminManager"
OUR_LOGGER = "klamm.server.apis.config_changes"

# resource type, name, changes, and the code they get
INCREMENTAL = [
    (TOPIC, "t1", [("retention.ms", SET, "5")], OK),
    (TOPIC, "t1", [], OK),
    (TOPIC, "t1", [("retention.bytes", DELETE, None)], OK),
    (TOPIC, "t1", [("nope", DELETE, "x")], OK),
    (TOPIC, "t1", [("cleanup.policy", APPEND, "compact")], OK),
    (TOPIC, "nope", [("retention.ms", SET, "5")], NO_TOPIC),
    (TOPIC, "a b", [("retention.ms", SET, "5")], NO_TOPIC),
    (TOPIC, "", [("retention.ms", SET, "5")], BAD_REQUEST),
    (TOPIC, "t1", [("nope", SET, "5")], BAD_CONFIG),
    (TOPIC, "t1", [("", SET, "5")], BAD_CONFIG),
    (TOPIC, "t1", [("retention.ms", SET, "x")], BAD_CONFIG),
    (TOPIC, "t1", [("retention.ms", APPEND, "5")], BAD_CONFIG),
    (TOPIC, "t1", [("cleanup.policy", APPEND, "nope")], BAD_CONFIG),
    (TOPIC, "t1", [("nope", APPEND, "5")], UNKNOWN),
    (TOPIC, "t1", [("retention.ms", 9, "5")], UNKNOWN),
    (TOPIC, "t1", [("retention.ms", 9, None)], BAD_REQUEST),
    (TOPIC, "t1", [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)], BAD_REQUEST),
    (TOPIC, "t1", [("retention.ms", SET, None)], BAD_REQUEST),
    (TOPIC, "nope", [("cleanup.policy", APPEND, None)], BAD_REQUEST),
    (BROKER, "0", [("log.retention.ms", SET, "5")], OK),
    (BROKER, "+00", [("log.retention.ms", SET, "5")], OK),
    (BROKER, "", [("log.retention.ms", SET, "5")], OK),
    (BROKER, "0", [], OK),
    (BROKER, "0", [("nobody.knows", SET, "x")], OK),
    (BROKER, "", [("nobody.knows", SET, "x")], OK),
    (BROKER, "0", [("log.cleanup.policy", APPEND, "compact")], OK),
    (BROKER, "0", [("leader.replication.throttled.rate", SET, "5")], OK),
    (BROKER, "1", [("log.retention.ms", SET, "5")], BAD_REQUEST),
    (BROKER, "x", [("log.retention.ms", SET, "5")], BAD_REQUEST),
    (BROKER, " 0", [("log.retention.ms", SET, "5")], BAD_REQUEST),
    (BROKER, "0", [("log.retention.ms", SET, "x")], BAD_REQUEST),
    (BROKER, "0", [("log.retention.ms", SET, "0")], BAD_REQUEST),
    (BROKER, "0", [("broker.id", SET, "0")], BAD_REQUEST),
    (BROKER, "", [("num.partitions", SET, "5")], BAD_REQUEST),
    (BROKER, "", [("listeners", SET, "PLAINTEXT://:1")], BAD_REQUEST),
    (BROKER, "0", [("listeners", SET, "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093")], BAD_REQUEST),
    (BROKER, "0", [("log.retention.ms", 9, "5")], BAD_REQUEST),
    (BROKER, "0", [("log.retention.ms", SET, None)], BAD_REQUEST),
    (BROKER, "0", [("log.retention.ms", APPEND, "5")], BAD_CONFIG),
    (BROKER, "0", [("nobody.knows", APPEND, "x")], UNKNOWN),
    (BROKER, "0", [("listener.name.plaintext.ssl.key.password", SET, "x")], BAD_CONFIG),
    (3, "t1", [], BAD_REQUEST),
    (16, "x", [("interval.ms", SET, "1000")], BAD_REQUEST),
    (99, "x", [], BAD_REQUEST),
    (LOGGER, "0", [(LOGGER_NAME, SET, "DEBUG")], OK),
    (LOGGER, "0", [(LOGGER_NAME, DELETE, "x")], OK),
    (LOGGER, "0", [], OK),
    (LOGGER, "1", [(LOGGER_NAME, SET, "DEBUG")], BAD_REQUEST),
    (LOGGER, "", [(LOGGER_NAME, SET, "DEBUG")], BAD_REQUEST),
    (LOGGER, "0", [(LOGGER_NAME, SET, "debug")], BAD_CONFIG),
    (LOGGER, "0", [(LOGGER_NAME, SET, "OFF")], BAD_CONFIG),
    (LOGGER, "0", [("kafka.nope", SET, "DEBUG")], BAD_CONFIG),
    (LOGGER, "0", [(LOGGER_NAME, SET, None)], BAD_REQUEST),
    (LOGGER, "0", [("root", DELETE, None)], BAD_REQUEST),
    (LOGGER, "0", [(LOGGER_NAME, APPEND, "INFO")], BAD_REQUEST),
    (LOGGER, "0", [(LOGGER_NAME, SUBTRACT, "INFO")], BAD_REQUEST),
    (LOGGER, "0", [(LOGGER_NAME, 9, "INFO")], UNKNOWN),
]


@pytest.fixture(autouse=True)
def levels_as_before():
    yield
    set_log_levels((name, DELETE, None) for name in log_levels() if name != "root")
    for name in ("klamm", *COUNTERPARTS):
        if not name.endswith(".kazoo"):
            logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize(("kind", "name", "changes", "code"), INCREMENTAL, ids=str)
async def test_incremental(node, kind, name, changes, code):
    """The code; and that only what succeeds is stored and announced. Validate only finds the same but stores nothing."""
    of_a_password = any("password" in change[0] for change in changes)
    assert await node.increment((kind, name, changes), validate_only=True) == [OK if of_a_password else code]
    assert await node.announced() == []
    assert await node.increment((kind, name, changes)) == [code]
    stores = code == OK and kind in (TOPIC, BROKER)
    assert len(await node.announced()) == stores


# resource type, name, configs, and the code they get
LEGACY = [
    (TOPIC, "t1", [("retention.ms", "5")], OK),
    (TOPIC, "t1", [], OK),
    (TOPIC, "t1", [("retention.ms", None)], BAD_REQUEST),
    (TOPIC, "t1", [("retention.ms", "1"), ("retention.ms", "2")], BAD_REQUEST),
    (TOPIC, "t1", [("retention.ms", "x")], BAD_CONFIG),
    (TOPIC, "t1", [("nope", "x")], BAD_CONFIG),
    (TOPIC, "nope", [("nope", "x")], NO_TOPIC),
    (TOPIC, "", [], BAD_REQUEST),
    (BROKER, "0", [("log.retention.ms", "5")], OK),
    (BROKER, "", [("log.retention.ms", "5")], OK),
    (BROKER, "0", [], OK),
    (BROKER, "0", [("broker.id", "0"), ("log.retention.ms", "5")], BAD_REQUEST),
    (BROKER, "1", [], BAD_REQUEST),
    (BROKER, "0", [("listener.name.plaintext.ssl.key.password", "x")], BAD_CONFIG),
    (3, "x", [], BAD_REQUEST),
    (16, "x", [("interval.ms", "1000")], BAD_REQUEST),
    (LOGGER, "0", [("root", "INFO")], BAD_REQUEST),
]


@pytest.mark.parametrize(("kind", "name", "configs", "code"), LEGACY, ids=str)
async def test_legacy(node, kind, name, configs, code):
    for version in range(3):
        assert await node.replace((kind, name, configs), version=version) == [code]
    assert len(await node.announced()) == (3 if code == OK else 0)


async def test_what_is_stored_of_a_topic(node):
    before = {"retention.ms": "1000"}
    assert await node.stored("topics/t1") == before
    changes = [("segment.bytes", SET, " +5000 "), ("cleanup.policy", APPEND, "compact"), ("retention.ms", DELETE, None)]
    assert await node.increment((TOPIC, "t1", changes), validate_only=True) == [OK]
    assert await node.stored("topics/t1") == before
    assert await node.increment((TOPIC, "t1", changes)) == [OK]
    assert await node.stored("topics/t1") == {"segment.bytes": " +5000 ", "cleanup.policy": "delete,compact"}
    assert await node.values(TOPIC, "t1", "segment.bytes", "cleanup.policy") == {
        "segment.bytes": "5000",
        "cleanup.policy": "delete,compact",
    }
    assert await node.replace((TOPIC, "t1", [("retention.ms", "9")])) == [OK]
    assert await node.stored("topics/t1") == {"retention.ms": "9"}
    assert await node.replace((TOPIC, "t1", [])) == [OK]
    assert await node.stored("topics/t1") == {}
    assert await node.announced() == ["topics/t1"] * 3


async def test_bad_values_leave_all_as_it_was(node):
    assert await node.increment((TOPIC, "t1", [("segment.ms", SET, "5"), ("retention.ms", SET, "x")])) == [BAD_CONFIG]
    assert await node.stored("topics/t1") == {"retention.ms": "1000"}


async def test_a_missing_config_node_is_made(node):
    await node.zk.delete("/config/topics/t1")
    assert await node.increment((TOPIC, "t1", [("segment.ms", SET, "100")])) == [OK]
    assert await node.stored("topics/t1") == {"segment.ms": "100"}


async def test_a_topic_that_is_gone_gets_no_configs(node):
    await node.zk.delete("/brokers/topics/t1")
    assert await node.increment((TOPIC, "t1", [("segment.ms", SET, "100")])) == [NO_TOPIC]


async def test_brokers(node):
    assert await node.increment(
        (BROKER, "0", [("log.retention.bytes", SET, "100")]), (BROKER, "", [("log.retention.bytes", SET, "200")])
    ) == [OK, OK]
    assert (await node.stored("brokers/0"), await node.stored("brokers/<default>")) == (
        {"log.retention.bytes": "100"},
        {"log.retention.bytes": "200"},
    )
    assert await node.announced() == ["brokers/0", "brokers/<default>"]
    await node.eventually(lambda: node.config.get("log.retention.bytes") == 100)
    assert await node.increment((BROKER, "0", [("log.retention.bytes", DELETE, None)])) == [OK]
    await node.eventually(lambda: node.config.get("log.retention.bytes") == 200)
    assert await node.stored("brokers/0") == {}


async def test_useless_stored_values_go_with_the_next_change(node):
    await node.admin_zk.write_config("brokers", "0", {"broker.id": "5", "log.retention.bytes": "x", "log.cleaner.backoff.ms": "7"})
    assert await node.increment((BROKER, "0", [("min.insync.replicas", SET, "2")])) == [OK]
    assert await node.stored("brokers/0") == {"log.cleaner.backoff.ms": "7", "min.insync.replicas": "2"}


async def test_the_same_resource_twice(node):
    twice = (TOPIC, "t1", [("retention.ms", SET, "1")])
    codes = await node.increment(twice, (TOPIC, "t22", [("retention.ms", SET, "2")]), (TOPIC, "t1", []), (BROKER, "t1", []))
    assert codes == [BAD_REQUEST, OK, BAD_REQUEST, BAD_REQUEST]
    assert await node.announced() == ["topics/t22"]
    assert await node.replace((TOPIC, "t1", []), (TOPIC, "t1", []), (TOPIC, "t22", [])) == [BAD_REQUEST, BAD_REQUEST, OK]


async def test_no_resources(node):
    assert (await node.increment(), await node.replace()) == ([], [])


async def test_who_may(node):
    node.services = replace(node.services, authorizer=Denying(
        (Operation.ALTER_CONFIGS, "t1"), (Operation.ALTER_CONFIGS, "kafka-cluster"), (Operation.ALTER_CONFIGS, "nope")
    ))
    codes = await node.increment(
        (TOPIC, "t1", [("retention.ms", SET, "x")]),
        (TOPIC, "nope", []),
        (TOPIC, "t22", []),
        (BROKER, "0", []),
        (BROKER, "", []),
        (LOGGER, "0", [("klamm.nope", SET, "x")]),
    )
    assert codes == [NOT_TOPIC, NOT_TOPIC, OK, NOT_CLUSTER, NOT_CLUSTER, NOT_CLUSTER]
    assert await node.replace((TOPIC, "t1", []), (BROKER, "0", [])) == [NOT_TOPIC, NOT_CLUSTER]
    # a broker's values are looked at first
    assert await node.increment((BROKER, "0", [("broker.id", SET, "1")]), (BROKER, "7", [])) == [BAD_REQUEST, BAD_REQUEST]
    assert await node.announced() == ["topics/t22"]


@pytest.mark.parametrize("metrics", ["before", "behind"])
async def test_configs_of_client_metrics_without_the_permission_fail_the_whole_request(node, metrics):
    """The other resources are altered all the same, as by Apache Kafka."""
    node.services = replace(node.services, authorizer=Denying((Operation.ALTER_CONFIGS, "kafka-cluster")))
    resources = [(TOPIC, "t1", [("retention.ms", SET, "5")]), (16, "x", [("interval.ms", SET, "1000")])]
    asked = resources if metrics == "behind" else resources[::-1]
    assert await node.increment(*asked) == [BAD_REQUEST, BAD_REQUEST]
    assert await node.stored("topics/t1") == {"retention.ms": "5"}
    assert await node.replace((16, "x", [("interval.ms", "1000")]), (TOPIC, "t1", [("retention.ms", "7")])) == [BAD_REQUEST, BAD_REQUEST]
    assert await node.stored("topics/t1") == {"retention.ms": "7"}


async def test_loggers_of_security_have_levels_that_count(node):
    for name, own in (("security.authorizer.AclAuthorizer", "acl_authorizer"), ("server.DelegationTokenManagerZk", "delegation_tokens")):
        assert await node.increment((LOGGER, "0", [(f"kafka.{name}", SET, "DEBUG")])) == [OK]
        assert logging.getLogger(f"klamm.server.security.{own}").level == logging.DEBUG
    name = "org.apache.kafka.common.security.authenticator.SaslServerAuthenticator"
    assert await node.increment((LOGGER, "0", [(name, SET, "DEBUG")])) == [OK]


async def test_without_a_controller_nothing_is_stored(node):
    await node.zk.delete("/controller")
    assert await node.increment((TOPIC, "t1", [("retention.ms", SET, "5")])) == [11]
    assert await node.stored("topics/t1") == {"retention.ms": "1000"}


async def test_levels(node):
    assert await node.increment((LOGGER, "0", [(LOGGER_NAME, SET, "TRACE"), ("kafka.nope", SET, "INFO")])) == [BAD_CONFIG]
    assert log_levels()[LOGGER_NAME] == log_levels()["root"]
    for level, number in (("TRACE", 5), ("DEBUG", 10), ("WARN", 30), ("FATAL", 50)):
        assert await node.increment((LOGGER, "0", [(LOGGER_NAME, SET, level)])) == [OK]
        assert (log_levels()[LOGGER_NAME], logging.getLogger(OUR_LOGGER).level) == (level, number)
    assert await node.values(LOGGER, "0", LOGGER_NAME) == {LOGGER_NAME: "FATAL"}
    assert await node.increment((LOGGER, "0", [(LOGGER_NAME, SET, "INFO")]), validate_only=True) == [OK]
    assert log_levels()[LOGGER_NAME] == "FATAL"
    assert await node.increment((LOGGER, "0", [(LOGGER_NAME, DELETE, None)])) == [OK]
    for level in ("DEBUG", "ERROR"):
        assert await node.increment((LOGGER, "0", [("root", SET, level)])) == [OK]
        assert log_levels()[LOGGER_NAME] == log_levels()["root"] == level
    assert await node.announced() == []


async def test_loggers_here_obey_kafkas_names_and_their_parents(node):
    await node.increment((LOGGER, "0", [("kafka.controller", SET, "DEBUG"), ("state.change.logger", SET, "ERROR")]))

    def levels(*names: str) -> list[int]:
        return [logging.getLogger(name).getEffectiveLevel() for name in names]

    controller, deletion, changes, api = names = (
        "klamm.controller",
        "klamm.controller.topics.deletion",
        "klamm.controller.state_change",
        "klamm.server.requests.dispatch",
    )
    before = levels(api)
    assert levels(controller, deletion, changes) == [logging.DEBUG, logging.DEBUG, logging.ERROR]
    await node.increment((LOGGER, "0", [("kafka.controller.TopicDeletionManager", SET, "WARN"), ("state.change.logger", DELETE, None)]))
    assert levels(*names) == [logging.DEBUG, logging.WARNING, *before, *before]
    await node.increment((LOGGER, "0", [("kafka.controller", DELETE, None), ("root", SET, "ERROR")]))
    assert levels(*names) == [logging.ERROR, logging.WARNING, logging.ERROR, logging.ERROR]


async def test_the_zookeeper_client_logs_more_only_when_its_own_level_says_so(node):
    kazoo = logging.getLogger("klamm.zk.session.connection.kazoo")
    await node.increment((LOGGER, "0", [("root", SET, "DEBUG")]))
    assert kazoo.level == logging.ERROR
    await node.increment((LOGGER, "0", [("org.apache.zookeeper", SET, "DEBUG")]))
    assert kazoo.level == logging.DEBUG
    await node.increment((LOGGER, "0", [("org.apache.zookeeper", DELETE, None)]))
    assert kazoo.level == logging.ERROR


def test_every_counterpart_is_a_logger_of_kafka_and_one_of_this_program():
    importlib.import_module("klamm.server.local.cluster")
    importlib.import_module("klamm.journal.disk")
    ours = {name for name, logger in logging.Logger.manager.loggerDict.items() if isinstance(logger, logging.Logger)}
    assert COUNTERPARTS.keys() <= ours
    assert set(COUNTERPARTS.values()) <= log_levels().keys()
