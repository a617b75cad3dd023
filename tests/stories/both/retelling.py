"""Which recorded stories a real Kafka is told again: a random tenth, or all when what tells them has changed.

A story that was changed is not signed any more (see `story_file.py`), and only recording signs it: so a signed story agreed with a real
Kafka once. It may disagree later only because the code that tells it is another one. A folder of stories keeps a digest of that code in
`telling.sha256`. While it is the digest of the present code, a random tenth of the folder's stories is told to a real Kafka; otherwise all.

    pytest tests/stories/both -m reference                       # a random tenth; the seed is printed
    pytest tests/stories/both -m reference --stories-seed 1234   # the same tenth
    pytest tests --retell                                        # all of them; when all agree, the digests are written

`--stories-share 20`, which `make test` gives, tells Klamm a twentieth of the stories, drawn by the same seed; without it all are told.
So no story may need one before it in its file: `--stories-alone` tells each to a cluster of its own, and recording does that too.

The code that tells is the folder's `conftest.py` and every module of the tests that it imports, directly or not, and other programs beside
them. Comments, docstrings, layout and annotations do not count. Klamm's own modules do not count either, nor where they are imported
from: Kafka is not made of them.
"""

from __future__ import annotations

import ast
import hashlib
import math
import random
from collections.abc import Generator, Iterable, Sequence
from itertools import chain, islice
from pathlib import Path

import pytest

from klamm.tests.stories.both.library import Library
from klamm.tests.stories.both.story_file import read_all

ROOT = Path(__file__).resolve().parents[3]
DIGEST_FILE = "telling.sha256"
FIXTURE = "told_to_kafka"
KLAMM_FIXTURE = "told_to_klamm"
SHARE = 10
"""One story of so many is told again."""
RUN = 4
"""How many neighbouring stories are drawn together."""


def telling_code(folder: Path) -> list[Path]:
    """Files whose code decides what stories of `folder` say: the closure of its conftest's imports within the tests, and Java sources."""
    found: set[Path] = set()
    wanted = [folder / "conftest.py"]
    while wanted:
        file = wanted.pop()
        if file not in found:
            found.add(file)
            wanted += _imported(file)
    return sorted([*found, *folder.glob("*.java")])


def _imported(file: Path) -> Iterable[Path]:
    """Files of `klamm.tests` modules that `file` imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("klamm.tests."):
                module = ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py")
                if module.is_file():
                    yield module


def code_of(source: str) -> str:
    """What of Python source decides what it does: its syntax tree, without docstrings, annotations and positions."""
    return repr(_shape(ast.parse(source)))


def _shape(value: object) -> object:
    """A syntax tree as lists. Empty fields are left out: versions of Python differ in those they have."""
    if isinstance(value, ast.AST):
        fields = [(name, field) for name, field in ast.iter_fields(value) if name not in _NO_CODE and field is not None and field != []]
        return [type(value).__name__, *([name, _shape(field)] for name, field in fields)]
    if isinstance(value, list):
        return [_shape(each) for each in value if not _is_docstring(each) and not _is_import_of_klamm(each)]
    return repr(value)


_NO_CODE = {"annotation", "returns", "type_comment"}


def _is_docstring(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_import_of_klamm(node: object) -> bool:
    """Whether this imports names of Klamm's own modules, not of its tests."""
    if not isinstance(node, ast.ImportFrom) or node.module is None:
        return False
    return node.module.startswith("klamm.") and node.module.split(".")[1] != "tests"


def digest(files: Sequence[Path]) -> str:
    """SHA-256 over names and code of these files."""
    total = hashlib.sha256()
    for file in files:
        text = file.read_text(encoding="utf-8")
        total.update(f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name}\n".encode())
        total.update(code_of(text).encode() if file.suffix == ".py" else text.encode())
    return total.hexdigest()


def is_told_by_present_code(folder: Path) -> bool:
    """Whether all stories of `folder` agreed with a real Kafka when the present code told them."""
    file = folder / DIGEST_FILE
    return file.is_file() and file.read_text(encoding="utf-8").strip() == digest(telling_code(folder))


def drawn(names: Sequence[str], seed: int, share: int = SHARE) -> set[str]:
    """One of so many of these names, at least one; the same seed draws the same ones.

    `RUN` neighbours are drawn together: stories of one file are told to one cluster, whose start costs more than they do.
    """
    ordered = sorted(names)
    runs = [ordered[at : at + RUN] for at in range(0, len(ordered), RUN)]
    random.Random(seed).shuffle(runs)
    return set(islice(chain.from_iterable(runs), math.ceil(len(ordered) / share)))


class Retelling:
    """The part of pytest that selects the stories, says which, and writes the digests."""

    def __init__(self, *, retell: bool, alone: bool, seed: int, share: int) -> None:
        self.retell = retell
        self.alone = alone
        self.seed = seed
        self.share = share
        self.said: list[str] = []
        self._passed: dict[Path, int] = {}

    def pytest_report_header(self) -> str:
        some = "" if self.share == 1 else f", and one of {self.share} for Klamm"
        return f"recorded stories: --stories-seed {self.seed} draws those that a real Kafka is told again{some}"

    @pytest.hookimpl(trylast=True)  # after -k and -m
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if config.getoption("--record") or config.getoption("--rewrite") or self.retell:
            return
        by_folder: dict[Path, list[pytest.Item]] = {}
        for item in items:
            if _tells_kafka(item):
                by_folder.setdefault(item.path.parent, []).append(item)
        dropped: set[pytest.Item] = set()
        for folder, tellings in by_folder.items():
            name = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
            if is_told_by_present_code(folder):
                chosen = drawn([item.nodeid for item in tellings], self.seed)
                dropped |= {item for item in tellings if item.nodeid not in chosen}
                self.said.append(f"{name}: {len(chosen)} of {len(tellings)} stories, drawn by --stories-seed {self.seed}")
            else:
                self.said.append(f"{name}: all {len(tellings)} stories, because the code that tells them has changed (--retell)")
        if self.share > 1:
            told = [item for item in items if KLAMM_FIXTURE in getattr(item, "fixturenames", ())]
            chosen = drawn([item.nodeid for item in told], self.seed, self.share) if told else set()
            dropped |= {item for item in told if item.nodeid not in chosen}
        if dropped:
            config.hook.pytest_deselected(items=[item for item in items if item in dropped])
            items[:] = [item for item in items if item not in dropped]

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        if self.alone:
            for library in (arg for arg in getattr(item, "funcargs", {}).values() if isinstance(arg, Library)):
                library.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self.retell and call.when == "call" and report.passed and _tells_kafka(item):
            self._passed[item.path.parent] = self._passed.get(item.path.parent, 0) + 1
        return report

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        for folder, passed in self._passed.items():
            stories = sum(len(file.stories) for file in read_all(folder))
            if exitstatus == 0 and passed == stories:
                (folder / DIGEST_FILE).write_text(digest(telling_code(folder)) + "\n", encoding="utf-8")
                self.said.append(f"{folder.name}: all {stories} stories agreed; {DIGEST_FILE} is written")
            else:
                self.said.append(f"{folder.name}: {passed} of {stories} stories agreed; {DIGEST_FILE} stays as it was")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        in_processes = config.getoption("numprocesses", None)  # they draw, this one only says by what
        said = self.said or ([f"drawn by --stories-seed {self.seed}, unless all were told"] if in_processes else [])
        if said:
            terminalreporter.section("recorded stories")
            for line in said:
                terminalreporter.write_line(line)


def _tells_kafka(item: pytest.Item) -> bool:
    return FIXTURE in getattr(item, "fixturenames", ())
