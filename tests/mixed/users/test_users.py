"""Users of SCRAM in a cluster of both kinds: whoever stores them, all describe them, and a broker of Kafka lets them in."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.tests.harness.client import Client
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.reference]

KAFKA, KLAMM = 1, 2
SHA_256, SHA_512 = 1, 2
ITERATIONS = 4096
Request = messages.AlterUserScramCredentialsRequest


def settings_of(broker_id: int) -> dict[str, Any]:
    """The broker of Kafka has a listener for users of SCRAM as well."""
    if broker_id != KAFKA:
        return {}
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},OUTER://127.0.0.1:{free_port()}",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OUTER:SASL_PLAINTEXT",
        "inter_broker_listener_name": "PLAINTEXT",
        "listener_name_outer_sasl_enabled_mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener_name_outer_scram-sha-256_sasl_jaas_config": login,
        "listener_name_outer_scram-sha-512_sasl_jaas_config": login,
    }


def upsertion(user: str, mechanism: int, password: bytes) -> Request.ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac({SHA_256: "sha256", SHA_512: "sha512"}[mechanism], password, b"salt", ITERATIONS)
    return Request.ScramCredentialUpsertion(user, mechanism, ITERATIONS, b"salt", salted)


def alter(members: Members, *upsertions: Any, deletions: tuple[tuple[str, int], ...] = ()) -> None:
    """Ask the controller; all must succeed."""
    asked = Request(deletions=[Request.ScramCredentialDeletion(*each) for each in deletions], upsertions=list(upsertions))
    results = members.ask(asked, 0).results
    assert results and {(row.error_code, row.error_message) for row in results} == {(0, "")}


def described(members: Members) -> dict[str, list[tuple[int, int]]]:
    """User → (mechanism, iterations) of its credentials, in which both kinds of brokers agree."""
    answers = []
    for broker in (KAFKA, KLAMM):
        answer = members.ask(messages.DescribeUserScramCredentialsRequest(users=None), 0, broker)
        assert answer.error_code == 0 and {row.error_code for row in answer.results} <= {0}
        answers.append({row.user: [(info.mechanism, info.iterations) for info in row.credential_infos] for row in answer.results})
    assert answers[0] == answers[1]
    return answers[0]


async def _exchange(port: int, user: str, mechanism: int, password: bytes) -> bool:
    """RFC 5802, as a client; checks the server's signature, too."""
    digest, name = {SHA_256: ("sha256", "SCRAM-SHA-256"), SHA_512: ("sha512", "SCRAM-SHA-512")}[mechanism]
    client, first = Client("127.0.0.1", port), f"n={user},r=nonce"
    try:
        assert (await client.ask(messages.SaslHandshakeRequest(mechanism=name), 1)).error_code == 0
        challenge = await client.ask(messages.SaslAuthenticateRequest(auth_bytes=f"n,,{first}".encode()), 1)
        if challenge.error_code:
            return False
        server_first = challenge.auth_bytes.decode()
        nonce, salt, iterations = (part[2:] for part in server_first.split(","))
        auth = f"{first},{server_first},c=biws,r={nonce}".encode()
        salted = hashlib.pbkdf2_hmac(digest, password, base64.b64decode(salt), int(iterations))
        key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, key).digest(), auth, digest)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        final = await client.ask(messages.SaslAuthenticateRequest(auth_bytes=f"c=biws,r={nonce},p={proof}".encode()), 1)
        if final.error_code:
            return False
        wanted = hmac.digest(hmac.digest(salted, b"Server Key", digest), auth, digest)
        assert final.auth_bytes == b"v=" + base64.b64encode(wanted)
        return True
    finally:
        await client.close()


def gets_in(members: Members, user: str, mechanism: int, password: bytes) -> bool:
    """Whether this user may connect to the broker of Kafka."""
    port = int(members.brokers[KAFKA].address("OUTER").rpartition(":")[2])
    return asyncio.run(_exchange(port, user, mechanism, password))


def test_a_user_that_either_kind_stored_is_described_by_both_and_let_in_by_kafka(members: Members) -> None:
    members.settings_of = (lambda given: lambda broker_id: given(broker_id) | settings_of(broker_id))(members.settings_of)
    members.kafka(KAFKA)
    members.klamm(KLAMM)
    assert not gets_in(members, "a b", SHA_256, b"secret")

    members.office(KLAMM)
    alter(members, upsertion("a b", SHA_256, b"secret"), upsertion("both", SHA_256, b"old"))
    of_klamm = members.tree.get("/config/users/a%20b")
    wait_for(lambda: gets_in(members, "a b", SHA_256, b"secret"), "a user of Klamm gets in")
    assert not gets_in(members, "a b", SHA_256, b"other")
    assert described(members) == {"a b": [(SHA_256, ITERATIONS)], "both": [(SHA_256, ITERATIONS)]}

    members.office(KAFKA)
    alter(members, upsertion("both", SHA_512, b"new"), upsertion("of kafka", SHA_512, b"x"), upsertion("a b", SHA_256, b"secret"))
    assert members.tree.get("/config/users/a%20b") == of_klamm
    assert described(members)["both"] == [(SHA_256, ITERATIONS), (SHA_512, ITERATIONS)]

    members.office(KLAMM)
    alter(members, upsertion("both", SHA_512, b"newer"), deletions=(("both", SHA_256), ("of kafka", SHA_512)))
    wait_for(lambda: gets_in(members, "both", SHA_512, b"newer"), "the new password counts")
    wait_for(lambda: not gets_in(members, "both", SHA_256, b"old"), "the old credential is gone")
    assert described(members) == {"a b": [(SHA_256, ITERATIONS)], "both": [(SHA_512, ITERATIONS)]}

    members.office(KAFKA)
    alter(members, deletions=(("both", SHA_512), ("a b", SHA_256)))
    assert described(members) == {} and members.tree.children("/config/users") == []
    wait_for(lambda: not gets_in(members, "a b", SHA_256, b"secret"), "nobody gets in any more")
