"""A tale of delegation tokens: what clients of three brokers ask, and what they get, as lines of text.

    python -m klamm.tests.security.token_tale      # makes `token_tale.recorded` again with a real Kafka

Brokers 0 and 1 have a secret key, broker 2 has none. Ids of tokens, HMACs and times are written by what they are, such as `<token a>`, so
that the lines are the same each time.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from klamm.protocol import json_form, messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.security.acls import ALLOW, LITERAL, PREFIXED
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.tests.harness import waits
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker, all_know
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.tree import Tree
from klamm.tests.security.exchanges import Authenticate, Handshake, Scram, Wire

FILE = Path(__file__).with_name("token_tale.recorded")
SECRET = "the-secret-key"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SLACK_MS = 60_000
USERS = ("alice", "bob", "carol", "dave")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required {};"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"

Create, Renew = messages.CreateDelegationTokenRequest, messages.RenewDelegationTokenRequest
Expire, Describe = messages.ExpireDelegationTokenRequest, messages.DescribeDelegationTokenRequest


def settings(ports: Sequence[int], *, has_key: bool = True, check_ms: int = HOUR_MS) -> dict[str, object]:
    """The properties of a broker; `ports` are those of PLAINTEXT and SASL."""
    properties: dict[str, object] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},SASL://127.0.0.1:{ports[1]}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": _PLAIN.format(" ".join(f'user_{user}="{user}-secret"' for user in USERS)),
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": _SCRAM,
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": _SCRAM,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.expiry.check.interval.ms": check_ms,
    }
    return properties | ({"delegation.token.secret.key": SECRET} if has_key else {})


class TokenScram(Scram):
    """A client of SCRAM with a token: its id is the user, its HMAC the password."""

    def __init__(self, digest: str, user: str, password: str, extension: str = ",tokenauth=true", gs2: str = "n,,") -> None:
        super().__init__(digest, user, password, gs2)
        self.bare += extension


class Session:
    """One connection, whose client has or has not authenticated."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @classmethod
    async def open(cls, port: int) -> Session:
        return cls(Wire(*await asyncio.open_connection("127.0.0.1", port), 0.0))

    async def plain(self, user: str) -> Session:
        await self.wire.ask(Handshake(mechanism="PLAIN"), 1)
        answer = await self.wire.ask(Authenticate(auth_bytes=f"\0{user}\0{user}-secret".encode()), 1)
        assert answer.error_code == 0, answer
        return self

    async def scram(self, client: Scram) -> Any:
        """The last response of the exchange."""
        await self.wire.ask(Handshake(mechanism=f"SCRAM-SHA-{client.digest[3:]}"), 1)
        challenge = await self.wire.ask(Authenticate(auth_bytes=client.first()), 1)
        if challenge is None or challenge.error_code:
            return challenge
        return await self.wire.ask(Authenticate(auth_bytes=client.final(challenge.auth_bytes)), 1)

    async def ask(self, message: Any, version: int) -> Any:
        return await self.wire.ask(message, version)

    def close(self) -> None:
        self.wire.close()


class Token:
    """A token that was created."""

    def __init__(self, name: str, response: Any) -> None:
        self.name, self.id, self.hmac = name, response.token_id, bytes(response.hmac)
        self.issued_ms, self.max_ms = response.issue_timestamp_ms, response.max_timestamp_ms

    @property
    def password(self) -> str:
        return base64.b64encode(self.hmac).decode()


