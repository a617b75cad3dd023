"""What a peer can do before it is authenticated: bad certificates, floods, odd names and arbitrary bytes. Others are served meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from klamm.configs.listeners import ListenerProperties
from klamm.protocol import messages
from klamm.server.broker_server import BrokerServer
from klamm.server.listeners import tls
from klamm.server.local.made_security import certificate, hosts_of
from klamm.server.security.tls.contexts import client_context
from klamm.tests.harness.waits import eventually
from klamm.tests.security.exchanges import VERSIONS, Authenticate, Handshake, connected
from klamm.tests.server import brokers

NOW = datetime.now(UTC)
ODD = ("a b", "ä", "a=b,c", "User:x", "*", "<default>", "a/b", "..", "%2F", "日本", "a'b")
FRAMES = 3_000
"""The budget of frames before authentication."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PEM files: an authority, brokers' and clients' keys that it signed, and some that are bad."""
    made = tmp_path_factory.mktemp("certificates")
    authority = certificate("ca", (), NOW, is_authority=True)
    local = hosts_of("localhost")
    keys = {
        "good": certificate("good", local, NOW, issuer=authority),
        "elsewhere": certificate("elsewhere", ("elsewhere.example",), NOW, issuer=authority),
        "expired": certificate("expired", local, NOW, issuer=authority, days=0),
        "alone": certificate("alone", local, NOW),
        "stranger": certificate("stranger", local, NOW, issuer=certificate("other ca", (), NOW, is_authority=True)),
    }
    for name, (key, own) in keys.items():
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (made / f"{name}.pem").write_bytes(secret + own.public_bytes(Encoding.PEM))
    (made / "ca.pem").write_bytes(authority[1].public_bytes(Encoding.PEM))
    return made


@pytest.fixture
async def broker(zookeeper: str, chroot: str, folder: Path) -> AsyncIterator[BrokerServer]:
    """A broker with listeners of each kind; PLAIN has the odd users."""
    users = " ".join(f'"user_{user}"="{number}-secret"' for number, user in enumerate(ODD))
    properties: dict[str, Any] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0,SSL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SSL:SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": 50,
        "listener.name.sasl.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": folder / "good.pem", "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM", "ssl.truststore.location": folder / "ca.pem",
    }
    made = brokers.node(zookeeper + chroot, 0, **{name.replace(".", "_"): value for name, value in properties.items()})
    await made.start()
    yield made
    await made.close()


def port_of(broker: BrokerServer, name: str) -> int:
    return next(listener.port for listener in broker.listeners if listener.name == name)


class Bystander:
    """A client of the listener without authentication that sends requests all the time; `longest_s` is its longest wait."""

    def __init__(self, port: int) -> None:
        self.longest_s = 0.0
        self.responses = 0
        self._port = port
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        wire = await connected(self._port)
        while True:
            begun = time.monotonic()
            assert (await wire.ask(VERSIONS, 3)).error_code == 0
            self.longest_s = max(self.longest_s, time.monotonic() - begun)
            self.responses += 1
            await asyncio.sleep(0.002)

    async def stop(self) -> None:
        assert not self._task.done(), self._task.exception()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def outgoing(folder: Path, own: str = "good", **more: str) -> ssl.SSLContext:
    """The context of a broker that connects to another one."""
    properties = {
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / f"{own}.pem"),
        "ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "ca.pem"),
    }
    return client_context(ListenerProperties("SSL", "SSL", properties | {name.replace("_", "."): value for name, value in more.items()}))


