"""What a caller passes is judged before anything is sent: no broker sees a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klamm.admin import (
    AdminClient,
    AsyncAdminClient,
    CommittedOffset,
    ConfigChange,
    ConfigResource,
    MemberToRemove,
    QuotaEntity,
    ResourceType,
    ScramPassword,
)
from klamm.admin.calls.values import AlterOperation
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.admin.scripted import ScriptedCluster

TOPIC = ConfigResource(ResourceType.TOPIC, "a")
P = ("a", 0)
OFFSET: Any = CommittedOffset
MEMBER: Any = MemberToRemove
"""Without their types, which forbid what is refused here."""
WRONG: list[tuple[str, type[Exception], Callable[[Any], Any]]] = [
    ("partitions is a string", TypeError, lambda a: a.elect_preferred_leaders("a")),
    ("partitions is a number", TypeError, lambda a: a.elect_preferred_leaders(7)),
    ("a partition is a string", TypeError, lambda a: a.elect_preferred_leaders(["ab"])),
    ("a partition has no number", TypeError, lambda a: a.elect_preferred_leaders([("a",)])),
    ("a partition's number is a bool", TypeError, lambda a: a.elect_preferred_leaders([("a", True)])),
    ("a partition's number is a string", TypeError, lambda a: a.elect_preferred_leaders([("a", "0")])),
    ("a partition's number is negative", ValueError, lambda a: a.elect_preferred_leaders([("a", -1)])),
    ("a partition's number is no int32", ValueError, lambda a: a.elect_preferred_leaders([("a", 2**31)])),
    ("a topic is bytes", TypeError, lambda a: a.elect_preferred_leaders([(b"a", 0)])),
    ("a topic is empty", ValueError, lambda a: a.elect_preferred_leaders([("", 0)])),
    ("a topic is too long for the wire", ValueError, lambda a: a.elect_preferred_leaders([("ü" * 20000, 0)])),
    ("an election type is a number", TypeError, lambda a: a.elect_leaders(1, [("a", 0)])),
    ("a time-out is negative", ValueError, lambda a: a.elect_preferred_leaders(timeout_ms=-1)),
    ("a time-out is no int32", ValueError, lambda a: a.elect_preferred_leaders(timeout_ms=2**31)),
    ("a time-out is a float", TypeError, lambda a: a.elect_preferred_leaders(timeout_ms=1.5)),
    ("assignments are a list", TypeError, lambda a: a.reassign_partitions([P])),
    ("replicas are empty", ValueError, lambda a: a.reassign_partitions({P: []})),
    ("replicas are None", TypeError, lambda a: a.reassign_partitions({P: None})),
    ("replicas are a string", TypeError, lambda a: a.reassign_partitions({P: "12"})),
    ("a broker id is a string", TypeError, lambda a: a.reassign_partitions({P: ["1"]})),
    ("a broker id is no int32", ValueError, lambda a: a.reassign_partitions({P: [2**31]})),
    ("a throttle is 0", ValueError, lambda a: a.reassign_partitions({P: [1]}, throttle=0)),
    ("a throttle is no int64", ValueError, lambda a: a.reassign_partitions({P: [1]}, throttle=2**63)),
    ("validate_only is a number", TypeError, lambda a: a.reassign_partitions({P: [1]}, validate_only=1)),
    ("auto_remove_throttle is None", TypeError, lambda a: a.reassign_partitions({P: [1]}, auto_remove_throttle=None)),
    ("rates are a list", TypeError, lambda a: a.alter_interbroker_throttled_rates([1])),
    ("rates are one number", TypeError, lambda a: a.alter_interbroker_throttled_rates({1: 5})),
    ("a rate is negative", ValueError, lambda a: a.alter_interbroker_throttled_rates({1: (-1, 1)})),
    ("a rate is 0", ValueError, lambda a: a.alter_interbroker_throttled_rates({1: (1, 0)})),
    ("a rate is None", TypeError, lambda a: a.alter_interbroker_throttled_rates({1: (None, 1)})),
    ("the broker of a rate is negative", ValueError, lambda a: a.alter_interbroker_throttled_rates({-1: (1, 1)})),
    ("the broker of a rate is a string", TypeError, lambda a: a.alter_interbroker_throttled_rates({"1": (1, 1)})),
    ("throttled replicas are one list", TypeError, lambda a: a.alter_interbroker_throttled_replicas({P: [1]})),
    ("throttled replicas are a number", TypeError, lambda a: a.alter_interbroker_throttled_replicas({P: (1, None)})),
    ("throttled replicas are a star", TypeError, lambda a: a.alter_interbroker_throttled_replicas({P: ("*", None)})),
    ("targets are a list", TypeError, lambda a: a.alter_partition_reassignments([P])),
    ("a target is empty", ValueError, lambda a: a.alter_partition_reassignments({P: ()})),
    ("partitions to list are a string", TypeError, lambda a: a.list_partition_reassignments("a")),
    ("groups are one string", TypeError, lambda a: a.describe_groups("g")),
    ("a group is None", TypeError, lambda a: a.delete_groups([None])),
    ("a group is too long for the wire", ValueError, lambda a: a.delete_groups(["ü" * 20000])),
    ("a state is unheard of", ValueError, lambda a: a.list_groups(["Happy"])),
    ("a type is unheard of", ValueError, lambda a: a.list_groups(types=["Happy"])),
    ("states are one string", TypeError, lambda a: a.list_groups("Empty")),
    ("partitions of a group are a string", TypeError, lambda a: a.list_group_offsets({"g": "orders"})),
    ("require_stable is a number", TypeError, lambda a: a.list_group_offsets(["g"], require_stable=1)),
    ("offsets are a list", TypeError, lambda a: a.alter_group_offsets("g", [P])),
    ("an offset is negative", ValueError, lambda a: a.alter_group_offsets("g", {P: -1})),
    ("an offset is a string", TypeError, lambda a: a.alter_group_offsets("g", {P: "5"})),
    ("a leader epoch is no int32", ValueError, lambda a: a.alter_group_offsets("g", {P: CommittedOffset(1, 2**31)})),
    ("metadata of an offset are bytes", TypeError, lambda a: a.alter_group_offsets("g", {P: OFFSET(1, 1, b"m")})),
    ("offsets to delete are a string", TypeError, lambda a: a.delete_group_offsets("g", "a")),
    ("a member is a string", TypeError, lambda a: a.remove_members("g", ["m"])),
    ("a member has no id", ValueError, lambda a: a.remove_members("g", [MemberToRemove()])),
    ("the id of a member is a number", TypeError, lambda a: a.remove_members("g", [MEMBER(7)])),
    ("the reason is a number", TypeError, lambda a: a.remove_members("g", None, reason=7)),
    ("an offset spec is below the smallest", ValueError, lambda a: a.list_offsets({P: -4})),
    ("offset specs are a list", TypeError, lambda a: a.list_offsets([P])),
    ("read_committed is a number", TypeError, lambda a: a.list_offsets({P: -1}, read_committed=1)),
    ("topics are one string", TypeError, lambda a: a.describe_topics("orders")),
    ("a topic's name is None", TypeError, lambda a: a.describe_topics([None])),
    ("an API key is a string", TypeError, lambda a: a.supports("43")),
    ("an API key is negative", ValueError, lambda a: a.supports(-1)),
    ("brokers are a number", TypeError, lambda a: a.describe_log_dirs(1)),
    ("a broker is negative", ValueError, lambda a: a.describe_log_dirs([-1])),
    ("a replica lacks its broker", TypeError, lambda a: a.alter_replica_log_dirs({P: "/d"})),
    ("a log directory is empty", ValueError, lambda a: a.alter_replica_log_dirs({("a", 0, 1): ""})),
    ("a log directory is bytes", TypeError, lambda a: a.alter_replica_log_dirs({("a", 0, 1): b"/d"})),
    ("resources are one resource's name", TypeError, lambda a: a.describe_configs("a")),
    ("a resource is a string", TypeError, lambda a: a.describe_configs(["a"])),
    ("a resource's type is unknown", ValueError, lambda a: a.describe_configs([(3, "a")])),
    ("a broker resource is no id", ValueError, lambda a: a.describe_configs([ConfigResource(ResourceType.BROKER, "one")])),
    ("a broker resource is no int32", ValueError, lambda a: a.describe_configs([ConfigResource(ResourceType.BROKER, "2147483648")])),
    ("a logger resource has no broker", ValueError, lambda a: a.describe_configs([ConfigResource(ResourceType.BROKER_LOGGER, "")])),
    ("a topic resource has no name", ValueError, lambda a: a.describe_configs([ConfigResource(ResourceType.TOPIC, "")])),
    ("names are one string", TypeError, lambda a: a.describe_configs([TOPIC], names="retention.ms")),
    ("a name is empty", ValueError, lambda a: a.describe_configs([TOPIC], names=[""])),
    ("a component of quotas is unknown", ValueError, lambda a: a.describe_client_quotas({"client-id": "a"})),
    ("a component of quotas is a number", TypeError, lambda a: a.describe_client_quotas({"user": 1})),
    ("an entity of quotas is a name", TypeError, lambda a: a.alter_client_quotas({"a": {"producer_byte_rate": 1}})),
    ("an entity of quotas is nobody", ValueError, lambda a: a.alter_client_quotas({QuotaEntity(): {"producer_byte_rate": 1}})),
    ("a quota is a text", TypeError, lambda a: a.alter_client_quotas({QuotaEntity(user="a"): {"producer_byte_rate": "1"}})),
    ("a quota is a bool", TypeError, lambda a: a.alter_client_quotas({QuotaEntity(user="a"): {"producer_byte_rate": True}})),
    ("a user is bytes", TypeError, lambda a: a.describe_user_scram_credentials([b"a"])),
    ("a user is empty", ValueError, lambda a: a.alter_user_scram_credentials({"": {"SCRAM-SHA-256": None}})),
    ("a mechanism is unknown", ValueError, lambda a: a.alter_user_scram_credentials({"a": {"PLAIN": None}})),
    ("a credential is a text", TypeError, lambda a: a.alter_user_scram_credentials({"a": {"SCRAM-SHA-256": "x"}})),
    ("a password is empty", ValueError, lambda a: a.alter_user_scram_credentials({"a": {"SCRAM-SHA-256": ScramPassword("")}})),
    ("too many iterations", ValueError, lambda a: a.alter_user_scram_credentials({"a": {"SCRAM-SHA-256": ScramPassword("x", 16385)}})),
    ("changes are a list", TypeError, lambda a: a.incremental_alter_configs([TOPIC])),
    ("a change is a pair", TypeError, lambda a: a.incremental_alter_configs({TOPIC: [("retention.ms", "1")]})),
    ("a value is a number", TypeError, lambda a: a.incremental_alter_configs({TOPIC: [ConfigChange("retention.ms", 1)]})),  # type: ignore[arg-type]
    ("nothing to set", ValueError, lambda a: a.incremental_alter_configs({TOPIC: [ConfigChange("retention.ms")]})),
    ("a value of a mapping is a number", TypeError, lambda a: a.incremental_alter_configs({TOPIC: {"retention.ms": 1}})),
    (
        "a value to delete",
        ValueError,
        lambda a: a.incremental_alter_configs({TOPIC: [ConfigChange("retention.ms", "1", AlterOperation.DELETE)]}),
    ),
]


@pytest.mark.parametrize(("kind", "call"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
async def test_a_wrong_argument_is_refused_before_anything_is_sent(
    cluster: ScriptedCluster, kind: type[Exception], call: Callable[[Any], Any]
) -> None:
    (broker,) = cluster.add(1)
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(kind):
        call(admin)
    async with AsyncAdminClient(cluster.bootstrap) as asynchronous:
        with pytest.raises(kind):
            await call(asynchronous)
    assert broker.connections == 0


@pytest.mark.parametrize(
    ("settings", "kind", "says"),
    [
        ({"bootstrap_servers": ""}, ValueError, "is empty"),
        ({"bootstrap_servers": []}, ValueError, "is empty"),
        ({"bootstrap_servers": [1]}, TypeError, "must be strings"),
        ({"bootstrap_servers": 9092}, TypeError, "bootstrap_servers"),
        ({"bootstrap_servers": "host:port"}, ValueError, "'host:port' is not HOST:PORT"),
        ({"bootstrap_servers": "host:0"}, ValueError, "not HOST:PORT"),
        ({"bootstrap_servers": "host:70000"}, ValueError, "not HOST:PORT"),
        ({"client_id": None}, TypeError, "client_id"),
        ({"request_timeout_ms": 0}, ValueError, "request_timeout_ms"),
        ({"request_timeout_ms": "5"}, TypeError, "request_timeout_ms"),
        ({"security_protocol": "TLS"}, ValueError, "security_protocol must be one of PLAINTEXT, SSL"),
        ({"security_protocol": "SASL_SSL"}, ValueError, "sasl_mechanism must be one of"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "NONE"}, ValueError, "not 'NONE'"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}, ValueError, "SCRAM-SHA-512, OAUTHBEARER, not 'GSSAPI'"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, ValueError, "sasl_plain_username must be set for PLAIN"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "a"}, ValueError,
            "sasl_plain_password must be set",
        ),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, ValueError, "sasl_oauth_token_provider must be set"),
        ({"proxy_url": "ftp://host:1"}, ValueError, "proxy_url must be a host and a port after one of http://, socks4://"),
        ({"proxy_url": "http://host"}, ValueError, "proxy_url must be"),
        ({"proxy_url": "http://host:port"}, ValueError, "proxy_url must be"),
        ({"bootstrap_servers": "[::1"}, ValueError, "not HOST:PORT"),
        ({"bootstrap_servers": "host:1:2"}, ValueError, "not HOST:PORT"),
        ({"bootstrap_servers": ":9092"}, ValueError, "not HOST:PORT"),
        ({"bootstrap_servers": "host:"}, ValueError, "not HOST:PORT"),
        ({"security_protocol": "SSL", "ssl_cafile": "/no/such/file"}, ValueError, "ssl_cafile: '/no/such/file' cannot be read"),
        ({"bootstrap_server": "host:9092"}, TypeError, "unknown settings: bootstrap_server"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], kind: type[Exception], says: str) -> None:
    for client in (AdminClient, AsyncAdminClient):
        with pytest.raises(kind, match=says):
            client(**settings)


def test_several_servers_may_be_named_in_one_string_or_in_a_list_with_and_without_port() -> None:
    for servers in ("a:1, b:2,,c", ["a:1", "b:2", "c:9092", "PLAINTEXT://a:1"]):
        client = AdminClient(servers)
        assert client._inner._io._settings.bootstrap == (("a", 1), ("b", 2), ("c", 9092))
    client = AdminClient("::1,[::2],[fe80::3%eth0]:94")
    assert client._inner._io._settings.bootstrap == (("::1", 9092), ("::2", 9092), ("fe80::3%eth0", 94))


def test_kafka_pythons_partition_finds_the_outcome_of_ours() -> None:
    from kafka import TopicPartition as Theirs

    from klamm.admin import PartitionResult, TopicPartition

    assert PartitionResult({TopicPartition("a", 0): None}).values() == {Theirs("a", 0): None}
    PartitionResult({TopicPartition("a", 0): None}).partition_result(Theirs("a", 0))


def test_a_change_without_a_value_says_how_to_delete(cluster: ScriptedCluster) -> None:
    cluster.add(1)
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(ValueError) as refused:
        admin.incremental_alter_configs({TOPIC: [ConfigChange("retention.ms")]})
    deletion = 'ConfigChange("retention.ms", operation=AlterOperation.DELETE)'
    assert str(refused.value) == f"retention.ms: SET needs a value; to delete it: {deletion}"


def test_changes_as_a_mapping_set_values_and_delete_those_without(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(ApiKey.INCREMENTAL_ALTER_CONFIGS, _altered)
    with AdminClient(cluster.bootstrap) as admin:
        admin.incremental_alter_configs({TOPIC: {"retention.ms": "1000", "cleanup.policy": None}}).all()
    (body,) = broker.bodies(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    (resource,) = body.resources
    operations = AlterOperation.SET, AlterOperation.DELETE
    assert [tuple(config) for config in resource.configs] == [
        ("retention.ms", operations[0], "1000"),
        ("cleanup.policy", operations[1], None),
    ]


def _altered(body: Any, _version: int) -> Any:
    row = messages.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return messages.IncrementalAlterConfigsResponse(
        responses=[row(resource_type=each.resource_type, resource_name=each.resource_name) for each in body.resources]
    )
