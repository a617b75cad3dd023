"""Signed tokens of OAUTHBEARER: clients get what Apache Kafka 3.9.1 gave them, with keys of a file; keys of a URL are fetched again."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from klamm.configs.definitions.types import ConfigError
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.security import signed_tokens
from klamm.tests.security.signed_tokens import FILE, HANDLER, keys, outcome, token, told
from klamm.tests.server import brokers

URL = "sasl.oauthbearer.jwks.endpoint.url"


@pytest.fixture
def tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    made = Tree(zookeeper, chroot)
    yield made
    made.close()


def test_clients_get_of_their_tokens_what_kafka_gave_them(tree: Tree, tmp_path: Path) -> None:
    assert told(OwnedBroker, tree, tmp_path).splitlines() == FILE.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.reference
def test_kafka_does_what_was_recorded(tree: Tree, tmp_path: Path, kafka_jars: Path) -> None:
    made = told(lambda *given, **properties: KafkaBroker(kafka_jars, *given, **properties), tree, tmp_path)
    assert made.splitlines() == FILE.read_text(encoding="utf-8").splitlines()


class Provider:
    """Serves a key set over HTTP; `fetches` counts how often."""

    def __init__(self) -> None:
        self.fetches = 0
        self.body = b"{}"
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.fetches += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(provider.body)

            def log_message(self, *_: object) -> None:
                """Nothing is logged."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def properties(url: str | None, **more: object) -> dict[str, Any]:
    given: dict[str, Any] = {
        "listeners": "SASL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": 0,
        "listener.name.sasl.oauthbearer.sasl.jaas.config": signed_tokens.MODULE,
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": HANDLER,
    }
    if url is not None:
        given[URL] = url
    return {name.replace(".", "_"): value for name, value in (given | more).items() if value is not None}


async def test_keys_of_a_url_are_fetched_for_the_first_token_and_once_for_many(zookeeper: str, chroot: str) -> None:
    provider = Provider()
    provider.body = json.dumps({"keys": json.loads(signed_tokens.key_set())["keys"]}).encode()
    broker = brokers.node(zookeeper + chroot, 0, **properties(provider.url))
    await broker.start()
    try:
        port = next(listener.port for listener in broker.listeners if listener.name == "SASL")
        assert provider.fetches == 0
        outcomes = await asyncio.gather(*(outcome(port, token(aud=None)) for _ in range(20)))
        assert {each.partition(" ")[0] for each in outcomes} == {"authenticated"}
        assert provider.fetches == 1
        unknown = token(kid="unknown", key=keys().other, aud=None)
        assert "SASL_AUTHENTICATION_FAILED" in await outcome(port, unknown)
        assert provider.fetches == 1, "a token with an unknown key has no key set fetched that has just been fetched"
    finally:
        await broker.close()
        provider.close()


async def test_tokens_do_not_hold_while_there_are_no_keys(zookeeper: str, chroot: str) -> None:
    provider = Provider()
    provider.body = b"not keys"
    broker = brokers.node(zookeeper + chroot, 0, **properties(provider.url))
    await broker.start()
    try:
        port = next(listener.port for listener in broker.listeners if listener.name == "SASL")
        for _ in range(2):
            assert "SASL_AUTHENTICATION_FAILED" in await outcome(port, token(aud=None))
        assert provider.fetches == 1
    finally:
        await broker.close()
        provider.close()


@pytest.mark.parametrize(
    ("url", "handler", "said"),
    [
        (None, HANDLER, "must be set"),
        ("ftp://x/keys", HANDLER, "expected a URL"),
        ("file:///no/such/file", HANDLER, "cannot be read"),
        ("http://x/keys", None, "every unsecured token would be accepted"),
        ("http://x/keys", "com.example.Own", "classes of Java"),
    ],
)
def test_a_broker_does_not_start_with_keys_that_would_not_be_used(url: str | None, handler: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        brokers.node("localhost:1", 0, **properties(url, **{"listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": handler}))


async def test_a_token_with_a_critical_header_does_not_hold_even_if_the_header_is_known(tmp_path: Path) -> None:
    from klamm.seams.clock import SYSTEM_CLOCK
    from klamm.server.security.sasl.signed_tokens import Expected, KeySet, SignedTokens

    file = tmp_path / "keys"
    file.write_text(signed_tokens.key_set())
    expected = Expected([signed_tokens.AUDIENCE], signed_tokens.ISSUER, 0, "sub", "scope")
    check = SignedTokens(KeySet(file.as_uri(), 60, SYSTEM_CLOCK), expected, SYSTEM_CLOCK.now_ms)
    assert check(token()) is not None
    assert check(token(header={"crit": ["b64"], "b64": True})) is None
