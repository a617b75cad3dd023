"""Every error of the command line has an example: `errors.txt` beside this file has commands, each with its exit code and line on stderr.

    python -m klamm.tests.cli.test_errors    # writes lines and codes of the present code into errors.txt; look at what changed

An error whose text is nowhere in the tests fails the last test: give it an example.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import pytest

from klamm.tests.cli.conftest import Start
from klamm.tests.cli.running import call

FILE = Path(__file__).with_name("errors.txt")
ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "jaas.properties": 'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a";\n',
    "jks.properties": "security.protocol=SSL\nssl.truststore.location=/etc/ssl/trust.jks\n",
    "no-partitions.json": '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": []}]}\n',
    "no-topics.json": '{"version": 1, "topics": []}\n',
    "schedule.json": "{}\n",
    "topics.json": '{"version": 1, "topics": [{"topic": "orders"}]}\n',
    "00000000000000000007.log": "",
    "empty/file": "",
    "lake/journal/file": "",
}
"""Files that the examples name."""

RAISE = {
    "BadClientProperties", "BadFile", "BadParameter", "CannotWrite", "ClickException", "NotReachable", "PackageMissing", "PipelineFailed",
    "BadSource", "ToolFailed", "UsageError", "fail", "failure_of",
}
"""Calls in `cli/` whose argument is the text of an error."""

OF_A_CLUSTER = {
    "reassign-partitions --bootstrap-server {brokers} --generate --topics-to-move-json-file topics.json --broker-list 99":
        "klamm: --broker-list: Unknown broker id 99",
    "reassign-partitions --zookeeper {zookeeper}/none --generate --topics-to-move-json-file topics.json --broker-list 1":
        "klamm: there is no cluster in this ZooKeeper: /brokers/topics does not exist (is the chroot missing?)",
    "pipeline simulate --zookeeper {zookeeper}/none":
        "klamm: {zookeeper}/none: there is no /brokers/topics: no broker has used this ZooKeeper with this path",
    "metadata-log dump --bootstrap-server {brokers} --output 00000000000000000008.log":
        "klamm: --output 00000000000000000008.log: the first batch has offset 0, so the file name must be 00000000000000000000.log",
    "topics create late --config retention.mz=1 --bootstrap-server {brokers}":
        "klamm: late: INVALID_CONFIG: Unknown topic config name: retention.mz; did you mean retention.ms?",
    "configs --bootstrap-server {brokers} --entity-type topics --entity-name orders --alter --add-config cleanup.polcy=compact":
        "klamm: INVALID_CONFIG: Unknown topic config name: cleanup.polcy; did you mean cleanup.policy?",
}
"""Commands and the last line on stderr, where a cluster of broker 1 with the topic `orders` runs. Their exit code is 1."""

WITHOUT_EXAMPLE = {
    "CLUSTER_AUTHORIZATION_FAILED: reading the log needs CLUSTER_ACTION on the cluster",
    "There is an existing assignment running.",
    "log directories of broker",
    "of these failed",
    "replicas are not in sync, and no reassignment is in progress for them",
    "the log has no records from this offset on; no file was written",
    "this needs --bootstrap-server: ZooKeeper does not have this information",
    "the controller sent bytes that are not record batches:",
    "the controller sent a record that cannot be read:",
    "the controller sent no record from offset",
    "the Spark Connect server ended with code",
    "the schedule fills disks, and",
    "ZooKeeper does not respond any more:",
    "s were not enough;",
    "Timed out before these log directory moves could be started:",
}
"""What neither a wrong option nor one command to a working cluster can cause."""


class Example(NamedTuple):
    """A command and how it ends."""

    command: str
    code: int
    line: str


def examples() -> list[Example]:
    """The examples of errors.txt: a line `$ command`, then a line with the exit code and what is on stderr."""
    found = []
    for block in FILE.read_text().split("$ ")[1:]:
        command, _, end = block.strip().partition("\n")
        code, _, line = end.partition(" ")
        found.append(Example(command, int(code) if code else -1, line))
    return found


def write_files(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.command)
def test_a_wrong_command_ends_with_its_line(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KLAMM_CONTROL", raising=False)
    said = call(*shlex.split(example.command)[1:])
    assert (said.returncode, said.stderr, said.stdout) == (example.code, f"{example.line}\n", "")


def test_what_a_cluster_refuses_is_one_line(serve: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    ready = json.loads(serve("--brokers", 1, "--port", 0, "--json", "--topic", "orders", "--config", "registerbroker.enable=true").line())
    places = {"brokers": ready["bootstrap_servers"], "zookeeper": ready["zookeeper"]}
    ended = {command: call(*shlex.split(command.format(**places))) for command in OF_A_CLUSTER}
    assert {command: said.stderr.splitlines()[-1:] for command, said in ended.items()} == {
        command: [line.format(**places)] for command, line in OF_A_CLUSTER.items()
    }
    assert {said.returncode for said in ended.values()} == {1}


def error_texts() -> Iterator[tuple[str, str]]:
    """(place, the longest constant part of the text) of every error that `cli/` makes of a text."""
    for file in sorted((ROOT / "cli").rglob("*.py")):
        for call_ in ast.walk(ast.parse(file.read_text())):
            if isinstance(call_, ast.Call) and getattr(call_.func, "id", getattr(call_.func, "attr", None)) in RAISE:
                parts = [part.strip() for argument in call_.args for part in _constants(argument)]
                text = max(parts, key=len, default="")
                if len(text) > 3:
                    yield f"{file.relative_to(ROOT)}:{call_.lineno}", text


def _constants(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.BinOp):
        return _constants(node.left) + _constants(node.right)
    return [text for part in node.values for text in _constants(part)] if isinstance(node, ast.JoinedStr) else []


def _strings(constant: object) -> list[str]:
    """Strings in a constant of bytecode, functions and tuples within it included."""
    if isinstance(constant, str):
        return [constant]
    parts = constant.co_consts if isinstance(constant, CodeType) else constant if isinstance(constant, tuple | frozenset) else ()
    return [text for part in parts for text in _strings(part)]


def texts_of_tests() -> str:
    """All texts of the tests: files, and strings of modules, without escapes of regular expressions. Of this file those of OF_A_CLUSTER.

    Modules are read as bytecode, which the interpreter keeps: their trees would be four seconds of work.
    """
    texts = [*OF_A_CLUSTER.values()]
    for file in (ROOT / "tests").rglob("*"):
        if file.suffix in (".txt", ".json"):
            texts.append(file.read_text(errors="replace"))
        elif file.suffix == ".py" and file != Path(__file__).resolve():
            code = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
            texts += _strings(code)
    return "\n".join(texts).replace("\\", "")


def test_every_error_of_the_command_line_has_an_example() -> None:
    tested, errors = texts_of_tests(), list(error_texts())
    assert len(errors) > 100
    assert [(place, text) for place, text in errors if text not in tested and text not in WITHOUT_EXAMPLE] == []
    assert {text for text in WITHOUT_EXAMPLE if text in tested} == set()
    assert WITHOUT_EXAMPLE.issubset(text for _, text in errors)


def main() -> None:
    """Write lines and codes of the present code."""
    os.environ.pop("KLAMM_CONTROL", None)
    commands = [example.command for example in examples()]
    written = []
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        os.chdir(folder)
        for command in commands:
            said = call(*shlex.split(command)[1:])
            written.append(f"$ {command}\n{said.returncode} {said.stderr}")
    FILE.write_text("\n".join(written))


if __name__ == "__main__":
    main()
