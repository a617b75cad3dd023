"""Makes the classes and the codecs of one message, on first use.

A `MessageType` is one message: its schema, a class for each of its structures, and one decoder and one encoder per version, compiled on
first use. `DecoderSource` and `EncoderSource` write the source of a codec, and `exec` compiles it; the source depends only on the
definitions, never on data of a peer.

Classes are tuples with named fields, like `typing.NamedTuple`, that hold the fields of all versions. Every field has a default; the
default of an array is a new empty list each time. Callers use a constructor class, whose instances belong to its base class. The base has
no `__new__`, because `Row((...))` then runs in C and costs half of `tuple.__new__(Row, (...))`, which is most of the work of decoding
100,000 partition states. `isinstance` and `match` accept the constructor class in place of the base.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from klamm.protocol.decoding import DecoderSource
from klamm.protocol.encoding import EncoderSource
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.schema import Field, Schema, Struct

Decoder = Callable[[bytes, int], tuple[Any, int]]
Encoder = Callable[[Any], bytes]


# The type of a named tuple's fields: reads an element in C, where a property of Python would take three times as long.
_Element: Any = type(vars(namedtuple("_One", "first"))["first"])


class Message(tuple[Any, ...]):
    """A message or a structure of a message: a tuple whose elements have names."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _type: ClassVar[MessageType]
    _constructor: ClassVar[Constructor]

    if not TYPE_CHECKING:  # the stubs have it with the fields of each class

        def _replace(self, **changes: Any) -> Message:
            """A copy with some fields changed."""
            values = [changes.pop(name, value) for name, value in zip(self._fields, self, strict=True)]
            if changes:
                raise TypeError(f"{type(self).__name__} has no {', '.join(changes)}")
            return type(self)(values)

    def _asdict(self) -> dict[str, Any]:
        """Field names and values, in order; nested structures are not converted."""
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[Constructor, tuple[Any, ...]]:
        return self._constructor, tuple(bytes(value) if value.__class__ is memoryview else value for value in self)


class Constructor(type):
    """The type of the constructor classes; their instances belong to the base class."""

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
        """The class of the message; the classes of its structures are attributes of it."""
        return self.rows[self.schema.root.name]._constructor

    def decoder(self, version: int) -> Decoder:
        """The decoder of this version, made on first use."""
        found = self.decoders.get(version)
        if found is None:
            self._check(version)
            source = DecoderSource(self.schema, version, self.rows)
            found = self.decoders[version] = _compile(source.text(self.schema.root), "decode", source.names, f"{self.name} {version}")
        return found

    def encoder(self, version: int) -> Encoder:
        """The encoder of this version, made on first use."""
        found = self.encoders.get(version)
        if found is None:
            found = self.encoders[version] = self.struct_encoder(self.schema.root.name, version)
        return found

    def struct_encoder(self, struct_name: str, version: int) -> Encoder:
        """The function that encodes one structure as a part of the message, made on first use."""
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
    """The field in the list of parameters, and the expression for its value."""
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