class TokenTale:
    """Asks brokers, and writes down what they respond."""

    def __init__(self, tree: Tree, ports: Sequence[Sequence[int]]) -> None:
        self.lines: list[str] = []
        self._tree, self._ports = tree, ports
        self._sessions: dict[tuple[str, int], Session] = {}
        self._tokens: dict[str, Token] = {}

    def chapter(self, title: str) -> None:
        self.lines += ([""] if self.lines else []) + [f"== {title}"]

    def say(self, what: str, outcome: object) -> None:
        self.lines.append(f"{what}: {outcome}")

    async def session(self, user: str, broker: int = 0) -> Session:
        """The connection of a user; of ANONYMOUS on the listener without authentication."""
        key = user, broker
        if key not in self._sessions:
            session = await Session.open(self._ports[broker][0 if user == "ANONYMOUS" else 1])
            self._sessions[key] = session if user == "ANONYMOUS" else await session.plain(user)
        return self._sessions[key]

    async def ask(self, user: str, message: Any, version: int, broker: int = 0, about: str = "") -> Any:
        answer = await (await self.session(user, broker)).ask(message, version)
        name = type(message).__name__.removesuffix("Request").replace("DelegationToken", "")
        self.say(f"{user}{f' at {broker}' if broker else ''} {name} v{version}{f' {about}' if about else ''}", self.shown(answer, version))
        return answer

    async def create(self, token: str, user: str, version: int = 3, broker: int = 0, **fields: Any) -> Any:
        settings: dict[str, Any] = {"renewers": [], "max_lifetime_ms": -1}
        message = Create(**settings | fields)
        about = json.dumps({name: value for name, value in fields.items() if name != "renewers"} | {
            name: [f"{each.principal_type}:{each.principal_name}" for each in value] for name, value in fields.items() if name == "renewers"
        })
        answer = await (await self.session(user, broker)).ask(message, version)
        if answer is not None and answer.error_code == 0:
            self._tokens[token] = made = Token(token, answer)
            if made.max_ms - made.issued_ms < SLACK_MS:  # the end of this token must not be the beginning of the next one: times have names
                await waits.eventually(lambda: time.time() * 1000 > made.max_ms + 1, "the token has ended")
        self.say(f"{user}{f' at {broker}' if broker else ''} Create v{version} {token} {about}", self.shown(answer, version))
        return self._tokens.get(token)

    def shown(self, answer: Any, version: int) -> str:
        return "connection closed" if answer is None else json.dumps(self._masked(json_form.to_json(answer, version)), ensure_ascii=False)

    def _masked(self, value: Any) -> Any:
        if isinstance(value, list):
            items = [self._masked(each) for each in value]
            return sorted(items, key=json.dumps)
        if not isinstance(value, dict):
            return value
        return {name: self._field(name, each) for name, each in value.items() if name != "throttleTimeMs"}

    def _field(self, name: str, value: Any) -> Any:
        if name.lower().endswith("errorcode"):
            return ErrorCode(value).name
        if name.lower() in ("tokenid", "hmac"):
            return self._token_text(value)
        if "timestamp" in name.lower() and value != -1:
            return self._time(value)
        return self._masked(value)

    def _token_text(self, text: str) -> str:
        for token in self._tokens.values():
            if text == token.id:
                return f"<id {token.name}>"
            if text == token.password:
                right = hmac.digest(SECRET.encode(), token.id.encode(), hashlib.sha512)
                return f"<hmac {token.name}>" if right == token.hmac else "<another hmac>"
        return text

    def _time(self, value: int) -> str:
        for token in self._tokens.values():
            for base, what in ((token.issued_ms, "issued"), (token.max_ms, "max")):
                if value == base:
                    return f"<{token.name} {what}>"
        for token in self._tokens.values():
            for offset in (DAY_MS, 7 * DAY_MS, HOUR_MS):
                if value == token.issued_ms + offset:
                    return f"<{token.name} issued + {offset}>"
        away = value - time.time() * 1000
        rounded = round(away / SLACK_MS) * SLACK_MS
        return f"<now + {rounded}>"

    def znode(self, token: str) -> str:
        data = self._tree.get(f"/delegation_token/tokens/{self._tokens[token].id}")
        if data is None:
            return "none"
        text, fields = data.decode(), json.loads(data)
        for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp"):
            value = fields[name]
            text = text.replace(f'"{name}":{value}', f'"{name}":{self._time(value)}')
        return text.replace(self._tokens[token].id, f"<id {token}>")

    def changes(self) -> list[str]:
        """Notifications, in order."""
        parent = "/delegation_token/token_changes"
        return [
            f"{name}={self._token_text((self._tree.get(f'{parent}/{name}') or b'').decode())}" for name in self._tree.children(parent)
        ]

    async def renew(self, user: str, token: str, period_ms: int, version: int = 2, broker: int = 0) -> None:
        value = self._tokens[token].hmac if token in self._tokens else token.encode()
        await self.ask(user, Renew(hmac=value, renew_period_ms=period_ms), version, broker, f"{token} {period_ms}")

    async def expire(self, user: str, token: str, period_ms: int, version: int = 2, broker: int = 0) -> None:
        value = self._tokens[token].hmac if token in self._tokens else token.encode()
        await self.ask(user, Expire(hmac=value, expiry_time_period_ms=period_ms), version, broker, f"{token} {period_ms}")

    async def describe(self, user: str, owners: Sequence[str] | None, version: int = 3, broker: int = 0) -> None:
        wanted = None if owners is None else [Describe.DescribeDelegationTokenOwner("User", name) for name in owners]
        await self.ask(user, Describe(owners=wanted), version, broker, json.dumps(owners))

    async def log_in(self, what: str, client: Scram, broker: int = 0) -> Session | None:
        session = await Session.open(self._ports[broker][1])
        answer = await session.scram(client)
        if answer is None:
            self.say(what, "connection closed")
        else:
            lifetime = round(answer.session_lifetime_ms / SLACK_MS) * SLACK_MS
            self.say(what, f"{ErrorCode(answer.error_code).name} {self._shorn(answer.error_message)} lifetime={lifetime}")
        if answer is None or answer.error_code:
            session.close()
            return None
        return session

    def _shorn(self, text: str | None) -> str:
        for token in self._tokens.values():
            text = (text or "").replace(token.id, f"<id {token.name}>")
        return repr(text)

    def token(self, name: str) -> Token:
        return self._tokens[name]

    async def allow(self, kind: ResourceType, name: str, principal: str, operation: Operation, pattern: int = LITERAL) -> None:
        """Allow something, at all brokers."""
        creation = messages.CreateAclsRequest.AclCreation(kind, name, pattern, principal, "*", operation, ALLOW)
        answer = await (await self.session("ANONYMOUS")).ask(messages.CreateAclsRequest(creations=[creation]), 2)
        assert [each.error_code for each in answer.results] == [0], answer

    async def until(self, look: Callable[[], Any], what: str) -> None:
        await asyncio.to_thread(waits.wait_for, look, what, 45.0)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


