"""Runs a drawn share of the long tests with real processes, and all of them in folders whose subject the newest commits touch.

A plugin of pytest: `--long-share PERCENT` (100 where it is not given), `--long-seed N` repeats a draw. Each long test is drawn by itself,
from the seed and its name, so that a test that is added or goes changes nothing for the others; in the folders of `BY_FILE` its file is
drawn so. Only tests marked `slow` in the folders of `DRAWN` are drawn. Whatever is deterministic (the codec, the controller's simulation,
clocks that the test drives) runs in full, except what is marked `many_seeds`: seeds and places of faults beyond those that each run tries.
Of tests marked `retold`, in which a real Kafka does again what is recorded of it, a fifth of the share is drawn. Stories have a draw of
their own (`stories/both/retelling.py`).
"""

from __future__ import annotations

import random
import secrets
import subprocess
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEEDED = frozenset({"tests/controller", "tests/journal"})
"""Folders of deterministic tests; only what is marked `many_seeds` is drawn there."""
DRAWN = SEEDED | {
    f"tests/{folder}"
    for folder in (
        "admin", "blacklist", "chaos", "cli", "clients", "cluster", "conform", "control", "distributions", "docs", "duel", "groups",
        "histories", "images", "logs_on_disk", "mixed", "moves", "pipeline", "pipeline/injected", "pipeline/real_clusters",
        "pipeline/spark", "proxy", "quotas", "reference", "registered", "security", "server/net", "server/replication", "testing",
        "tools", "transactions", "versions",
    )
}
"""Folders whose long tests run processes or Spark or measure real time, or repeat with all of a list what a short one shows with some; and
those of `SEEDED`."""
BY_FILE = frozenset({"tests/pipeline"})
"""Folders whose long tests share what costs most of their time, tables that Spark makes: their files are drawn, each in full."""
RETOLD_PART = 5
NEWEST = 3
"""Commits whose subjects are tested in full."""
WIDE = 40
"""A commit that changes more files than this has no subject: it would bring all folders."""

DRAW = "drawn_tests"
"""What the processes of a run are told: seed and folders."""

SUBJECTS = {
    "admin": {"admin", "clients", "tools"},
    "broker": {"histories"},
    "chaos": {"chaos", "histories"},
    "broker/log": {"histories", "logs_on_disk"},
    "cli": {"cli", "tools"},
    "configs": {"cli"},
    "conform": {"conform"},
    "controller": {"cluster", "controller"},
    "controller/brokers": {"registered"},
    "controller/decisions": {"blacklist", "journal"},
    "controller/metadata_log": {"registered"},
    "controller/reassignment": {"moves"},
    "controller/throttles": {"moves"},
    "controller/writes": {"moves"},
    "distributions": {"images"},
    "journal": {"journal", "pipeline/real_clusters"},
    "pipeline": {"pipeline"},
    "pipeline/decode": {"pipeline/real_clusters"},
    "pipeline/quick": {"pipeline/injected"},
    "pipeline/rules": {"pipeline/injected", "pipeline/real_clusters"},
    "pipeline/spark": {"pipeline/spark"},
    "protocol": {"clients"},
    "proxy": {"proxy"},
    "server": {"clients"},
    "server/listeners": {"clients", "cluster", "security", "server/net"},
    "server/net": {"clients", "cluster", "server/net"},
    "server/replication": {"histories", "server/replication"},
    "server/request_registration": {"registered"},
    "server/security": {"security"},
    "zk": {"cluster", "mixed"},
}
"""Folder of the product → folders of tests whose subject it is, besides those of the folder around it."""


def touched(files: Iterable[str]) -> set[str]:
    """The folders of tests whose subject these files are; tests and their folder belong together."""
    found: set[str] = set()
    for file in files:
        folders = [str(folder) for folder in Path(file).parents]
        found.update(f"tests/{name}" for folder in folders for name in SUBJECTS.get(folder, ()))
        found.update(DRAWN.intersection(folders))
    return found


def folder_among(nodeid: str, folders: Set[str]) -> str | None:
    """The one of these folders that holds a test, at any depth; None if it is in none of them."""
    return next((str(folder) for folder in Path(nodeid.partition("::")[0]).parents if str(folder) in folders), None)


def newest_files() -> list[str]:
    """What the newest commits changed that are not wide; nothing where there is no history."""
    command = ["git", "log", "-n", str(NEWEST), "--format=%x00", "--name-only"]
    try:
        output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    commits = [commit.split("\n") for commit in output.split("\0")]
    return [file for files in commits if len(files) <= WIDE for file in files if file]


def is_drawn(nodeid: str, seed: int, share: int) -> bool:
    """Whether a test is among the `share` percent that this seed draws."""
    return random.Random(f"{seed} {nodeid}").random() * 100 < share


class LongTestDraw:
    """Leaves out the tests that are not drawn."""

    def __init__(self, seed: int, share: int, in_full: set[str]) -> None:
        self._seed = seed
        self._share = share
        self._in_full = in_full

    def _is_run(self, item: pytest.Item) -> bool:
        folder = folder_among(item.nodeid, DRAWN)
        marker = "many_seeds" if folder in SEEDED else "slow"
        is_drawn_from = folder is not None and item.get_closest_marker(marker) is not None
        share = self._share // RETOLD_PART if item.get_closest_marker("retold") is not None else self._share
        name = item.nodeid.partition("::")[0] if folder in BY_FILE else item.nodeid
        return not is_drawn_from or folder in self._in_full or is_drawn(name, self._seed, share)

    def _said(self) -> str:
        rest = ", ".join(sorted(self._in_full)) or "none"
        return f"long tests with real processes: {self._share} % drawn by --long-seed {self._seed}; all of these folders: {rest}"

    def pytest_report_header(self) -> str:
        return self._said()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if not self._is_run(item)]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if self._is_run(item)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("drawn tests")
        terminalreporter.write_line(self._said())


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("long tests")
    group.addoption("--long-share", type=int, default=100, metavar="PERCENT", help="run this share of the long tests with real processes")
    group.addoption("--long-seed", type=int, metavar="N", help="draws them")
    group.addoption("--long-folders", metavar="LIST", help="folders of which all are run, in place of those that the newest commits touch")


def pytest_configure(config: pytest.Config) -> None:
    share = config.getoption("--long-share")
    if not 0 <= share <= 100:
        raise pytest.UsageError(f"--long-share {share} is no percentage from 0 to 100")
    if share == 100:
        return
    of_run = getattr(config, "workerinput", {}).get(DRAW)
    if of_run is not None:
        config.option.long_seed, config.option.long_folders = of_run
    if config.option.long_seed is None:
        config.option.long_seed = secrets.randbelow(1_000_000)
    if config.option.long_folders is None:
        config.option.long_folders = ",".join(sorted(touched(newest_files()) & DRAWN))
    in_full = set(config.option.long_folders.split(",")) - {""}
    config.pluginmanager.register(LongTestDraw(config.option.long_seed, share, in_full), "draw")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Each process of a run draws the same tests."""
    node.workerinput[DRAW] = node.config.option.long_seed, node.config.option.long_folders
