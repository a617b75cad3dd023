"""Runs of partition states: structures of fixed fields and int32 arrays, many at a time.

The partitions of a topic mostly have equally many replicas and in-sync replicas, so all elements of the array have one length, and
their counts stand in the same column. `UniformRuns` looks at the first element, checks each count's column over the whole run
(a slice with a stride, so it costs next to nothing), and unpacks the run with a comprehension made for that shape. Shapes are
few; the number kept is bounded because a peer chooses them.
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
        """The n structures at `pos` and the position behind them; None and `pos` where they are not of one shape."""
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
        """A function from the bytes of a run to its structures."""
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
        made = ", ".join(values[field] for field in self.row._fields)
        names = {"_row": self.row, "_unpack": Packer(layout + "x").iter_unpack}
        source = f"lambda _run: [_row(({made},)) for {', '.join(targets)}, in _unpack(_run)]"
        return eval(source, names)


class ShapePackers:
    """Writes one such structure: a `Struct.pack` for each combination of array lengths, made on first sight.

    A missing one is made from the lengths alone, so the generated code needs only `packers[lengths]`.
    """

    def __init__(self, layout: list[str]) -> None:
        """`layout` has the letters of what stands before, between and behind the arrays, counts included."""
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
