"""What the command says of itself, and how it takes options that cannot be."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import klamm
from klamm.cli.main import VERBS
from klamm.tests.cli.running import call, run


def test_version_option_prints_the_version() -> None:
    said = run("--version")
    assert (said.returncode, said.stdout, said.stderr) == (0, f"klamm {klamm.__version__}\n", "")


def test_no_arguments_show_the_help() -> None:
    said = run()
    assert said.returncode == 0
    assert all(verb in said.stdout for verb in VERBS)


def test_python_m_klamm_is_the_command() -> None:
    said = subprocess.run([sys.executable, "-m", "klamm", "--version"], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, f"klamm {klamm.__version__}\n")


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("verb", [(), *((verb,) for verb in sorted(VERBS))], ids=lambda verb: verb[0] if verb else "klamm")
def test_every_command_has_help(verb: tuple[str, ...], option: str) -> None:
    said = call(*verb, option)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(" ".join(("Usage: klamm", *verb)))


def test_help_of_serve_names_every_option_and_the_defaults() -> None:
    said = call("serve", "--help").stdout
    for option in ("--brokers", "--host", "--port", "--zookeeper", "--data-dir", "--config", "--topic", "--json"):
        assert option in said
    assert "default: 9092" in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("unheard-of",), "No such command 'unheard-of'.\n"),
        (("servee",), "No such command 'servee'. Did you mean 'serve'?\n"),
        (("pipeline", "chek"), "No such command 'chek'. Did you mean 'check'?\n"),
        (("serve", "--brokers", "three"), "'three' is not a valid integer.\n"),
        (("--unheard-of",), "No such option '--unheard-of'"),
        (("broker",), "Missing argument 'FILE'"),
        (("broker", "x", "--override", "no-value"), "'no-value' is not KEY=VALUE"),
        (("serve", "--brokers", "0"), "0 is not in the range 1<=x<=100"),
        (("serve", "--port", "65534"), "65534 leaves no ports for 3 brokers"),
        (("serve", "--port", "many"), "'many' is not a valid integer"),
        (("serve", "--host", "0.0.0.0"), "--host 0.0.0.0: clients connect to this address"),
        (("serve", "--config", "broker.id=4"), "--config broker.id: is different for each broker"),
        (("serve", "--topic", "orders:x"), "'orders:x' is not NAME:PARTITIONS:RF"),
        (("serve", "--topic", "orders:1:0"), "'orders:1:0' is not NAME:PARTITIONS:RF"),
        (("serve", "--topic", "no/slash"), "--topic: 'no/slash' is not a topic name"),
        (("serve", "--topic", "orders:1:4"), "--topic: orders cannot have 4 replicas on 3 brokers"),
        (("serve", "--topic", "orders", "--topic", "orders:2"), "--topic: orders is named twice"),
        (("serve", "--topic", "orders:1:1:a=1:a=2"), "orders: a is named twice"),
        (("serve", "--config", "num.partitions=1", "--config", "num.partitions=2"), "num.partitions is named twice"),
        (("serve", "--broker-config", "1:broker.rack=a", "--broker-config", "1:broker.rack=b"), "1:broker.rack is named twice"),
        (("serve", "--sasl", "PLAIN", "--user", "eve:a", "--user", "eve:b"), "eve is named twice"),
        (("topics", "create", "t", "--config", "a=1", "--config", "a=2", "--bootstrap-server", "x:1"), "a is named twice"),
        (("control", "--control", "x:1", "create-topic", "t", "--config", "a=1", "--config", "a=2"), "a is named twice"),
        (("control", "--control", "x:1", "broker", "add", "--config", "a=1", "--config", "a=2"), "a is named twice"),
        (("serve", "--topic", "orders:6:3:cleanup.polcy=compact"), "--topic: orders: Unknown topic config name: cleanup.polcy"),
        (("serve", "--topic", "orders:retention.ms=x"), "--topic: orders: Invalid value x for configuration retention.ms"),
        (("serve", "--config", "num.partitions=many"), "--config: Invalid value many for configuration num.partitions"),
        (("serve", "--config", "auto.create.topics.enable"), "is not KEY=VALUE"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(arguments: tuple[str, ...], reason: str) -> None:
    said = call(*arguments)
    assert (said.returncode, said.stdout) == (2, "")
    assert reason in said.stderr
    assert said.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("acls",), ("acls", "--list", "--producer"),
        ("configs", "--describe"), ("configs", "--unheard-of"), ("leader-election", "--election-type", "x"), ("leader-election",),
        ("preferred-replica-election",), ("reassign-partitions", "--list"), ("reassign-partitions", "--throttle", "x"),
    ],
    ids=" ".join,
)
def test_tools_that_stand_in_for_kafkas_end_with_1_for_a_wrong_command_line_too(words: tuple[str, ...]) -> None:
    said = call(*words)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (1, "", 1)


@pytest.mark.parametrize("file, reason", [("no-such-file.properties", "No such file or directory"), ("/", "Is a directory")])
def test_a_file_that_cannot_be_read_is_a_failure_with_exit_code_1(file: str, reason: str) -> None:
    said = call("broker", file)
    assert (said.returncode, said.stdout, said.stderr) == (1, "", f"klamm: {file}: {reason}\n")


@pytest.mark.parametrize(
    ("arguments", "line", "code"),
    [
        (("serve", "--port", "many"), "klamm serve: Invalid value for '--port': 'many' is not a valid integer.", 2),
        (("broker", "no-such-file.properties"), "klamm: no-such-file.properties: No such file or directory", 1),
        (("reassign-partitions", "--list"), "klamm reassign-partitions: exactly one of --bootstrap-server and --zookeeper is needed", 1),
    ],
)
def test_a_process_ends_with_the_same_line_and_code(arguments: tuple[str, ...], line: str, code: int) -> None:
    said = run(*arguments)
    assert (said.returncode, said.stdout, said.stderr) == (code, "", f"{line}\n")
    called = call(*arguments)
    assert (called.returncode, called.stdout, called.stderr) == (code, "", f"{line}\n")


def test_each_command_is_listed_once_and_exit_codes_are_explained() -> None:
    lines = [line.split() for line in call("--help").stdout.splitlines()]
    for verb in VERBS:
        assert [line[0] for line in lines if line[:1] == [verb] or line[:2] == ["klamm", verb]] == [verb]
    assert "Exit codes: 0 success; 1 failure; 2 wrong command line" in " ".join(word for line in lines for word in line)


def test_with_json_a_bad_option_is_a_line_of_json_too() -> None:
    said = run("serve", "--port", "many", "--json")
    assert said.returncode == 2
    reason = json.loads(said.stdout)["error"]
    assert said.stdout.count("\n") == 1
    assert said.stderr == f"klamm serve: {reason}\n"


@pytest.mark.parametrize(
    "arguments",
    [["reassign-partitions", "--help"], ["reassign-partitions", "--list"], ["preferred-replica-election"], ["metadata-log", "dump"],
     ["groups", "offsets", "--help"], ["groups", "reset-offsets", "g", "--bootstrap-server", "x"]],
    ids=" ".join,
)
def test_help_and_bad_options_of_the_tools_import_no_client(arguments: list[str]) -> None:
    script = (
        "import atexit, sys; from klamm.cli.main import main; sys.argv[0] = 'klamm'\n"
        "atexit.register(lambda: print('loaded:', *sys.modules)); main()"
    )
    said = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    loaded = said.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded:" and "klamm.cli.main" in loaded
    assert not {"kafka", "kazoo", "rich", "klamm.admin"} & set(loaded)
