"""Policies for changes of configs: what they are told and when, as a Java policy of a Kafka 3.9.1 was; and how properties name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from klamm.configs.broker_config import BrokerConfig, ConfigError
from klamm.server.broker_server import BrokerServer
from klamm.server.configs import policies
from klamm.server.security.authorizer import AllowAll
from klamm.tests.configs.conftest import APPEND, BROKER, DELETE, LOGGER, SET, TOPIC

OK, UNKNOWN, NOT_THERE, BAD_CONFIG, BAD_REQUEST, VIOLATION = 0, -1, 3, 40, 42, 44


def no_devils(resource_type: int, name: str, configs: Mapping[str, str | None]) -> str | None:
    if "667" in configs.values():
        raise ZeroDivisionError
    return "no devils" if "666" in configs.values() else None


class Told:
    """A policy that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, dict[str, str | None]]] = []

    def __call__(self, resource_type: int, name: str, configs: Mapping[str, str | None]) -> str | None:
        self.asked.append((resource_type, name, dict(configs)))
        return no_devils(resource_type, name, configs)


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "asked"),
    [
        (TOPIC, "t1", [("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact"), ("segment.ms", DELETE, None)], OK, True),
        (TOPIC, "t1", [("retention.ms", SET, "666")], VIOLATION, True),
        (TOPIC, "t1", [("retention.ms", DELETE, "666")], VIOLATION, True),
        (TOPIC, "t1", [("retention.ms", SET, "667")], UNKNOWN, True),
        (TOPIC, "t1", [], OK, True),
        (TOPIC, "t1", [("retention.ms", SET, "666"), ("nope", SET, "1")], BAD_CONFIG, False),
        (TOPIC, "nope", [("retention.ms", SET, "666")], NOT_THERE, False),
        (BROKER, "0", [("log.retention.ms", SET, "666")], VIOLATION, True),
        (BROKER, "0", [("log.retention.ms", SET, "667")], UNKNOWN, True),
        (BROKER, "", [("log.retention.ms", SET, "666")], VIOLATION, True),
        (BROKER, "0", [("log.retention.ms", SET, "666"), ("broker.id", SET, "5")], BAD_REQUEST, False),
        (BROKER, "0", [("listener.name.plaintext.ssl.key.password", SET, "666")], VIOLATION, True),
        (LOGGER, "0", [("kafka", DELETE, "666")], OK, False),
    ],
    ids=str,
)
async def test_the_policy_is_asked_last_and_told_what_was_requested(node, kind, name, changes, code, asked):
    told = Told()
    node.services = replace(node.services, alter_config_policy=told)
    assert await node.increment((kind, name, changes), validate_only=True) == [code]
    assert told.asked == [(kind, name, {key: value for key, _, value in changes})] * asked
    assert await node.increment((kind, name, changes)) == [code]
    assert len(await node.announced()) == (code == OK and asked)


async def test_the_old_request_asks_it_too(node):
    node.services = replace(node.services, alter_config_policy=no_devils)
    assert await node.replace(
        (TOPIC, "t1", [("retention.ms", "666")]), (BROKER, "0", [("log.retention.ms", "667")]), (TOPIC, "t22", [("retention.ms", "5")])
    ) == [VIOLATION, UNKNOWN, OK]
    assert await node.announced() == ["topics/t22"]


def config(**properties: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return BrokerConfig({"zookeeper.connect": "unused", "broker.id": "0", "listeners": "PLAINTEXT://127.0.0.1:0", **named})


def test_properties_may_name_a_python_function():
    named = f"python:{__name__}:no_devils"
    broker = BrokerServer(config(alter_config_policy_class_name=named, create_topic_policy_class_name=named))
    assert broker.alter_config_policy(TOPIC, "t", {"k": "666"}) == "no devils"
    assert getattr(broker.topic_policy, "__name__", None) == "no_devils"


def test_a_function_that_is_handed_over_wins_over_the_properties():
    told = Told()
    named = config(alter_config_policy_class_name=f"python:{__name__}:no_devils")
    assert BrokerServer(named, alter_config_policy=told).alter_config_policy is told
    assert BrokerServer(config()).alter_config_policy is policies.any_change
    assert BrokerServer(config()).topic_policy is policies.any_topic


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("zookeeper.set.acl", "true"),
        ("client.quota.callback.class", "org.example.Callback"),
        ("listeners", "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"),
        ("security.inter.broker.protocol", "SASL_PLAINTEXT"),
    ],
)
def test_security_that_is_not_there_is_refused_at_the_start(key: str, text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerServer(config(**{key: text}))
    assert "\n" not in str(refusal.value) and ("not supported" in str(refusal.value) or key in str(refusal.value))


def test_properties_that_do_nothing_without_an_authorizer_or_another_listener_in_kafka_either_are_taken() -> None:
    harmless = {
        "authorizer.class.name": "",
        "super.users": "User:admin",
        "allow.everyone.if.no.acl.found": "false",
        "zookeeper.set.acl": "false",
        "zookeeper.ssl.client.enable": "false",
        "zookeeper.ssl.truststore.location": "/x",
        "security.inter.broker.protocol": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ssl.client.auth": "required",
        "ssl.keystore.location": "/x",
        "listener.name.plaintext.ssl.client.auth": "required",
    }
    BrokerServer(config(**harmless))


def test_an_authorizer_that_is_handed_over_wins_over_the_property() -> None:
    BrokerServer(config(authorizer_class_name="org.example.Authorizer"), authorizer=AllowAll())


@pytest.mark.parametrize(
    "text", ["org.example.Policy", "python:", "python:nowhere", "python:nowhere:f", "python:math:nothing", "python:math:pi", "x:math:sin"]
)
@pytest.mark.parametrize("key", [policies.ALTER_CONFIG, policies.CREATE_TOPIC])
def test_a_policy_that_cannot_be_called_is_refused_at_the_start(key, text):
    with pytest.raises(ConfigError, match=key):
        BrokerServer(config(**{key: text}))
