"""Writes the Python source of a decoder: one function without calls for one message and version.

Neighbouring fields of fixed size, and the length that follows them, are read by one `Struct`. Structures are inlined; each becomes a
tuple of its class. Arrays of structures have up to three ways, chosen while reading:

* elements of fixed size: one `iter_unpack` over the whole run;
* elements of fixed fields and int32 arrays (partition states): when all have the shape of the first, again one `iter_unpack`,
  through a function made for that shape;
* otherwise a loop.

The decoder refuses what a broker must refuse: null where it is not allowed, counts that exceed the rest of the buffer, more than
MAX_ELEMENTS in the arrays of one message (both before memory is allocated), and truncated data. Lengths below -1 count as null, invalid
UTF-8 is replaced, unknown tags are skipped; a tag that only other versions have is refused.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import Any

from klamm.protocol import primitives
from klamm.protocol.schema import Field, Schema, Struct
from klamm.protocol.shapes import UniformRuns

CODES = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d", "bool": "?", "uuid": "16s"}
WIDTHS = {code: Packer(f">{code}").size for code in CODES.values()} | {"B": 1}
RUN_FROM = 4
MAX_ELEMENTS = 2_000_000
"""Maximum number of elements in all arrays of a message; short lists of int32 do not count. A frame of 100 MB can have fifty million
elements, which would be gigabytes of objects.
"""


def has_shape(struct: Struct, version: int) -> bool:
    """Whether a structure has only fixed fields and int32 arrays, none of them tagged; then its counts determine all positions."""
    return all(
        not field.is_tagged(version) and field.struct is None and field.type in CODES
        and (not field.is_array or (field.type == "int32" and version not in field.nullable))
        for field in struct.fields
        if version in field.versions
    ) and all(field.struct is None for field in struct.fields)


class DecoderSource:
    """Collects the lines of one decoder; `names` are the objects that they refer to."""

    runs = UniformRuns
    """What makes the structures of a run that all have one shape."""

    def __init__(self, schema: Schema, version: int, rows: dict[str, type[Any]]) -> None:
        self.schema = schema
        self.version = version
        self.flexible = version in schema.flexible
        self.rows = rows
        self.names: dict[str, Any] = dict(primitives.FOR_DECODERS)
        self.lines: list[str] = []
        self.depth = 2
        self.counter = 0
        self.pending: list[tuple[str, str]] = []

    def text(self, root: Struct) -> str:
        """The whole source of `decode(buf, pos) -> (message, end)`, which raises RemoteProtocolError and nothing else."""
        result = self.struct(root)
        self.flush()
        what = f"{self.schema.name} {self.version}"
        head = ["def decode(buf, pos):", "    size = len(buf)", f"    left = {MAX_ELEMENTS}", "    try:"]
        tail = [
            "    except (IndexError, struct_error) as error:",
            f"        raise RemoteProtocolError('{what} is cut short') from error",
            "    except RemoteProtocolError as error:",
            f"        raise RemoteProtocolError(f'{what}: {{error}}') from None",
            f"    if pos > size: raise RemoteProtocolError('{what} is cut short')",
            "    return result, pos",
            "",
        ]
        return "\n".join([*head, *self.lines, f"        result = {result}", *tail])

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

    def fixed(self, code: str, target: str) -> None:
        """Read one value of fixed size into `target`, together with its neighbours."""
        self.pending.append((code, target))

    def flush(self) -> None:
        """Write the code that reads all pending values; afterwards `pos` is after them."""
        if not self.pending:
            return
        codes = "".join(code for code, _ in self.pending)
        targets = [target for _, target in self.pending]
        if codes == "B":
            self.line(f"{targets[0]} = buf[pos]")
        else:
            reader = self.bind(Packer(">" + codes).unpack_from, "U")
            self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {reader}(buf, pos)")
        self.line(f"pos += {sum(WIDTHS[code] for code, _ in self.pending)}")
        self.pending = []

    # Structures

    def default(self, field: Field) -> str:
        """An expression for the value of a field that the version lacks."""
        if field.default is None:
            return "None"
        if field.is_array:
            return "()" if field.is_numbers else "[]"
        if field.struct is not None:
            return f"{self.bind(self.rows[field.struct.name]._constructor, 'C')}()"
        return repr(field.default)

    def row(self, struct: Struct) -> str:
        name = f"R_{struct.name}"
        self.names[name] = self.rows[struct.name]
        return name

    def struct(self, struct: Struct) -> str:
        """Read a structure; the result is an expression that makes it. Values may still be pending."""
        version = self.version
        values: dict[str, str] = {}
        for field in struct.fields:
            if field.is_plain(version):
                values[field.attribute] = self.field(struct, field)
        if self.flexible:
            tagged = [field for field in struct.fields if field.is_tagged(version)]
            values |= self.tags(struct, tagged)
        return self.made(struct, values)

    def made(self, struct: Struct, values: dict[str, str]) -> str:
        """An expression that makes a structure of the expressions for the values of its fields."""
        parts = [values.get(field.attribute) or self.default(field) for field in struct.fields]
        return f"{self.row(struct)}(({', '.join(parts)},))"

    def tags(self, struct: Struct, tagged: list[Field]) -> dict[str, str]:
        count = self.fresh("n")
        self.fixed("B", count)
        self.flush()
        refused = tuple(field.tag for field in struct.fields if field.tag >= 0 and field not in tagged)
        if not tagged:
            self.line(f"if {count}: pos = skip_tags(buf, pos - 1, {refused})")
            return {}
        values = {field.attribute: self.fresh() for field in tagged}
        for field in tagged:
            self.line(f"{values[field.attribute]} = {self.default(field)}")
        self.line(f"if {count}:")
        self.depth += 1
        self.line(f"{count}, pos = read_uvarint(buf, pos - 1)")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        tag = self.fresh("t")
        self.line(f"{tag}, pos = read_uvarint(buf, pos)")
        for branch, field in enumerate(tagged):
            self.line(f"{'elif' if branch else 'if'} {tag} == {field.tag}:")
            self.depth += 1
            self.line("_, pos = read_uvarint(buf, pos)")  # Apache Kafka reads the field to its end, whatever the size says
            value = self.field(struct, field)
            self.flush()
            self.line(f"{values[field.attribute]} = {value}")
            self.depth -= 1
        self.line(f"else: pos = skip_tag(buf, pos, {tag}, {refused})")
        self.depth -= 2
        return values

    # Fields

    def field(self, struct: Struct, field: Field) -> str:
        """Read one field; the result is an expression for its value, valid after the pending values have been read."""
        where = f"{struct.name}.{field.name}"
        nullable = self.version in field.nullable
        if field.is_array:
            return self.array(field, where, nullable)
        if field.struct is not None:
            return self.single(field.struct, nullable)
        if field.type in CODES:
            target = self.fresh()
            self.fixed(CODES[field.type], target)
            return target
        return self.sized(field, where, nullable)

    def single(self, struct: Struct, nullable: bool) -> str:
        """A structure by itself; one that may be null has a byte before it."""
        if not nullable:
            return self.struct(struct)
        value, there = self.fresh(), self.fresh("n")
        self.fixed("b", there)
        self.flush()
        self.line(f"{value} = None")
        self.line(f"if {there} >= 0:")
        self.depth += 1
        result = self.struct(struct)
        self.flush()
        self.line(f"{value} = {result}")
        self.depth -= 1
        return value

    def sized(self, field: Field, where: str, nullable: bool) -> str:
        """A string or bytes: a length, then as many bytes."""
        value, n, end = self.fresh(), self.fresh("n"), self.fresh("e")
        is_string = field.type == "string"
        compact = self.flexible and not field.never_compact
        self.fixed("B" if compact else "h" if is_string else "i", n)
        self.flush()
        if compact:
            reader = "read_string_length" if is_string else "read_uvarint"
            self.line(f"if {n} > 127: {n}, pos = {reader}(buf, pos - 1)")
        self.line(f"if {n} < {1 if compact else 0}: {f'{value} = None' if nullable else f'raise null({where!r})'}")
        if nullable:
            self.line("else:")
            self.depth += 1
        self.line(f"{end} = pos + {n}{' - 1' if compact else ''}")
        source = "memoryview(buf)" if field.type == "records" else "buf"
        text = '.decode("utf-8", "replace")' if is_string else ""
        self.line(f"{value} = {source}[pos:{end}]{text}")
        self.line(f"pos = {end}")
        if nullable:
            self.depth -= 1
        return value

    # Arrays

    def array(self, field: Field, where: str, nullable: bool) -> str:
        value, n = self.fresh(), self.fresh("n")
        self.fixed("B" if self.flexible else "i", n)
        self.flush()
        short = field.type == "int32"
        if short:
            self.few_numbers(value, n)
            self.depth += 1
        if self.flexible:
            self.line(f"if {n} > 127: {n}, pos = read_uvarint(buf, pos - 1)")
            self.line(f"{n} -= 1")
        self.line(f"if {n} > 0: left -= {n}")
        self.line(f"if left < 0: raise too_many({where!r}, {MAX_ELEMENTS})")
        self.line(f"if {n} < 0: {f'{value} = None' if nullable else f'raise null({where!r})'}")
        if field.struct is None and field.type in CODES:
            width = WIDTHS[CODES[field.type]]
            self.line("else:")
            read = self.bind(primitives.read_fixed(CODES[field.type], width), "R")
            self.line(f"    {value} = {read if field.is_numbers else f'[*{read}'}(buf, pos, {n}){'' if field.is_numbers else ']'}")
            self.line(f"    pos += {width} * {n}")
            self.depth -= short
            return value
        self.line(f"elif {n} * {self.least_width(field)} > size - pos: raise too_long({where!r}, {n})")
        self.line("else:")
        self.depth += 1
        if field.struct is None:
            self.line(f"{value} = []")
            self.line(f"for _ in range({n}):")
            self.depth += 1
            item = self.sized(field, where, False)
            self.line(f"{value}.append({item})")
            self.depth -= 1
        else:
            self.structs(field.struct, value, n)
        self.depth -= 1
        return value

    def few_numbers(self, value: str, n: str) -> None:
        """The most frequent array: a list of replicas (int32). Other cases are handled in the branch that this leaves open."""
        least = 1 if self.flexible else 0
        self.line(f"if {least} <= {n} < {primitives.SMALL_RUN + least}:")
        self.line(f"    {value} = {'COMPACT_READERS' if self.flexible else 'INT32_READERS'}[{n}](buf, pos)")
        self.line(f"    pos += 4 * {n}{' - 4' if self.flexible else ''}")
        self.line("else:")

    def structs(self, struct: Struct, value: str, n: str) -> None:
        plain = [field for field in struct.fields if field.is_plain(self.version)]
        tagged = [field for field in struct.fields if field.is_tagged(self.version)]
        if not tagged and all(not f.is_array and f.struct is None and f.type in CODES for f in plain):
            self.run_of_fixed(struct, plain, value, n)
        elif self.flexible and has_shape(struct, self.version):
            self.run_of_shape(struct, plain, value, n)
        else:
            self.loop(struct, value, n)

    def loop(self, struct: Struct, value: str, n: str) -> None:
        add = self.fresh("a")
        self.line(f"{value} = []")
        self.line(f"{add} = {value}.append")
        self.line(f"for _ in range({n}):")
        self.depth += 1
        result = self.struct(struct)
        self.flush()
        self.line(f"{add}({result})")
        self.depth -= 1

    def run_of_fixed(self, struct: Struct, plain: list[Field], value: str, n: str) -> None:
        codes = "".join(CODES[field.type] for field in plain)
        stride = sum(WIDTHS[CODES[field.type]] for field in plain) + (1 if self.flexible else 0)
        reader = self.bind(Packer(f">{codes}{'x' if self.flexible else ''}").iter_unpack, "I")
        stop = self.fresh("e")
        self.line(f"{stop} = pos + {n} * {stride}")
        if self.flexible:
            self.line(f"if buf[pos + {stride - 1}:{stop}:{stride}].count(0) == {n}:")
            self.depth += 1
        targets = {field.attribute: self.fresh() for field in plain}
        self.line(f"{value} = [{self.made(struct, targets)} for {', '.join(targets.values())}, in {reader}(buf[pos:{stop}])]")
        self.line(f"pos = {stop}")
        if self.flexible:
            self.depth -= 1
            self.line("else:")
            self.depth += 1
            self.loop(struct, value, n)
            self.depth -= 1

    def run_of_shape(self, struct: Struct, plain: list[Field], value: str, n: str) -> None:
        runs = self.runs(self.rows[struct.name], [field.attribute for field in plain], [
            None if field.is_array else CODES[field.type] for field in plain
        ], {field.attribute: self.default(field) for field in struct.fields if field not in plain})
        name = self.bind(runs, "S")
        self.line(f"{value} = None")
        self.line(f"if {n} >= {RUN_FROM}: {value}, pos = {name}.read(buf, pos, {n})")
        self.line(f"if {value} is None:")
        self.depth += 1
        self.loop(struct, value, n)
        self.depth -= 1

    # Sizes

    def least_width(self, field: Field) -> int:
        """The smallest size of an element of this array, at least one, so that every count is limited by the buffer."""
        if field.struct is not None:
            return max(1, self.least_struct(field.struct))
        if field.type in CODES:
            return WIDTHS[CODES[field.type]]
        return self.length_width(field.type)

    def length_width(self, kind: str) -> int:
        return 1 if self.flexible else 2 if kind == "string" else 4

    def least_struct(self, struct: Struct) -> int:
        total = 1 if self.flexible else 0
        for field in struct.fields:
            if not field.is_plain(self.version):
                continue
            if field.is_array:
                total += 1 if self.flexible else 4
            elif field.struct is not None:
                total += 1 if self.version in field.nullable else self.least_struct(field.struct)
            elif field.type in CODES:
                total += WIDTHS[CODES[field.type]]
            else:
                total += self.length_width(field.type)
        return total
