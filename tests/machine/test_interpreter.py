"""Klamm refuses a Python without a global interpreter lock, at each place where brokers start."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import klamm
from klamm.cli.serving.broker import command as broker
from klamm.cli.serving.serve import command as serve
from klamm.cli.shell.failures import one_line
from klamm.machine import interpreter
from klamm.machine.interpreter import NoInterpreterLock, require_interpreter_lock


@pytest.mark.parametrize("answer", [None, 0])
def test_a_build_with_the_lock_is_accepted(answer: object) -> None:
    require_interpreter_lock({"Py_GIL_DISABLED": answer}.get)


def test_this_build_is_accepted() -> None:
    require_interpreter_lock()


def test_a_free_threaded_build_is_refused_in_one_line() -> None:
    with pytest.raises(NoInterpreterLock, match=r"is a free-threaded build of Python 3\.\d+: Klamm needs ") as refused:
        require_interpreter_lock({"Py_GIL_DISABLED": 1}.get)
    assert one_line(refused.value) == str(refused.value)


@pytest.fixture
def free_threaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python says of itself that it has no lock."""
    monkeypatch.setattr(interpreter, "FREE_THREADED_SINCE", (3, 0))
    monkeypatch.setattr("sysconfig.get_config_var", {"Py_GIL_DISABLED": 1}.get)


@pytest.mark.usefixtures("free_threaded")
def test_serve_and_broker_and_a_cluster_in_a_program_refuse_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\n")
    for command, words in ((serve, ["--port", "0", "--zookeeper", "127.0.0.1:1"]), (broker, [str(file)])):
        assert isinstance(CliRunner().invoke(command, words).exception, NoInterpreterLock)
    with pytest.raises(NoInterpreterLock):
        klamm.Cluster()