def renewer(name: str, kind: str = "User") -> Any:
    return Create.CreatableRenewers(kind, name)


async def told(tale: TokenTale) -> None:
    """The whole tale but for its end, in which the controller deletes what has expired."""
    await _creation(tale)
    await _renewal(tale)
    await _end(tale)
    await _description(tale)
    await _authentication(tale)
    await _other_brokers(tale)


async def _creation(tale: TokenTale) -> None:
    tale.chapter("creation")
    for version in range(4):
        await tale.create(f"v{version}", "alice", version)
    tale.say("znode of v3", tale.znode("v3"))
    tale.say("changes", tale.changes())
    await tale.create("renewers", "alice", renewers=[renewer("bob"), renewer("ca,rol%:"), renewer("bob")])
    tale.say("znode of renewers", tale.znode("renewers"))
    for lifetime_ms in (0, 1, HOUR_MS, 2 * DAY_MS, 30 * DAY_MS, 2**62):
        await tale.create(f"life{lifetime_ms}", "alice", max_lifetime_ms=lifetime_ms)
    await tale.create("group", "alice", renewers=[renewer("bob", "Group")])
    await tale.create("nobody", "alice", renewers=[renewer("", "User")])
    tale.say("znode of nobody", tale.znode("nobody") if "nobody" in tale._tokens else "no token")
    await tale.create("anonymous", "ANONYMOUS")
    tale.chapter("creation for another")
    await tale.create("self", "alice", owner_principal_type="User", owner_principal_name="alice")
    await tale.create("other", "alice", owner_principal_type="User", owner_principal_name="bob")
    await tale.create("typeless", "alice", owner_principal_type=None, owner_principal_name="bob")
    await tale.create("nameless", "alice", owner_principal_type="User", owner_principal_name="")
    await tale.create("grouped", "alice", owner_principal_type="Group", owner_principal_name="alice")
    await tale.allow(ResourceType.USER, "User:bob", "User:alice", Operation.CREATE_TOKENS)
    await tale.create("other", "alice", owner_principal_type="User", owner_principal_name="bob", renewers=[renewer("carol")])
    tale.say("znode of other", tale.znode("other"))
    await tale.create("both", "dave", owner_principal_type="User", owner_principal_name="bob", renewers=[renewer("x", "Group")])


