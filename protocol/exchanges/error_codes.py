"""Error codes of responses: where they are follows from the definition of the message. All that counts or shows errors uses this.

A function is compiled for each response and version, for messages as the codec makes them or for objects as they are in JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages import message_type
from klamm.protocol.schema import Field, Struct

Paths = dict[tuple[str, int], int]
"""(path, error code) → how often, without code 0. A path is `topics[].partitions[].errorCode`."""

NO_CODES: Paths = {}

PathCounter = Callable[[dict[str, Any]], Paths]
CodeCounter = Callable[[Any], dict[int, int]]


def is_error_code(field: Field) -> bool:
    """Whether a field of a response is an error code."""
    return field.type == "int16" and not field.is_array and field.name.endswith(("errorCode", "ErrorCode"))


@cache
def path_counter(name: str, version: int) -> PathCounter | None:
    """A function that counts the error codes other than 0 of this response, as an object of JSON whose end may be missing; None if it has
    no such field.
    """
    return _compiled(name, version, lambda row, field: f"{row}.get({field.name!r})", lambda path: f"{path!r}, code", "code")


@cache
def code_counter(name: str, version: int | None) -> CodeCounter | None:
    """The same for a message, with the fields of all versions for None: code → how often, code 0 too, as Kafka counts them
    (`AbstractResponse.errorCounts` of 3.9.1). The codes of a structure come before those inside it.
    """
    return _compiled(name, version, lambda row, field: f"{row}.{field.attribute}", lambda path: "code", "code is not None")


def error_counts(response: Any, version: int | None) -> dict[int, int]:
    """Error code → how often it is in a decoded response, code 0 too, in the order of `code_counter`."""
    count = code_counter(response._type.name, version)
    return {} if count is None else count(response)


def first_error(response: Any) -> int:
    """The first error code other than 0 in a decoded response, or in one that is made; 0 without one."""
    return next((code for code in error_counts(response, None) if code), 0)


def error_name(code: int) -> str:
    """The name of an error code; the number if it is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _compiled(
    name: str, version: int | None, read: Callable[[str, Field], str], key: Callable[[str], str], condition: str
) -> Callable[[Any], Any] | None:
    """`read(row, field)` is the source for the value of a field, `key(path)` for what is counted of it, `condition` whether it is."""
    lines: list[str] = []

    def walk(struct: Struct, row: str, path: str, depth: int) -> None:
        pad = "    " * depth
        fields = _fields(struct, version)
        for field in fields:
            if is_error_code(field):
                what = key(f"{path}{field.name}")
                lines.append(f"{pad}code = {read(row, field)}")
                lines.append(f"{pad}if {condition}:")
                lines.append(f"{pad}    if not counts: counts = {{}}")
                lines.append(f"{pad}    counts[{what}] = counts.get(({what}), 0) + 1")
        for field in fields:
            if field.struct is None or not _has_codes(field.struct, version):
                continue
            each, value = f"row{depth}", read(row, field)
            lines.append(f"{pad}for {each} in {f'{value} or ()' if field.is_array else f'({value},)'}:")
            lines.append(f"{pad}    if {each}:")
            walk(field.struct, each, f"{path}{field.name}{'[].' if field.is_array else '.'}", depth + 2)

    root = message_type(name).schema.root
    if not _has_codes(root, version):
        return None
    walk(root, "body", "", 1)
    names: dict[str, Any] = {"NO_CODES": NO_CODES}
    source = "\n".join(["def count(body):", "    counts = NO_CODES", *lines, "    return counts"])
    exec(compile(source, f"<error codes of {name} {version}>", "exec"), names)
    return names["count"]


def _has_codes(struct: Struct, version: int | None) -> bool:
    return any(is_error_code(each) or (each.struct is not None and _has_codes(each.struct, version)) for each in _fields(struct, version))


def _fields(struct: Struct, version: int | None) -> list[Field]:
    return [field for field in struct.fields if version is None or version in field.versions]
