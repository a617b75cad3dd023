"""Message definitions, read from Kafka-format JSON into immutable objects.

A definition is looked up in the package `schemas` first, then among Kafka's. An installed wheel has Kafka's in one file
(`schemas/packing.py`). A checkout reads the files of the installed kafka-python as data: that package is located but not imported, because
its import takes longer than the whole start of Klamm. The definitions describe later brokers too, so each is limited to the versions that
Klamm supports: fields that none of these versions has are dropped.

Names: a field keeps Kafka's name with a small first letter in JSON (`topicId`), and in Python is written with underscores, one before
every capital but a leading one (`topic_id`, `is_k_raft_controller`), as kafka-python does. Structures keep Kafka's names.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import klamm.schemas
from klamm.protocol.errors import LocalProtocolError
from klamm.schemas import packing

NO_TOP = 32767
PACKED = packing.PACKED
"""The file of `schemas` with Kafka's definitions, in a wheel and in the code that others run."""
_FOLDER = os.path.dirname(str(klamm.schemas.__file__))
_NEEDED = "a checkout of Klamm needs the message definitions of kafka-python 3.0 (`make serve` installs it)"


class Versions(NamedTuple):
    """An inclusive range of versions; empty when `low` is above `high`."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """From `3+`, `1-2`, `0` or `none`."""
        if text is None or text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), NO_TOP)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def cut(self, other: Versions) -> Versions:
        return Versions(max(self.low, other.low), min(self.high, other.high))


class Field(NamedTuple):
    """One field. For an array `type` is the type of its elements; `struct` is set if that is a structure.

    `never_compact` is true of the client id in the request header, whose length has two bytes in every version.
    """

    name: str
    attribute: str
    type: str
    is_array: bool
    struct: Struct | None
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Any
    ignorable: bool
    never_compact: bool

    def is_tagged(self, version: int) -> bool:
        return version in self.tagged

    @property
    def is_numbers(self) -> bool:
        """An array of numbers: its values are tuples, so that they can be shared and the garbage collector ignores them."""
        return self.is_array and self.type in NUMBERS

    def is_plain(self, version: int) -> bool:
        """Present in this version, in its place among the other fields."""
        return version in self.versions and version not in self.tagged


class Struct(NamedTuple):
    """Fields in order, of all versions. Two structures of one message never share a name."""

    name: str
    fields: tuple[Field, ...]


class Schema(NamedTuple):
    """A message and its structures; `root` is the outermost one."""

    name: str
    api_key: int | None
    valid: Versions
    flexible: Versions
    root: Struct
    structs: dict[str, Struct]


NUMBERS = frozenset({"bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64"})


def attribute_name(name: str) -> str:
    """Python's name of a field."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class NoDefinitions(Exception):
    """Kafka's message definitions are not installed. The message is one line."""


def definition(name: str) -> str | None:
    """The JSON that defines a message; None if there is none. Raises NoDefinitions."""
    own = _data(f"{name}.json")
    return _of_kafka(name) if own is None else own


def is_own(name: str) -> bool:
    """Whether the definition of a message is Klamm's own."""
    return _data(f"{name}.json") is not None


def packed() -> str:
    """Kafka's definitions as one text, for code that runs elsewhere; also of a checkout. Raises NoDefinitions."""
    text = _data(PACKED)
    if text is None:
        from importlib.metadata import version

        own = {name.removesuffix(".json") for name in os.listdir(_FOLDER)}
        text = packing.packed(kafka_folder(), version("kafka-python"), own)
    return text


@cache
def kafka_folder() -> Path:
    """The folder of the installed kafka-python with Kafka's definitions, which a checkout reads. Raises NoDefinitions."""
    from importlib.util import find_spec  # takes 2 ms, so it is not imported at start

    spec = find_spec("kafka")
    if spec is None or not spec.submodule_search_locations:
        raise NoDefinitions(f"{_NEEDED}: it is not installed")
    folder = Path(next(iter(spec.submodule_search_locations)), *packing.RESOURCES)
    if not folder.is_dir():
        raise NoDefinitions(f"{_NEEDED}: the installed one has no {'/'.join(packing.RESOURCES)}")
    return folder


