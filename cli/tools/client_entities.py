"""Users, clients and addresses of `klamm configs`: their quotas, and the passwords of users (SCRAM).

Output and refusals are those of Kafka's kafka-configs; tests/tools/quotas.txt has it recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.configs.client_quotas import CLIENT_QUOTAS, IP_QUOTAS, SCRAM_MECHANISMS
from klamm.configs.definitions.types import double_text, parse_double

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient, QuotaEntity, ScramPassword

KINDS = ("users", "clients", "ips")

_PARTS = {"users": "user", "clients": "client_id", "ips": "ip"}
"""Entity type → the part of a `QuotaEntity`."""
_NOUNS = {"user": "user-principal", "client_id": "client-id", "ip": "ip"}
_CREDENTIAL = re.compile(r"(?:iterations=(-?\d+),)?password=(.+)", re.DOTALL | re.ASCII)


class Work(NamedTuple):
    """What is to be done. `names` has the name of each part, "" for the default; None, to describe only, means all."""

    names: Mapping[str, str | None]
    describe: bool
    first: str
    """The entity type that was named first."""
    quotas: Mapping[str, float | None] = {}
    """Quotas to set, None for those to remove."""
    passwords: Mapping[str, tuple[str, int | None] | None] = {}
    """Mechanism → password and iterations; None to remove it."""


def check_work(
    kinds: Sequence[str], names: Sequence[str | None], describe: bool, additions: Mapping[str, str], deletions: Sequence[str]
) -> Work:
    """The work for these options; a name of None is the default. Raises UsageError."""
    if len(set(kinds)) < len(kinds) or (len(kinds) > 1 and set(kinds) != {"users", "clients"}):
        raise click.UsageError("Only 'users' and 'clients' entity types may be specified together")
    if not describe and not names:
        raise click.UsageError("--alter of users, clients or ips needs --entity-name or --entity-default")
    if len(names) > len(kinds) or (len(names) < len(kinds) and not describe):
        raise click.UsageError("An entity name must be specified for every entity type")
    if "" in names:
        raise click.UsageError("--entity-name is empty")
    chosen: list[str | None] = ["" if name is None else name for name in names]
    chosen += [None] * (len(kinds) - len(names))
    parts = {_PARTS[kind]: name for kind, name in zip(kinds, chosen, strict=True)}
    if describe:
        return Work(parts, describe, kinds[0])
    scram = SCRAM_MECHANISMS if tuple(kinds) == ("users",) else ()
    _check_configs(kinds, [*additions, *deletions], scram)
    passwords = {name: _password(name, text) for name, text in additions.items() if name in scram}
    quotas = {name: _quota(name, text) for name, text in additions.items() if name not in scram}
    removed = dict.fromkeys(deletions)
    work = Work(
        parts, describe, kinds[0], quotas | {name: None for name in removed if name not in scram},
        passwords | {name: None for name in removed if name in scram},
    )
    if work.passwords and work.quotas:
        raise click.UsageError("Cannot alter both quota and SCRAM credential configs simultaneously for 'users'.")
    if work.passwords and parts == {"user": ""}:
        raise click.UsageError("--entity-default has no SCRAM credentials")
    return work


def _check_configs(kinds: Sequence[str], names: Sequence[str], scram: Sequence[str]) -> None:
    allowed = IP_QUOTAS if kinds[0] == "ips" else CLIENT_QUOTAS
    unknown = [name for name in names if name not in allowed and name not in scram]
    if unknown:
        whose = "users and clients" if len(kinds) > 1 else kinds[0]
        raise click.UsageError(f"{', '.join(unknown)}: no config of {whose}, which have {', '.join((*allowed, *scram))}")


def _password(mechanism: str, text: str) -> tuple[str, int | None]:
    """Password and iterations of `iterations=N,password=…`. An error does not show the text, which is secret."""
    matched = _CREDENTIAL.fullmatch(text)
    if matched is None:
        raise click.UsageError(f"{mechanism} is not [iterations=N,password=TEXT] or [password=TEXT]")
    iterations = None if matched[1] in (None, "-1") else int(matched[1])
    return matched[2], iterations


def _quota(name: str, text: str) -> float:
    try:
        return parse_double(text)
    except ValueError:
        raise click.UsageError(f"Cannot parse quota configuration value for {name}: {text}") from None


async def work_on(client: AsyncAdminClient, work: Work, as_json: bool) -> None:
    """Do it, and print the outcome; descriptions as one line of JSON if wanted. Raises ToolFailed, AdminError, ValueError."""
    if work.describe:
        quotas, credentials = await client.describe_client_quotas(work.names, strict=True), await _credentials(client, work.names)
        if as_json:
            say(_as_json(quotas, credentials))
        else:
            _print(quotas, credentials)
        return
    if work.passwords:
        await _alter_passwords(client, work)
    else:
        await _alter_quotas(client, work)
    name = work.names[_PARTS[work.first]]
    target = f"config for {work.first[:-1]} {name}" if name else f"default config for {work.first} in the cluster"
    say(printable(f"Completed updating {target}."))


async def _credentials(client: AsyncAdminClient, names: Mapping[str, str | None]) -> Mapping[str, Mapping[str, int]]:
    """User → mechanism → iterations, if users are described, and not the default or clients."""
    from klamm.protocol.errors import ErrorCode

    user = names.get("user")
    if tuple(names) != ("user",) or user == "":
        return {}
    described = await client.describe_user_scram_credentials(None if user is None else [user])
    for error in described.errors.values():
        if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
            raise error
    return described.found


def _print(quotas: Mapping[QuotaEntity, Mapping[str, float]], credentials: Mapping[str, Mapping[str, int]]) -> None:
    for entity, numbers in quotas.items():
        values = ", ".join(f"{name}={double_text(value)}" for name, value in numbers.items())
        say(printable(f"Quota configs for {_whose(entity)} are {values}"))
    for user, mechanisms in credentials.items():
        values = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in mechanisms.items())
        say(printable(f"SCRAM credential configs for user-principal '{user}' are {values}"))


def _as_json(quotas: Mapping[QuotaEntity, Mapping[str, float]], credentials: Mapping[str, Mapping[str, int]]) -> str:
    """The name of a default is null."""
    rows = [
        {"entity": {part: name or None for part, name in entity._asdict().items() if name is not None}, "quotas": numbers}
        for entity, numbers in quotas.items()
    ]
    return json.dumps({"quotas": rows, "credentials": [{"user": user, "iterations": each} for user, each in credentials.items()]})


def _whose(entity: QuotaEntity) -> str:
    parts = ((part, name) for part, name in entity._asdict().items() if name is not None)
    return ", ".join(f"{_NOUNS[part]} '{name}'" if name else f"the default {_NOUNS[part]}" for part, name in parts)


async def _alter_passwords(client: AsyncAdminClient, work: Work) -> None:
    from klamm.admin import ScramPassword

    user = work.names["user"]
    assert user is not None
    changes: dict[str, ScramPassword | None] = {}
    for mechanism, wanted in work.passwords.items():
        password, iterations = (None, None) if wanted is None else wanted
        if password is None:
            changes[mechanism] = None
        else:
            changes[mechanism] = ScramPassword(password) if iterations is None else ScramPassword(password, iterations)
    (await client.alter_user_scram_credentials({user: changes})).all()


async def _alter_quotas(client: AsyncAdminClient, work: Work) -> None:
    from klamm.admin import QuotaEntity
    from klamm.cli.tools.failures import ToolFailed

    entity = QuotaEntity(**work.names)
    removed = [name for name, value in work.quotas.items() if value is None]
    if removed:
        present = (await client.describe_client_quotas(work.names, strict=True)).get(entity, {})
        unset = [name for name in removed if name not in present]
        if unset:
            raise ToolFailed(f"Invalid config(s): {','.join(unset)}")
    (await client.alter_client_quotas({entity: work.quotas})).all()
