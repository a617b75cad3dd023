"""The authentication of one client on a listener with SASL. Until it is over, nothing else of the broker sees a request of this connection.

It takes the place of the connection's dispatcher. The states, which requests they allow, the errors and their order are those of
`SaslServerAuthenticator` of Apache Kafka 3.9.1 (wire 7), compared exchange by exchange (`tests/security/exchanges.recorded`):

* ApiVersions once, then SaslHandshake, then tokens: in SaslAuthenticate requests after version 1 of the handshake, as bare frames after
  version 0. Other requests close the connection; after a handshake of version 1 they get their response with ILLEGAL_SASL_STATE first.
* A failed authentication is answered, and the connection closed, `connection.failed.authentication.delay.ms` later. Frames that are no
  requests at all close it at once.
* A session with a lifetime ends with it. A SaslHandshake prolongs it, with the same mechanism and user, once a second at most.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.security.redaction import shown_mechanism
from klamm.seams.clock import Clock
from klamm.server.requests.context import CloseConnection
from klamm.server.requests.queued_requests import NOTHING_FOLLOWS, Following
from klamm.server.security.authorizer import Principal
from klamm.server.security.sasl.exchange import AuthenticationFailed, Exchange, InvalidCredentials, MustWait

if TYPE_CHECKING:
    from klamm.broker.metadata_cache import MetadataCache
    from klamm.server.requests.dispatch import Dispatcher, Response
    from klamm.server.requests.peer import Peer

RESTART_S = 1.0
"""A session can be prolonged this long after the last time, not earlier."""

_KEY_AND_VERSION = Struct(">hh")
_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")


class SaslMechanism(NamedTuple):
    """An enabled mechanism of a listener. `max_reauth_ms` limits its sessions; 0 means no limit."""

    name: str
    new_exchange: Callable[[], Exchange]
    max_reauth_ms: int = 0


class SaslSettings(NamedTuple):
    """How clients of a listener authenticate. `mechanisms` are in the order in which clients see them."""

    mechanisms: tuple[SaslMechanism, ...]
    max_receive_bytes: int
    failure_delay_s: float


class AuthenticatedConnection(Protocol):
    """What the authentication needs of its connection."""

    def authenticated(self, principal: Principal, mechanism: str, *, has_lifetime: bool, by_token: bool) -> None:
        """The client is this principal. With a lifetime the authenticator has to see each request. `by_token`: with a delegation token.
        """


class _State(Enum):
    FIRST = auto()
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    COMPLETE = auto()
    OTHER_MECHANISM = auto()
    FAILED = auto()


class _Failed(Exception):
    """The authentication has failed; `response` is sent before the connection is closed."""

    def __init__(self, reason: str, response: bytes = b"") -> None:
        super().__init__(reason)
        self.response = response


class SaslAuthenticator:
    """The dispatcher of one connection. Requests of an authenticated client go to `target`."""

    def __init__(self, target: Dispatcher, settings: SaslSettings, connection: AuthenticatedConnection, clock: Clock) -> None:
        self.target = target
        self._settings = settings
        self._connection = connection
        self._clock = clock
        self._state = _State.FIRST
        self._mechanism: SaslMechanism | None = None
        self._exchange: Exchange | None = None
        self._has_headers = False
        self._principal: Principal | None = None
        self._wrong_mechanism = ""
        self._ends_s: float | None = None
        self._started_s: float | None = None

    # --- a dispatcher

    @property
    def metadata(self) -> MetadataCache:
        return self.target.metadata

    @property
    def max_receive_bytes(self) -> int:
        """The limit of a frame before the client is authenticated."""
        return self._settings.max_receive_bytes

    def is_pipelined(self, api_key: bytes) -> bool:
        """See `Dispatcher.is_pipelined`; nothing is pipelined before the client is authenticated."""
        return self._state is _State.COMPLETE and self.target.is_pipelined(api_key)

    def may_pipeline(self, api_key: bytes, payload: bytes) -> bool:
        """See `Dispatcher.may_pipeline`."""
        return self._state is _State.COMPLETE and self.target.may_pipeline(api_key, payload)

    def begin(self, peer: Peer, payload: bytes, following: Following = NOTHING_FOLLOWS, logged: bool = False) -> Response:
        """Handle a frame. Raises RemoteProtocolError or CloseConnection."""
        if self._state is _State.COMPLETE and not self._begins_again(payload):
            return self.target.begin(peer, payload, following, logged)
        try:
            return self._step(peer, payload)
        except MustWait as wait:
            return self._begin_later(wait, peer, payload)
        except _Failed as failure:
            self._state = _State.FAILED
            return self.close_later(f"authentication failed: {failure}", failure.response)

    async def _begin_later(self, wait: MustWait, peer: Peer, payload: bytes) -> bytes | None:
        """Handle a frame when what it must wait for is done."""
        await wait.work
        response = self.begin(peer, payload)
        return response if response is None or isinstance(response, bytes) else await response

    async def close_later(self, reason: str, response: bytes = b"") -> bytes | None:
        """Close the connection after the delay of failed authentication, with this response if there is one."""
        await self._clock.sleep(self._settings.failure_delay_s)
        raise CloseConnection(reason, response)

    def _begins_again(self, payload: bytes) -> bool:
        """Whether an authenticated client prolongs its session with this request. Raises CloseConnection if the session has ended."""
        if self._ends_s is None:
            return False
        now = self._clock.monotonic()
        if payload[:2] == _HANDSHAKE and (self._started_s is None or now - self._started_s >= RESTART_S):
            self._started_s = now
            self._state = _State.HANDSHAKE
            self._has_headers = False  # each handshake says by its version how tokens come
            return True
        if now > self._ends_s:
            raise CloseConnection("the SASL session has ended, and the client did not authenticate again")
        return False

    # --- frames

    def _step(self, peer: Peer, payload: bytes) -> Response:
        if len(payload) > self._settings.max_receive_bytes:  # a client that authenticates again may send larger requests otherwise
            limit = self._settings.max_receive_bytes
            raise _Failed(f"a frame of {len(payload)} bytes is larger than {limit} bytes")
        match self._state:
            case _State.FIRST | _State.VERSIONS_OR_HANDSHAKE | _State.HANDSHAKE:
                return self._request(peer, payload)
            case _State.TOKENS if self._has_headers:
                return self._token_request(peer, payload)
            case _State.TOKENS:
                return self._bare_token(payload)
            case _State.OTHER_MECHANISM:
                raise _Failed(self._wrong_mechanism)
            case _:
                raise RemoteProtocolError("a request after a failed authentication")

    def _request(self, peer: Peer, payload: bytes) -> Response:
        try:
            key, version = _key_and_version(payload)
            correlation_id, offset = _header(payload)
        except RemoteProtocolError as error:
            if self._state is _State.FIRST:  # a token of Kerberos without a handshake, as in Kafka 0.9
                raise _Failed(f"the first frame is not a request, and GSSAPI is not supported: {error}") from error
            raise
        if self._state is _State.FIRST:
            self._state = _State.VERSIONS_OR_HANDSHAKE
        if key == ApiKey.API_VERSIONS:
            return self._api_versions(peer, payload)
        if key != ApiKey.SASL_HANDSHAKE:
            raise _Failed(f"unexpected {messages.APIS[key].name} request during the SASL handshake")
        if version > messages.APIS[key].max_version:
            raise RemoteProtocolError(f"version {version} of SaslHandshake is not supported")
        request, _ = messages.decode("SaslHandshakeRequest", version, payload, offset)
        return self._handshake(correlation_id, version, request.mechanism)

    def _api_versions(self, peer: Peer, payload: bytes) -> Response:
        if self._state is not _State.VERSIONS_OR_HANDSHAKE:
            raise RemoteProtocolError("a second ApiVersions request during the SASL handshake")
        response = self.target.begin(peer, payload)
        if not isinstance(response, bytes) or response[8:10] == b"\0\0":
            self._state = _State.HANDSHAKE
        return response

    def _handshake(self, correlation_id: int, version: int, name: str) -> bytes:
        self._has_headers = self._has_headers or version >= 1
        mechanism = next((each for each in self._settings.mechanisms if each.name == name), None)
        if mechanism is None:
            response = self._handshake_response(correlation_id, version, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            if self._principal is not None:
                raise RemoteProtocolError(f"SASL mechanism {shown_mechanism(name)} is not supported")
            raise _Failed(f"SASL mechanism {shown_mechanism(name)} is not supported", response)
        if self._principal is not None and self._mechanism is not None and self._mechanism.name != name:
            self._wrong_mechanism = f"a client of {self._mechanism.name} cannot authenticate again with {name}"
            self._state = _State.OTHER_MECHANISM
        else:
            self._mechanism, self._exchange = mechanism, mechanism.new_exchange()
            self._state = _State.TOKENS
        return self._handshake_response(correlation_id, version, ErrorCode.NONE)

    def _handshake_response(self, correlation_id: int, version: int, code: ErrorCode) -> bytes:
        names = [each.name for each in self._settings.mechanisms]
        return _frame(ApiKey.SASL_HANDSHAKE, version, correlation_id, messages.SaslHandshakeResponse(error_code=code, mechanisms=names))

    def _token_request(self, peer: Peer, payload: bytes) -> bytes:
        key, version = _key_and_version(payload)
        correlation_id, offset = _header(payload)
        if key != ApiKey.SASL_AUTHENTICATE:
            response = self.target.refusal(peer, payload, ErrorCode.ILLEGAL_SASL_STATE)
            if response is None:
                raise RemoteProtocolError(f"unexpected {messages.APIS[key].name} request during the SASL authentication")
            raise _Failed(f"unexpected {messages.APIS[key].name} request during the SASL authentication", response)
        if version > messages.APIS[key].max_version:
            raise RemoteProtocolError(f"version {version} of SaslAuthenticate is not supported")
        request, _ = messages.decode("SaslAuthenticateRequest", version, payload, offset)
        assert self._mechanism is not None
        try:
            token = self._evaluate(bytes(request.auth_bytes))
        except AuthenticationFailed as failure:
            raise _Failed(str(failure), _refused(version, correlation_id, str(failure))) from failure
        except InvalidCredentials as failure:
            during = "re-authentication" if self._principal is not None else "authentication"
            text = f"Authentication failed during {during} due to invalid credentials with SASL mechanism {self._mechanism.name}"
            raise _Failed(f"{text}: {failure}", _refused(version, correlation_id, text)) from failure
        lifetime_ms = self._complete() if self._exchange is not None and self._exchange.is_complete else 0
        answer = messages.SaslAuthenticateResponse(error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms if version else 0)
        return _frame(ApiKey.SASL_AUTHENTICATE, version, correlation_id, answer)

    def _bare_token(self, payload: bytes) -> bytes:
        try:
            token = self._evaluate(payload)
        except AuthenticationFailed as failure:
            raise _Failed(str(failure)) from failure
        except InvalidCredentials as failure:
            raise RemoteProtocolError(f"authentication failed: {failure}") from failure
        if self._exchange is not None and self._exchange.is_complete:
            self._complete()
        return len(token).to_bytes(4, "big") + token

    def _evaluate(self, token: bytes) -> bytes:
        """The response of the mechanism. Raises AuthenticationFailed, also if another user prolongs a session, and InvalidCredentials."""
        assert self._exchange is not None
        response = self._exchange.evaluate(token)
        before = self._principal
        if self._exchange.is_complete and before is not None and before.name != self._exchange.user:
            what = f"from {before.type}.{before.name}: User.{self._exchange.user}"
            raise AuthenticationFailed(f"Cannot change principals during re-authentication {what}")
        return response

    def _complete(self) -> int:
        """The client is authenticated. Returns the lifetime of its session in milliseconds, 0 if it has none."""
        assert self._exchange is not None and self._mechanism is not None
        limits = [self._mechanism.max_reauth_ms] if self._mechanism.max_reauth_ms > 0 else []
        if self._exchange.expires_ms is not None:
            limits.append(self._exchange.expires_ms - self._clock.now_ms())
        lifetime_ms = max(0, min(limits)) if limits else 0
        self._ends_s = self._clock.monotonic() + lifetime_ms / 1000 if limits else None
        self._state = _State.COMPLETE
        self._principal = Principal("User", self._exchange.user)
        by_token, self._exchange = self._exchange.is_by_token, None
        self._connection.authenticated(self._principal, self._mechanism.name, has_lifetime=bool(limits), by_token=by_token)
        return lifetime_ms


def _key_and_version(payload: bytes) -> tuple[int, int]:
    """API key and version of a request. Raises RemoteProtocolError if there is no such API."""
    if len(payload) < _KEY_AND_VERSION.size:
        raise RemoteProtocolError(f"frame of {len(payload)} bytes")
    key, version = _KEY_AND_VERSION.unpack_from(payload)
    if key not in messages.APIS or version < 0:
        raise RemoteProtocolError(f"API {key} is unknown")
    return key, version


def _header(payload: bytes) -> tuple[int, int]:
    """Correlation id of a request, and where its body begins."""
    header, offset = messages.decode_request_header(payload)
    return header.correlation_id, offset


def _refused(version: int, correlation_id: int, text: str) -> bytes:
    response = messages.SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
    return _frame(ApiKey.SASL_AUTHENTICATE, version, correlation_id, response)


def _frame(key: ApiKey, version: int, correlation_id: int, response: Any) -> bytes:
    return messages.encode_response(key, version, correlation_id, messages.encode(response, version))


