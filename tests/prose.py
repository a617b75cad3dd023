"""The sentences of a file of Python."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator


def prose(source: str) -> Iterator[str]:
    """Docstrings and comments of a Python file; neighbouring comment lines are one text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield " ".join(node.value.value.split())
    comments = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT]
    lines: list[str] = []
    last = -1
    for token in comments:
        if token.start[0] != last + 1:
            yield " ".join(lines)
            lines = []
        lines.append(token.string.lstrip("# "))
        last = token.start[0]
    yield " ".join(lines)
