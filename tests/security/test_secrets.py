"""No password, token or salted password of a client or broker is in any file of a journal or in a log, whatever the client does."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from pathlib import Path

import pytest

from klamm.protocol import messages
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.made_security import MadeSecurity, make_security, scram_configs
from klamm.tests.harness.waits import eventually
from klamm.tests.security import exchanges
from klamm.tests.security.exchanges import Authenticate, Handshake, Scram, Wire

OTHER = "the-password-of-eve"
WRONG = "a-password-that-is-wrong"
USER = "a-user-with-a-long-name"
PROOF = re.compile(rb",p=[A-Za-z0-9+/]{40}")
"""In the last message of a SCRAM client. Two or three bytes alone occur by chance."""


async def _clients(port: int, mechanism: str) -> None:
    """Clients with right and wrong passwords, with and without headers, whole and in pieces."""
    for version in (0, 1):
        for password in (exchanges.PASSWORD, WRONG):
            wire = await exchanges.connected(port)
            await wire.ask(Handshake(mechanism=mechanism), version)
            await (_plain if mechanism == "PLAIN" else _scram)(wire, version, password)
            await wire.ask(messages.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
            wire.close()


async def _plain(wire: Wire, version: int, password: str) -> None:
    token = f"\0{USER}\0{password}".encode()
    if version:
        await wire.ask(Authenticate(auth_bytes=token), 2)
    else:
        wire.raw(len(token).to_bytes(4, "big") + token[:9])
        await asyncio.sleep(0)
        wire.raw(token[9:])
        await wire.answer_token()


async def _scram(wire: Wire, version: int, password: str) -> None:
    client = Scram("sha512", USER, password)
    if version:
        challenge = await wire.ask(Authenticate(auth_bytes=client.first()), 2)
        await wire.ask(Authenticate(auth_bytes=client.final(challenge.auth_bytes)), 2)
    else:
        wire.token(client.first())
        wire.token(client.final(await wire.answer_token() or b""))
        await wire.answer_token()


def _made(folder: Path, mechanism: str) -> MadeSecurity:
    made = make_security(folder, "127.0.0.1", tls=False, mechanism=mechanism, now_ms=0)
    made.users[USER] = scram_configs(exchanges.PASSWORD)
    jaas = next(name for name in made.config if name.endswith("jaas.config"))
    if mechanism == "PLAIN":
        made.config[jaas] = made.config[jaas].replace(";", f' user_{USER}="{exchanges.PASSWORD}";')
    return made


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_secrets_are_nowhere(
    zookeeper: str, chroot: str, tmp_path: Path, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = _made(tmp_path / "security", mechanism)
    journal = {"klamm.journal.dir": str(tmp_path / "lake"), "klamm.journal.run": "r"}
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config=made.config | journal, users=made.users)
    salted = hashlib.pbkdf2_hmac("sha512", OTHER.encode(), b"salt", 4096)
    with caplog.at_level(logging.DEBUG):
        await cluster.start()
        try:
            controller = next(broker for broker in cluster.brokers if broker.id == cluster.controller_id)
            await _clients(cluster.addresses[0][2], mechanism)
            request = messages.AlterUserScramCredentialsRequest
            change = request(deletions=[], upsertions=[request.ScramCredentialUpsertion("eve", 2, 4096, b"salt", salted)])
            wire = await exchanges.connected(next(port for number, _, port in cluster.addresses if number == controller.id))
            await wire.ask(Handshake(mechanism=mechanism), 1)
            await (_plain if mechanism == "PLAIN" else _scram)(wire, 1, exchanges.PASSWORD)
            response = await wire.ask(change, 0)
            assert [row.error_code for row in response.results] == [0]
            wire.close()
            await eventually(lambda: controller.listeners.users.find("SCRAM-SHA-512", "eve") is not None, "the user is known")
            credential = controller.listeners.users.find("SCRAM-SHA-512", "eve")
            assert credential is not None
        finally:
            await cluster.stop()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "lake").rglob("*") if path.is_file()) + caplog.text.encode()
    assert USER.encode() in kept, "the journals and logs have been read"
    for secret in (
        exchanges.PASSWORD.encode(), WRONG.encode(), made.client["sasl.password"].encode(), OTHER.encode(), salted,
        credential.stored_key, credential.server_key,
    ):
        assert secret not in kept, secret
    assert not PROOF.search(kept), "the proof of a SCRAM client"
