"""No circle of imports between the modules of the project, imports for types included: each file can be read knowing those it imports."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

PACKAGES = sorted(file.parent.name for file in ROOT.glob("*/__init__.py"))
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


def test_no_folder_imports_itself_through_others() -> None:
    """The folders of a package have an order, and no file imports upward; a package's own modules are a folder too."""
    imported = imports()
    packages = {module for module in imported if any(other.startswith(f"{module}.") for other in imported)}
    folders: dict[str, set[str]] = {}
    for module, others in imported.items():
        if module not in packages:
            folder = module.rpartition(".")[0]
            folders.setdefault(folder, set()).update(other.rpartition(".")[0] for other in others - packages)
            folders[folder].discard(folder)
    assert circles({folder: others & folders.keys() for folder, others in folders.items()}) == []


def test_contracts_give_the_order_of_all_folders_of_a_package() -> None:
    ordered = {
        f"{container}.{folder}"
        for contract in PROJECT["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
        for container in contract.get("containers", ())
        for layer in contract["layers"]
        for folder in re.findall(r"\w+", layer)
    }
    files = [file for package in PACKAGES for file in (ROOT / package).glob("*/**/__init__.py")]
    folders = {".".join(["klamm", *file.parent.relative_to(ROOT).parts]) for file in files}
    assert {folder for folder in folders - ordered if not folder.startswith(EXCEPT)} == set()


def test_each_contract_of_one_knowing_package_names_all_others() -> None:
    packages = {f"klamm.{package}" for package in PACKAGES}
    knowing = [contract for contract in PROJECT["tool"]["importlinter"]["contracts"] if contract["name"].startswith("Only ")]
    assert len(knowing) == 8
    for contract in knowing:
        words = contract["name"].removeprefix("Only ").split(" know")[0]
        assert set(contract["source_modules"]) == packages - {f"klamm.{word}" for word in words.split(" and ")}, contract["name"]


def test_each_package_but_server_and_cli_has_a_list_of_the_packages_that_it_may_know() -> None:
    """A name says what is allowed; everything else is forbidden. Of a package a part may be allowed, module by module. All know seams."""
    packages = set(PACKAGES) - {"seams"}
    lists = {}
    for contract in PROJECT["tool"]["importlinter"]["contracts"]:
        package, _, allowed = contract["name"].partition(" knows ")
        if package in PACKAGES:
            named = packages.intersection(allowed.replace(",", "").split())
            lists[package] = contract
            whole = {module.removeprefix("klamm.").removesuffix(".*") for module in contract["forbidden_modules"]}
            parts = {line.partition(" -> klamm.")[2].split(".")[0] for line in contract.get("ignore_imports", ())}
            assert contract["source_modules"] == [f"klamm.{package}"]
            assert (whole - parts, whole & parts) == (packages - named - {package}, parts), contract["name"]
    assert set(lists) == set(PACKAGES) - {"server", "cli", "schemas"}


def test_no_folder_of_the_root_may_be_imported_under_its_bare_name() -> None:
    banned = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert set(banned) == {*PACKAGES, "benchmarks", "tests"}


def test_no_folder_of_the_product_has_more_than_22_files() -> None:
    """But `server/apis` (a file for each API) and `cli` (a file for each command)."""
    folders = [ROOT / package for package in PACKAGES]
    folders += [folder for package in folders for folder in package.rglob("*") if folder.is_dir()]
    files = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {name for name, number in files.items() if number > 22} <= {"server/apis", "cli"}


MAY_IMPORT_PRIVATE = re.compile(r"from klamm\.[\w.]+ import (?:\([^)]*|[^\n]*)\b_")
"""In source. A file without it is not parsed."""


def test_no_module_imports_a_private_name_of_another() -> None:
    private = [
        f"{file.relative_to(ROOT)}: {name.name}"
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for source in [file.read_text(encoding="utf-8")]
        if MAY_IMPORT_PRIVATE.search(source)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("klamm.")
        for name in node.names
        if name.name.startswith("_")
    ]
    assert private == []


def test_no_file_imports_from_a_file_of_tests() -> None:
    """What several files of tests need has a file of its own, whose name says what it is."""
    lines = {
        f"{file.relative_to(ROOT)}: {line}"
        for folder in ("tests", "benchmarks")
        for file in (ROOT / folder).rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.match(r"\s*(from|import) klamm\.tests\.([a-z_]+\.)*test_", line)
    }
    assert lines == set()


TWICE = {
    ("controller", "ControlledShutdown"),
}
"""(package, class) that may be there twice: an event and the rule by which it elects have Kafka's word, and journals name both."""


def test_no_class_name_is_twice_in_a_package() -> None:
    found: dict[tuple[str, str], list[str]] = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")) if package not in ("tests", "benchmarks") else []:
            for name in re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
                found.setdefault((package, name), []).append(str(file.relative_to(ROOT)))
    assert {key: files for key, files in found.items() if len(files) > 1 and key not in TWICE} == {}
