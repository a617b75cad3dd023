"""Spark's SQL as DuckDB's: SQLGlot translates a query, and what it leaves different is replaced here.

Rules are written once, in the SQL of Spark. SQLGlot knows the grammar of both engines and most functions. Two things remain:

* Functions that differ where a list has nulls, where a list must keep its order, or where a text is no JSON. They become calls of macros
  with the name of Spark's function, which are created in each database (`macros.py`).
* `exists`, `format_string`, places in lists, and bytes as hexadecimal digits, which SQLGlot translates wrongly or not at all.

A function that neither SQLGlot nor this module knows stays as it is, and DuckDB refuses the query: a test executes all rules.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlglot
from sqlglot import exp

_TYPES = {
    "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INTEGER", "BIGINT": "BIGINT", "TEXT": "VARCHAR", "BOOLEAN": "BOOLEAN",
}
"""SQLGlot's name of a type → DuckDB's, as a structure of `from_json` has it."""


def translated(sql: str) -> str:
    """A query in Spark's SQL as a query of DuckDB. Raises sqlglot.errors.SqlglotError for what is not Spark's SQL."""
    tree = sqlglot.parse_one(sql, read="spark")
    for node in reversed(list(tree.bfs())):
        replace = _REPLACEMENTS.get(type(node))
        replacement = None if replace is None else replace(node)
        if replacement is not None:
            node.replace(replacement)
    return tree.sql(dialect="duckdb")


def _call(name: str, *arguments: exp.Expr | str) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[exp.convert(each) if isinstance(each, str) else each for each in arguments])


def _macro(name: str, *parts: str) -> Callable[[exp.Expr], exp.Expr]:
    """A call of a macro whose arguments are these parts of the node."""
    return lambda node: _call(name, *(node.args[part] for part in parts))


def _place(node: exp.Expr) -> exp.Expr | None:
    """`list[0]`: Spark counts from 0. `element_at` counts from 1, and takes keys of maps."""
    if node.args.get("offset") is not None:
        return None
    return _call("list_extract", node.this, exp.Add(this=exp.paren(node.expressions[0]), expression=exp.Literal.number(1)))


def _text(node: exp.Expr) -> exp.Expr:
    return node if node.is_string else exp.cast(node, exp.DType.TEXT)


def _concat(node: exp.Expr) -> exp.Expr:
    return exp.paren(_joined([_text(each) for each in node.expressions]))


def _joined(parts: list[exp.Expr]) -> exp.Expr:
    whole = parts[0]
    for part in parts[1:]:
        whole = exp.DPipe(this=whole, expression=part, safe=True)
    return whole


def _format(node: exp.Expr) -> exp.Expr:
    """A text with `%s` in it; a null is written as such."""
    texts = node.this.name.split("%s")
    parts: list[exp.Expr] = [exp.Literal.string(texts[0])]
    for value, text in zip(node.expressions, texts[1:], strict=True):
        parts += [exp.func("coalesce", _text(value), exp.Literal.string("null")), exp.Literal.string(text)]
    return exp.paren(_joined(parts))


def _exists(node: exp.Expr) -> exp.Expr | None:
    if not isinstance(node.expression, exp.Lambda):
        return None
    return _call("spark_any", exp.Transform(this=node.this, expression=node.expression))


def _json_object(node: exp.Expr) -> exp.Expr:
    return _call("spark_get_json_object", node.this, node.expression.sql(dialect="duckdb").strip("'"))


def _from_json(node: exp.Expr) -> exp.Expr:
    kind = node.expression.name
    structure = _structure(_type(kind if "<" in kind.split(" ")[0] else f"struct<{kind}>"))
    return _call("from_json", _call("spark_parsed", node.this), structure)


def _hex(node: exp.Expr) -> exp.Expr | None:
    """Digits of some bytes: DuckDB has no part of bytes, but one of digits."""
    part = node.this
    if not isinstance(part, exp.Substring):
        return None
    first, many = exp.paren(part.args["start"]), exp.paren(part.args["length"])
    two = exp.Literal.number(2)
    start = exp.Sub(this=exp.Mul(this=first, expression=two.copy()), expression=exp.Literal.number(1))
    return exp.Substring(this=exp.Hex(this=part.this), start=start, length=exp.Mul(this=many, expression=two.copy()))


def _collected(node: exp.Expr) -> exp.Expr:
    """Spark collects nothing into an empty list, DuckDB into null."""
    return exp.func("coalesce", node.copy(), exp.Array(expressions=[]))


def _count_if(node: exp.Expr) -> exp.Expr:
    """Over rows where the condition is null, or no rows, Spark counts 0, and DuckDB's `count_if` is null."""
    return exp.Count(this=exp.If(this=node.this, true=exp.Literal.number(1)))


def _max_by(name: str) -> Callable[[exp.Expr], exp.Expr]:
    """DuckDB's plain functions leave out rows where the first argument is null."""
    return lambda node: _call(name, node.this, node.expression)


def _anonymous(node: exp.Expr) -> exp.Expr | None:
    name = node.name.lower()
    if name == "xxhash64":
        return _call("spark_hash", *node.expressions)
    return _call(f"spark_{name}", *node.expressions) if name in ("array_union", "arrays_overlap", "conv") else None


def _type(text: str) -> exp.DataType:
    return exp.DataType.build(text, dialect="spark")


def _structure(kind: exp.Expr) -> str:
    """A type as JSON, which DuckDB's from_json takes."""
    name = kind.this.value if isinstance(kind, exp.DataType) else ""
    if name in ("ARRAY", "LIST"):
        return f"[{_structure(kind.expressions[0])}]"
    if name == "STRUCT":
        return "{" + ", ".join(f'"{field.name}": {_structure(field.args["kind"])}' for field in kind.expressions) + "}"
    return f'"{_TYPES[name]}"'


_REPLACEMENTS: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr | None]] = {
    exp.Anonymous: _anonymous,
    exp.ApproxQuantile: lambda node: _call("quantile_disc", node.this, node.args["quantile"]),
    exp.ArgMax: _max_by("arg_max_null"),
    exp.ArgMin: _max_by("arg_min_null"),
    exp.ArrayAgg: _collected,
    exp.ArrayUniqueAgg: _collected,
    exp.ArrayCompact: _macro("spark_array_compact", "this"),
    exp.ArrayContains: _macro("spark_array_contains", "this", "expression"),
    exp.ArrayDistinct: _macro("spark_array_distinct", "this"),
    exp.ArrayExcept: _macro("spark_array_except", "this", "expression"),
    exp.ArrayIntersect: lambda node: _call("spark_array_intersect", *node.expressions),
    exp.ArraySlice: _macro("spark_slice", "this", "start", "end"),
    exp.ArrayToString: _macro("spark_array_join", "this", "expression"),
    exp.ArraysZip: lambda node: _call("list_zip", *node.expressions),
    exp.Bracket: _place,
    exp.Concat: _concat,
    exp.CountIf: _count_if,
    exp.Exists: _exists,
    exp.Flatten: _macro("spark_flatten", "this"),
    exp.Format: _format,
    exp.FromJson: _from_json,
    exp.Hex: _hex,
    exp.JSONExtractScalar: _json_object,
    exp.Length: _macro("spark_length", "this"),
    exp.MapContainsKey: _macro("spark_map_contains_key", "this", "key"),
    exp.SubstringIndex: _macro("spark_substring_index", "this", "delimiter", "count"),
}
