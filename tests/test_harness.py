"""What several tests wait with and drive clusters with is there once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
FILES = sorted(TESTS.rglob("*.py"))

OWN_LOOPS = {
    "clients/traffic.py": "the pace of a client",
    "control/test_every_phase.py": "an operator who looks again and again",
    "controller/simulation/crash_matrix.py": "turns of a simulated loop",
    "controller/simulation/test_network_simulation.py": "turns of a simulated loop",
    "duel/pair.py": "looks at two clusters until they agree or stand still",
    "golden/recording/older_protocols.py": "records until nothing is said any more",
    "harness/process.py": "a process that ends while it is waited for fails at once",
    "harness/waits.py": "the wait",
    "mutants/__main__.py": "waits for a child, whose end has no other sign",
    "security/test_bad_input.py": "the pace of a client",
    "server/local/test_driven_cluster.py": "turns of a driven clock",
    "server/net/test_connection.py": "until nothing moves any more",
    "server/request_registration/test_request_registration.py": "turns of a driven clock",
    "stories/both/command_offsets.py": "asks again while a coordinator loads",
    "stories/both/command_transactions.py": "asks again while a coordinator has something under way",
    "stories/both/telling.py": "looks until an outcome stays the same",
    "zk/test_zk_store.py": "cuts a connection again and again",
}
"""Files with a loop that sleeps, and why it is no wait for a condition."""


TWICE = {
    "Connection": "of a test of Produce, and of a story",
    "Stage": "of the controller with simulated brokers, and of stories, whose code is signed",
    "State": "of a partition in ZooKeeper, and of one in the fixtures of rules",
}
"""Class names that are there twice, and what each is."""


def sleeping_loops(tree: ast.AST) -> Iterator[ast.While]:
    """Loops that sleep; `sleep(0)` only gives the turn to others."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.While):
            calls = [call for call in ast.walk(loop) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)]
            sleeps = [call for call in calls if call.func.attr == "sleep"]  # type: ignore[attr-defined]
            if any(not (isinstance(call.args[0], ast.Constant) and call.args[0].value == 0) for call in sleeps):
                yield loop


def test_tests_wait_for_conditions_with_the_waits_of_the_harness() -> None:
    sources = {file: file.read_text(encoding="utf-8") for file in FILES}
    may_wait = {file: source for file, source in sources.items() if "while " in source and ".sleep(" in source}
    waiting = {str(file.relative_to(TESTS)) for file, source in may_wait.items() if any(sleeping_loops(ast.parse(source)))}
    assert waiting == set(OWN_LOOPS)


def test_a_loop_that_sleeps_is_found_and_one_that_only_gives_the_turn_is_not() -> None:
    assert len(list(sleeping_loops(ast.parse("while not done():\n    time.sleep(0.01)")))) == 1
    assert list(sleeping_loops(ast.parse("while not done():\n    await asyncio.sleep(0)"))) == []


def test_no_class_of_what_tests_share_has_the_name_of_another() -> None:
    """Classes of files that are no tests: those of a test file are seen only in it."""
    found: dict[str, list[str]] = {}
    for file in FILES:
        if not file.name.startswith("test_"):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(str(file.relative_to(TESTS)))
    assert {name for name, files in found.items() if len(files) > 1} == set(TWICE), found


def test_no_folder_of_tests_has_more_than_22_files() -> None:
    files = {str(folder.relative_to(TESTS)): len(list(folder.glob("*.py"))) for folder in TESTS.rglob("*") if folder.is_dir()}
    assert {name: number for name, number in files.items() if number > 22} == {}
