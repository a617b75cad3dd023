"""Makes the classes and the codecs of one message, when they are first wanted.

A `MessageType` stands for one message: its schema, a class for each of its structures, and the decoders and encoders compiled so
far, one for each version. The source of a codec is written by `DecoderSource` or `EncoderSource` and compiled with `exec`; nothing in
it comes from a peer, only from the definitions.

Classes are tuples with named fields, like `typing.NamedTuple`, that hold the fields of all versions. Every field has a default; that
of an array is a new empty list each time. What a caller names and calls is a constructor class; what it makes is an instance of that
class's base, which has no `__new__` of its own, because `Row((...))` is then all C and half the cost of `tuple.__new__(Row, (...))`:
decoding 100,000 partition states is mostly that. `isinstance` and `match` take the constructor class as if it were the real one.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar

from klamm.protocol.decoding import DecoderSource
from klamm.protocol.encoding import EncoderSource
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.schema import Field, Schema, Struct

Decoder = Callable[[bytes, int], tuple[Any, int]]
Encoder = Callable[[Any], bytes]


# The type of a named tuple's fields: reads an element in C, where a property of Python would take three times as long.
_Element: Any = type(vars(namedtuple("_One", "first"))["first"])


class Message(tuple[Any, ...]):
    """A message or a structure of one: a tuple whose elements have names."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _type: ClassVar[MessageType]
    _constructor: ClassVar[Constructor]

    def _replace(self, **changes: Any) -> Message:
        """A copy with some fields changed."""
        values = [changes.pop(name, value) for name, value in zip(self._fields, self, strict=True)]
        if changes:
            raise TypeError(f"{type(self).__name__} has no {', '.join(changes)}")
        return type(self)(values)

    def _asdict(self) -> dict[str, Any]:
        """Field names and values, in order; structures inside stay what they are."""
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[Constructor, tuple[Any, ...]]:
        return self._constructor, tuple(self)


class Constructor(type):
    """The type of the classes that callers name; their instances are those of their base."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


class MessageType:
    """One message in all its versions."""

    def __init__(self, schema: Schema, module: str) -> None:
        self.schema = schema
        self.name = schema.name
        self.rows: dict[str, type[Message]] = {}
        self.decoders: dict[int, Decoder] = {}
        self.encoders: dict[int, Encoder] = {}
        self._struct_encoders: dict[tuple[str, int], Encoder] = {}
        for struct in schema.structs.values():
            self.rows[struct.name] = self._row(struct, module)
        self._add_constructors()
        top = self.rows[schema.root.name]
        for name, row in self.rows.items():
            if row is not top:
                setattr(top, name, row._constructor)

    @property
    def top(self) -> Constructor:
        """The class of the message itself; those of its structures are its attributes."""
        return self.rows[self.schema.root.name]._constructor

    def decoder(self, version: int) -> Decoder:
        """The function that reads this version, made on first use."""
        found = self.decoders.get(version)
        if found is None:
            self._check(version)
            source = DecoderSource(self.schema, version, self.rows)
            found = self.decoders[version] = _compile(source.text(self.schema.root), "decode", source.names, f"{self.name} {version}")
        return found

    def encoder(self, version: int) -> Encoder:
        """The function that writes this version, made on first use."""
        found = self.encoders.get(version)
        if found is None:
            found = self.encoders[version] = self.struct_encoder(self.schema.root.name, version)
        return found

    def struct_encoder(self, struct_name: str, version: int) -> Encoder:
        """The function that writes one structure as it stands inside the message, made on first use."""
        found = self._struct_encoders.get((struct_name, version))
        if found is not None:
            return found
        self._check(version)
        struct = self.schema.structs.get(struct_name)
        if struct is None:
            raise LocalProtocolError(f"{self.name} has no structure {struct_name}")
        source = EncoderSource(self.schema, version, self.rows)
        found = _compile(source.text(struct), "encode", source.names, f"{self.name} {version} {struct_name}")
        self._struct_encoders[struct_name, version] = found
        return found

    def _check(self, version: int) -> None:
        if version not in self.schema.valid:
            raise LocalProtocolError(f"{self.name} has no version {version}, only {self.schema.valid.low} to {self.schema.valid.high}")

    def _row(self, struct: Struct, module: str) -> type[Message]:
        fields = tuple(field.attribute for field in struct.fields)
        body: dict[str, Any] = {name: _Element(i, struct.fields[i].name) for i, name in enumerate(fields)}
        qualname = struct.name if struct is self.schema.root else f"{self.schema.root.name}.{struct.name}"
        body |= {"__slots__": (), "_fields": fields, "__match_args__": fields, "_type": self}
        body |= {"__module__": module, "__qualname__": qualname}
        return type(struct.name, (Message,), body)

    def _add_constructors(self) -> None:
        names: dict[str, Any] = {"EMPTY": ()}
        source = []
        for number, struct in enumerate(self.schema.structs.values()):
            names[f"R_{struct.name}"] = self.rows[struct.name]
            parameters, values = zip(*map(_parameter, struct.fields), strict=True)
            source.append(f"def new_{number}(cls, {', '.join(parameters)}):\n    return R_{struct.name}(({', '.join(values)},))\n")
        exec(compile("".join(source), f"<{self.name}>", "exec"), names)
        for number, (name, row) in enumerate(self.rows.items()):
            body = {"__slots__": (), "__new__": names[f"new_{number}"], "__module__": row.__module__, "__qualname__": row.__qualname__}
            row._constructor = names[f"C_{name}"] = Constructor(name, (row,), body)


def _parameter(field: Field) -> tuple[str, str]:
    """How a field stands in the list of parameters, and what its value is made from."""
    name = field.attribute
    if field.default is None:
        return f"{name}=None", name
    if field.is_numbers:
        return f"{name}=EMPTY", name
    if field.is_array:
        return f"{name}=EMPTY", f"[] if {name} is EMPTY else {name}"
    if field.struct is not None:
        return f"{name}=EMPTY", f"C_{field.struct.name}() if {name} is EMPTY else {name}"
    return f"{name}={field.default!r}", name


def _compile(source: str, name: str, names: dict[str, Any], what: str) -> Any:
    exec(compile(source, f"<{what}>", "exec"), names)
    return names[name]
