"""Arrays of partition states: many structures of fixed fields and int32 arrays are read and written at once.

The partitions of a topic mostly have the same number of replicas and of in-sync replicas, so all elements of the array have one length,
and their counts are in the same columns of bytes. `UniformRuns` takes the counts of the first element, compares the column of each count
over the whole array (a slice with a stride, which is fast), and unpacks the array with a comprehension that is made for these counts. The
number of kept comprehensions is limited, because a peer chooses the counts.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packer
from typing import Any

MAX_SHAPES = 64
MAX_KEPT_PACKERS = 4096
MAX_COUNT = 17
WIDTHS = {code: Packer(f">{code}").size for code in ("b", "h", "H", "i", "I", "q", "d", "?", "16s")}

Make = Callable[[bytes], list[Any]]


class UniformRuns:
    """Reads runs of one structure in one flexible version. `codes` has a letter for a fixed field, None for an array of int32."""

    def __init__(self, row: type[Any], names: list[str], codes: list[str | None], absent: dict[str, str]) -> None:
        self.row = row
        self.names = names
        self.codes = codes
        self.absent = absent
        self.gaps: list[int] = []
        gap = 0
        for code in codes:
            if code is None:
                self.gaps.append(gap)
                gap = 0
            else:
                gap += WIDTHS[code]
        self.tail = gap
        self.shapes: dict[tuple[int, ...], Make] = {}

    def read(self, buf: bytes, pos: int, n: int) -> tuple[list[Any] | None, int]:
        """The n structures at `pos` and the position after them; None and `pos` if they do not have the same shape."""
        at = pos
        columns = []
        counts = []
        for gap in self.gaps:
            at += gap
            count = buf[at]
            if not 0 < count <= MAX_COUNT:
                return None, pos
            columns.append(at)
            counts.append(count)
            at += 4 * count - 3
        at += self.tail
        stride = at + 1 - pos
        stop = pos + n * stride
        if stop > len(buf) or buf[at:stop:stride].count(0) != n:
            return None, pos
        for column, count in zip(columns, counts, strict=True):
            if buf[column:stop:stride].count(count) != n:
                return None, pos
        shape = tuple(counts)
        make = self.shapes.get(shape)
        if make is None:
            if len(self.shapes) >= MAX_SHAPES:
                return None, pos
            make = self.shapes[shape] = self.compile(shape)
        return make(buf[pos:stop]), stop

    def compile(self, shape: tuple[int, ...]) -> Make:
        """A function that makes the structures from the bytes of an array."""
        counts = iter(shape)
        layout = ">"
        targets: list[str] = []
        values = dict(self.absent)
        for name, code in zip(self.names, self.codes, strict=True):
            if code is not None:
                layout += code
                targets.append(name)
                values[name] = name
            else:
                items = [f"{name}_{i}" for i in range(next(counts) - 1)]
                layout += f"x{len(items)}i"
                targets += items
                values[name] = f"({''.join(f'{item}, ' for item in items)})"
        names = {"_row": self.row, "_unpack": Packer(layout + "x").iter_unpack}
        source = f"lambda _run: [{self.made(values)} for ({''.join(f'{target}, ' for target in targets)}) in _unpack(_run)]"
        return eval(source, names)

    def made(self, values: dict[str, str]) -> str:
        """An expression that makes a structure of the expressions for the values of its fields."""
        return f"_row(({', '.join(values[field] for field in self.row._fields)},))"


class ShapePackers:
    """Writes one such structure: one `Struct.pack` per combination of array lengths, made on first use.

    A missing one is made from the lengths alone, so the generated code needs only `packers[lengths]`.
    """

    def __init__(self, layout: list[str]) -> None:
        """`layout` has the format letters before, between and after the arrays, counts included."""
        self.layout = layout
        self.kept: dict[tuple[int, ...], Callable[..., bytes]] = {}

    def __getitem__(self, lengths: tuple[int, ...]) -> Callable[..., bytes]:
        pack = self.kept.get(lengths)
        if pack is None:
            if len(self.kept) >= MAX_KEPT_PACKERS:
                self.kept.clear()
            arrays = [f"{n}i" for n in lengths]
            pack = self.kept[lengths] = Packer(">" + "".join(a + b for a, b in zip(self.layout, [*arrays, ""], strict=True))).pack
        return pack
