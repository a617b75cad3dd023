"""Spark's SQL as DuckDB's: SQLGlot translates a query, and what it leaves different is replaced here.

Rules are written once, in the SQL of Spark. SQLGlot knows the grammar of both engines and most functions. Three things remain:

* Functions that differ where a list has nulls, where a list must keep its order, or where a text is no JSON. They become calls of macros
  with the name of Spark's function, which are created in each database (`MACROS`).
* `try_variant_get`: bodies of messages are JSON here.
* `exists`, `format_string`, places in lists, and bytes as hexadecimal digits, which SQLGlot translates wrongly or not at all.

A function that neither SQLGlot nor this module knows stays as it is, and DuckDB refuses the query: a test executes all rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import exp

_IS_IN = "list_contains(list, each)"
_HAS_NULL = "len(list) > list_count(list)"
_OTHERS_HAVE_NULL = "len(others) > list_count(others)"
_DISTINCT = (
    "CASE WHEN len(list_distinct(list)) = len(list) THEN list "
    "ELSE list_filter(list, lambda each, place: CASE WHEN each IS NULL THEN {first_null} ELSE list_position(list, each) = place END) END"
).format(first_null="place = list_position(list_transform(list, lambda one: one IS NULL), true)")

MACROS = (
    f"spark_array_contains(list, each) AS CASE WHEN {_IS_IN} THEN true WHEN each IS NULL OR {_HAS_NULL} THEN NULL ELSE {_IS_IN} END",
    f"spark_any(list) AS CASE WHEN list_contains(list, true) THEN true WHEN list IS NULL OR {_HAS_NULL} THEN NULL ELSE false END",
    f"spark_array_distinct(list) AS {_DISTINCT}",
    "spark_array_except(list, others) AS CASE WHEN others IS NULL THEN NULL "
    f"WHEN list_has_all(others, list) AND NOT ({_HAS_NULL}) THEN list[2:1] "
    f"ELSE spark_array_distinct(list_filter(list, lambda each: NOT coalesce(list_contains(others, each), {_OTHERS_HAVE_NULL}))) END",
    "spark_array_union(list, others) AS CASE WHEN list IS NOT NULL AND others IS NOT NULL "
    "THEN spark_array_distinct(list_concat(list, others)) END",
    "spark_array_intersect(list, others) AS CASE WHEN others IS NOT NULL "
    f"THEN spark_array_distinct(list_filter(list, lambda each: coalesce(list_contains(others, each), {_OTHERS_HAVE_NULL}))) END",
    f"spark_arrays_overlap(list, others) AS CASE WHEN list_has_any(list, others) THEN true "
    f"WHEN len(list) > 0 AND len(others) > 0 AND ({_HAS_NULL} OR {_OTHERS_HAVE_NULL}) THEN NULL ELSE list_has_any(list, others) END",
    "spark_array_compact(list) AS list_filter(list, lambda each: each IS NOT NULL)",
    "spark_array_join(list, text) AS CASE WHEN list IS NOT NULL THEN coalesce(array_to_string(list, text), '') END",
    f"spark_flatten(list) AS CASE WHEN {_HAS_NULL} THEN NULL ELSE flatten(list) END",
    "spark_slice(list, first, many) AS list_slice(list, first, first + many - 1)",
    "spark_map_contains_key(map, key) AS list_contains(map_keys(map), key)",
    "spark_get_json_object(text, path) AS CASE WHEN json_valid(text) THEN json_extract_string(text, path) END",
    "spark_parsed(text) AS CASE WHEN json_valid(text) THEN CAST(text AS JSON) END",
    "spark_substring_index(text, part, place) AS split_part(text, part, place)",
    "spark_conv(digits, from_base, to_base) AS CAST(TRY_CAST('0x' || digits AS UBIGINT) AS VARCHAR)",
    "spark_hash(a, b := 0, c := 0, d := 0) AS hash(a, b, c, d)",
    "spark_length(value) AS "
    "CASE WHEN typeof(value) = 'BLOB' THEN octet_length(CAST(value AS BLOB)) ELSE length(CAST(value AS VARCHAR)) END",
)
"""What is after CREATE MACRO. `conv` is from base 16 to base 10; `substring_index` returns one part, the last if `place` is -1."""

_TYPES = {
    "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INTEGER", "BIGINT": "BIGINT", "TEXT": "VARCHAR", "BOOLEAN": "BOOLEAN",
    "VARIANT": "JSON",
}  # fmt: skip
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


def _call(name: str, *arguments: Any) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[exp.convert(each) if isinstance(each, str) else each for each in arguments])


def _macro(name: str, *parts: str) -> Callable[[Any], exp.Expr]:
    """A call of a macro whose arguments are these parts of the node."""
    return lambda node: _call(name, *(node.args[part] for part in parts))


def _place(node: Any) -> exp.Expr | None:
    """`list[0]`: Spark counts from 0. `element_at` counts from 1, and takes keys of maps."""
    if node.args.get("offset") is not None:
        return None
    return _call("list_extract", node.this, exp.Add(this=exp.paren(node.expressions[0]), expression=exp.Literal.number(1)))


def _text(node: exp.Expr) -> exp.Expr:
    return node if node.is_string else exp.cast(node, exp.DType.TEXT)


def _concat(node: Any) -> exp.Expr:
    return exp.paren(_joined([_text(each) for each in node.expressions]))


def _joined(parts: list[exp.Expr]) -> exp.Expr:
    whole = parts[0]
    for part in parts[1:]:
        whole = exp.DPipe(this=whole, expression=part, safe=True)
    return whole


def _format(node: Any) -> exp.Expr:
    """A text with `%s` in it; a null is written as such."""
    texts = node.this.name.split("%s")
    parts: list[exp.Expr] = [exp.Literal.string(texts[0])]
    for value, text in zip(node.expressions, texts[1:], strict=True):
        parts += [exp.func("coalesce", _text(value), exp.Literal.string("null")), exp.Literal.string(text)]
    return exp.paren(_joined(parts))


def _exists(node: Any) -> exp.Expr | None:
    if not isinstance(node.expression, exp.Lambda):
        return None
    return _call("spark_any", exp.Transform(this=node.this, expression=node.expression))


def _json_object(node: Any) -> exp.Expr:
    return _call("spark_get_json_object", node.this, node.expression.sql(dialect="duckdb").strip("'"))


def _from_json(node: Any) -> exp.Expr:
    kind = node.expression.name
    structure = _structure(_type(kind if "<" in kind.split(" ")[0] else f"struct<{kind}>"))
    return _call("from_json", _call("spark_parsed", node.this), structure)


def _hex(node: Any) -> exp.Expr | None:
    """Digits of some bytes: DuckDB has no part of bytes, but one of digits."""
    part = node.this
    if not isinstance(part, exp.Substring):
        return None
    first, many = exp.paren(part.args["start"]), exp.paren(part.args["length"])
    two = exp.Literal.number(2)
    start = exp.Sub(this=exp.Mul(this=first, expression=two.copy()), expression=exp.Literal.number(1))
    return exp.Substring(this=exp.Hex(this=part.this), start=start, length=exp.Mul(this=many, expression=two.copy()))


def _collected(node: Any) -> exp.Expr:
    """Spark collects nothing into an empty list, DuckDB into null."""
    return exp.func("coalesce", node.copy(), exp.Array(expressions=[]))


def _max_by(name: str) -> Callable[[Any], exp.Expr]:
    """DuckDB's plain functions leave out rows where the first argument is null."""
    return lambda node: _call(name, node.this, node.expression)


def _anonymous(node: Any) -> exp.Expr | None:
    name = node.name.lower()
    if name == "try_variant_get":
        return _variant(*node.expressions)
    if name == "xxhash64":
        return _call("spark_hash", *node.expressions)
    return _call(f"spark_{name}", *node.expressions) if name in ("array_union", "arrays_overlap", "conv") else None


def _variant(body: exp.Expr, path: exp.Expr, kind: exp.Expr) -> exp.Expr:
    """A value of a body; null if the body does not have it."""
    of = _type(kind.name)
    if of.this == exp.DType.TEXT:
        return _call("json_extract_string", body, path)
    value = _call("json_extract", body, path)
    if of.this == exp.DType.ARRAY:
        return _call("from_json", value, _structure(of))
    if of.this == exp.DType.STRUCT:
        return _call("from_json", value, _structure(of))
    return exp.TryCast(this=value, to=of)


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


_REPLACEMENTS: dict[type[Any], Callable[[Any], exp.Expr | None]] = {
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
