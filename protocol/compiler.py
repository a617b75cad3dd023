"""Makes the classes and the codecs of one message, when they are first wanted.

A `MessageType` stands for one message: its schema, a class for each of its structures, and the decoders and encoders compiled so
far, one for each version. The source of a codec is written by `DecoderSource` or `EncoderSource` and compiled with `exec`; nothing in it comes
from a peer, only from the definitions.

Classes are tuples with named fields, like `typing.NamedTuple`, that hold the fields of all versions. Every field has a default; that of
an array is a new empty list each time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

from klamm.protocol.decoding import DecoderSource
from klamm.protocol.encoding import EncoderSource
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.schema import Field, Schema, Struct

Decoder = Callable[[bytes, int], tuple[Any, int]]
Encoder = Callable[[Any], bytes]


class Message(tuple[Any, ...]):
    """A message or a structure of one: a tuple whose elements have names."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _type: ClassVar[MessageType]

    def _replace(self, **changes: Any) -> Message:
        """A copy with some fields changed."""
        values = [changes.pop(name, value) for name, value in zip(self._fields, self, strict=True)]
        if changes:
            raise TypeError(f"{type(self).__name__} has no {', '.join(changes)}")
        return tuple.__new__(type(self), values)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class MessageType:
    """One message in all its versions."""

    def __init__(self, schema: Schema, module: str) -> None:
        self.schema = schema
        self.name = schema.name
        self.classes: dict[str, type[Message]] = {}
        self.decoders: dict[int, Decoder] = {}
        self.encoders: dict[int, Encoder] = {}
        for struct in _inner_first(schema.root):
            self.classes[struct.name] = self._class(struct, module)
        top = self.classes[schema.root.name]
        for name, cls in self.classes.items():
            if cls is not top:
                setattr(top, name, cls)

    @property
    def top(self) -> type[Message]:
        """The class of the message itself; those of its structures are its attributes."""
        return self.classes[self.schema.root.name]

    def decoder(self, version: int) -> Decoder:
        """The function that reads this version, made on first use."""
        found = self.decoders.get(version)
        if found is None:
            self._check(version)
            source = DecoderSource(self.schema, version, self.classes)
            found = self.decoders[version] = _compile(source.text(self.schema.root), "decode", source.names, f"{self.name} {version}")
        return found

    def encoder(self, version: int) -> Encoder:
        """The function that writes this version, made on first use."""
        found = self.encoders.get(version)
        if found is None:
            found = self.encoders[version] = self.struct_encoder(self.schema.root.name, version)
        return found

    def struct_encoder(self, struct_name: str, version: int) -> Encoder:
        """A function that writes one structure as it stands inside the message."""
        self._check(version)
        struct = self.schema.structs.get(struct_name)
        if struct is None:
            raise LocalProtocolError(f"{self.name} has no structure {struct_name}")
        source = EncoderSource(self.schema, version, self.classes)
        return _compile(source.text(struct), "encode", source.names, f"{self.name} {version} {struct_name}")

    def _check(self, version: int) -> None:
        if version not in self.schema.valid:
            raise LocalProtocolError(f"{self.name} has no version {version}, only {self.schema.valid.low} to {self.schema.valid.high}")

    def _class(self, struct: Struct, module: str) -> type[Message]:
        fields = tuple(field.attribute for field in struct.fields)
        names: dict[str, Any] = {"new": tuple.__new__, "EMPTY": (), **{f"C_{name}": cls for name, cls in self.classes.items()}}
        parameters = []
        values = []
        for field in struct.fields:
            parameter, value = _parameter(field)
            parameters.append(parameter)
            values.append(value)
        source = f"def __new__(cls, {', '.join(parameters)}):\n    return new(cls, ({', '.join(values)},))\n"
        body: dict[str, Any] = {name: property(operator.itemgetter(i)) for i, name in enumerate(fields)}
        qualname = struct.name if struct is self.schema.root else f"{self.schema.root.name}.{struct.name}"
        body |= {"__slots__": (), "_fields": fields, "__match_args__": fields, "_type": self, "__module__": module, "__qualname__": qualname}
        body["__new__"] = _compile(source, "__new__", names, f"{self.name} {struct.name}")
        return type(struct.name, (Message,), body)


def _parameter(field: Field) -> tuple[str, str]:
    """How a field stands in the list of parameters, and what its value is made from."""
    name = field.attribute
    if field.default is None:
        return f"{name}=None", name
    if field.is_array:
        return f"{name}=EMPTY", f"[] if {name} is EMPTY else {name}"
    if field.struct is not None:
        return f"{name}=EMPTY", f"C_{field.struct.name}() if {name} is EMPTY else {name}"
    return f"{name}={field.default!r}", name


def _inner_first(root: Struct) -> list[Struct]:
    """All structures of a message, each behind those it contains."""
    found: dict[str, Struct] = {}

    def visit(struct: Struct) -> None:
        for field in struct.fields:
            if field.struct is not None and field.struct.name not in found:
                visit(field.struct)
        found[struct.name] = struct

    visit(root)
    return list(found.values())


def _compile(source: str, name: str, names: dict[str, Any], what: str) -> Any:
    exec(compile(source, f"<{what}>", "exec"), names)
    return names[name]