async def _renewal(tale: TokenTale) -> None:
    tale.chapter("renewal")
    await tale.create("r", "alice", renewers=[renewer("bob")])
    before = len(tale.changes())
    for period_ms in (HOUR_MS, 0, -1, 3 * DAY_MS, 30 * DAY_MS, 2 * HOUR_MS):
        if period_ms == 0:
            continue
        await tale.renew("alice", "r", period_ms)
    tale.say("znode of r", tale.znode("r"))
    tale.say("changes", len(tale.changes()) - before)
    for version in range(3):
        await tale.renew("bob", "r", HOUR_MS, version)
    await tale.renew("carol", "r", HOUR_MS)
    await tale.renew("alice", "unknown", HOUR_MS)
    await tale.renew("carol", "", HOUR_MS)
    await tale.renew("ANONYMOUS", "r", HOUR_MS)
    for user in ("alice", "bob", "carol", "dave"):
        await tale.renew(user, "other", HOUR_MS)
    await tale.renew("alice", "life1", HOUR_MS)
    await tale.renew("carol", "life1", HOUR_MS)
    await tale.renew("alice", "life3600000", 2 * HOUR_MS)
    await tale.create("zero", "alice")
    await tale.renew("alice", "zero", 0)
    await asyncio.sleep(0.02)
    await tale.renew("alice", "zero", HOUR_MS)
    await tale.create("forever", "alice")
    await tale.renew("alice", "forever", 2**63 - 1)
    await tale.renew("alice", "forever", HOUR_MS)


async def _end(tale: TokenTale) -> None:
    tale.chapter("end")
    await tale.create("e", "alice", renewers=[renewer("bob")])
    before = len(tale.changes())
    await tale.expire("alice", "e", 2 * HOUR_MS)
    await tale.expire("alice", "e", 30 * DAY_MS)
    for version in range(3):
        await tale.expire("bob", "e", HOUR_MS, version)
    tale.say("znode of e", tale.znode("e"))
    await tale.create("endless", "alice")
    await tale.expire("alice", "endless", 2**63 - 1)
    await tale.expire("alice", "endless", HOUR_MS)
    await tale.expire("carol", "e", -1)
    await tale.expire("carol", "unknown", -1)
    await tale.expire("ANONYMOUS", "e", -1)
    await tale.expire("alice", "life1", HOUR_MS)
    await tale.expire("alice", "life1", -1)
    tale.say("znode of life1", tale.znode("life1"))
    await tale.expire("alice", "other", -1)
    await tale.expire("alice", "e", 0)
    await asyncio.sleep(0.02)
    await tale.expire("alice", "e", 0)
    await tale.expire("alice", "e", -1)
    tale.say("znode of e", tale.znode("e"))
    await tale.expire("alice", "e", -1)
    for user in ("carol", "alice"):
        await tale.create("gone", "bob", renewers=[renewer("carol")])
        await tale.expire(user, "gone", -1)
    tale.say("znode of gone", tale.znode("gone"))
    tale.say("changes", len(tale.changes()) - before)


