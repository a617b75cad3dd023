"""Decoders that turn a message directly into its JSON object: dicts with Kafka's field names instead of tuples.

The same code generates them from the same definitions as the server's decoders (`protocol/decoding.py`). Names and forms are those of
`protocol/json_form.py`, except for records: of these the object has the size, the first 61 bytes (the header of a record batch), and where
batches of transactions begin, because nobody looks for record bodies in a table. Subscriptions and assignments of a group's members are
decoded (`member_bytes.py`).

A second decoder is for frames of which the journal kept only the first bytes. It fills each dict as it reads, and returns what it has when
the bytes end.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from functools import lru_cache
from struct import Struct as BinaryStruct
from struct import error as struct_error
from typing import Any

from klamm.pipeline.decode import member_bytes
from klamm.protocol.decoding import MAX_ELEMENTS, DecoderSource
from klamm.protocol.messages import message_type
from klamm.protocol.schema import Field, Struct
from klamm.protocol.shapes import UniformRuns

RECORDS_KEPT = 61
"""Bytes of records that are kept: the header of a batch of magic 2."""

_BATCH = BinaryStruct(">qi4xb4xh20xq").unpack_from
"""Of the header: base offset, length behind it, magic, attributes, producer id."""
_BEFORE_LENGTH_ENDS = 12
"""Bytes that the length does not count."""
_MAGIC = 16
"""Where the magic is."""
_TYPE = 68
"""Where the type is in the key of a control record: behind the header, five fields of one byte and the key's version."""
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
"""Attributes: of batches of a transaction, records and markers, and of markers."""

Body = dict[str, Any]
Decode = Callable[[bytes, int], tuple[Body, int]]
DecodeCut = Callable[[bytes, int, int], Body]

_ABSENT: Any = object()


class CutShortError(Exception):
    """The bytes that the journal kept end inside a string."""


def decoder(name: str, version: int) -> Decode:
    """The function `decode(buf, pos) -> (object, end)` of this message and version. It raises RemoteProtocolError and nothing else."""
    kind = message_type(name)
    return _compiled(JsonSource(kind.schema, version, kind.rows), kind.schema.root, f"{name} {version} as JSON")


def cut_decoder(name: str, version: int) -> DecodeCut:
    """The function `decode(buf, pos, size) -> object` for the first bytes of a frame of `size` bytes.

    The object has the fields that are there whole; of records what is there. It raises RemoteProtocolError where the bytes are no such
    message however they went on.
    """
    kind = message_type(name)
    return _compiled(CutSource(kind.schema, version, kind.rows), kind.schema.root, f"{name} {version}, cut, as JSON")


def _compiled(source: DecoderSource, root: Struct, what: str) -> Any:
    text = source.text(root)
    exec(compile(text, f"<{what}>", "exec"), source.names)
    return source.names["decode"]


@lru_cache(1 << 14)
def uuid_text(value: bytes) -> str:
    """A uuid as Kafka writes it: base64url without padding."""
    return urlsafe_b64encode(value)[:22].decode()


def bytes_text(value: bytes | None) -> str | None:
    """Bytes in base64."""
    return None if value is None else b64encode(value).decode()


def records_brief(value: bytes | memoryview | None, size: int) -> Body | None:
    """Records as a table has them; `size` is what the frame says they have."""
    if value is None:
        return None
    brief: Body = {"size": size, "head": b64encode(value[:RECORDS_KEPT]).decode()}
    if len(value) > RECORDS_KEPT and value[_MAGIC] == 2:
        brief |= _transactions(value, size)
    return brief


def _transactions(value: bytes | memoryview, size: int) -> Body:
    """If a batch belongs to a transaction, those that are whole: `batches` of records, `markers` that end transactions. Else nothing."""
    batches: list[Body] = []
    markers: list[Body] = []
    is_transactional = False
    at = 0
    while at + RECORDS_KEPT <= len(value):
        offset, length, magic, attributes, producer_id = _BATCH(value, at)
        end = at + _BEFORE_LENGTH_ENDS + length
        if magic != 2 or length < RECORDS_KEPT - _BEFORE_LENGTH_ENDS or end > size:
            break
        is_transactional = is_transactional or bool(attributes & _TRANSACTIONAL)
        batch = {"offset": offset, "producerId": producer_id}
        if attributes & _CONTROL:
            kind = bytes(value[at + _TYPE : at + _TYPE + 2])
            if len(kind) < 2:  # the journal cut the frame before it
                break
            markers.append(batch | {"isCommit": kind == b"\0\1"})
        else:
            batches.append(batch)
        at = end
    return {"batches": batches, "markers": markers} if is_transactional else {}


def _put(row: Body, name: str, value: Any) -> Body:
    """Add a tagged field where the frame has it."""
    if value is not _ABSENT:
        row[name] = value
    return row


class JsonRuns(UniformRuns):
    """Reads runs of one structure as dicts. `json_names` has Kafka's name of each attribute."""

    def __init__(self, row: type[Any], names: list[str], codes: list[str | None], absent: dict[str, str], kinds: dict[str, Field]) -> None:
        super().__init__(row, names, codes, absent)
        self.kinds = kinds

    def made(self, values: dict[str, str]) -> str:
        """A dict of the fields that the version has."""
        return "{" + ", ".join(f"{self.kinds[name].name!r}: {values[name]}" for name in self.names) + "}"


