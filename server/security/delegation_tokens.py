"""The delegation tokens of the cluster, as one broker with `delegation.token.secret.key` knows them: `DelegationTokenManagerZk` of Apache
Kafka 3.9.1.

All tokens are read before the broker serves clients, and a token again at each notification of its change by any broker. The HMAC of a
token is made from its id and the secret key, which all brokers must have in common; it is the password with which a client authenticates by
SCRAM. The controller deletes tokens that have expired, at the begin of its term and each `delegation.token.expiry.check.interval.ms`; until
then they can be described, and ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import NamedTuple

from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import StoreLost
from klamm.machine.faults import contained
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.security.delegation_tokens import TokenInformation
from klamm.protocol.security.secret_texts import new_bytes
from klamm.seams.clock import Clock
from klamm.server.ground.background import Looking
from klamm.server.security.sasl.scram_credentials import MIN_ITERATIONS, Mechanism, ScramCredential, TokenCredential, credential_of_password
from klamm.zk.delegation_tokens import DelegationTokenZk
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)

LOOK_S = 0.1
"""How often a broker looks whether it has become the controller: soon, as Apache Kafka deletes expired tokens before its term begins."""


class Token(NamedTuple):
    """A token and its HMAC."""

    information: TokenInformation
    hmac: bytes


class DelegationTokens:
    """The tokens that one broker knows. `start` must have returned before they are complete."""

    def __init__(self, config: BrokerConfig, key: str, session: ZkSession, clock: Clock) -> None:
        """`key` is the secret key."""
        self._key = key.encode()
        self._longest_ms: int = config.get("delegation.token.max.lifetime.ms")
        self._renewal_ms: int = config.get("delegation.token.expiry.time.ms")
        self._check_s: float = config.get("delegation.token.expiry.check.interval.ms") / 1000
        self._zk = DelegationTokenZk(session)
        self._clock = clock
        self._tokens: dict[str, Token] = {}
        self._ids: dict[bytes, str] = {}
        """HMAC → id."""
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        """(mechanism, id) → credential, for tokens that have been used."""
        self._executed = -1
        self._lock = asyncio.Lock()
        self._looking = Looking("changes of delegation tokens", self._execute, asyncio.ensure_future)

    def __iter__(self) -> Iterator[Token]:
        return iter(list(self._tokens.values()))

    # reading

    async def start(self, spawn: Callable[[Coroutine[object, None, None]], object]) -> None:
        """Read all tokens, and watch for changes; `spawn` runs a coroutine. Raises StoreLost, ZkError."""
        self._looking.spawn = spawn
        await self._zk.ensure_paths()
        await self._looking.begin(self._read_at_start)

    async def _read_at_start(self) -> None:
        await self._execute()
        await self._read_again(await self._zk.ids())

    async def look(self) -> None:
        """Process new notifications and watch for the next ones. After a loss of the session the next session calls it again."""
        await self._looking.look()

    async def _execute(self) -> None:
        changes = await self._zk.changes(self._executed, self._looking.changed)
        if changes:
            await self._read_again(list(dict.fromkeys(token_id for _, token_id in changes)))
            self._executed = changes[-1][0]
        if self._executed >= 0:
            await self._zk.purge_changes()

    async def _read_again(self, ids: Sequence[str]) -> None:
        async with self._lock:
            for token_id, token in (await self._zk.read(ids)).items():
                if token is None:
                    self._forget(token_id)
                else:
                    self._take(token)

    def _take(self, information: TokenInformation) -> Token:
        token = Token(information, hmac.digest(self._key, information.id.encode(), hashlib.sha512))
        self._tokens[information.id] = token
        self._ids[token.hmac] = information.id
        return token

    def _forget(self, token_id: str) -> None:
        token = self._tokens.pop(token_id, None)
        if token is not None:
            del self._ids[token.hmac]
        for key in [key for key in self._credentials if key[1] == token_id]:
            del self._credentials[key]

    # SCRAM

    def credential(self, mechanism: Mechanism, token_id: str) -> TokenCredential | None:
        """What a client needs to authenticate with a token; None if there is no such token. One that has expired counts until it is
        deleted. The first call for a token computes a salted password.
        """
        token = self._tokens.get(token_id)
        if token is None:
            return None
        key = mechanism.name, token_id
        credential = self._credentials.get(key)
        if credential is None:
            password = b64encode(token.hmac)
            credential = self._credentials[key] = credential_of_password(mechanism, password, new_bytes(), MIN_ITERATIONS)
        return TokenCredential(credential, token.information.owner.partition(":")[2], token.information.expires_ms)

    # requests

    async def create(self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int) -> Token:
        """Create a token. A lifetime that is not positive stands for the longest."""
        async with self._lock:
            now_ms = self._clock.now_ms()
            max_ms = now_ms + (self._longest_ms if lifetime_ms <= 0 else min(lifetime_ms, self._longest_ms))
            token_id = urlsafe_b64encode(new_bytes()).decode().rstrip("=")
            expires_ms = min(max_ms, now_ms + self._renewal_ms)
            return await self._store(TokenInformation(token_id, owner, requester, tuple(renewers), now_ms, max_ms, expires_ms))

    async def renew(self, principal: str, by_hmac: bytes, period_ms: int) -> int:
        """Move the end of a token to so long from now; a negative period stands for the configured one. Returns the new end.

        Raises ApiError.
        """
        async with self._lock:
            token, now_ms = self._renewable(principal, by_hmac), self._clock.now_ms()
            if token.has_expired(now_ms):
                raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return await self._move_end(token, now_ms + (self._renewal_ms if period_ms < 0 else period_ms))

    async def expire(self, principal: str, by_hmac: bytes, period_ms: int) -> int:
        """End a token so long from now; a negative period ends it at once. Returns the new end. Raises ApiError."""
        async with self._lock:
            token, now_ms = self._renewable(principal, by_hmac), self._clock.now_ms()
            if period_ms < 0:
                await self._delete(token.id)
                return now_ms
            if token.has_expired(now_ms):
                raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return await self._move_end(token, now_ms + period_ms)

    def _renewable(self, principal: str, by_hmac: bytes) -> TokenInformation:
        """The token with this HMAC, which the principal may renew. Raises ApiError."""
        token_id = self._ids.get(by_hmac)
        if token_id is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        token = self._tokens[token_id].information
        if not token.may_be_renewed_by(principal):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    async def _move_end(self, token: TokenInformation, end_ms: int) -> int:
        in_range = (end_ms + 2**63) % 2**64 - 2**63  # a period too long for an int64 ends the token, as in Kafka
        stored = await self._store(token._replace(expires_ms=min(token.max_ms, in_range)))
        return stored.information.expires_ms

    async def _store(self, token: TokenInformation) -> Token:
        await self._zk.write(token)
        taken = self._take(token)
        await self._zk.announce(token.id)
        return taken

    async def _delete(self, token_id: str) -> None:
        await self._zk.delete(token_id)
        self._forget(token_id)
        await self._zk.announce(token_id)
        log.info("delegation token %s is deleted", token_id)

    # the controller

    async def delete_expired(self, is_controller: Callable[[], bool]) -> None:
        """While this broker is the controller, delete tokens that have expired. Does not return."""
        due_s: float | None = None
        while True:
            now_s = self._clock.monotonic()
            if not is_controller():
                due_s = None
            elif due_s is None or now_s >= due_s:
                due_s = now_s + self._check_s
                with contained(log, "the deletion of expired delegation tokens"):
                    await self._delete_expired()
            await self._clock.sleep(min(LOOK_S, self._check_s))

    async def _delete_expired(self) -> None:
        try:
            async with self._lock:
                now_ms = self._clock.now_ms()
                for token in self:
                    if token.information.has_expired(now_ms):
                        await self._delete(token.information.id)
        except (StoreLost, ZkError) as error:
            log.warning("cannot delete delegation tokens at the moment: %s", error)

