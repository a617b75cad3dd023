"""Samples of the pages: every program of Python can be compiled, every command of `klamm` is parsed by its own parser, tutorials run.

Programs of some pages run in tests/test_docs.py, those with curl in tests/control.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from klamm.cli.main import klamm
from klamm.tests.cli.running import Running
from klamm.tests.harness.pytest_plugin import plugin_arguments

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"walks.md"}
"""Pages whose blocks are not samples."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in GENERATED),
]
TUTORIALS = ROOT / "docs" / "tutorials"
COMMAND = re.compile(r"^(?:\$ )?(?:echo \w+ \| )?((?:\.venv/bin/)?klamm [^#\n]*)", re.MULTILINE)
"""A line of a block with a command of Klamm."""
ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>", "2>&1"}
PLACEHOLDER = re.compile(r"^[A-Z][A-Z_]+\b|[A-Z]{3,}|…|^[NMFR]$|\|")
"""What stands for a value in a description of a command."""
FILES = ("server.properties", "moves.json", "topics.json", "partitions.json", "plan.json", "chaos-7.json", "FILE", "JOB.py")
FOLDERS = ("lake", "LAKE")


class Sample(NamedTuple):
    """A command of `klamm` on a page, with the line where its block begins or where it stands in the text."""

    page: str
    line: int
    text: str
    is_whole: bool
    """It stands in a block, so it must be complete."""


def blocks(page: Path) -> Iterator[tuple[str, int, str]]:
    """Language, line and text of the fenced blocks of a page."""
    text = page.read_text()
    for block in re.finditer(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
        yield block[2], text.count("\n", 0, block.start()) + 1, textwrap.dedent(block[3])


def samples() -> Iterator[Sample]:
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for language, line, text in blocks(page):
            if language in ("", "sh", "console", "bash"):
                for command in COMMAND.findall(text.replace("\\\n", " ")):
                    yield Sample(name, line, command, is_whole=True)
        prose = re.sub(r"^( *)```.*?^\1```", lambda block: "\n" * block[0].count("\n"), page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for span in re.finditer(r"`(klamm [a-z-][^`]*)`", prose):
            yield Sample(name, prose.count("\n", 0, span.start()) + 1, span[1], is_whole=False)


def arguments_of(text: str) -> list[str]:
    """The words of a command after `klamm`, as a shell gives them to it."""
    words = shlex.split(text.replace("\n", " "))
    end = next((at for at, word in enumerate(words) if word in ENDS), len(words))
    return words[1:end]


def parse(arguments: list[str]) -> None:
    """Let the parser of the command have these. Raises click.UsageError."""
    command: click.Command = klamm
    context = klamm.make_context("klamm", list(arguments))
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, inner, rest = command.resolve_command(context, rest)
        assert inner is not None and name is not None
        command = inner
        context = command.make_context(name, rest, parent=context)


def problem(sample: Sample) -> str | None:
    """What the parser says about a sample; None if it takes it, or lacks only what a description leaves out."""
    arguments = arguments_of(sample.text)
    describes = any(PLACEHOLDER.search(word) or word.startswith("[") for word in arguments)
    if describes:
        arguments = arguments[: arguments.index("COMMAND")] if "COMMAND" in arguments else arguments
        arguments = [word.strip("[]…").partition("|")[0] for word in arguments if word.strip("[]…") not in ("ACTION", "WHICH", "")]
    try:
        parse(arguments)
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        return None
    except click.NoSuchOption as said:
        return said.format_message()
    except click.UsageError as said:
        is_misspelt = "No such command" in said.format_message() or "no such option" in said.format_message().lower()
        return said.format_message() if is_misspelt or (sample.is_whole and not describes) else None
    return None


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that samples name."""
    for name in FILES:
        (tmp_path / name).write_text("")
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("files")
def test_every_command_on_a_page_is_one_that_the_parser_takes() -> None:
    found = list(samples())
    assert sum(sample.is_whole for sample in found) > 60 and len(found) > 200
    said = {f"{sample.page}:{sample.line}: {sample.text.strip()}": problem(sample) for sample in found}
    assert {where: what for where, what in said.items() if what is not None} == {}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("klamm serve --brokrs 1", "No such option"), ("klamm topics creat t", "No such command"), ("klamm serve --brokers many", "many"),
        ("klamm consume", "Missing"),
    ],
)
def test_a_sample_that_is_wrong_is_found(text: str, what: str) -> None:
    assert what in str(problem(Sample("page", 1, text, is_whole=True)))


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=lambda page: page.name)
def test_every_program_of_a_page_can_be_compiled(page: Path) -> None:
    for language, line, text in blocks(page):
        if language == "python":
            compile(text, f"{page.name}:{line}", "exec", dont_inherit=True, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# the tutorials


def block_of(page: str, language: str, number: int = 0) -> str:
    return [text for each, _, text in blocks(TUTORIALS / page) if each == language][number]


def shell(text: str, folder: Path) -> str:
    """The output of a command, with the programs of this environment first on PATH. It must succeed."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", "-o", "pipefail", "-c", text]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{text}: {done.stdout}{done.stderr}"
    return done.stdout


def commands(page: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block_of(page, "console").splitlines() if line.startswith("$ ")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial_about_a_client_passes(tmp_path: Path) -> None:
    program = block_of("test_my_client.md", "python")
    (tmp_path / "test_client.py").write_text(program)
    said = shell(shlex.join(["pytest", "-q", "-p", "no:cacheprovider", *plugin_arguments(), "test_client.py"]), tmp_path)
    assert f"{program.count('def test_')} passed" in said


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial_about_a_cluster_runs(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    running = Running(tmp_path, "serve", "--port", "0", "--json", "--zookeeper", zookeeper + chroot)
    try:
        servers = running.ready()["bootstrap_servers"]
        said = {line: shell(line.replace("localhost:9092", servers), tmp_path) for line in commands("run_a_cluster.md")}
    finally:
        running.kill()
    assert [text for line, text in said.items() if "consume" in line] == ["first\n"]
    assert [text.count("\n") > 5 for line, text in said.items() if "topics describe" in line] == [True]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial_about_a_journal_runs(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    _, serve = block_of("study_a_journal.md", "").splitlines()
    arguments = arguments_of(serve.replace("./lake", str(tmp_path / "lake")))
    running = Running(tmp_path, *arguments, "--port", "0", "--json", "--zookeeper", zookeeper + chroot)
    try:
        servers = running.ready()["bootstrap_servers"]
        shell(f"echo first | klamm produce orders --bootstrap-server {servers}", tmp_path)
    finally:
        running.signal(signal.SIGINT)
        running.ended()
    said = {line: shell(line, tmp_path) for line in commands("study_a_journal.md")}
    assert [text.count("LeaderAndIsr") > 0 for line, text in said.items() if "tail" in line] == [True]
