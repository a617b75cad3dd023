"""No circle of imports between the modules of the project, imports for types included: each file can be read knowing those it imports."""

from __future__ import annotations

from collections.abc import Mapping

import grimp

EXCEPT = ("klamm.tests", "klamm.benchmarks")


def imports() -> dict[str, set[str]]:
    """The modules that each module of the project imports."""
    graph = grimp.build_graph("klamm", exclude_type_checking_imports=False)
    modules = {module for module in graph.modules if not module.startswith(EXCEPT)}
    return {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}


def circles(imported: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules each of which imports itself through the others, sorted (Tarjan's strongly connected components)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        path.append(module)
        for other in imported[module]:
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            group = path[path.index(module) :]
            del path[path.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(imported):
        if module not in numbers:
            visit(module)
    return sorted(found)


def test_circle_is_found_whatever_its_length() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"e"}, "e": {"f"}, "f": {"d", "a"}}) == [["b", "c"], ["d", "e", "f"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_module_imports_itself_through_others() -> None:
    assert circles(imports()) == []
