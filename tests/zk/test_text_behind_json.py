"""Znodes with text behind their JSON: as in Apache Kafka, the first value is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klamm.controller.values import Assignment, Broker, LeaderAndIsr
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.protocol.security.acls import PREFIXED
from klamm.zk.layout import topics, znodes
from klamm.zk.layout.acls import decode_acl_change, decode_acls
from klamm.zk.layout.broker_node import decode_broker, encode_broker
from klamm.zk.layout.delegation_tokens import decode_token
from klamm.zk.layout.znodes import FeatureNode, ProducerIdBlock
from klamm.zk.store.registrations import decode_registration

Decode = Callable[[bytes | None], Any]
PARTITION = TopicPartition("t", 0)
BROKER = Broker(1, 0, (Endpoint("PLAINTEXT", "h", 1, 0),))
LATER_STATE = b'{"leader":1,"leader_epoch":2,"isr":[1],"controller_epoch":3,"a":0}'
MOVING = topics.encode_topic(None, {0: Assignment((1, 2), (2,), (1,))})
ACLS = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
ACL_CHANGE = b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}'
REGISTRATION = (
    b'{"version":1,"epoch":3,"state":"ONLINE","settings":{"listener_security_protocol_map":{"P":"PLAINTEXT"},"endpoints":["P://h:1"]}}'
)
TOKEN = (
    b'{"version":1,"owner":"User:a","renewers":[],"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"id","tokenRequester":"User:a"}'
)

NODES: dict[str, tuple[Decode, bytes]] = {
    "state": (lambda data: topics.decode_state(data, 5), topics.encode_state(LeaderAndIsr(1, 2, (1, 2), 0, 5, 3))),
    "state of a later form": (lambda data: topics.decode_state(data, 5), LATER_STATE),
    "topic": (lambda data: topics.decode_topic("t", data), topics.encode_topic(None, {0: Assignment((1, 2)), 1: Assignment((2, 1))})),
    "topic amid a reassignment": (lambda data: topics.decode_topic("t", data), MOVING),
    "controller": (znodes.decode_controller, znodes.encode_controller(1, 2)),
    "reassignments": (znodes.decode_reassignments, znodes.encode_reassignments({PARTITION: (1, 2)})),
    "partitions": (znodes.decode_partitions, znodes.encode_partitions([PARTITION])),
    "log dir event": (znodes.decode_log_dir_event, znodes.encode_log_dir_event(1)),
    "throttled topics": (znodes.decode_throttled_topics, znodes.encode_throttled_topics(["t"])),
    "throttled brokers": (znodes.decode_throttled_brokers, znodes.encode_throttled_brokers([1])),
    "config": (znodes.decode_config, znodes.encode_config({"retention.ms": "1"})),
    "config change": (znodes.decode_config_change, znodes.encode_config_change("topics/t")),
    "cluster id": (znodes.decode_cluster_id, znodes.encode_cluster_id("id")),
    "feature": (znodes.decode_feature, znodes.encode_feature(FeatureNode(2, True, {}))),
    "producer ids": (znodes.decode_producer_ids, znodes.encode_producer_ids(ProducerIdBlock(1, 0, 999))),
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
