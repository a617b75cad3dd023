"""What is the same for every command: texts of arguments, options before a command, pipes without a reader, addresses."""

from __future__ import annotations

import os
import subprocess

import click
import pytest

from klamm.cli.main import check_texts
from klamm.cli.shell.parameters import HOST
from klamm.cli.tools.commands import print_table
from klamm.tests.cli.running import KLAMM, call


@pytest.mark.parametrize("option", ["-k", "-K", "-H", "-G", "--entity-name"])
def test_an_argument_that_is_not_utf_8_is_one_line(option: str) -> None:
    with pytest.raises(click.UsageError, match="is not valid UTF-8"):
        check_texts(["produce", "orders", option, "\udcff"])
    said = subprocess.run([KLAMM, "produce", "orders", option, b"\xff"], capture_output=True, check=False, timeout=30)
    assert (said.returncode, said.stderr) == (2, b"klamm: '\\udcff' is not valid UTF-8\n")


def test_the_name_of_a_file_need_not_be_utf_8(tmp_path: object) -> None:
    name = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff")
    with open(name, "w"):
        pass
    check_texts(["topics", "list", "--command-config", name])


def test_an_option_before_the_name_of_its_command_is_refused_with_its_place() -> None:
    said = call("topics", "--bootstrap-server", "localhost:1", "create", "t")
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1
    assert "The options of a command belong behind its name: klamm topics COMMAND --bootstrap-server" in said.stderr


def test_a_list_that_nobody_reads_to_its_end_is_no_failure() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        said = subprocess.run([KLAMM, "completion", "bash"], stdout=writing, stderr=subprocess.PIPE, check=False, timeout=30)
    finally:
        os.close(writing)
    assert (said.returncode, said.stderr) == (141, b"")


@pytest.mark.parametrize(("given", "host"), [("[::1]", "::1"), ("::1", "::1"), ("localhost", "localhost"), ("[a]", "[a]"), ("", "")])
def test_an_ipv6_address_may_be_in_brackets(given: str, host: str) -> None:
    assert HOST.convert(given, None, None) == host


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("GROUP",), [], "group")
    assert capsys.readouterr().out == "0 groups\n"
