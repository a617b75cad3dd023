"""Bytes of the nodes, both ways. The written forms are what a running Kafka 3.9.1 was seen to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.controller.values import Assignment, Broker, LeaderAndIsr, StoredTopic
from klamm.protocol.nouns import Endpoint, TopicPartition, id_text, next_epoch
from klamm.protocol.security.acls import PREFIXED
from klamm.zk.layout import json_values, paths
from klamm.zk.layout import topics as topic_layout
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.acls import decode_acl_change, decode_acls
from klamm.zk.layout.broker_node import decode_broker, encode_broker
from klamm.zk.layout.delegation_tokens import decode_token
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.key_order import partition_order, properties_order, scala_order
from klamm.zk.layout.topics import TopicNodes
from klamm.zk.layout.znodes import ControllerNode, FeatureNode, ProducerIdBlock
from klamm.zk.store.registrations import decode_registration

TOPIC_ID = json_values.decode_uuid("Xt_MaHEATbq0nm8Ssu_Bmg")
MS = 1_700_000_000_000
PLAIN = (Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0),)
TWO = (Endpoint("INT", "h", 1, 0), Endpoint("EXT", "h", 2, 0))

WRITTEN: list[tuple[bytes, str]] = [
    (layout.encode_controller(0, MS), '{"version":2,"brokerid":0,"timestamp":"1700000000000","kraftControllerEpoch":-1}'),
    (layout.encode_controller_epoch(1), "1"),
    (
        encode_broker(Broker(0, 0, PLAIN), MS),
        '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:9092"],'
        '"jmx_port":-1,"port":9092,"host":"127.0.0.1","version":5,"timestamp":"1700000000000"}',
    ),
    (
        encode_broker(Broker(0, 0, TWO, "r1"), MS),
        '{"features":{},"listener_security_protocol_map":{"INT":"PLAINTEXT","EXT":"PLAINTEXT"},"endpoints":["INT://h:1","EXT://h:2"],'
        '"rack":"r1","jmx_port":-1,"port":1,"host":"h","version":5,"timestamp":"1700000000000"}',
    ),
    (
        encode_broker(Broker(0, 0, PLAIN), MS, json_version=4),
        '{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:9092"],'
        '"jmx_port":-1,"port":9092,"host":"127.0.0.1","version":4,"timestamp":"1700000000000"}',
    ),
    (
        encode_broker(Broker(0, 0, PLAIN, "r1"), MS, json_version=2),
        '{"endpoints":["PLAINTEXT://127.0.0.1:9092"],"jmx_port":-1,"port":9092,"host":"127.0.0.1","version":2,"timestamp":"1700000000000"}',
    ),
    (
        encode_broker(Broker(0, 0, (Endpoint("sec", "::1", 9093, 1),)), MS, jmx_port=9999),
        '{"features":{},"listener_security_protocol_map":{"SEC":"SSL"},"endpoints":["SEC://[::1]:9093"],'
        '"jmx_port":9999,"port":-1,"host":null,"version":5,"timestamp":"1700000000000"}',
    ),
    (
        topic_layout.encode_topic(TOPIC_ID, {0: Assignment((1, 2)), 1: Assignment((2, 1))}),
        '{"partitions":{"0":[1,2],"1":[2,1]},"topic_id":"Xt_MaHEATbq0nm8Ssu_Bmg","adding_replicas":{},"removing_replicas":{},"version":3}',
    ),
    (
        topic_layout.encode_topic(TOPIC_ID, {0: Assignment((12,)), 1: Assignment((13, 12), (13,), (12,))}),
        '{"partitions":{"0":[12],"1":[13,12]},"topic_id":"Xt_MaHEATbq0nm8Ssu_Bmg","adding_replicas":{"1":[13]},'
        '"removing_replicas":{"1":[12]},"version":3}',
    ),
    (
        topic_layout.encode_topic(None, {0: Assignment((1, 2))}),
        '{"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{},"version":3}',
    ),
    (
        topic_layout.encode_state(LeaderAndIsr(1, 0, (1, 2), controller_epoch=1)),
        '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
    ),
    (
        topic_layout.encode_state(LeaderAndIsr(2, 3, (2,), recovery=1, controller_epoch=1)),
        '{"controller_epoch":1,"leader":2,"version":1,"leader_recovery_state":1,"is_unclean":true,"leader_epoch":3,"isr":[2]}',
    ),
    (
        layout.encode_reassignments({TopicPartition("t", 1): (13,)}),
        '{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[13]}]}',
    ),
    (
        layout.encode_partitions([TopicPartition("t", 1), TopicPartition("t", 0)]),
        '{"version":1,"partitions":[{"topic":"t","partition":1},{"topic":"t","partition":0}]}',
    ),
    (layout.encode_log_dir_event(0), '{"version":1,"broker":0,"event":1}'),
    (
        layout.encode_config({"retention.ms": "3600000", "cleanup.policy": "compact"}),
        '{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"3600000"}}',
    ),
    (layout.encode_config({}), '{"version":1,"config":{}}'),
    (layout.encode_config_change("users/<default>/clients/c1"), '{"version":2,"entity_path":"users/<default>/clients/c1"}'),
    (layout.encode_cluster_id("rySrFeWXSSqAc4pGBlLqGg"), '{"version":"1","id":"rySrFeWXSSqAc4pGBlLqGg"}'),
    (layout.encode_feature(FeatureNode(2, True, {})), '{"features":{},"version":2,"status":1}'),
    (layout.encode_feature(FeatureNode(1, False, {})), '{"features":{},"version":1,"status":0}'),
    (
        layout.encode_producer_ids(ProducerIdBlock(11, 0, 999)),
        '{"version":1,"broker":11,"block_start":"0","block_end":"999"}',
    ),
]


@pytest.mark.parametrize(("written", "seen"), WRITTEN, ids=[seen[:40] for _, seen in WRITTEN])
def test_written_as_kafka_writes(written: bytes, seen: str) -> None:
    assert written.decode() == seen


# What a real cluster wrote for topics of twelve and twenty partitions, and for configs made of the same keys in alphabetical order.
TWELVE = ["11", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
TWENTY = [*map(str, range(11, 20)), *map(str, range(11))]
FIVE_CONFIGS = ["compression.type", "cleanup.policy", "file.delete.delay.ms", "delete.retention.ms", "flush.messages"]
TWELVE_CONFIGS = [
    "compression.type",
    "file.delete.delay.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.compaction.lag.ms",
    "message.timestamp.type",
    "index.interval.bytes",
    "min.cleanable.dirty.ratio",
    "delete.retention.ms",
    "cleanup.policy",
    "flush.ms",
    "flush.messages",
]


def test_order_of_keys_is_that_of_kafkas_hash_tables() -> None:
    assert list(partition_order(12)) == TWELVE
    assert scala_order(sorted(TWENTY)) == TWENTY
    assert properties_order(sorted(FIVE_CONFIGS)) == FIVE_CONFIGS
    assert properties_order(sorted(TWELVE_CONFIGS)) == TWELVE_CONFIGS
    sparse = {5: Assignment((1,)), 0: Assignment((1,))}
    assert list(json.loads(topic_layout.encode_topic(None, sparse))["partitions"]) == ["0", "5"]


STATES: list[tuple[str, LeaderAndIsr | None]] = [
    ('{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}', LeaderAndIsr(1, 0, (1, 2), 0, 7, 1)),
    (
        '{"controller_epoch":1,"leader":2,"version":1,"leader_recovery_state":1,"leader_epoch":3,"isr":[2]}',
        LeaderAndIsr(2, 3, (2,), 1, 7, 1),
    ),
    (
        '{"controller_epoch":1,"leader":2,"version":1,"leader_recovery_state":1,"is_unclean":true,"leader_epoch":3,"isr":[2]}',
        LeaderAndIsr(2, 3, (2,), 1, 7, 1),
    ),
    (
        '{"controller_epoch":1,"leader":2,"version":1,"leader_recovery_state":0,"is_unclean":true,"leader_epoch":3,"isr":[2]}',
        LeaderAndIsr(2, 3, (2,), 0, 7, 1),
    ),
    ('{"controller_epoch":4,"leader":-1,"version":1,"leader_epoch":2,"isr":[]}', LeaderAndIsr(-1, 2, (), 0, 7, 4)),
    # Another order, blanks, unknown keys.
    ('{"version": 1, "isr": [3], "leader": 3, "leader_epoch": 5, "controller_epoch": 9, "x": {}}', LeaderAndIsr(3, 5, (3,), 0, 7, 9)),
    # Of the two forms of recovery the shipped one wins.
    ('{"version":1,"isr":[3],"leader":3,"leader_epoch":5,"controller_epoch":9,"is_unclean":true}', LeaderAndIsr(3, 5, (3,), 1, 7, 9)),
    ('{"version":1,"isr":[3],"leader":3,"leader_epoch":5,"controller_epoch":9,"is_unclean":false}', LeaderAndIsr(3, 5, (3,), 0, 7, 9)),
    (
        '{"version":1,"isr":[3],"leader":3,"leader_epoch":5,"controller_epoch":9,"is_unclean":true,"leader_recovery_state":0}',
        LeaderAndIsr(3, 5, (3,), 0, 7, 9),
    ),
    (
        '{"version":1,"isr":[3],"leader":3,"leader_epoch":5,"controller_epoch":9,"is_unclean":false,"leader_recovery_state":1}',
        LeaderAndIsr(3, 5, (3,), 1, 7, 9),
    ),
    ('{"version":1,"isr":[3],"leader":3,"leader_epoch":5,"controller_epoch":9,"leader_recovery_state":2}', None),
    ('{"version":1,"isr":[3],"leader":3,"leader_epoch":5}', None),
    ('{"version":1,"isr":[3],"leader":3,"leader_epoch":5,"controller_epoch":9,"leader_recovery_state":true}', None),
    ('{"version":1,"isr":["3"],"leader":3,"leader_epoch":5,"controller_epoch":9}', None),
    ('{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]', None),
    ("no json", None),
    ("[]", None),
    ("", None),
]


@pytest.mark.requirement("R704-19", "R704-1")
@pytest.mark.parametrize("recovery", [0, 1])
def test_a_state_has_the_mark_in_both_forms_while_it_recovers_and_nothing_else_in_place_of_it(recovery: int) -> None:
    content = json.loads(topic_layout.encode_state(LeaderAndIsr(2, 3, (2,), recovery=recovery, controller_epoch=1)))
    mark = {"leader_recovery_state": 1, "is_unclean": True} if recovery else {}
    assert content == {"version": 1, "controller_epoch": 1, "leader": 2, "leader_epoch": 3, "isr": [2]} | mark


@pytest.mark.requirement("R704-2")
@pytest.mark.parametrize(("data", "state"), STATES, ids=[data[-60:] for data, _ in STATES])
def test_states_are_read(data: str, state: LeaderAndIsr | None) -> None:
    assert TopicNodes().decode_state(data.encode(), 7) == state


@pytest.mark.parametrize("field", ["controller_epoch", "leader", "leader_epoch", "isr"])
def test_a_state_with_a_number_that_is_no_int32_counts_as_missing(field: str) -> None:
    numbers = {"controller_epoch": "1", "leader": "1", "leader_epoch": "1", "isr": "1"}

    def state(number: str) -> LeaderAndIsr | None:
        values = {**numbers, field: number}
        text = ",".join(f'"{name}":{value}' for name, value in values.items() if name != "isr")
        return TopicNodes().decode_state(f'{{{text},"version":1,"isr":[{values["isr"]}]}}'.encode(), 0)

    shipped = '{"controller_epoch":%s,"leader":%s,"version":1,"leader_epoch":%s,"isr":[%s]}'
    for odd in ("2147483648", "-2147483649", "1.0", "true", '"1"', "1e1", "9" * 30, "9" * 5000):
        assert state(odd) is None, odd
        assert TopicNodes().decode_state((shipped % tuple({**numbers, field: odd}.values())).encode(), 0) is None, odd
    for number in ("2147483647", "-2147483648"):
        assert state(number) == TopicNodes().decode_state((shipped % tuple({**numbers, field: number}.values())).encode(), 0) is not None


def test_a_state_that_cannot_be_read_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert TopicNodes().decode_state(b'{"leader":1.5}', 0, TopicPartition("t", 3)) is None
    assert "Ignoring the state of t-3: it cannot be read" in caplog.text


def test_a_node_without_data_holds_no_state() -> None:
    assert TopicNodes().decode_state(None, 0) is None


ids = st.integers(-1, 2**31 - 1)


@given(st.builds(LeaderAndIsr, ids, ids, st.lists(ids, max_size=6).map(tuple), st.integers(0, 1), ids, ids))
def test_states_survive_both_ways(state: LeaderAndIsr) -> None:
    data = topic_layout.encode_state(state)
    assert TopicNodes().decode_state(data, state.partition_epoch) == state
    shuffled = json.dumps(dict(reversed(json.loads(data).items()))).encode()
    assert TopicNodes().decode_state(shuffled, state.partition_epoch) == state


def test_equal_states_are_one_object() -> None:
    data = topic_layout.encode_state(LeaderAndIsr(1, 0, (1, 2), controller_epoch=1))
    nodes = TopicNodes()
    assert nodes.decode_state(data, 3) is nodes.decode_state(bytes(bytearray(data)), 3)
    topic = TopicNodes().decode_topic("t", topic_layout.encode_topic(None, {0: Assignment((1, 2)), 1: Assignment((1, 2))}))
    assert topic is not None and topic.assignments[0] is topic.assignments[1]


TOPICS: list[tuple[bytes | None, StoredTopic | None]] = [
    (b'{"version":1,"partitions":{"0":[1,2]}}', StoredTopic(None, {0: Assignment((1, 2))})),
    (
        b'{"version":2,"partitions":{"1":[3,1]},"adding_replicas":{"1":[3]},"removing_replicas":{}}',
        StoredTopic(None, {1: Assignment((3, 1), (3,))}),
    ),
    (b'{"version":3,"topic_id":"Xt_MaHEATbq0nm8Ssu_Bmg","partitions":{}}', StoredTopic(TOPIC_ID, {})),
    (b'{"version":3,"topic_id":null,"partitions":{},"adding_replicas":null}', StoredTopic(None, {})),
    (b"no json", StoredTopic(None, {})),
    (b"", StoredTopic(None, {})),
    (b"[" * 100_000, StoredTopic(None, {})),
    (b'{"version":3,"partitions":{"2147483647":[2147483647]}}', StoredTopic(None, {2**31 - 1: Assignment((2**31 - 1,))})),
    (b'{"version":3,"partitions":{"+1":[2]}}', StoredTopic(None, {1: Assignment((2,))})),
    # Apache Kafka fails at each fail-over over these
    (None, None),
    (b"[1,2]", None),
    (b'{"partitions":{"0":["1"]}}', None),
    (b'{"partitions":{"0":[1.0]}}', None),
    (b'{"partitions":{"0":[true]}}', None),
    (b'{"partitions":{"0":[1,2147483648]}}', None),
    (b'{"partitions":{"0":[1],"2147483648":[1]}}', None),
    (b'{"partitions":{"0":[1],"1_0":[1]}}', None),
    (b'{"partitions":{"0":[1],"x":[1]}}', None),
    (b'{"partitions":{"0":[1]},"adding_replicas":{"0":[2147483648]}}', None),
    (b'{"partitions":{"0":[1]},"topic_id":"short"}', None),
]


@pytest.mark.parametrize(("data", "topic"), TOPICS, ids=range(len(TOPICS)))
def test_topics_are_read(data: bytes | None, topic: StoredTopic) -> None:
    assert TopicNodes().decode_topic("t", data) == topic


@given(
    st.none() | st.binary(min_size=16, max_size=16),
    st.dictionaries(
        st.integers(0, 40),
        st.builds(Assignment, *[st.lists(st.integers(0, 9), unique=True, max_size=4).map(tuple)] * 3),
        max_size=30,
    ),
)
def test_topics_survive_both_ways(topic_id: bytes | None, assignments: dict[int, Assignment]) -> None:
    assert TopicNodes().decode_topic("t", topic_layout.encode_topic(topic_id, assignments)) == StoredTopic(topic_id, assignments)


def broker_json(**changes: Any) -> bytes:
    content: dict[str, Any] = {
        "version": 5,
        "host": "h",
        "port": 1,
        "jmx_port": -1,
        "timestamp": "1",
        "endpoints": ["PLAINTEXT://h:1"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }
    content.update(changes)
    return json.dumps({name: value for name, value in content.items() if value != "ABSENT"}).encode()


BROKERS: list[tuple[bytes, Broker]] = [
    (broker_json(), Broker(4, 9, (Endpoint("PLAINTEXT", "h", 1, 0),))),
    (broker_json(rack="r", unknown=[1]), Broker(4, 9, (Endpoint("PLAINTEXT", "h", 1, 0),), "r")),
    (
        broker_json(features={"f": {"min_version": 1, "max_version": 3}}),
        Broker(4, 9, (Endpoint("PLAINTEXT", "h", 1, 0),), None, (("f", 1, 3),)),
    ),
    (broker_json(features="ABSENT", version=4), Broker(4, 9, (Endpoint("PLAINTEXT", "h", 1, 0),))),
    # Without the map the listener's name is the protocol.
    (
        broker_json(version=2, listener_security_protocol_map="ABSENT", endpoints=["sasl_ssl://h:1"], rack="ABSENT"),
        Broker(4, 9, (Endpoint("SASL_SSL", "h", 1, 3),)),
    ),
    (broker_json(version=1, endpoints="ABSENT"), Broker(4, 9, (Endpoint("PLAINTEXT", "h", 1, 0),))),
    (
        broker_json(endpoints=["IN://[::1]:7", "EX://:8"], listener_security_protocol_map={"IN": "SSL", "EX": "SASL_PLAINTEXT"}),
        Broker(4, 9, (Endpoint("IN", "::1", 7, 1), Endpoint("EX", "", 8, 2))),
    ),
]


@pytest.mark.parametrize(("data", "broker"), BROKERS, ids=range(len(BROKERS)))
def test_brokers_are_read(data: bytes, broker: Broker) -> None:
    assert decode_broker(4, 9, data) == broker


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"no json",
        b"[]",
        broker_json(version="ABSENT"),
        broker_json(version=0),
        broker_json(version="5"),
        broker_json(jmx_port="ABSENT"),
        broker_json(endpoints="ABSENT"),
        broker_json(endpoints=["h:1"]),
        broker_json(endpoints=["OTHER://h:1"]),
        broker_json(endpoints=["PLAINTEXT://h:1", "plaintext://h:2"]),
        broker_json(endpoints=["IN://h:1"], listener_security_protocol_map={"in": "PLAINTEXT"}),
        broker_json(listener_security_protocol_map={"PLAINTEXT": "NONE"}),
        broker_json(features={"f": {"min_version": 1}}),
        broker_json(version=2**31),
        broker_json(version=5.0),
        broker_json(version=True),
        broker_json(jmx_port="1"),
        broker_json(rack=5),
        broker_json(rack="\ud800"),
        broker_json(endpoints=["PLAINTEXT://h:2147483648"]),
        broker_json(endpoints=["PLAINTEXT://h:" + "1" * 5000]),
        broker_json(endpoints=["\ud800://h:1"], listener_security_protocol_map={"\ud800": "PLAINTEXT"}),
        broker_json(endpoints=[5]),
        broker_json(version=1, endpoints="ABSENT", port=2**31),
        broker_json(version=1, endpoints="ABSENT", host=None),
    ],
)
def test_brokers_that_kafka_cannot_read(data: bytes | None) -> None:
    with pytest.raises(Unreadable, match="/brokers/ids/4"):
        decode_broker(4, 9, data)


def test_brokers_survive_both_ways() -> None:
    broker = Broker(4, 9, (*TWO, Endpoint("S", "2001:db8::1", 3, 3)), "rack é", (("f", 1, 2),))
    assert decode_broker(4, 9, encode_broker(broker, MS)) == broker
    assert decode_broker(4, 9, encode_broker(broker, MS) + b" trailing}") == broker, "as Kafka: the first value counts"


def test_an_id_has_16_bytes() -> None:
    assert json_values.decode_uuid(id_text(TOPIC_ID)) == TOPIC_ID
    for text in ("", "AAAA", id_text(bytes(17))):
        with pytest.raises(ValueError, match="is not an id"):
            json_values.decode_uuid(text)


@pytest.mark.parametrize("enabled", [True, False])
def test_features_are_enabled_or_not(enabled: bool) -> None:
    assert layout.decode_feature(b'{"features":{},"version":2,"status":%d}' % enabled) == FeatureNode(2, enabled, {})


def test_controllers_are_read() -> None:
    assert layout.decode_controller(layout.encode_controller(0, MS)) == ControllerNode(0, -1)
    assert layout.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"1"}') == ControllerNode(3, -1)
    assert layout.decode_controller(b'{"version":2,"brokerid":3,"timestamp":"1","kraftControllerEpoch":8}') == ControllerNode(3, 8)
    for data in (None, b"", b"3", b"{}", b'{"brokerid":"3"}', b'{"brokerid":3.0}', b'{"brokerid":true}', b'{"brokerid":2147483648}'):
        assert layout.decode_controller(data) is None


def test_controller_epochs_are_int32_and_go_round() -> None:
    assert [layout.decode_controller_epoch(data) for data in (b"7", b"+7", b"2147483647", b"-2147483648")] == [7, 7, 2**31 - 1, -(2**31)]
    for data in (None, b"", b"seven", b"2147483648", b" 7", b"7\n", b"1_0", b"1.0", "٧".encode(), b"\xff"):
        with pytest.raises(Unreadable):
            layout.decode_controller_epoch(data)
    assert [next_epoch(epoch) for epoch in (0, 2**31 - 2, 2**31 - 1, -(2**31))] == [1, 2**31 - 1, -(2**31), 1 - 2**31]


def test_lists_of_partitions_are_read() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert layout.decode_partitions(layout.encode_partitions([b, a, b])) == [b, a]
    assert layout.decode_reassignments(layout.encode_reassignments({b: (3, 4), a: ()})) == {b: (3, 4), a: ()}
    extra = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}'
    assert layout.decode_reassignments(extra) == {a: (1,)}
    odd = [b'{"partitions":[{"topic":"t","partition":%b,"replicas":[1]}]}' % number for number in (b'"0"', b"2147483648", b"0.0", b"true")]
    for data in (None, b"", b"no json", b"[]", b"{}", b'{"partitions":[{"topic":"t"}]}', *odd):
        assert layout.decode_partitions(data) == []
        assert layout.decode_reassignments(data) == {}


def test_notifications_are_read() -> None:
    assert layout.decode_log_dir_event(layout.encode_log_dir_event(0)) == 0
    for data in (None, b"x", b"{}", b'{"broker":true}', b'{"broker":2147483648}', b'{"broker":1.0}'):
        assert layout.decode_log_dir_event(data) is None
    assert layout.decode_config_change(layout.encode_config_change("topics/foo")) == "topics/foo"
    assert layout.decode_config_change(b'{"version":1,"entity_type":"clients","entity_name":"c"}') == "clients/c"
    assert layout.decode_config_change(b"no json") is None
    for data in (b"{}", b'{"version":1,"entity_type":"users","entity_name":"u"}', b'{"version":3,"entity_path":"topics/foo"}'):
        with pytest.raises(Unreadable):
            layout.decode_config_change(data)


def test_configs_are_read() -> None:
    properties = {"a": "1", "ü": "ö\n"}
    assert layout.decode_config(layout.encode_config(properties)) == properties
    for data in (None, b"", b"no json", b"[]", b'{"version":1}', b'{"config":[]}'):
        assert layout.decode_config(data) == {}
    with pytest.raises(Unreadable):
        layout.decode_config(b'{"version":1,"config":{"a":1}}')


def test_single_nodes_are_read() -> None:
    assert layout.decode_cluster_id(layout.encode_cluster_id("x")) == "x"
    feature = FeatureNode(2, True, {"metadata.version": {"max_version_level": 3}})
    assert layout.decode_feature(layout.encode_feature(feature)) == feature
    block = ProducerIdBlock(0, 1000, 1999)
    assert layout.decode_producer_ids(layout.encode_producer_ids(block)) == block
    assert layout.decode_producer_ids(None) is None
    with pytest.raises(Unreadable):
        layout.decode_cluster_id(b"{}")
    levels = [b"7", b"{}", *(b'{"max_version_level":%b}' % level for level in (b"32768", b"1.0", b'"1"', b"true"))]
    for data in (b'{"version":3,"status":1,"features":{}}', *(b'{"version":2,"status":1,"features":{"f":%b}}' % found for found in levels)):
        with pytest.raises(Unreadable):
            layout.decode_feature(data)
    odd = '{"version":1,"broker":%s,"block_start":%s,"block_end":%s}'
    numbers = [("1.0", '"0"', '"9"'), ("2147483648", '"0"', '"9"'), ("1", "0", '"9"'), ("1", '"0"', "9"), ("1", '"0"', f'"{2**63}"')]
    for data in (b"", b"[]", *((odd % found).encode() for found in numbers)):
        with pytest.raises(Unreadable):
            layout.decode_producer_ids(data)
    last = ProducerIdBlock(1, 2**63 - 1001, 2**63 - 1)
    assert layout.decode_producer_ids(layout.encode_producer_ids(last)) == last


@pytest.mark.parametrize(
    ("name", "node"),
    [("al ice*", "al%20ice%2A"), ("c 2", "c%202"), ("a+b/~ü", "a%2Bb%2F%7E%C3%BC"), ("<default>", "%3Cdefault%3E"), ("a.b-c_d", "a.b-c_d")],
)
def test_entity_names_are_sanitized(name: str, node: str) -> None:
    assert paths.sanitize(name) == node
    assert paths.desanitize(node) == name


def test_entity_names_that_others_wrote_are_decoded_as_in_java() -> None:
    assert paths.desanitize("a+b%e4%C3%A4") == "a b\ufffdä"
    for node in ("%zz", "a%", "a%4", "%+1"):
        with pytest.raises(Unreadable):
            paths.desanitize(node)


@pytest.mark.parametrize(
    ("version", "readable"), [("1", True), ("0", False), ("2", False), ('"1"', False), ("true", False), ("null", False)]
)
def test_acls_have_version_1(version: str, readable: bool) -> None:
    entry = '{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}'
    data = f'{{"version":{version},"acls":[{entry}]}}'.encode()
    if readable:
        assert [each.principal for each in decode_acls(data)] == ["User:a"]
    else:
        with pytest.raises(Unreadable):
            decode_acls(data)


# Text behind the first JSON value

Decode = Callable[[bytes | None], Any]
PARTITION = TopicPartition("t", 0)
BROKER = Broker(1, 0, (Endpoint("PLAINTEXT", "h", 1, 0),))
LATER_STATE = b'{"leader":1,"leader_epoch":2,"isr":[1],"controller_epoch":3,"a":0}'
SETTLED = topic_layout.encode_topic(None, {0: Assignment((1, 2)), 1: Assignment((2, 1))})
MOVING = topic_layout.encode_topic(None, {0: Assignment((1, 2), (2,), (1,))})
ACLS = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
ACL_CHANGE = b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}'
REGISTRATION = (
    b'{"version":1,"epoch":3,"state":"ONLINE","settings":{"listener_security_protocol_map":{"P":"PLAINTEXT"},"endpoints":["P://h:1"]}}'
)
TOKEN = (
    b'{"version":1,"owner":"User:a","renewers":[],"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"id","tokenRequester":"User:a"}'
)

NODES: dict[str, tuple[Decode, bytes]] = {
    "state": (lambda data: TopicNodes().decode_state(data, 5), topic_layout.encode_state(LeaderAndIsr(1, 2, (1, 2), 0, 5, 3))),
    "state of a later form": (lambda data: TopicNodes().decode_state(data, 5), LATER_STATE),
    "topic": (lambda data: TopicNodes().decode_topic("t", data), SETTLED),
    "topic amid a reassignment": (lambda data: TopicNodes().decode_topic("t", data), MOVING),
    "controller": (layout.decode_controller, layout.encode_controller(1, 2)),
    "reassignments": (layout.decode_reassignments, layout.encode_reassignments({PARTITION: (1, 2)})),
    "partitions": (layout.decode_partitions, layout.encode_partitions([PARTITION])),
    "log dir event": (layout.decode_log_dir_event, layout.encode_log_dir_event(1)),
    "throttled topics": (layout.decode_throttled_topics, layout.encode_throttled_topics(["t"])),
    "throttled brokers": (layout.decode_throttled_brokers, layout.encode_throttled_brokers([1])),
    "config": (layout.decode_config, layout.encode_config({"retention.ms": "1"})),
    "config change": (layout.decode_config_change, layout.encode_config_change("topics/t")),
    "cluster id": (layout.decode_cluster_id, layout.encode_cluster_id("id")),
    "feature": (layout.decode_feature, layout.encode_feature(FeatureNode(2, True, {}))),
    "producer ids": (layout.decode_producer_ids, layout.encode_producer_ids(ProducerIdBlock(1, 0, 999))),
    "ACLs": (decode_acls, ACLS),
    "ACL change": (lambda data: decode_acl_change(PREFIXED, data), ACL_CHANGE),
    "delegation token": (decode_token, TOKEN),
    "broker": (lambda data: decode_broker(1, 9, data), encode_broker(BROKER, 1)),
    "registration": (lambda data: decode_registration(1, data), REGISTRATION),
}


@pytest.mark.parametrize("behind", [b" ", b"}", b"\n# note", b' {"leader":9,"partitions":{"7":[7]}}', b" \xff"], ids=repr)
@pytest.mark.parametrize("name", NODES)
def test_the_first_value_of_a_znode_is_read_whatever_follows(name: str, behind: bytes) -> None:
    decode, data = NODES[name]
    assert decode(data) is not None
    assert decode(data + behind) == decode(data)