class JsonSource(DecoderSource):
    """Writes a decoder that makes dicts."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.names |= {
            "ABSENT": _ABSENT, "put": _put, "uuid_text": uuid_text, "bytes_text": bytes_text, "records_brief": records_brief,
            "subscription_brief": member_bytes.subscription_brief, "assignment_brief": member_bytes.assignment_brief,
        }

    def default(self, field: Field) -> str:
        """A field that is not there is not in the object."""
        return "ABSENT"

    def runs(self, row: type[Any], names: list[str], codes: list[str | None], absent: dict[str, str]) -> JsonRuns:  # type: ignore[override]
        struct = self.schema.structs[row.__name__]
        return JsonRuns(row, names, codes, absent, {field.attribute: field for field in struct.fields})

    def made(self, struct: Struct, values: dict[str, str]) -> str:
        """A dict of the fields that the version has; tagged ones only where the frame has them."""
        version = self.version
        there = [field for field in struct.fields if field.attribute in values]
        plain = ", ".join(f"{field.name!r}: {self.form(field, values)}" for field in there if field.is_plain(version))
        without_tags = with_tags = f"{{{plain}}}"
        tagged = [field for field in there if field.is_tagged(version)]
        if not tagged:
            return without_tags
        for field in tagged:
            with_tags = f"put({with_tags}, {field.name!r}, {self.form(field, values)})"
        no_tags = " and ".join(f"{values[field.attribute]} is ABSENT" for field in tagged)
        return f"({without_tags} if {no_tags} else {with_tags})"

    def form(self, field: Field, values: dict[str, str]) -> str:
        """The JSON form of a value that was read."""
        value = values[field.attribute]
        if field.type != "uuid":
            return value
        made = f"[uuid_text(each) for each in {value}]" if field.is_array else f"uuid_text({value})"
        if field.is_tagged(self.version):
            return f"ABSENT if {value} is ABSENT else {made}"
        return f"None if {value} is None else {made}" if self.version in field.nullable else made

    def in_json(self, field: Field) -> str:
        """The name of the function that gives bytes their JSON form."""
        return member_bytes.maker_of(self.schema.name, field.name) or "bytes_text"

    def sized(self, field: Field, where: str, nullable: bool) -> str:
        value = super().sized(field, where, nullable)
        if field.type == "bytes":
            self.line(f"{value} = {self.in_json(field)}({value})")
        elif field.type == "records":
            self.line(f"{value} = records_brief({value}, 0 if {value} is None else len({value}))")
        return value

    def run_of_shape(self, struct: Struct, plain: list[Field], value: str, n: str) -> None:
        if any(field.type == "uuid" for field in plain):
            self.loop(struct, value, n)
        else:
            super().run_of_shape(struct, plain, value, n)


class CutSource(JsonSource):
    """Writes a decoder that keeps what it has read when the bytes end."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.names["CutShortError"] = CutShortError
        self.owner = ""
        """The place where the value that is read now belongs, as the left side of an assignment."""

    def text(self, root: Struct) -> str:
        """The whole source of `decode(buf, pos, size) -> object`."""
        self.owner = "result"
        self.struct(root)
        self.flush()
        self.names |= {"ENDS": (IndexError, struct_error, CutShortError)}
        head = ["def decode(buf, pos, size):", f"    left = {MAX_ELEMENTS}", "    result = {}", "    try:"]
        tail = [
            "    except ENDS: pass",
            "    except RemoteProtocolError as error:",
            "        if 'longer than its frame' not in str(error): raise",
            "    return result",
            "",
        ]
        return "\n".join([*head, *self.lines, "        pass", *tail])

    def struct(self, struct: Struct) -> str:
        owner, row = self.owner, self.fresh("d")
        self.flush()
        self.line(f"{owner} = {row} = {{}}" if owner else f"{row} = {{}}")
        for field in struct.fields:
            if field.is_plain(self.version):
                self.keep(row, struct, field)
        if self.flexible:
            self.owner = ""
            tagged = [field for field in struct.fields if field.is_tagged(self.version)]
            values = self.tags(struct, tagged)
            for field in tagged:
                self.line(f"put({row}, {field.name!r}, {self.form(field, values)})")
        self.owner = owner
        return row

    def keep(self, row: str, struct: Struct, field: Field) -> None:
        """Read a field and put it into its dict at once."""
        self.owner = f"{row}[{field.name!r}]"
        value = self.field(struct, field)
        self.flush()
        self.line(f"{row}[{field.name!r}] = {self.form(field, {field.attribute: value})}")

    def structs(self, struct: Struct, value: str, n: str) -> None:
        self.loop(struct, value, n)

    def loop(self, struct: Struct, value: str, n: str) -> None:
        owner = self.owner
        self.line(f"{owner} = {value} = []" if owner else f"{value} = []")
        self.line(f"for _ in range({n}):")
        self.depth += 1
        self.line("if pos >= len(buf): raise CutShortError")
        self.line(f"{value}.append(None)")
        self.owner = f"{value}[-1]"
        self.struct(struct)
        self.flush()
        self.depth -= 1
        self.owner = owner

    def sized(self, field: Field, where: str, nullable: bool) -> str:
        value = DecoderSource.sized(self, field, where, nullable)
        if field.type == "records":
            self.line(f"if {value} is not None: {value} = records_brief({value}, len({value}) + max(0, pos - len(buf)))")
            return value
        self.line("if pos > len(buf): raise CutShortError")
        if field.type == "bytes":
            self.line(f"{value} = {self.in_json(field)}({value})")
        return value
