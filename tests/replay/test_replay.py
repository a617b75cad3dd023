"""The table of bugs is well-formed and is that of the page; some bugs are replayed whole, with releases from the registries."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from klamm.machine.cache_folder import cache_folder
from klamm.pipeline.rules.runner import rules
from klamm.replay import releases
from klamm.replay.play import Played, is_shown, played
from klamm.replay.releases import CLIENTS, PROGRAMS, NotInstalled, command_of
from klamm.replay.table import BUGS, rows
from klamm.tests.cli.running import call
from klamm.tests.harness.names import unique_name

PAGE = Path(__file__).resolve().parents[2] / "docs" / "museum.md"


def test_each_bug_has_a_link_releases_a_client_and_a_rule_that_exist() -> None:
    known = rules()
    for name, bug in BUGS.items():
        assert re.fullmatch(r"[a-z0-9-]+", name) and bug.client in CLIENTS and bug.rule in known, name
        assert bug.links and all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", link) for link in bug.links), name
        assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in (bug.broken, bug.mended) if version is not None), name
        assert (known[bug.rule].severity == "error") == (bug.response_fault is not None), name
        assert bug.symptom and bug.done.endswith("."), name


def test_each_program_is_there() -> None:
    for client in CLIENTS.values():
        for program in re.findall(r"\{programs\}/([\w.-]+)", client.command):
            assert (PROGRAMS / program).exists()


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text()
    assert [row for row in rows() if row not in text] == []


def test_the_list_and_a_wrong_name() -> None:
    assert [each["name"] for each in json.loads(call("replay", "--list", "--json").stdout)] == list(BUGS)
    done = call("replay", "sarama-throttl")
    assert done.returncode == 2 and "sarama-throttle" in done.stderr


@pytest.mark.parametrize(
    ("broken", "mended", "shown"),
    [
        (Played("a", violations=1), Played("b", checked=1), True),
        (Played("a", violations=1), None, True),
        (Played("a", violations=0), Played("b", checked=1), False),
        (Played("a", violations=1), Played("b", violations=1, checked=1), False),
        (Played("a", violations=1), Played("b", checked=0), False),
    ],
)
def test_a_bug_is_shown_if_the_rule_sees_the_broken_release_alone(broken: Played, mended: Played | None, shown: bool) -> None:
    assert is_shown(broken, mended) == shown


def test_a_release_that_cannot_be_installed_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(releases, "PIP", ("sh", "-c", "echo first >&2; echo no such release >&2; exit 1"))
    with pytest.raises(NotInstalled, match=r"^kafka-python 0\.0\.0 cannot be installed from PyPI: no such release$"):
        command_of("kafka-python", "0.0.0")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotInstalled, match=r"^no-kafka 0\.0\.0 cannot be installed from npm: there is no npm here$"):
        command_of("no-kafka", "0.0.0")
    assert list(cache_folder("replay").iterdir()) == []


def test_a_release_that_another_run_installed_meanwhile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder("replay") / "kafka-python-0.0.0"
    monkeypatch.setattr(releases, "PIP", ("sh", "-c", f"mkdir {folder} && touch {folder}/kafka.py"))
    assert str(folder) in command_of("kafka-python", "0.0.0")
    assert list(folder.parent.iterdir()) == [folder] and [each.name for each in folder.iterdir()] == ["kafka.py"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name", ["librdkafka-fetch-12", "kafka-python-throttle", "kafka-fetch-error-layout", "redpanda-leader-epoch-zero", "nisshi-sync-group"]
)
def test_a_bug_is_replayed(zookeeper: str, name: str) -> None:
    broken, mended = played(BUGS[name], f"{zookeeper}/{unique_name('replay')}")
    assert is_shown(broken, mended), (broken, mended)
