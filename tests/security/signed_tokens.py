"""Signed tokens of OAUTHBEARER that clients send, and what they get: `signed_tokens.recorded` has what Apache Kafka 3.9.1 gave.

    python -m klamm.tests.security.signed_tokens      # makes it again with a real Kafka
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.tree import Tree
from klamm.tests.security.exchanges import Authenticate, Handshake, Wire, bearer, unsecured

FILE = Path(__file__).with_name("signed_tokens.recorded")
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
AUDIENCE, ISSUER = "klamm", "https://issuer"
SKEW_S = 30


class Keys(NamedTuple):
    """Private keys by the id of their public part, and one that is in no key set."""

    known: Mapping[str, Any]
    other: Any


@cache
def keys() -> Keys:
    rsa_key = rsa.generate_private_key(65537, 2048)
    known = {
        "rsa": rsa_key, "ec": ec.generate_private_key(ec.SECP256R1()), "ec5": ec.generate_private_key(ec.SECP521R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(), "oct": b"0123456789abcdef" * 2, "enc": rsa.generate_private_key(65537, 2048),
    }
    return Keys(known, rsa.generate_private_key(65537, 2048))


def key_set() -> str:
    """The public keys as JWKS."""
    rows = []
    makers: Mapping[str, Any] = {
        "rsa": jwt.algorithms.RSAAlgorithm, "ec": jwt.algorithms.ECAlgorithm, "ec5": jwt.algorithms.ECAlgorithm,
        "ed": jwt.algorithms.OKPAlgorithm, "enc": jwt.algorithms.RSAAlgorithm,
    }
    for key_id, maker in makers.items():
        row = json.loads(maker.to_jwk(keys().known[key_id].public_key()))
        row.pop("key_ops", None)
        rows.append(row | {"kid": key_id, "use": "enc" if key_id == "enc" else "sig"})
    rows.append({"kty": "oct", "kid": "oct", "k": base64.urlsafe_b64encode(keys().known["oct"]).rstrip(b"=").decode()})
    return json.dumps({"keys": rows})


def token(alg: str = "RS256", kid: str | None = "rsa", key: Any = None, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
    """A token of alice; a claim that is None is left out. `key` signs in place of that of the key id."""
    now = int(time.time())
    given = {"sub": "alice", "iat": now - 5, "exp": now + 600, "aud": AUDIENCE, "iss": ISSUER, "scope": "read"} | claims
    payload = {name: value for name, value in given.items() if value is not None}
    head = dict(header or {}) | ({} if kid is None else {"kid": kid})
    signing = keys().known[kid or "rsa"] if key is None else key
    return jwt.api_jws.PyJWS().encode(json.dumps(payload).encode(), signing, alg, head)


def _changed(text: str, at: int) -> str:
    """A token with another payload or signature."""
    parts = text.split(".")
    raw = bytearray(base64.urlsafe_b64decode(parts[at] + "=="))
    raw[len(raw) // 2] ^= 1
    parts[at] = base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode()
    return ".".join(parts)


def _now(away_s: float) -> float:
    return int(time.time()) + away_s


def tokens() -> dict[str, str]:
    """Every token of the tale, by what it is."""
    return {
        "good": token(), "RS384": token("RS384"), "RS512": token("RS512"), "PS256": token("PS256"), "PS512": token("PS512"),
        "ES256": token("ES256", "ec"), "ES512": token("ES512", "ec5"), "EdDSA": token("EdDSA", "ed"), "HS256": token("HS256", "oct"),
        "without a key id": token(kid=None), "ES256 without a key id": token("ES256", None, keys().known["ec"]),
        "with an unknown key id": token(kid="unknown", key=keys().known["rsa"]),
        "of another key": token(key=keys().other), "with the key id of another type": token("ES256", "rsa", keys().known["ec"]),
        "HS256 with the key id of RSA": token("HS256", "rsa", b"0123456789abcdef0123456789abcdef"),
        "of a key for encryption": token(kid="enc"),
        "unsecured": unsecured(aud=AUDIENCE, iss=ISSUER, scope="read"),
        "unsecured with a key id": unsecured({"alg": "none", "kid": "rsa"}, aud=AUDIENCE, iss=ISSUER),
        "with a changed payload": _changed(token(), 1), "with a changed signature": _changed(token(), 2),
        "without a signature": token().rpartition(".")[0] + ".",
        "expired": token(exp=_now(-100)), "expired within the skew": token(exp=_now(-SKEW_S + 10), iat=_now(-100)),
        "expired beyond the skew": token(exp=_now(-SKEW_S - 5), iat=_now(-100)),
        "without an end": token(exp=None), "without a beginning": token(iat=None), "issued in the future": token(iat=_now(50)),
        "issued far in the future": token(iat=_now(500)), "issued after its end": token(iat=_now(700)),
        "not valid yet": token(nbf=_now(100)), "not valid yet but within the skew": token(nbf=_now(10)),
        "valid since a while": token(nbf=_now(-10)), "valid after its end": token(nbf=_now(601)),
        "with a text as end": token(exp="x"), "with a fraction as end": token(exp=_now(100.5)), "with a negative end": token(exp=-1),
        "with 0 as beginning": token(iat=0), "with a negative beginning": token(iat=-5),
        "without a subject": token(sub=None), "with an empty subject": token(sub=""), "with a blank subject": token(sub=" "),
        "with blanks around the subject": token(sub=" alice "), "with a number as subject": token(sub=5),
        "without a scope": token(scope=None), "with an empty scope": token(scope=""), "with a list as scope": token(scope=["a", "b"]),
        "with an empty list as scope": token(scope=[]), "with a doubled scope": token(scope=["a", "a"]),
        "with a blank in the scope": token(scope=["a", " "]), "with a number as scope": token(scope=5),
        "with numbers as scopes": token(scope=[5]),
        "without an audience": token(aud=None), "for another audience": token(aud="other"),
        "for several audiences": token(aud=["other", AUDIENCE]), "for no audience": token(aud=[]),
        "with a number as audience": token(aud=5),
        "without an issuer": token(iss=None), "of another issuer": token(iss="other"), "with a number as issuer": token(iss=5),
        "of another type": token(header={"typ": "at+jwt"}), "with a critical header": token(header={"crit": ["x"], "x": 1}),
        "in two parts": ".".join(token().split(".")[:2]), "that is no token": "abc", "in five parts": "a.b.c.d.e",
        "with an empty payload": ".".join((token().split(".")[0], "", "abc")),
    }


def settings(ports: list[int], folder: Path) -> dict[str, Any]:
    """The properties of a broker: listener OTHER expects neither audience nor issuer, and has claims of its own names."""
    jwks = folder / "keys.json"
    jwks.write_text(key_set())
    properties: dict[str, Any] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},SASL://127.0.0.1:{ports[1]},OTHER://127.0.0.1:{ports[2]}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": 0,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{jwks}",
        "listener.name.sasl.sasl.oauthbearer.expected.audience": f"x,{AUDIENCE}",
        "listener.name.sasl.sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.other.sasl.oauthbearer.sub.claim.name": "who",
        "listener.name.other.sasl.oauthbearer.scope.claim.name": "what",
        "listener.name.other.sasl.oauthbearer.clock.skew.seconds": 0,
    }
    for listener in ("sasl", "other"):
        properties[f"listener.name.{listener}.oauthbearer.sasl.jaas.config"] = MODULE
        properties[f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class"] = HANDLER
    return properties


async def outcome(port: int, text: str) -> str:
    """What a client with this token gets, in one line, with its session and its principal."""
    wire = Wire(*await asyncio.open_connection("127.0.0.1", port), 0.0)
    try:
        await wire.ask(Handshake(mechanism="OAUTHBEARER"), 1)
        answer = await wire.ask(Authenticate(auth_bytes=bearer(text)), 1)
        if answer is None:
            return "connection closed"
        if answer.error_code:
            return f"{ErrorCode(answer.error_code).name}: {answer.error_message}"
        if not answer.auth_bytes:
            token = await wire.ask(messages.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            if token is None:
                return "authenticated, then the session has ended"
            return f"authenticated as {token.principal_name!r} for {round(answer.session_lifetime_ms / 10_000) * 10} s"
        end = await wire.ask(Authenticate(auth_bytes=b"\x01"), 1)
        return f"{bytes(answer.auth_bytes).decode()}, then {'closed' if end is None else ErrorCode(end.error_code).name}"
    finally:
        wire.close()


async def _told(ports: list[int]) -> list[str]:
    lines = [f"{what}: {await outcome(ports[1], text)}" for what, text in tokens().items()]
    lines.append("")
    others = {
        "with the names of the claims": token(sub=None, scope=None, aud=None, who="bob", what="a b"),
        "with the usual names": token(aud=None), "with an audience": token(who="bob", what="a"),
        "without a scope": token(aud=None, who="bob"), "without an issuer": token(aud=None, iss=None, who="bob", what="a"),
        "expired just now": token(aud=None, who="bob", what="a", exp=_now(0), iat=_now(-10)),
    }
    return lines + [f"at OTHER {what}: {await outcome(ports[2], text)}" for what, text in others.items()]


def told(kind: Any, tree: Tree, folder: Path) -> str:
    """Start a broker, and send it all tokens."""
    ports = free_ports(3)
    broker: OwnedBroker = kind(tree, folder, 0, **settings(ports, folder))
    try:
        broker.start()
        return "\n".join(asyncio.run(_told(ports))) + "\n"
    finally:
        broker.kill()


def main() -> None:
    """Write the file again, with a real Kafka."""
    from klamm.tests.reference.jars import jars
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    server = EmbeddedZooKeeper()
    tree = Tree(server.start(), "/signed")
    try:
        with tempfile.TemporaryDirectory() as folder:
            FILE.write_text(told(lambda *given, **properties: KafkaBroker(jars(), *given, **properties), tree, Path(folder)))
    finally:
        tree.close()
        server.stop()


if __name__ == "__main__":
    main()
