"""By which doors does a secret get out? Clients send every kind of secret to a secured cluster; then it is looked for wherever frames,
errors and states are shown or kept.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from klamm.control.history import as_json
from klamm.control.verbs.routes import ROUTES
from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.protocol import messages
from klamm.server.local.made_security import make_security
from klamm.testing.request import Request
from klamm.tests.control.api import Api
from klamm.tests.security import exchanges
from klamm.tests.security.exchanges import Authenticate, Handshake, Scram, Wire

SALTED = hashlib.pbkdf2_hmac("sha256", b"CANARY-scram", b"CANARYsaltsalt", 4096)
OAUTH = "OAUTHBEARER"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" {}assword=\"CANARY-jaas\";"


class Secrets:
    """What was sent and what was received, by what it is."""

    def __init__(self, password: str) -> None:
        self.sent: dict[str, bytes] = {"password of the administrator": password.encode(), "salted password": SALTED}

    def __call__(self, what: str, text: str = "") -> bytes:
        """A new secret."""
        self.sent[what] = (text or f"CANARY-{what.replace(' ', '-')}").encode()
        return self.sent[what]

    def seen_in(self, data: bytes) -> list[str]:
        """Which of them are in these bytes: clear, hexadecimal, or in base64."""
        return [what for what, secret in self.sent.items() if any(form in data for form in _forms(secret))]


def _forms(secret: bytes) -> list[bytes]:
    shifted = (base64.b64encode(b"\0" * shift + secret)[4:-4] for shift in (1, 2))
    return [secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")[:-2], *(form for form in shifted if len(form) > 12)]


async def _odd_clients(port: int, secrets: Secrets) -> None:
    """Clients that authenticate wrongly, early, or with their password at a wrong place."""
    tokens = {
        "wrong password": b"\0admin\0", "authorization id": b"", "user": b"\0", "one NUL too many": b"x\0y\0z\0",
        "bare after version 1": b"\0admin\0",
    }
    for what, before in tokens.items():
        wire = await exchanges.connected(port)
        await wire.ask(Handshake(mechanism="PLAIN"), 1)
        token = before + secrets(what) + (b"\0a\0b" if not before.endswith(b"admin\0") else b"")
        if what.startswith("bare"):
            wire.token(token)
            await wire.end()
        else:
            await wire.ask(Authenticate(auth_bytes=token), 2)
        wire.close()
    for version, mechanism in ((0, "PLAIN"), (1, secrets("mechanism").decode())):
        wire = await exchanges.connected(port)
        await wire.ask(Handshake(mechanism=mechanism), version)
        wire.token(b"\0admin\0" + secrets(f"bare after {mechanism[:5]}"))
        await wire.end()
        wire.close()
    wire = await exchanges.connected(port)
    wire.token(b"\0admin\0" + secrets("first frame"))
    await wire.end()
    wire.close()
    wire = await exchanges.connected(port)
    scram = Scram("sha256", "admin", "CANARY-scram")
    wire.token(scram.first())
    await wire.end()
    wire.close()


async def _administrator(port: int, password: str, secrets: Secrets) -> None:
    wire = await exchanges.connected(port)
    await wire.ask(Handshake(mechanism="PLAIN"), 1)
    assert (await wire.ask(Authenticate(auth_bytes=f"\0admin\0{password}".encode()), 2)).error_code == 0
    upserted = messages.AlterUserScramCredentialsRequest
    await wire.ask(upserted(deletions=[], upsertions=[upserted.ScramCredentialUpsertion("sam", 1, 4096, b"CANARYsaltsalt", SALTED)]), 0)
    made = await wire.ask(messages.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 2)
    assert made.error_code == 0
    secrets.sent["HMAC"] = bytes(made.hmac)
    await wire.ask(messages.DescribeDelegationTokenRequest(owners=None), 2)
    await wire.ask(messages.RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1000), 2)
    await wire.ask(messages.ExpireDelegationTokenRequest(hmac=secrets("unknown HMAC"), expiry_time_period_ms=-1), 2)
    await _configs(wire, secrets)
    wire.close()


async def _configs(wire: Wire, secrets: Secrets) -> None:
    listener = "listener.name.sasl_plaintext"
    jaas = JAAS.format("p"), JAAS.format("p p")
    values = {
        "ssl.keystore.password": "", f"{listener}.ssl.key.password": "", "my.own.secret": "", "ssl.keystore.key": "",
        f"{listener}.plain.sasl.jaas.config": jaas[0], f"{listener}.scram-sha-256.sasl.jaas.config": jaas[1],
    }
    secrets("jaas", "CANARY-jaas")
    for api in ("IncrementalAlterConfigs", "AlterConfigs"):
        kind: Any = getattr(messages, f"{api}Request")
        for number, (name, value) in enumerate(values.items()):
            text = value or secrets(f"{api} {number}").decode()
            for resource, of in ((4, "1"), (2, "nothing")):
                configs = [kind.AlterableConfig(name=name, value=text)]
                row = kind.AlterConfigsResource(resource_type=resource, resource_name=of, configs=configs)
                await wire.ask(kind(resources=[row]), 1)
    top = messages.CreateTopicsRequest
    config = top.CreatableTopicConfig(name="ssl.key.password", value=secrets("config of a new topic").decode())
    await wire.ask(top(topics=[top.CreatableTopic(name="x", num_partitions=1, replication_factor=1, configs=[config])], timeout_ms=100), 7)
    describe = messages.DescribeConfigsRequest
    asked = describe.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    answer = await wire.ask(describe(resources=[asked]), 4)
    assert secrets.seen_in(repr(answer).encode()) == []


class Secured:
    """A secured cluster to which all secrets were sent."""

    def __init__(self, cluster: SteeredCluster, lake: Path, secrets: Secrets, events: list[Any]) -> None:
        self.cluster, self.lake, self.secrets, self.events = cluster, lake, secrets, events


@pytest_asyncio.fixture
async def secured(zookeeper: str, chroot: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Secured]:
    made = make_security(tmp_path / "security", "127.0.0.1", tls=False, mechanism="PLAIN", now_ms=0)
    own = {
        "klamm.journal.dir": str(tmp_path / "lake"), "klamm.journal.run": "r", "delegation.token.secret.key": "CANARY-master-key",
        "password.encoder.secret": "CANARY-encoder",
    }
    caplog.set_level(logging.DEBUG)
    cluster = SteeredCluster(1, zookeeper=zookeeper + chroot, config=made.config | own)
    secrets = Secrets(made.client["sasl.password"])
    secrets("secret key of tokens", own["delegation.token.secret.key"])
    secrets("secret of the encoder", own["password.encoder.secret"])
    await cluster.start()
    try:
        port = cluster.addresses[0][2]
        await _odd_clients(port, secrets)
        await _administrator(port, made.client["sasl.password"], secrets)
        yield Secured(cluster, tmp_path / "lake", secrets, list(cluster.control.events.since(0)))
    finally:
        await cluster.stop()


def _lake(lake: Path) -> bytes:
    return b"".join(path.read_bytes() for path in lake.rglob("*") if path.is_file())


async def test_no_door_shows_a_secret(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    import aiohttp

    doors: dict[str, bytes] = {"events": repr(secured.events).encode()}
    async with aiohttp.ClientSession() as session:
        api = Api(session, secured.cluster)
        for route in ROUTES:
            if route.method == "GET" and not route.names:
                doors[route.path] = json.dumps(await api.get(route.path + ("?limit=1000" if route.path == "/requests" else ""))).encode()
        doors["/brokers/1"] = json.dumps(await api.get("/brokers/1")).encode()
    kept = list(secured.cluster.requests.newest())
    doors["history"] = b"".join(each.request + (each.response or b"") + json.dumps(as_json(each)).encode() for each in kept)
    requests = [Request(each) for each in kept]
    doors["requests of a test"] = "".join(f"{each} {each.request} {each.response} {each.as_json()}" for each in requests).encode()
    await secured.cluster.stop()
    doors["journal"] = _lake(secured.lake)
    doors["log"] = caplog.text.encode()
    assert len(secured.secrets.sent) >= 25 and all(doors.values())
    assert b"SaslAuthenticate" in doors["/requests"] and b"IncrementalAlterConfigs" in doors["history"]
    assert _leaks(secured.secrets, doors) == {}


def _leaks(secrets: Secrets, doors: Mapping[str, bytes]) -> dict[str, list[str]]:
    return {door: seen for door, data in doors.items() if (seen := secrets.seen_in(data))}


@pytest.mark.slow
async def test_no_command_shows_a_secret(secured: Secured, tmp_path: Path) -> None:
    control = str(secured.cluster.control_url)
    doors = {}
    command: tuple[str, ...]
    for command in (("control", "requests", "--control", control), ("control", "requests", "--control", control, "--json")):
        doors[" ".join(command)] = await _said(*command)
    await secured.cluster.stop()
    for command in (("journal", "tail", str(secured.lake)), ("journal", "export", str(secured.lake))):
        doors[" ".join(command)] = await _said(*command)
    assert all(len(data) > 1000 for data in doors.values())
    assert _leaks(secured.secrets, doors) == {}


async def _said(*command: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "klamm", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return said