@cache
def _unpacked() -> dict[str, str] | None:
    """The definitions of the packed file; None if there is none: in a checkout."""
    text = _data(PACKED)
    return None if text is None else packing.unpacked(text)


def _of_kafka(name: str) -> str | None:
    held = _unpacked()
    if held is not None:
        return held.get(name)
    try:
        return packing.without_comments((kafka_folder() / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _data(name: str) -> str | None:
    """The text of a file of `schemas`, also if this package is imported from a zip, as in Spark's workers."""
    try:
        return str(klamm.schemas.__loader__.get_data(os.path.join(_FOLDER, name)), "utf-8")  # type: ignore[union-attr]
    except OSError:
        return None


def load(name: str, valid: Versions | None = None) -> Schema:
    """The definition of a message for the versions `valid`, or for the versions that it names itself.

    Files of later brokers mark early versions as invalid but still describe them, so `valid` takes precedence.
    """
    text = definition(name)
    if text is None:
        raise LocalProtocolError(f"{name}: no such message")
    spec = json.loads(text)
    return parse(spec, Versions.parse(spec["validVersions"]) if valid is None else valid)


def parse(spec: dict[str, Any], valid: Versions) -> Schema:
    """A definition from its JSON, cut to the versions of `valid`."""
    common = {each["name"]: each["fields"] for each in spec.get("commonStructs", ())}
    structs: dict[str, Struct] = {}
    root = _struct(spec["name"], spec["fields"], valid, common, structs)
    return Schema(spec["name"], spec.get("apiKey"), valid, Versions.parse(spec["flexibleVersions"]), root, structs)


def _struct(name: str, specs: list[Any], valid: Versions, common: dict[str, Any], structs: dict[str, Struct]) -> Struct:
    if name not in structs:
        fields = (_field(spec, valid, common, structs) for spec in specs)
        structs[name] = Struct(name, tuple(field for field in fields if field is not None))
    return structs[name]


def _field(spec: dict[str, Any], valid: Versions, common: dict[str, Any], structs: dict[str, Struct]) -> Field | None:
    versions = Versions.parse(spec["versions"]).cut(valid)
    if versions.low > versions.high:
        return None
    is_array = spec["type"].startswith("[]")
    kind = spec["type"].removeprefix("[]")
    struct = None
    if kind[0].isupper():
        struct = _struct(kind, spec.get("fields") or common[kind], valid, common, structs)
    tag = spec.get("tag")
    return Field(
        name=spec["name"][0].lower() + spec["name"][1:],
        attribute=attribute_name(spec["name"]),
        type=kind,
        is_array=is_array,
        struct=struct,
        versions=versions,
        nullable=Versions.parse(spec.get("nullableVersions")),
        tagged=Versions.parse(spec.get("taggedVersions")).cut(versions),
        tag=-1 if tag is None else int(tag),
        default=_default(kind, is_array, spec.get("default")),
        ignorable=spec.get("ignorable") in (True, "true"),
        never_compact=spec.get("flexibleVersions") == "none",
    )


def _default(kind: str, is_array: bool, given: Any) -> Any:
    """The value of a field that the version lacks. () means an empty array; for a structure, one with its defaults."""
    if given is not None and str(given) == "null":
        return None
    if is_array or kind[0].isupper():
        return ()
    match kind:
        case "string":
            return "" if given is None else str(given)
        case "bool":
            return str(given).lower() == "true"
        case "bytes":
            return b""
        case "records":
            return None
        case "uuid":
            return bytes(16)
        case "float64":
            return 0.0 if given is None else float(given)
        case _:
            return 0 if given is None else int(str(given), 0)
