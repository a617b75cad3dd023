"""Messages for Hypothesis, made from the definitions: any message of any version, with values a peer could send."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from klamm.protocol import messages
from klamm.protocol.compiler import MessageType
from klamm.protocol.schema import Field, Struct

NUMBERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    "bytes": st.binary(max_size=6),
    "records": st.binary(max_size=6),
}


def all_versions(suffixes: tuple[str, ...] = ("Request", "Response")) -> list[tuple[str, int]]:
    """Each message and version of every API, drafts too."""
    return [
        (api.name + suffix, version)
        for api in messages.APIS.values()
        for suffix in suffixes
        for version in range(api.min_version, api.max_version + 1)
    ]


@cache
def message(name: str, version: int) -> st.SearchStrategy[Any]:
    """Any message of this name that this version can say."""
    kind = messages.message_type(name)
    return structure(kind, kind.schema.root, version)


def structure(kind: MessageType, struct: Struct, version: int) -> st.SearchStrategy[Any]:
    there = {field.attribute: value(kind, field, version) for field in struct.fields if version in field.versions}
    return st.builds(kind.rows[struct.name]._constructor, **there)


def value(kind: MessageType, field: Field, version: int) -> st.SearchStrategy[Any]:
    one = structure(kind, field.struct, version) if field.struct is not None else NUMBERS[field.type]
    found: st.SearchStrategy[Any] = one
    if field.is_array:
        found = st.lists(one, max_size=3)
    if field.is_numbers:
        found = st.builds(tuple, found)
    return st.none() | found if version in field.nullable else found
