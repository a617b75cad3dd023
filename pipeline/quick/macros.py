"""Functions of Spark's SQL that DuckDB has otherwise, as macros of DuckDB. Translated queries call them."""

from __future__ import annotations

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
