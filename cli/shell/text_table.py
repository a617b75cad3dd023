"""Tables of plain text, for tools that print a table once."""

from __future__ import annotations

import io
from collections.abc import Sequence

WIDEST = 100_000
"""A table is never broken to fit a terminal: people pipe it to other programs."""


def text_table(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> tuple[list[str], int]:
    """The lines of a table without borders, and its width. With `numbers` all columns but the first are aligned to the right."""
    from rich.console import Console  # it takes a while, and only tables need it
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for at in range(len(rows[0])):
        table.add_column(justify="right" if numbers and at else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=WIDEST, color_system=None, force_terminal=False)
    with console.capture() as printed:
        console.print(table)
    lines = printed.get().splitlines()
    return [line.rstrip() for line in lines], max(map(len, lines))
