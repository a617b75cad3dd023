"""The lists of mutants fit the source: every old text is there once, the change is Python, the tests that are to notice exist."""

from __future__ import annotations

import ast

from klamm.tests.mutants import ROOT, mutants, mutate
from klamm.tests.mutants.__main__ import not_copied


def parts_of(source: str) -> list[str]:
    """The statements of a module, and of its classes, each as a module of its own, with the lines above it that belong to none."""
    lines, end = source.splitlines(keepends=True), 0
    parts = []
    for statement in ast.parse(source).body:
        within = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        for number, each in enumerate(within):
            assert each.end_lineno is not None
            is_indented = number > 0  # the first statement of a class comes with the line that begins the class
            parts.append("if True:\n" * is_indented + "".join(lines[end : each.end_lineno]))
            end = each.end_lineno
    return parts


def test_every_mutant_changes_one_place() -> None:
    problems = []
    statements: dict[str, tuple[str, list[str]]] = {}
    for mutant in mutants():
        if mutant.file not in statements:
            text = (ROOT / mutant.file).read_text()
            statements[mutant.file] = text, parts_of(text)
        text, parts = statements[mutant.file]
        try:
            mutated = mutate(mutant, text)
            # one statement is parsed sooner than the file
            ast.parse(next((mutate(mutant, part) for part in parts if mutant.old in part), mutated))
        except (ValueError, SyntaxError) as problem:
            problems.append(f"{mutant.rule}: {problem}")
    assert not problems, "\n".join(problems)


def test_no_two_mutants_are_the_same() -> None:
    changes = [(mutant.file, mutant.old, mutant.new) for mutant in mutants()]
    assert len(set(changes)) == len(changes)


def test_the_tests_that_are_to_notice_exist() -> None:
    for mutant in mutants():
        for test in mutant.tests:
            if test.startswith("-"):
                continue
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text() if name else (ROOT / file).exists(), f"{mutant.rule}: {test}"


def test_a_copy_of_the_tree_has_the_hidden_files_of_golden_logs_and_not_those_of_tools() -> None:
    assert {".git", ".venv", "build"} <= not_copied(str(ROOT), [".git", ".venv", "build", "broker"])
    golden = list((ROOT / "tests/golden/log_folder").rglob(".kafka_cleanshutdown"))
    assert golden
    for path in golden:
        assert not_copied(str(path.parent), [path.name, "__pycache__"]) == {"__pycache__"}
