"""Users of SCRAM (KIP-554): described by any broker, altered by the controller (keys 50 and 51, since 2.7).

A password leaves this process only salted and hashed, as in Apache Kafka's client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from klamm.admin.calls.arguments import check_int, check_iterable, check_mapping, check_text
from klamm.admin.calls.deadlines import deadline_ms
from klamm.admin.calls.errors import AdminError, error_of
from klamm.admin.calls.results import Described, Result
from klamm.admin.calls.scope import Scope
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Outcomes, Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.security.scram import SCRAM_DIGESTS, salted
from klamm.protocol.security.secret_texts import new_bytes

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
_NAMES = dict(enumerate(SCRAM_DIGESTS, 1))
_NUMBERS = {name: number for number, name in _NAMES.items()}


class ScramPassword(NamedTuple):
    """A new password of a user, and how often it is hashed."""

    password: str
    iterations: int = MIN_ITERATIONS

    def __repr__(self) -> str:
        return f"ScramPassword([hidden], iterations={self.iterations})"


def describe_user_scram_credentials(users: Iterable[str] | None, timeout_ms: int) -> Call[Described[str, dict[str, int]]]:
    """See `AdminClient.describe_user_scram_credentials`."""
    request = messages.DescribeUserScramCredentialsRequest
    names = None if users is None else list(dict.fromkeys(_user(name) for name in check_iterable(users, "users")))

    async def run(session: Session, scope: Scope) -> Described[str, dict[str, int]]:
        if names is not None and not names:
            return Described({}, {})  # an empty list in a request means all users
        rows = None if names is None else [request.UserName(name) for name in names]
        response, _ = await session.to_any(scope, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda version: request(rows))
        error = error_of(response.error_code, response.error_message)
        if error is not None:
            raise error
        outcomes: dict[str, dict[str, int] | AdminError] = {}
        for row in response.results:
            infos = {_NAMES.get(info.mechanism, str(info.mechanism)): info.iterations for info in row.credential_infos}
            outcomes[row.user] = error_of(row.error_code, row.error_message) or infos
        return Described.of(outcomes)

    return Call(deadline_ms(timeout_ms), run)


def alter_user_scram_credentials(
    changes: Mapping[str, Mapping[str, ScramPassword | None]], timeout_ms: int
) -> Call[Result[str]]:
    """See `AdminClient.alter_user_scram_credentials`."""
    request = messages.AlterUserScramCredentialsRequest
    wanted = {
        _user(user): [_row(user, mechanism, value) for mechanism, value in check_mapping(values, f"the credentials of {user}").items()]
        for user, values in check_mapping(changes, "the changes").items()
    }

    async def run(session: Session, scope: Scope) -> Result[str]:
        def make(pending: list[str] | None, version: int) -> messages.AlterUserScramCredentialsRequest:
            rows = [row for user in pending or () for row in wanted[user]]
            return request(
                deletions=[row for row in rows if isinstance(row, request.ScramCredentialDeletion)],
                upsertions=[row for row in rows if isinstance(row, request.ScramCredentialUpsertion)],
            )

        return Result(await session.each_to_controller(scope, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, wanted, make, _read))

    return Call(deadline_ms(timeout_ms), run)


def _read(response: Any) -> Outcomes[str]:
    return {row.user: error_of(row.error_code, row.error_message) for row in response.results}


def _row(
    user: str, mechanism: str, value: object
) -> messages.AlterUserScramCredentialsRequest.ScramCredentialDeletion | messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    """What a request says about one credential. Hashing a password takes some milliseconds."""
    request = messages.AlterUserScramCredentialsRequest
    if mechanism not in _NUMBERS:
        raise ValueError(f"a mechanism must be one of {', '.join(_NUMBERS)}, not {mechanism!r}")
    if value is None:
        return request.ScramCredentialDeletion(user, _NUMBERS[mechanism])
    if not isinstance(value, ScramPassword) or not isinstance(value.password, str):
        raise TypeError(f"a credential of {user} must be a ScramPassword, or None to remove it")
    if not value.password:
        raise ValueError(f"the password of {user} is empty")
    iterations = check_int(value.iterations, "the iterations", MIN_ITERATIONS, MAX_ITERATIONS)
    salt = new_bytes()
    hashed = salted(SCRAM_DIGESTS[mechanism], value.password.encode(), salt, iterations)
    return request.ScramCredentialUpsertion(user, _NUMBERS[mechanism], iterations, salt, hashed)


def _user(name: object) -> str:
    checked = check_text(name, "a user's name")
    if not checked:
        raise ValueError("a user's name is empty")
    return checked