async def served(port: int, context: ssl.SSLContext) -> str:
    """`served`, or why not."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
        try:
            writer.write(messages.encode_request(18, 0, 1, "test", b""))
            await asyncio.wait_for(reader.readexactly(8), 20)
        finally:
            writer.close()
    except ssl.SSLError as error:
        return error.reason or str(error)
    except (ConnectionError, asyncio.IncompleteReadError):
        return "closed"
    return "served"


@pytest.mark.parametrize(
    ("own", "identification", "outcome"),
    [
        ("good", "https", "served"), ("elsewhere", "https", "CERTIFICATE_VERIFY_FAILED"), ("elsewhere", "", "served"),
        ("expired", "", "CERTIFICATE_VERIFY_FAILED"), ("alone", "", "CERTIFICATE_VERIFY_FAILED"),
        ("stranger", "", "CERTIFICATE_VERIFY_FAILED"),
    ],
)
async def test_a_broker_does_not_trust_another_with_a_bad_certificate(
    zookeeper: str, chroot: str, folder: Path, own: str, identification: str, outcome: str
) -> None:
    properties: dict[str, Any] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl_keystore_type": "PEM",
        "ssl_keystore_location": folder / f"{own}.pem",
    }
    other = brokers.node(zookeeper + chroot, 0, **properties)
    await other.start()
    try:
        assert await served(port_of(other, "SSL"), outgoing(folder, ssl_endpoint_identification_algorithm=identification)) == outcome
    finally:
        await other.close()


@pytest.mark.parametrize(
    ("own", "is_served"), [("good", True), ("elsewhere", True), ("expired", False), ("alone", False), ("stranger", False)]
)
async def test_clients_with_bad_certificates_are_refused_with_one_line(
    broker: BrokerServer, folder: Path, caplog: pytest.LogCaptureFixture, own: str, is_served: bool
) -> None:
    """The host of a client is not compared with its certificate, as in Apache Kafka."""
    outcome = await served(port_of(broker, "SSL"), outgoing(folder, own))
    assert (outcome == "served") is is_served, outcome
    if not is_served:
        await eventually(lambda: any("handshake" in record.getMessage() for record in caplog.records), "the refusal is logged")
        assert [record.exc_info for record in caplog.records if record.exc_info] == []


async def test_a_thousand_open_handshakes_keep_nobody_waiting(broker: BrokerServer, folder: Path) -> None:
    bystander = Bystander(port_of(broker, "PLAINTEXT"))
    opened = []
    for number in range(tls.HANDSHAKES + 100):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker, "SSL"))
        writer.write(b"\x16\x03\x01\x02\x00\x01"[: number % 7])  # a part of a ClientHello
        opened.append((reader, writer))
    assert await served(port_of(broker, "SSL"), outgoing(folder)) == "served"
    listener = next(listener for listener in broker.listeners if listener.name == "SSL")
    assert listener._handshakes is not None and len(listener._handshakes) <= tls.HANDSHAKES
    assert await opened[0][0].read(1) == b"", "the oldest are closed"
    await bystander.stop()
    for _, writer in opened:
        writer.close()
    await eventually(lambda: listener._handshakes is not None and len(listener._handshakes) == 0, "none is left")


async def test_a_flood_of_wrong_passwords_is_refused_and_keeps_nobody_waiting(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bystander = Bystander(port_of(broker, "PLAINTEXT"))
    port, turn = port_of(broker, "SASL"), asyncio.Semaphore(100)

    async def guess(number: int) -> int:
        async with turn:
            wire = await connected(port)
            try:
                await wire.ask(Handshake(mechanism="PLAIN"), 1)
                answer = await wire.ask(Authenticate(auth_bytes=f"\0{ODD[number % len(ODD)]}\0guess-{number}-guess".encode()), 1)
                assert await wire.frame() is None
                return int(answer.error_code)
            finally:
                wire.close()

    assert set(await asyncio.gather(*map(guess, range(300)))) == {58}
    await bystander.stop()
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("klamm")]
    assert not [line for line in lines if "-guess" in line or "-secret" in line]
    assert sum("authentication failed" in line for line in lines) < 50, "the log is limited"


async def test_users_with_odd_names_are_who_they_are(broker: BrokerServer) -> None:
    port = port_of(broker, "SASL")
    for number, user in enumerate(ODD):
        wire = await connected(port)
        await wire.ask(Handshake(mechanism="PLAIN"), 1)
        assert (await wire.ask(Authenticate(auth_bytes=f"\0{user}\0{number}-secret".encode()), 1)).error_code == 0, user
        token = await wire.ask(messages.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        assert token.principal_name == user
        wire.close()


def hostile(draw: random.Random) -> list[bytes]:
    """Frames of one client: good ones of the exchange, changed at random."""
    seeds: Mapping[int, Any] = {
        0: (VERSIONS, 3), 1: (Handshake(mechanism="PLAIN"), 1), 2: (Handshake(mechanism="SCRAM-SHA-256"), draw.randrange(2)),
        3: (Authenticate(auth_bytes=b"\0u\0p"), draw.randrange(3)), 4: (Authenticate(auth_bytes=b"n,,n=u,r=x"), 1),
        5: (messages.MetadataRequest(topics=None), 9),
    }
    frames = []
    for _ in range(draw.randrange(1, 5)):
        message, version = seeds[draw.randrange(len(seeds))]
        key = next(key for key, api in messages.APIS.items() if type(message).__name__ == f"{api.name}Request")
        frame = bytearray(messages.encode_request(key, version, draw.randrange(100), "c", messages.encode(message, version)))
        match draw.randrange(6):
            case 0:
                frame[draw.randrange(len(frame))] = draw.randrange(256)
            case 1:
                frame = frame[: draw.randrange(len(frame))]
            case 2:
                frame[4:4] = draw.randbytes(draw.randrange(20))
            case 3:
                frame[4:] = draw.randbytes(draw.randrange(1, 60))
                frame[:4] = (len(frame) - 4).to_bytes(4, "big")
            case 4:
                frame[:4] = draw.randbytes(4)
            case _:
                pass
        frames.append(bytes(frame))
    return frames


@pytest.mark.parametrize("listener", ["SASL", "SSL", "PLAINTEXT"])
async def test_arbitrary_frames_before_authentication_break_nothing(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture, record_property: Any, listener: str
) -> None:
    """A budget of frames: no exception is logged, and another client is served all the time. Its longest wait is reported."""
    draw, turn, sent = random.Random(25), asyncio.Semaphore(50), 0
    crashes: list[Mapping[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: crashes.append(context))
    bystander = Bystander(port_of(broker, "PLAINTEXT"))

    async def attack(frames: list[bytes]) -> None:
        async with turn:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker, listener))
            try:
                for frame in frames:
                    writer.write(frame)
                    await writer.drain()
                writer.write_eof()
                await asyncio.wait_for(reader.read(), 20)
            except ConnectionError:
                pass
            finally:
                writer.close()

    attacks = []
    while sent < FRAMES // 3:
        frames = hostile(draw)
        sent += len(frames)
        attacks.append(attack(frames))
    await asyncio.gather(*attacks)
    await bystander.stop()
    record_property("frames", sent)
    record_property("longest wait of another client in ms", round(bystander.longest_s * 1000))
    print(f"{listener}: {sent} frames, {bystander.responses} responses meanwhile, longest wait {bystander.longest_s * 1000:.0f} ms")
    assert crashes == []
    assert [record.getMessage() for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR] == []
    assert bystander.responses > 0
