"""Speaks to people: reads options and files, says what happens, turns failures into one line and an exit code."""
