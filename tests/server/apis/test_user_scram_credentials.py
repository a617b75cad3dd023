"""SCRAM credentials of users where the stories cannot look: without permission, controller or session; and their text, by the RFC."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.services import AdminStore
from klamm.server.security.authorizer import Operation
from klamm.server.security.sasl.scram_credentials import MECHANISMS, credential_text, iterations_of
from klamm.tests.services import Denying, InactiveController, LostStore, make_services, respond
from klamm.zk.admin import AdminZk
from klamm.zk.session.session import ZkSession

Alter, Describe = messages.AlterUserScramCredentialsRequest, messages.DescribeUserScramCredentialsRequest
UPSERTION = Alter.ScramCredentialUpsertion("alice", 1, 4096, b"salt", b"salted password")
ALTERATION = Alter(deletions=[Alter.ScramCredentialDeletion("bob", 1)], upsertions=[UPSERTION, UPSERTION._replace(mechanism=2)])
ALICE = Alter(deletions=[], upsertions=[UPSERTION])


class Active(InactiveController):
    """A controller that takes itself for the active one."""

    def __init__(self) -> None:
        super().__init__()
        self.is_active = True


@pytest.fixture
async def session(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    """A session on a tree with the paths that brokers make, without a controller."""
    one = ZkSession(zookeeper + chroot, 10_000)
    await one.start(10_000)
    await AdminZk(one).ensure_paths()
    yield one
    await one.stop()


async def altered(request: Any, store: AdminStore | None = None, **services: Any) -> dict[str, tuple[int, str | None]]:
    response = await respond(make_services(admin_store=store or LostStore(), controller=Active(), **services), request, 0)
    assert len({row.user for row in response.results}) == len(response.results)
    return {row.user: (row.error_code, row.error_message) for row in response.results}


async def test_credentials_are_altered_with_alter_on_the_cluster_only() -> None:
    refused = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    denying = Denying((Operation.ALTER, "kafka-cluster"))
    assert await altered(ALTERATION, authorizer=denying) == {"alice": refused, "bob": refused}


async def test_credentials_are_described_with_describe_on_the_cluster_only() -> None:
    services = make_services(admin_store=LostStore(), authorizer=Denying((Operation.DESCRIBE, "kafka-cluster")))
    response = await respond(services, Describe(users=None), 0)
    assert (response.error_code, [row.user for row in response.results]) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [""])


async def test_a_broker_that_is_not_the_controller_reads_and_writes_nothing() -> None:
    response = await respond(make_services(admin_store=LostStore()), ALTERATION, 0)
    rows = [(row.user, row.error_code, row.error_message) for row in response.results]
    assert rows == [("alice", ErrorCode.NOT_CONTROLLER, None), ("bob", ErrorCode.NOT_CONTROLLER, None)]


async def test_users_fail_one_by_one_while_nobody_is_controller(session: ZkSession) -> None:
    store = AdminZk(session)
    results = await altered(ALTERATION, store)
    assert results["alice"] == (ErrorCode.STALE_CONTROLLER_EPOCH, "The controller moved to another broker.")
    assert results["bob"][0] == ErrorCode.RESOURCE_NOT_FOUND
    assert await store.config_names("users") == await session.children("/config/changes") == []


async def test_what_was_written_is_described(session: ZkSession) -> None:
    await session.create("/controller", b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}')
    store = AdminZk(session)
    assert await altered(ALICE, store) == {"alice": (ErrorCode.NONE, "")}
    response = await respond(make_services(admin_store=store), Describe(users=[]), 0)
    (row,) = response.results
    assert (row.user, [(info.mechanism, info.iterations) for info in row.credential_infos]) == ("alice", [(1, 4096)])
    stored = await store.read_config("users", "alice")
    assert stored == {"SCRAM-SHA-256": credential_text(MECHANISMS[1], b"salt", b"salted password", 4096)}


async def test_each_user_has_one_result_and_nothing_of_one_that_fails_is_written(session: ZkSession) -> None:
    await session.create("/controller", b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}')
    store = AdminZk(session)
    await store.write_config("users", "rich", {"producer_byte_rate": "7"})
    named = UPSERTION._replace
    request = Alter(
        deletions=[Alter.ScramCredentialDeletion("rich", 2), Alter.ScramCredentialDeletion("twice", 1)],
        upsertions=[
            named(name="least", iterations=4096), named(name="most", iterations=16384), named(name="few", iterations=4095),
            named(name="many", iterations=16385), named(name="twice"), named(name="half"), named(name="half", mechanism=3),
            named(name="rich"), named(name=""),
        ],
    )
    codes = {user: ErrorCode(code).name for user, (code, _) in (await altered(request, store)).items()}
    assert codes == {
        "least": "NONE", "most": "NONE", "few": "UNACCEPTABLE_CREDENTIAL", "many": "UNACCEPTABLE_CREDENTIAL", "twice": "DUPLICATE_RESOURCE",
        "half": "UNSUPPORTED_SASL_MECHANISM", "rich": "RESOURCE_NOT_FOUND", "": "UNACCEPTABLE_CREDENTIAL",
    }
    assert sorted(await store.config_names("users")) == ["least", "most", "rich"]
    assert (await altered(Alter(deletions=[], upsertions=[named(name="rich")]), store))["rich"][0] == ErrorCode.NONE
    stored = await store.read_config("users", "rich")
    assert stored is not None and stored.keys() == {"producer_byte_rate", "SCRAM-SHA-256"} and stored["producer_byte_rate"] == "7"


def test_a_credential_proves_what_the_client_of_rfc_7677_sent() -> None:
    """Section 3: user, password pencil, 4096 iterations. The stored keys verify its proof, and sign as its server did."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    text = credential_text(MECHANISMS[1], salt, salted, 4096)
    fields = dict(field.split("=", 1) for field in text.split(","))
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    auth = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    stored_key = base64.b64decode(fields["stored_key"])
    signature = hmac.digest(stored_key, auth, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored_key
    server_signature = hmac.digest(base64.b64decode(fields["server_key"]), auth, "sha256")
    assert base64.b64encode(server_signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert list(fields) == ["salt", "stored_key", "server_key", "iterations"] and iterations_of(text) == 4096
