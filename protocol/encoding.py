"""Writes the Python source of an encoder: one function without calls for one message (or structure) and version.

The function appends pieces to a list and joins them once. Neighbouring fields of fixed size are packed by one `Struct`; a structure of
fixed fields and int32 arrays (a partition state) is one `Struct` altogether, chosen by the lengths of its arrays. An element of
an array of structures may be `bytes`: a structure encoded before, written as it is.

The encoder refuses what Kafka's writer refuses: null where it is not allowed; a field that the version lacks, unless it is ignorable or has
its default; numbers and strings out of range. A tagged field is written only when it differs from its default.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import Any

from klamm.protocol import primitives
from klamm.protocol.decoding import CODES, has_shape
from klamm.protocol.schema import Field, Schema, Struct
from klamm.protocol.shapes import ShapePackers


class EncoderSource:
    """Collects the lines of one encoder; `names` are the objects that they refer to."""

    def __init__(self, schema: Schema, version: int, rows: dict[str, type[Any]]) -> None:
        self.schema = schema
        self.version = version
        self.flexible = version in schema.flexible
        self.rows = rows
        self.names: dict[str, Any] = dict(primitives.FOR_ENCODERS)
        self.lines: list[str] = []
        self.depth = 2
        self.counter = 0
        self.pending: list[tuple[str, str]] = []
        self.out = "out"

    def text(self, root: Struct) -> str:
        """The whole source of `encode(message) -> bytes`, which raises LocalProtocolError and nothing else."""
        self.line("parts = []")
        self.line("out = parts.append")
        self.of_row(root, "message")
        self.struct(root, "message")
        self.flush()
        tail = [
            "        return b''.join(parts) if len(parts) < MANY_PARTS else join_slices(parts)",
            "    except (struct_error, TypeError, ValueError, AttributeError) as error:",
            f"        raise not_encoded({self.schema.name!r}, {self.version}, message, error) from error",
            "",
        ]
        return "\n".join(["def encode(message):", "    try:", *self.lines, *tail])

    # Lines and names

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, prefix: str = "v") -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def bind(self, value: Any, prefix: str) -> str:
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def fixed(self, code: str, expression: str) -> None:
        """Write one value of fixed size, together with its neighbours."""
        self.pending.append((code, expression))

    def flush(self) -> None:
        if not self.pending:
            return
        expressions = [expression for _, expression in self.pending]
        if all(code == "B" and expression.isdigit() for code, expression in self.pending):
            self.line(f"{self.out}({bytes(map(int, expressions))!r})")
        else:
            packer = self.bind(Packer(">" + "".join(code for code, _ in self.pending)).pack, "P")
            self.line(f"{self.out}({packer}({', '.join(expressions)}))")
        self.pending = []

    # Structures

    def struct(self, struct: Struct, source: str) -> None:
        """Write the structure that the expression `source` names. Values may still be pending afterwards."""
        version = self.version
        values: dict[str, str] = {}
        for field in struct.fields:
            needed = version in field.versions or not field.ignorable
            values[field.attribute] = self.fresh() if needed else "_"
        self.line(f"{', '.join(values[field.attribute] for field in struct.fields)}, = {source}")
        for field in struct.fields:
            if version not in field.versions and not field.ignorable:
                differs = self.differs(field, values[field.attribute])
                self.line(f"if {differs}: raise absent({f'{struct.name}.{field.name}'!r}, {version})")
        plain = [field for field in struct.fields if field.is_plain(version)]
        if len(plain) > 1 and any(field.is_array for field in plain) and has_shape(struct, version):
            self.shape(struct, plain, values)
            return
        for field in plain:
            self.field(struct, field, values[field.attribute])
        if self.flexible:
            self.tags(struct, [field for field in struct.fields if field.is_tagged(version)], values)

    def differs(self, field: Field, value: str) -> str:
        """An expression: whether a value is not the field's default."""
        if field.default is None:
            return f"{value} is not None"
        if field.is_array or field.type in ("bytes", "records"):
            return f"{value} is None or len({value})"
        if field.struct is not None:
            return f"{value} != {self.bind(self.rows[field.struct.name]._constructor(), 'D')}"
        return f"{value} != {field.default!r}"

    def shape(self, struct: Struct, plain: list[Field], values: dict[str, str]) -> None:
        """A structure of fixed fields and int32 arrays, in one go; with long arrays field by field."""
        layout = [""]
        arguments: list[str] = []
        lengths: list[str] = []
        for field in plain:
            value = values[field.attribute]
            if field.is_array:
                length = self.fresh("n")
                self.line(f"{length} = len({value})")
                lengths.append(length)
                layout[-1] += "B" if self.flexible else "i"
                layout.append("")
                arguments += [f"{length} + 1" if self.flexible else length, f"*{value}"]
            else:
                self.uuid_check(struct, field, value)
                layout[-1] += self.code(field)
                arguments.append(value)
        if self.flexible:
            layout[-1] += "B"
            arguments.append("0")
        self.flush()
        packers = self.bind(ShapePackers(layout), "S")
        pack = f"{self.out}({packers}[{', '.join(lengths)},]({', '.join(arguments)}))"
        if not self.flexible:
            self.line(pack)
            return
        self.line(f"if {' < 127 and '.join(lengths)} < 127:")
        self.line("    " + pack)
        self.line("else:")
        self.depth += 1
        for field in plain:
            self.field(struct, field, values[field.attribute])
        self.fixed("B", "0")
        self.flush()
        self.depth -= 1

    def tags(self, struct: Struct, tagged: list[Field], values: dict[str, str]) -> None:
        if not tagged:
            self.fixed("B", "0")
            return
        self.flush()
        present: list[tuple[Field, str]] = []
        for field in sorted(tagged, key=lambda each: each.tag):
            flag = self.fresh("t")
            self.line(f"{flag} = 1 if {self.differs(field, values[field.attribute])} else 0")
            present.append((field, flag))
        self.line(f"{self.out}(ONE_BYTE[{' + '.join(flag for _, flag in present)}])")
        outer = self.out
        for field, flag in present:
            self.line(f"if {flag}:")
            self.depth += 1
            parts, joined = self.fresh("parts"), self.fresh("b")
            self.out = f"{parts}.append"
            self.line(f"{parts} = []")
            self.field(struct, field, values[field.attribute])
            self.flush()
            self.out = outer
            self.line(f"{joined} = b''.join({parts})")
            self.line(f"{outer}(write_uvarint({field.tag}) + write_uvarint(len({joined})))")
            self.line(f"{outer}({joined})")
            self.depth -= 1

    # Fields

    def code(self, field: Field) -> str:
        """A bool is packed as a number so that None is refused."""
        return "b" if field.type == "bool" else CODES[field.type]

    def uuid_check(self, struct: Struct, field: Field, value: str) -> None:
        if field.type == "uuid":
            self.line(f"if len({value}) != 16: raise not_uuid({f'{struct.name}.{field.name}'!r})")

    def field(self, struct: Struct, field: Field, value: str) -> None:
        where = f"{struct.name}.{field.name}"
        nullable = self.version in field.nullable
        if not field.is_array and field.struct is None and field.type in CODES:
            self.uuid_check(struct, field, value)
            self.fixed(self.code(field), value)
            return
        if not nullable and (field.is_array or field.struct is None):
            self.line(f"if {value} is None: raise not_null({where!r})")
        if nullable:
            self.flush()
            self.line(f"if {value} is None: {self.out}({self.null(field)!r})")
            self.line("else:")
            self.depth += 1
        if field.is_array:
            self.array(field, value, where)
        elif field.struct is not None:
            if nullable:
                self.fixed("b", "1")
            self.of_row(field.struct, value)
            self.struct(field.struct, value)
        else:
            self.sized(field, value)
        if nullable:
            self.flush()
            self.depth -= 1

    def null(self, field: Field) -> bytes:
        if not field.is_array and field.struct is not None:
            return b"\xff"
        if self.flexible and not field.never_compact:
            return b"\0"
        return b"\xff\xff" if field.type == "string" and not field.is_array else b"\xff\xff\xff\xff"

    def sized(self, field: Field, value: str) -> None:
        """A string or bytes: a length, then as many bytes."""
        kind = field.type
        if kind == "string":
            data = self.fresh("b")
            self.line(f"{data} = {value}.encode()")
        else:
            data = value
        if self.flexible and not field.never_compact:
            length = self.fresh("n")
            self.flush()
            self.line(f"{length} = len({data})")
            longer = f"write_string_length({length})" if kind == "string" else f"write_uvarint({length} + 1)"
            self.line(f"{self.out}(ONE_BYTE[{length} + 1] if {length} < 127 else {longer})")
        else:
            self.fixed("h" if kind == "string" else "i", f"len({data})")
            self.flush()
        self.line(f"{self.out}({data})")

    def array(self, field: Field, value: str, where: str) -> None:
        length = self.fresh("n")
        self.line(f"{length} = len({value})")
        if self.flexible:
            self.flush()
            self.line(f"{self.out}(ONE_BYTE[{length} + 1] if {length} < 127 else write_uvarint({length} + 1))")
        else:
            self.fixed("i", length)
            self.flush()
        if field.struct is None and field.type in CODES and field.type != "uuid":
            code = self.code(field)
            if code == "i":
                self.line(f"if {length} < {primitives.SMALL_RUN}: {self.out}(INT32_WRITERS[{length}](*{value}))")
                self.line(f"else: {self.out}(write_fixed('i', {value}))")
            else:
                self.line(f"{self.out}(write_fixed({code!r}, {value}))")
            return
        item = self.fresh("v")
        self.line(f"for {item} in {value}:")
        self.depth += 1
        if field.struct is not None:
            name = self.row(field.struct)
            self.line(f"if {item}.__class__ is not {name}:")
            self.line(f"    if {item}.__class__ is bytes:")
            self.line(f"        {self.out}({item})")
            self.line("        continue")
            self.line(f"    raise not_struct({field.struct.name!r}, {item})")
            self.struct(field.struct, item)
        elif field.type == "uuid":
            self.line(f"if len({item}) != 16: raise not_uuid({where!r})")
            self.line(f"{self.out}({item})")
        else:
            self.sized(field, item)
        self.flush()
        self.depth -= 1

    def row(self, struct: Struct) -> str:
        name = f"R_{struct.name}"
        self.names[name] = self.rows[struct.name]
        return name

    def of_row(self, struct: Struct, value: str) -> None:
        self.line(f"if {value}.__class__ is not {self.row(struct)}: raise not_struct({struct.name!r}, {value})")
