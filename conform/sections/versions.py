"""Section 3: every API in every version. The cases are made from the message schemas: API × version × kind of values.

Nothing is demanded of a response but that it is one: a frame with the right header that decodes to its last byte, after which the
connection still works. Where a recorded release of Apache Kafka closes the connection, the case only informs. APIs that only brokers call
are left out: their requests change a cluster.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from klamm.conform import generated, recorded
from klamm.conform.case import Absent, Case, Level, Section
from klamm.conform.connection import CLIENT_ID, Connection, error_name, expect_error
from klamm.conform.lab import Lab
from klamm.protocol import messages
from klamm.protocol.apis import APIS, Api, ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.primitives import write_uvarint

SECTION = Section(3, "versions", "Every API in every version")
SOURCE = "Kafka protocol guide: a response matches its request in correlation id and version"
NOT_SENT = frozenset({ApiKey.UPDATE_FEATURES, ApiKey.WRITE_TXN_MARKERS})
"""Not only for brokers, but nobody else should call them by chance."""
DESTRUCTIVE = frozenset({("ElectLeaders", "null"), ("DeleteAcls", "null")})
"""They may change what is not ours: leaders of all partitions, ACLs."""
UNKNOWN_TAGS = write_uvarint(2) + write_uvarint(10_000) + write_uvarint(3) + b"abc" + write_uvarint(10_001) + write_uvarint(0)
SURPLUS = bytes(range(1, 6))


async def _run(lab: Lab, *, api: Api, version: int, kind: str) -> str:
    low, high = lab.versions.get(api.key, (0, -1))
    if not low <= version <= high:
        raise Absent(f"{api.name} {version} is not advertised")
    connection = await lab.connect()
    request = _message(api, version, kind)
    if kind == "tags":
        response = await _with_tags(connection, api, version, request)
    else:
        sent = connection.frame(request, version, more=SURPLUS if kind == "surplus" else b"")
        await connection.write(sent.frame)
        response = await connection.receive(sent)
    after = await connection.ask(messages.ApiVersionsRequest(), 0)
    expect_error(after.error_code, ErrorCode.NONE, what="ApiVersions after it")
    return _errors(response)


def _message(api: Api, version: int, kind: str) -> Any:
    values = "empty" if kind in ("tags", "surplus") else kind
    return generated.message(f"{api.name}Request", version, values)


async def _with_tags(connection: Connection, api: Api, version: int, request: Any) -> Any:
    """Unknown tags in the header and at the end of the body, in place of the count of none."""
    sent = connection.frame(request, version)
    head = 4 + 8 + 2 + len(CLIENT_ID)
    assert sent.frame[head] == 0 and sent.frame[-1] == 0, "neither header nor body has tags"
    payload = sent.frame[4:head] + UNKNOWN_TAGS + sent.frame[head + 1 : -1] + UNKNOWN_TAGS
    sent.frame = len(payload).to_bytes(4, "big") + payload
    await connection.write(sent.frame)
    return await connection.receive(sent)


def _errors(response: Any) -> str:
    """The error codes of a response, as a text."""
    codes: dict[int, None] = {}
    _collect(response, codes)
    return ", ".join(map(error_name, codes))


def _collect(value: Any, codes: dict[int, None]) -> None:
    if isinstance(value, messages.Message):
        for name, inner in zip(value._fields, value, strict=True):
            if name == "error_code":
                codes[inner] = None
            else:
                _collect(inner, codes)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, codes)


def _add(api: Api, version: int, kind: str) -> None:
    index = f"{api.name}.{version}.{kind}"
    informs = recorded.is_broken_by_kafka(f"versions/3.{index}")
    SECTION.cases.append(
        Case(
            "versions", 3, index, Level.INFO if informs else Level.MUST, f"{generated.KINDS[kind]} ({api.name} {version}).", SOURCE,
            partial(_run, api=api, version=version, kind=kind), (api.name, kind) in DESTRUCTIVE,
        )
    )


def _fill() -> None:
    for api in APIS.values():
        if api.draft or api.cluster_action or api.key in NOT_SENT:
            continue
        for version in range(api.min_version, api.max_version + 1):
            for kind in generated.KINDS:
                if kind != "tags" or api.is_flexible(version):
                    _add(api, version, kind)


_fill()
