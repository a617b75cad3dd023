"""Requests about security and features, of kafka-python and confluent-kafka: users of SCRAM are kept, all else is refused as by Kafka."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.admin import ACL, ACLFilter, KafkaAdminClient, ResourcePattern
from kafka.admin import ACLOperation as Operation
from kafka.admin import ACLPermissionType as Permission
from kafka.admin import ResourceType as Type
from kafka.errors import SecurityDisabledError

from klamm.tests.clients.served import Served

WITHIN_S = 30


@pytest.fixture
def confluent(served: Served) -> AdminClient:
    return AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 3})


@pytest.fixture
def python(served: Served) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=served.bootstrap, client_id="admin", request_timeout_ms=20_000)
    yield client
    client.close()


def code(failure: pytest.ExceptionInfo[KafkaException]) -> int:
    number: int = failure.value.args[0].code()
    return number


def alter(client: AdminClient, *alterations: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    for future in client.alter_user_scram_credentials(list(alterations)).values():
        future.result(WITHIN_S)


def test_users_of_scram_live_from_their_first_credential_to_their_last(
    confluent: AdminClient, python: KafkaAdminClient, served: Served
) -> None:
    first, second = (ScramCredentialInfo(kind, 5000) for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512))
    alter(confluent, UserScramCredentialUpsertion("al ice", first, b"secret", b"salt"), UserScramCredentialUpsertion("bob", second, b"x"))
    alter(confluent, UserScramCredentialUpsertion("al ice", second, b"secret"))
    stored = served.tree.json("/config/users/al%20ice")["config"]
    assert stored.keys() == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 5000)
    server_key = base64.b64encode(hmac.digest(salted, b"Server Key", "sha256")).decode()
    assert f"server_key={server_key}," in stored["SCRAM-SHA-256"]

    futures: Any = confluent.describe_user_scram_credentials(["al ice"])
    described = futures["al ice"].result(WITHIN_S)
    assert [(info.mechanism, info.iterations) for info in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 5000),
        (ScramMechanism.SCRAM_SHA_512, 5000),
    ]
    assert {user: len(row["credential_infos"]) for user, row in python.describe_user_scram_credentials().items()} == {"al ice": 2, "bob": 1}
    assert "does not exist: nobody" in python.describe_user_scram_credentials(["nobody"])["nobody"]["error"]

    with pytest.raises(KafkaException) as missing:
        alter(confluent, UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256))
    assert code(missing) == KafkaError.RESOURCE_NOT_FOUND
    with pytest.raises(KafkaException) as weak:
        alter(confluent, UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 9), b"x"))
    assert code(weak) == KafkaError.UNACCEPTABLE_CREDENTIAL

    for user, kind in (("al ice", 1), ("al ice", 2), ("bob", 2)):
        alter(confluent, UserScramCredentialDeletion(user, ScramMechanism(kind)))
    assert python.describe_user_scram_credentials() == {}
    assert served.tree.children("/config/users") == []


def test_acls_are_refused(confluent: AdminClient, python: KafkaAdminClient) -> None:
    topic, literal = ResourceType.TOPIC, ResourcePatternType.LITERAL
    binding = AclBinding(topic, "orders", literal, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
    anyone: Any = None
    anything = AclBindingFilter(ResourceType.ANY, anyone, ResourcePatternType.ANY, anyone, anyone, AclOperation.ANY, AclPermissionType.ANY)
    assert confluent.describe_acls(anything).result(WITHIN_S) == []  # librdkafka drops the code, also that of a real Kafka
    for futures in (confluent.create_acls([binding]).values(), confluent.delete_acls([anything]).values()):
        (future,) = futures
        with pytest.raises(KafkaException) as refused:
            future.result(WITHIN_S)
        assert code(refused) == KafkaError.SECURITY_DISABLED
    some = ACLFilter(None, "*", Operation.ANY, Permission.ANY, ResourcePattern(Type.TOPIC, "orders"))
    with pytest.raises(SecurityDisabledError):
        python.describe_acls(some)
    created = python.create_acls([ACL("User:a", "*", Operation.READ, Permission.ALLOW, ResourcePattern(Type.TOPIC, "orders"))])
    assert created["succeeded"] == [] and created["failed"] == [SecurityDisabledError]
    assert [each[2] for each in python.delete_acls([some])] == [SecurityDisabledError]


def test_features_are_not_updated(python: KafkaAdminClient, served: Served) -> None:
    updated = python.update_features({"fa": 1, "fb": ("SAFE_DOWNGRADE", 0)})
    assert "is not supported" in updated["fa"] and "non-existing" in updated["fb"]
    assert served.tree.json("/feature")["features"] == {}