async def _description(tale: TokenTale) -> None:
    tale.chapter("description")
    for name in [name for name, token in tale._tokens.items() if name not in ("other", "v0")]:
        await _quietly(tale, Expire(hmac=tale.token(name).hmac, expiry_time_period_ms=-1))
    for version in range(4):
        await tale.describe("alice", None, version)
    await tale.create("d", "dave", renewers=[renewer("carol")])
    await tale.create("short", "dave", max_lifetime_ms=1)
    for user in USERS:
        await tale.describe(user, None)
        await tale.describe(user, [])
        await tale.describe(user, ["alice", "dave"])
        await tale.describe(user, ["carol"])
    await tale.describe("ANONYMOUS", None)
    await tale.allow(ResourceType.DELEGATION_TOKEN, tale.token("d").id, "User:bob", Operation.DESCRIBE)
    await tale.describe("bob", ["dave"])
    await tale.allow(ResourceType.USER, "User:al", "User:bob", Operation.DESCRIBE_TOKENS, PREFIXED)
    await tale.describe("bob", ["dave", "alice"])
    await tale.describe("bob", None)


async def _quietly(tale: TokenTale, message: Any) -> None:
    for user in USERS[:2]:
        await (await tale.session(user)).ask(message, 2)


async def _authentication(tale: TokenTale) -> None:
    tale.chapter("authentication")
    await tale.create("s", "alice", renewers=[renewer("bob")])
    token = tale.token("s")
    for digest in ("sha256", "sha512"):
        session = await tale.log_in(f"{digest}", TokenScram(digest, token.id, token.password))
        assert session is not None
        tale._sessions["token", 0] = session
        await tale.create("again", "token")
        await tale.renew("token", "s", HOUR_MS)
        await tale.expire("token", "s", HOUR_MS)
        await tale.describe("token", None)
    tale._sessions.pop(("token", 0)).close()
    wrong = base64.b64encode(b"x" * 64).decode()
    attempts: Mapping[str, Scram] = {
        "with a wrong HMAC": TokenScram("sha256", token.id, wrong),
        "of an unknown token": TokenScram("sha256", "unknown", wrong),
        "of a user": TokenScram("sha256", "alice", wrong),
        "without tokenauth": TokenScram("sha256", token.id, token.password, ""),
        "with tokenauth=false": TokenScram("sha256", token.id, token.password, ",tokenauth=false"),
        "with tokenauth=TRUE": TokenScram("sha256", token.id, token.password, ",tokenauth=TRUE"),
        "with another extension": TokenScram("sha256", token.id, token.password, ",some=thing,tokenauth=true"),
        "with two tokenauths": TokenScram("sha256", token.id, token.password, ",tokenauth=true,tokenauth=false"),
        "for its owner": TokenScram("sha256", token.id, token.password, gs2="n,a=alice,"),
        "for the id": TokenScram("sha256", token.id, token.password, gs2=f"n,a={token.id},"),
    }
    for what, client in attempts.items():
        if what in ("for its owner", "for the id"):
            session = await Session.open(tale._ports[0][1])
            await session.wire.ask(Handshake(mechanism="SCRAM-SHA-256"), 1)
            challenge = await session.wire.ask(Authenticate(auth_bytes=client.first()), 1)
            if challenge is not None and not challenge.error_code:
                channel = base64.b64encode(client.gs2.encode()).decode()
                challenge = await session.wire.ask(Authenticate(auth_bytes=client.final(challenge.auth_bytes, channel)), 1)
            tale.say(what, f"{ErrorCode(challenge.error_code).name} {tale._shorn(challenge.error_message)}")
            session.close()
        else:
            again = await tale.log_in(what, client)
            if again is not None:
                again.close()
    await tale.create("short", "alice", max_lifetime_ms=1)
    await asyncio.sleep(0.02)
    again = await tale.log_in("of a token that has expired", TokenScram("sha256", tale.token("short").id, tale.token("short").password))
    if again is not None:
        tale._sessions["expired", 0] = again
        await tale.create("again", "expired")
        tale._sessions.pop(("expired", 0)).close()
    await tale.create("ended", "alice")
    session = await tale.log_in("of a token that ends", TokenScram("sha256", tale.token("ended").id, tale.token("ended").password))
    assert session is not None
    tale._sessions["ended", 0] = session
    await tale.expire("alice", "ended", -1)
    await tale.describe("ended", None)
    await tale.log_in("of a token that has ended", TokenScram("sha256", tale.token("ended").id, tale.token("ended").password))


