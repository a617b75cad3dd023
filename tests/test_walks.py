"""The walks of docs/walks.md name functions that exist, and calls that the source of the caller contains."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from klamm.tests.walks import Step, Walk, walks

ROOT = Path(__file__).resolve().parent.parent


@cache
def functions(file: str) -> dict[str, set[str]]:
    """Function or method of a file → the names in its body, those of all functions of that name together."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = found.setdefault(node.name, set())
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name):
                    names.add(inner.id)
                elif isinstance(inner, ast.Attribute):
                    names.add(inner.attr)
    return found


STEPS = [(walk, step) for walk in walks() for step in walk.steps]


@pytest.mark.parametrize(("walk", "step"), STEPS, ids=[f"{step.source}-{step.target}" for _, step in STEPS])
def test_a_step_of_a_walk_names_functions_that_exist(walk: Walk, step: Step) -> None:
    names: set[str] | None = None
    for end in (step.source, step.target):
        file = walk.parts[end.part]
        assert (file is None) == (end.function == ""), f"{end}: a part of Klamm needs a function, others have none"
        if file is not None:
            assert end.function in functions(file), f"{file} has no function {end.function}"
            names = functions(file)[end.function] if end is step.source else names
    if step.is_call:
        assert names is not None and step.target.function in names, f"{step.source} does not call {step.target.function}"
