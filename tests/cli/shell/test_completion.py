"""A shell completes commands, options and values of `klamm`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from klamm.cli.main import VERBS, klamm
from klamm.protocol.errors import ErrorCode
from klamm.server.phases import PHASES
from klamm.tests.cli.running import KLAMM, call


def in_bash(*words: str) -> list[str]:
    """What a bash that has read the script offers for the last word."""
    script = 'eval "$(klamm completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _klamm_completion klamm; echo "${COMPREPLY[@]}"'
    environ = {**os.environ, "PATH": f"{Path(KLAMM).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script, "bash", "klamm", *words], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def offered(monkeypatch: pytest.MonkeyPatch, *words: str, shell: str = "bash") -> list[str]:
    """What `klamm` offers to the script of a shell for the last word."""
    monkeypatch.setenv("COMP_WORDS", " ".join(("klamm", *words)))
    monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
    completion = get_completion_class(shell)
    assert completion is not None
    return completion(klamm, {}, "klamm", "_KLAMM_COMPLETE").complete().splitlines()


def test_bash_completes_a_command_an_option_and_a_config() -> None:
    assert in_bash("ser") == ["serve"]
    assert in_bash("serve", "--brok") == ["--brokers", "--broker-config"]
    assert in_bash("serve", "--config", "log.retention.h") == ["log.retention.hours"]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("",), sorted(VERBS)),
        (("topics", "c"), ["create"]),
        (("pipeline", "ch"), ["check"]),
        (("configs", "--entity-type", ""), ["topics", "brokers", "users", "clients", "ips"]),
        (("broker", "x", "--override", "kip491"), ["kip491.enable"]),
        (("topics", "create", "a", "--config", "cleanup"), ["cleanup.policy"]),
        (("configs", "--delete-config", "preferred_leader"), ["preferred_leader_blacklist"]),
        (("serve", "--api-version", "prod"), ["Produce"]),
        (("control", "fault", "--api", "Heart"), ["Heartbeat"]),
        (("control", "fault", "--error", "NOT_L"), sorted(name for name in ErrorCode.__members__ if name.startswith("NOT_L"))),
        (("control", "hold", "Dele"), sorted(name for name in PHASES if name.startswith("Dele"))),
        (("journal", "tail", "lake", "--api", "leadera"), ["LeaderAndIsr"]),
    ],
    ids=" ".join,
)
def test_names_are_offered(words: tuple[str, ...], values: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [line.partition(",")[2] for line in offered(monkeypatch, *words)] == values


def test_zsh_and_fish_get_names_with_their_help(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered(monkeypatch, "ser", shell="zsh")[:2] == ["plain", "serve"]
    assert offered(monkeypatch, "ser", shell="fish")[0].startswith("plain,serve")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_calls_klamm_for_its_shell(shell: str) -> None:
    said = call("completion", shell)
    assert (said.returncode, said.stderr) == (0, "")
    assert f"_KLAMM_COMPLETE={shell}_complete" in said.stdout