async def _other_brokers(tale: TokenTale) -> None:
    tale.chapter("other brokers")
    for user, message, version in (
        ("alice", Create(renewers=[], max_lifetime_ms=-1), 3), ("alice", Renew(hmac=b"", renew_period_ms=1), 2),
        ("alice", Expire(hmac=b"", expiry_time_period_ms=1), 2), ("alice", Describe(owners=None), 3), ("alice", Describe(owners=[]), 3),
        ("ANONYMOUS", Describe(owners=None), 3),
    ):
        await tale.ask(user, message, version, 2)
    await tale.create("off", "alice", broker=2, owner_principal_type="User", owner_principal_name="dave")
    await tale.create("off", "alice", broker=2, renewers=[renewer("x", "Group")])
    await tale.create("far", "alice", broker=1)
    await _until_known(tale, "far")
    await tale.describe("alice", ["alice"])
    await tale.renew("alice", "far", HOUR_MS)
    session = await tale.log_in("at 0 with a token of 1", TokenScram("sha256", tale.token("far").id, tale.token("far").password))
    assert session is not None
    session.close()
    await tale.expire("alice", "far", -1)
    tale.say("znode of far", tale.znode("far"))


async def _until_known(tale: TokenTale, name: str) -> None:
    wanted = Describe(owners=None)
    for _ in range(2000):
        answer = await (await tale.session("alice")).ask(wanted, 3)
        if any(each.token_id == tale.token(name).id for each in answer.tokens):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"token {name} does not become known")


def tell(brokers: Sequence[OwnedBroker], ports: Sequence[Sequence[int]], tree: Tree) -> str:
    """Start the brokers and tell them the tale. All have ended afterwards."""
    try:
        for broker in brokers:
            broker.start()
        all_know(brokers)
        assert tree.controller() == brokers[0].id
        return asyncio.run(_tell(TokenTale(tree, ports), brokers, tree))
    finally:
        for broker in brokers:
            broker.kill()


async def _tell(tale: TokenTale, brokers: Sequence[OwnedBroker], tree: Tree) -> str:
    try:
        await told(tale)
        tale.chapter("the controller")
        await tale.create("late", "alice", broker=1, max_lifetime_ms=1)
        await asyncio.to_thread(brokers[2].stop)
        await asyncio.to_thread(brokers[0].stop)
        await tale.until(lambda: tree.controller() == brokers[1].id, "the controller has moved")
        await tale.until(lambda: tale.znode("late") == "none" and tale.znode("short") == "none", "expired tokens are deleted")
        tale.say("znode of late", tale.znode("late"))
        tale.say("znode of s", tale.znode("s"))
        await tale.describe("alice", ["alice"], broker=1)
    finally:
        tale.close()
    return "\n".join(tale.lines) + "\n"


def told_by(kind: Callable[..., OwnedBroker], tree: Tree, folder: Path) -> str:
    """The tale of three brokers of a kind, from an empty tree. `kind` is given tree, folder, id and properties."""
    ports = [free_ports(2) for _ in range(3)]
    brokers = [
        kind(tree, folder, 0, **settings(ports[0])),
        kind(tree, folder, 1, **settings(ports[1], check_ms=500)),
        kind(tree, folder, 2, **settings(ports[2], has_key=False)),
    ]
    return tell(brokers, ports, tree)


def main() -> None:
    """Write the file again, with a real Kafka."""
    from klamm.tests.reference.jars import jars
    from klamm.zk.embedded.server import EmbeddedZooKeeper

    server = EmbeddedZooKeeper()
    tree = Tree(server.start(), "/tokens")
    try:
        with tempfile.TemporaryDirectory() as folder:
            FILE.write_text(told_by(lambda *given, **properties: KafkaBroker(jars(), *given, **properties), tree, Path(folder)))
    finally:
        tree.close()
        server.stop()


if __name__ == "__main__":
    main()
