"""A broker's configuration: rules between values, listeners, and values that change while it runs. Judged by a real Kafka 3.9.1."""

from __future__ import annotations

import pytest

from klamm.configs.broker_config import BrokerConfig, ConfigError
from klamm.configs.listeners import ListenerConfig
from klamm.configs.tables.broker import BROKER
from klamm.configs.topic import topic_defaults

ZK = {"zookeeper.connect": "z:1"}
MAP = {"listener.security.protocol.map": "INT:PLAINTEXT,EXT:PLAINTEXT,CTL:PLAINTEXT"}
TWO = MAP | {"listeners": "INT://h:1,EXT://h:2", "inter.broker.listener.name": "INT"}
SASL = {"listeners": "SASL_SSL://h:1", "security.inter.broker.protocol": "SASL_SSL", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
THREE = TWO | {"listeners": "INT://h:1,EXT://h:2,CTL://h:3"}


def config(properties: dict[str, str] | None = None, /, **more: str) -> BrokerConfig:
    return BrokerConfig(ZK | (properties or {}) | more)


REGISTERS = {"klamm.broker.registration": "controller", "registerbroker.enable": "on"}
FIT = [
    REGISTERS,
    REGISTERS | {"inter.broker.protocol.version": "2.8"},
    {"broker.id": "1000"},
    {"broker.id": "1001", "broker.id.generation.enable": "false"},
    {"broker.id": "-1"},
    {"broker.id": "5", "node.id": "5"},
    {"log.retention.hours": "-5"},
    {"log.retention.minutes": "2147483647"},
    {"log.dirs": " /a ,, /b "},
    {"log.cleaner.dedupe.buffer.size": "1048577"},
    {"offsets.commit.required.acks": "2"},
    {"queued.max.request.bytes": "-5"},
    {"queued.max.request.bytes": "104857600"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    {"max.connections.per.ip.overrides": " a : 5 ,::1:6,"},
    {"connections.max.idle.ms": "-1"},
    {"default.replication.factor": "-3"},
    {"group.coordinator.rebalance.protocols": "share,classic"},
    {"log.cleanup.policy": ""},
    {"controller.quorum.voters": "1@h:1"},
    {"authorizer.class.name": "some.Authorizer"},
    {"listener.name.plaintext.num.network.threads": "not looked at"},
    {"inter.broker.protocol.version": "0.10.0", "log.message.format.version": "0.10.2"},
    {"inter.broker.protocol.version": " 3.8.1 "},
    {"process.roles": ""},
    {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
    {"kip704.recovery.mode": "manual", "inter.broker.protocol.version": "3.2"},
    {"kip704.recovery.mode": "instant", "inter.broker.protocol.version": "3.1"},
]
UNFIT = [
    ({"zookeeper.connect": ""}, "zookeeper.connect"),
    ({"broker.id": "-2"}, "broker.id"),
    ({"broker.id": "1001"}, "broker.id"),
    ({"broker.id": "6", "reserved.broker.max.id": "5"}, "broker.id"),
    ({"broker.id.generation.enable": "false"}, "broker.id"),
    ({"broker.id": "5", "node.id": "6"}, "node.id"),
    ({"process.roles": "broker"}, "process.roles"),
    ({"kip704.recovery.mode": "manual", "inter.broker.protocol.version": "3.1"}, "kip704.recovery.mode"),
    ({"kip704.recovery.mode": "delay:0", "inter.broker.protocol.version": "2.8"}, "kip704.recovery.mode"),
    ({"zookeeper.metadata.migration.enable": "true"}, "zookeeper.metadata.migration.enable"),
    ({"controller.listener.names": "CTL"}, "controller.listener.names"),
    ({"log.roll.ms": "0"}, "log.roll.ms"),
    ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms"),
    ({"log.retention.ms": "0"}, "log.retention.ms"),
    ({"log.retention.minutes": "0"}, "log.retention.minutes"),
    ({"log.retention.hours": "0"}, "log.retention.hours"),
    ({"log.dirs": ","}, "log.dirs"),
    ({"log.dir": ""}, "log.dir"),
    ({"log.cleaner.threads": "0"}, "log.cleaner.threads"),
    ({"log.cleaner.dedupe.buffer.size": "1048576"}, "log.cleaner.dedupe.buffer.size"),
    ({"log.message.format.version": "2.8", "inter.broker.protocol.version": "0.10.0"}, "log.message.format.version"),
    ({"replica.fetch.wait.max.ms": "30001"}, "replica.socket.timeout.ms"),
    ({"replica.lag.time.max.ms": "499"}, "replica.lag.time.max.ms"),
    ({"offsets.commit.required.acks": "4"}, "offsets.commit.required.acks"),
    ({"offsets.topic.compression.codec": "9"}, "offsets.topic.compression.codec"),
    ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes"),
    ({"max.connections.per.ip": "0"}, "max.connections.per.ip"),
    ({"max.connections.per.ip.overrides": "50000"}, "max.connections.per.ip.overrides"),
    ({"max.connections.per.ip.overrides": "a b:1"}, "max.connections.per.ip.overrides"),
    ({"max.connections.per.ip.overrides": "a:b"}, "max.connections.per.ip.overrides"),
    ({"connections.max.idle.ms": "100"}, "connections.max.idle.ms"),
    ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance.protocols"),
    ({"group.coordinator.rebalance.protocols": "classic,consumer"}, "group.coordinator.rebalance.protocols"),
    ({"group.consumer.session.timeout.ms": "1"}, "group.consumer.session.timeout.ms"),
    ({"group.share.min.heartbeat.interval.ms": "15001"}, "group.share.max.heartbeat.interval.ms"),
    ({"early.start.listeners": "FOO"}, "early.start.listeners"),
    ({"inter.broker.protocol.version": "4.0"}, "inter.broker.protocol.version"),
    ({"num.partitions": "0"}, "num.partitions"),
    ({"num.partitions": "many"}, "num.partitions"),
    ({"kip704.recovery.mode": "delay:soon"}, "kip704.recovery.mode"),
    ({"kip183.legacy.v0": "perhaps"}, "kip183.legacy.v0"),
    ({"klamm.broker.registration": "kraft"}, "klamm.broker.registration"),
    ({"klamm.broker.registration": "controller"}, "klamm.broker.registration"),
    (REGISTERS | {"inter.broker.protocol.version": "2.7"}, "klamm.broker.registration"),
]


@pytest.mark.parametrize("properties", FIT, ids=str)
def test_fit(properties):
    config(properties)


@pytest.mark.parametrize(("properties", "blamed"), UNFIT, ids=str)
def test_unfit(properties, blamed):
    with pytest.raises(ConfigError) as caught:
        config(properties)
    assert caught.value.key == blamed
    assert f"configuration {blamed}: {caught.value.reason}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_zookeeper_must_be_named():
    with pytest.raises(ConfigError, match=r"Missing value for configuration zookeeper\.connect"):
        BrokerConfig({})


LISTENERS = [
    ({"listeners": "plaintext://h:9092"}, [("PLAINTEXT", "h", 9092)]),
    ({"listeners": "PLAINTEXT://:0"}, [("PLAINTEXT", None, 0)]),
    ({"listeners": "PLAINTEXT://[::1]:9092"}, [("PLAINTEXT", "::1", 9092)]),
    ({"listeners": "PLAINTEXT://::1:9092"}, [("PLAINTEXT", "::1", 9092)]),
    ({"listeners": " PLAINTEXT://h:1 , SSL://h:2 ,"}, [("PLAINTEXT", "h", 1), ("SSL", "h", 2)]),
    ({"listeners": "PLAINTEXT://h:0,SSL://h:0"}, [("PLAINTEXT", "h", 0), ("SSL", "h", 0)]),
    ({"listeners": "PLAINTEXT://127.0.0.1:1,SSL://[::1]:1"}, [("PLAINTEXT", "127.0.0.1", 1), ("SSL", "::1", 1)]),
    ({"listeners": "PLAINTEXT://0.0.0.0:1", "advertised.listeners": "PLAINTEXT://h:0"}, [("PLAINTEXT", "0.0.0.0", 1)]),
    (
        {"listener.security.protocol.map": " INT : plaintext ,X:SSL,", "listeners": "int://h:1", "inter.broker.listener.name": "Int"},
        [("INT", "h", 1)],
    ),
    (
        {"listener.security.protocol.map": "INT:SSL,INT:PLAINTEXT", "listeners": "INT://h:1", "inter.broker.listener.name": "INT"},
        [("INT", "h", 1)],
    ),
]


@pytest.mark.parametrize(("properties", "expected"), LISTENERS, ids=str)
def test_listeners(properties, expected):
    assert [(one.name, one.host, one.port) for one in config(properties).listeners] == expected


BAD_LISTENERS = [
    ({"listeners": ""}, "listeners"),
    ({"listeners": "PLAINTEXT://h"}, "listeners"),
    ({"listeners": "h:9092"}, "listeners"),
    ({"listeners": "PLAINTEXT://h :1"}, "listeners"),
    ({"listeners": "PLAINTEXT://a/b:1"}, "listeners"),
    ({"listeners": "PLAINTEXT://h:99999999999"}, "listeners"),
    ({"listeners": "://h:1"}, "listeners"),
    ({"listeners": "FOO://h:1"}, "listeners"),
    ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "listeners"),
    ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "listeners"),
    ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "listeners"),
    ({"listeners": "PLAINTEXT://h:1,SSL://[::1]:1"}, "listeners"),
    ({"listeners": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1"}, "listeners"),
    ({"listeners": "PLAINTEXT://127.0.0.1:1,SSL://[::1]:1,SASL_SSL://h:1"}, "listeners"),
    ({"listeners": "PLAINTEXT://h:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners"),
    ({"listeners": "PLAINTEXT://h:1", "advertised.listeners": "PLAINTEXT://x:1,SSL://x:2"}, "advertised.listeners"),
    ({"listeners": "PLAINTEXT://h:1", "advertised.listeners": ""}, "advertised.listeners"),
    ({"listeners": "PLAINTEXT://h:1,SSL://h:2", "advertised.listeners": "SSL://h:2"}, "security.inter.broker.protocol"),
    ({"listeners": "PLAINTEXT://h:1", "security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol"),
    (SASL, "sasl.mechanism.inter.broker.protocol"),
    ({"listener.security.protocol.map": "PLAINTEXT"}, "listener.security.protocol.map"),
    ({"listener.security.protocol.map": ":SSL"}, "listener.security.protocol.map"),
    ({"listener.security.protocol.map": "PLAINTEXT:FOO"}, "listener.security.protocol.map"),
    ({"listener.security.protocol.map": ",PLAINTEXT:PLAINTEXT"}, "listener.security.protocol.map"),
    ({"listener.security.protocol.map": ""}, "listeners"),
    ({**TWO, "inter.broker.listener.name": ""}, "inter.broker.listener.name"),
    ({**TWO, "inter.broker.listener.name": "FOO"}, "inter.broker.listener.name"),
    ({**TWO, "inter.broker.listener.name": "CTL"}, "inter.broker.listener.name"),
    ({**TWO, "security.inter.broker.protocol": "PLAINTEXT"}, "inter.broker.listener.name"),
    ({**TWO, "advertised.listeners": "EXT://h:2"}, "inter.broker.listener.name"),
    ({**TWO, "control.plane.listener.name": "CTL"}, "control.plane.listener.name"),
    ({**TWO, "control.plane.listener.name": "NOPE"}, "control.plane.listener.name"),
    ({**TWO, "control.plane.listener.name": "INT"}, "control.plane.listener.name"),
    ({**THREE, "control.plane.listener.name": "CTL", "advertised.listeners": "INT://h:1"}, "control.plane.listener.name"),
]


@pytest.mark.parametrize(("properties", "blamed"), BAD_LISTENERS, ids=str)
def test_bad_listeners(properties, blamed):
    with pytest.raises(ConfigError) as caught:
        config(properties)
    assert caught.value.key == blamed


def test_names_of_listeners():
    made = config(THREE, **{"control.plane.listener.name": "ctl", "advertised.listeners": "CTL://c:3,INT://i:1"})
    assert (made.inter_broker_listener_name, made.control_plane_listener_name) == ("INT", "CTL")
    assert made.advertised_listeners == (ListenerConfig("CTL", "c", 3, "PLAINTEXT"), ListenerConfig("INT", "i", 1, "PLAINTEXT"))
    assert made.listener_security_protocol_map["EXT"] == "PLAINTEXT"
    assert [str(one) for one in config(listeners="PLAINTEXT://[::1]:5").listeners] == ["PLAINTEXT://[::1]:5"]


def test_what_is_unknown_and_what_means_nothing():
    made = config(
        **{"my.own": "x", "process.roles": "", "num.io.threads": "4", "listener.name.int.ssl.protocol": "x", "kip179.enable": "on"}
    )
    assert made.unknown == ("my.own",)
    assert made.without_meaning == ("process.roles", "num.io.threads", "listener.name.int.ssl.protocol")


def test_properties_in_use_are_neither_unknown_nor_without_meaning():
    made = config(
        **{
            "listener.name.int.plain.sasl.jaas.config": "x required;", "listener.name.int.ssl.keystore.location": "/k",
            "listener.name.int.sasl.enabled.mechanisms": "PLAIN", "listener.name.int.scram-sha-256.sasl.jaas.config": "x required;",
            "listener.name.int.connections.max.reauth.ms": "1000", "super.users": "User:a", "allow.everyone.if.no.acl.found": "true",
        }
    )
    assert (made.unknown, made.without_meaning) == ((), ())


@pytest.mark.parametrize("port", ["99999", "65536", "-1"])
def test_a_port_that_cannot_be_is_refused_and_the_line_names_listeners(port: str):
    with pytest.raises(ConfigError) as caught:
        config(listeners=f"PLAINTEXT://127.0.0.1:{port}")
    assert (caught.value.key, caught.value.reason) == ("listeners", f"{port} is not a port from 0 to 65535")
    assert config(**{"advertised.listeners": "PLAINTEXT://h:99999"}).advertised_listeners[0].port == 99999


def test_typed_values_and_texts():
    made = config(**{"num.partitions": " 3 ", "broker.id": "7", "log.dirs": "/a,/b"})
    assert (made.get("num.partitions"), made.raw("num.partitions"), made.raw("background.threads")) == (3, " 3 ", None)
    assert (made.broker_id, made.get("node.id"), made.log_dirs) == (7, 7, ("/a", "/b"))
    assert made.get("inter.broker.protocol.version") == "3.9-IV0"
    with pytest.raises(KeyError):
        made.get("my.own")


# --- changes while the broker runs


def test_precedence():
    made = config(**{"min.insync.replicas": "2"})
    assert made.apply_dynamic({"min.insync.replicas": "3"}, {"min.insync.replicas": "4"}).changed == {"min.insync.replicas"}
    assert made.get("min.insync.replicas") == 4
    made.apply_dynamic({"min.insync.replicas": "3"}, {})
    assert made.get("min.insync.replicas") == 3
    made.apply_dynamic({}, {})
    assert (made.get("min.insync.replicas"), made.raw("min.insync.replicas")) == (2, "2")


def test_a_stronger_source_wins_with_any_synonym():
    made = config(**{"log.retention.ms": "5"})
    made.apply_dynamic({}, {"log.retention.ms": "9"})
    assert topic_defaults(made)["retention.ms"] == 9
    made = config(**{"log.retention.hours": "2"})
    made.apply_dynamic({"log.retention.ms": "9"}, {})
    assert (topic_defaults(made)["retention.ms"], made.get("log.retention.hours")) == (9, 168)
    made.apply_dynamic({}, {})
    assert topic_defaults(made)["retention.ms"] == 7_200_000


def test_bad_stored_values_are_left_out():
    made = config()
    stored = {"log.retention.bytes": "many", "broker.id": "4", "ssl.key.password": "x", "log.cleaner.backoff.ms": "7"}
    change = made.apply_dynamic({}, stored | {"listener.name.plaintext.ssl.key.password": "x"})
    assert change.changed == {"log.cleaner.backoff.ms"}
    assert len(change.problems) == 4
    assert made.dynamic_own == {"log.cleaner.backoff.ms": "7"}


def test_values_that_do_not_go_together_are_not_taken_but_remembered():
    made = config()
    made.apply_dynamic({}, {"log.cleaner.backoff.ms": "7"})
    change = made.apply_dynamic({}, {"log.cleaner.backoff.ms": "8", "log.retention.ms": "0"})
    assert (change.changed, len(change.problems)) == (frozenset(), 1)
    assert (made.get("log.cleaner.backoff.ms"), made.dynamic_own["log.cleaner.backoff.ms"]) == (7, "8")


def test_quotas_count_for_the_broker_itself_only():
    made = config()
    change = made.apply_dynamic({"leader.replication.throttled.rate": "5"}, {"follower.replication.throttled.rate": "6"})
    assert change.changed == {"follower.replication.throttled.rate"}
    assert (made.get("leader.replication.throttled.rate"), made.get("follower.replication.throttled.rate")) == (None, 6)


DYNAMIC_FIT = [
    {"num.io.threads": "4"},
    {"num.io.threads": "16"},
    {"num.network.threads": "1"},
    {"log.cleaner.threads": "2"},
    {"log.retention.ms": "-1"},
    {"log.local.retention.ms": "604800000"},
    {"log.local.retention.bytes": "5"},
    {"nobody.knows": "x"},
    {"": "x"},
    {"listener.name.plaintext.broker.id": "9"},
    {"listener.name.other.num.network.threads": "99"},
    {"listener.name.other.num.partitions": "0"},
    {"listener.name.plaintext.foo.bar": "x"},
    {"leader.replication.throttled.rate": "0"},
    {"listeners": "PLAINTEXT://:1,SSL://:2"},
    {"advertised.listeners": "PLAINTEXT://h:1"},
    {"ssl.client.auth": "required"},
    {"listener.name.plaintext.ssl.keystore.location": "/x", "ssl.protocol": "x"},
    {"listener.name.plaintext.max.connections": "5", "max.connections": "7"},
    {"listener.name.plaintext.foo": "x", "max.connections.per.ip": "7"},
    {"listener.name.plaintext.max.connections": "5", "max.connections": "0"},
    {"listener.name.plaintext.max.connection.creation.rate": "5", "max.connection.creation.rate": "0"},
]
DYNAMIC_UNFIT = [
    {"broker.id": "5"},
    {"num.partitions": "5"},
    {"log.initial.task.delay.ms": "5"},
    {"ssl.keystore.location": "/x"},
    {"log.retention.ms": "soon"},
    {"log.retention.ms": "0"},
    {"log.retention.bytes": ""},
    {"compression.type": "x"},
    {"num.io.threads": "3"},
    {"num.io.threads": "17"},
    {"num.network.threads": "7"},
    {"num.replica.fetchers": "0"},
    {"log.cleaner.threads": "0"},
    {"max.connections": "0"},
    {"max.connection.creation.rate": "0"},
    {"max.connections.per.ip": "0"},
    {"listener.name.plaintext.max.connections": "0"},
    {"listener.name.plaintext.num.network.threads": "9"},
    {"listener.name.plaintext.max.connections": "x"},
    {"listener.name.plaintext.log.retention.ms": "x"},
    {"listener.name.plaintext.num.partitions": "0"},
    {"listener.name.plaintext.plain.broker.id": "x"},
    {"leader.replication.throttled.rate": "-1"},
    {"log.local.retention.ms": "604800001"},
    {"log.local.retention.ms": "-1"},
    {"listeners": "SSL://:2"},
    {"listeners": "foo"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
    {"listener.security.protocol.map": "PLAINTEXT:SSL"},
    {"listener.name.plaintext.foo": "x", "max.connections": "7"},
]
SINGLE_BROKER_ONLY = [{"listeners": "PLAINTEXT://:1"}, {"ssl.client.auth": "none"}, {"listener.name.plaintext.ssl.client.auth": "none"}]


@pytest.mark.parametrize("properties", DYNAMIC_FIT, ids=str)
def test_dynamic_fit(properties):
    config().validate_dynamic(properties, per_broker=True)


def test_limits_of_connections_are_checked_before_thread_pools_and_in_kafkas_order() -> None:
    with pytest.raises(ConfigError, match=r"max\.connections"):
        config().validate_dynamic({"num.io.threads": "99", "max.connection.creation.rate": "0", "max.connections": "0"}, per_broker=True)


@pytest.mark.parametrize("properties", DYNAMIC_UNFIT, ids=str)
def test_dynamic_unfit(properties):
    with pytest.raises(ConfigError):
        config().validate_dynamic(properties, per_broker=True)


@pytest.mark.parametrize("properties", SINGLE_BROKER_ONLY, ids=str)
def test_not_for_all_brokers(properties):
    config().validate_dynamic(properties, per_broker=True)
    with pytest.raises(ConfigError, match="at default cluster level, broker id must be specified: Set"):
        config().validate_dynamic(properties, per_broker=False)
    assert config().apply_dynamic(properties, {}).problems
    config().validate_dynamic({"listener.name.plaintext.max.connections": "5"}, per_broker=False)


@pytest.mark.parametrize(
    ("key", "value", "response"),
    [
        ("log.roll.ms", "0", "requirement failed: log.roll.ms must be greater than or equal to 1"),
        ("log.cleaner.threads", "0", "/ by zero"),
        ("max.connections.per.ip.overrides", "x", "Error parsing configuration property '{key}': begin 0, end -1, length 1"),
        ("max.connections.per.ip.overrides", "127.0.0.1:x", 'For input string: "x"'),
        ("max.connections.per.ip.overrides", "a!b:5", "{key} contains invalid addresses : a!b"),
        ("principal.builder.class", "a.B", "Invalid value a.B for configuration {key}: Class a.B could not be found."),
        ("listeners", "nonsense", "Error creating broker listeners from 'nonsense': Unable to parse nonsense to a broker endpoint"),
        ("log.cleaner.backoff.ms", "-1", "Invalid value -1 for configuration {key}: Value must be at least 0"),
    ],
)
def test_a_change_at_run_time_is_refused_in_kafkas_words(key: str, value: str, response: str) -> None:
    """Those that Kafka's tool printed (`tests/tools/errors.txt`)."""
    with pytest.raises(ConfigError) as caught:
        config().validate_dynamic({key: value}, per_broker=True)
    assert caught.value.response == response.format(key=key)


_ADVERTISED = "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
UNFIT_LISTENERS = [
    ({"advertised.listeners": ""}, "There must be at least one broker advertised listener."),
    (
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:1,SASL://h:2"},
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
    ),
    ({"listeners": ""}, f"{_ADVERTISED}PLAINTEXT,SASL. The valid options based on the current configuration are "),
    ({"listeners": "SASL://h:0"}, f"{_ADVERTISED}PLAINTEXT,SASL. The valid options based on the current configuration are SASL"),
    (
        {"listeners": "PLAINTEXT://h:1,SASL://h:1"},
        "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
        "listeners: PLAINTEXT://h:1,SASL://h:1, port: 1",
    ),
    (
        {"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"},
        "Each listener must have a different name, listeners: PLAINTEXT://h:1,PLAINTEXT://h:2",
    ),
    (
        {"advertised.listeners": "SASL://h:0"},
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
        "The valid options based on currently configured listeners are SASL",
    ),
]


@pytest.mark.parametrize(("change", "response"), UNFIT_LISTENERS, ids=str)
def test_listeners_that_do_not_fit_together_are_refused_in_the_words_of_kafka(change: dict[str, str], response: str) -> None:
    both = "PLAINTEXT://h:1,SASL://h:2"
    broker = config({
        "listeners": both,
        "advertised.listeners": both,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    })
    with pytest.raises(ConfigError) as caught:
        broker.validate_dynamic(change, per_broker=True)
    assert caught.value.response == f"requirement failed: {response}"


def test_only_kafkas_own_classes_are_there() -> None:
    config().validate_dynamic({"metric.reporters": "org.apache.kafka.common.metrics.JmxReporter"}, per_broker=True)
    with pytest.raises(ConfigError, match="classes of Java are not supported"):
        config().validate_dynamic({"metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,a.B"}, per_broker=True)
    own = BROKER["principal.builder.class"].default
    config().validate_dynamic({"principal.builder.class": own}, per_broker=True)


def test_the_other_entity_counts_too():
    made = config()
    made.apply_dynamic({"max.connections.per.ip.overrides": "h:1"}, {})
    made.validate_dynamic({"max.connections.per.ip": "0"}, per_broker=True)
    with pytest.raises(ConfigError):
        config().validate_dynamic({"max.connections.per.ip": "0"}, per_broker=True)
    made.apply_dynamic({"max.connections.per.ip.overrides": "h:1"}, {"max.connections.per.ip": "0"})
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip"):
        made.validate_dynamic({}, per_broker=False)


def test_a_password_of_an_open_listener_cannot_change_and_the_error_hides_it() -> None:
    name = "listener.name.plaintext.plain.sasl.jaas.config"
    static = config(**{name: "x required password=\"hunter1\";"})
    with pytest.raises(ConfigError) as caught:
        static.validate_dynamic({name: "x required password=\"hunter2\";", "max.connections": "7"}, per_broker=True)
    assert caught.value.key == name
    assert "[hidden]" in str(caught.value) and "hunter" not in str(caught.value)
