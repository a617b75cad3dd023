"""Judges the journals of short runs without Spark: DuckDB executes the queries of the rules, which SQLGlot translates."""
