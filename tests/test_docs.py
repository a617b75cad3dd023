"""The programs in README.md and the pages run as they are printed, and the pages name files and folders that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.tests.harness.pytest_plugin import plugin_arguments

pytestmark = pytest.mark.timeout(300)
"""Each program starts a cluster, on a machine that may be busy. There is no other limit: this one is for a program that hangs."""

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


ADMIN = ROOT / "docs" / "admin.md"
TESTING = ROOT / "docs" / "testing_with_klamm.md"
REGISTER = ROOT / "docs" / "register_broker.md"


def programs(page: Path = README) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def scripts(page: Path) -> list[str]:
    """Programs that are not tests. The one with a client on the loop of the cluster is run by its own test."""
    return [program for program in programs(page) if "def test_" not in program and "aiokafka" not in program]


def test_the_first_screen_of_the_readme_has_the_command_a_test_and_what_is_missing() -> None:
    screen = "\n".join(README.read_text().splitlines()[:40])
    for text in ("make serve", "make test", "```python", "transactions", "TLS", "KRaft"):
        assert text in screen
    assert ["pytest" in program for program in programs()] == [True]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert [page.name for page in sorted((ROOT / "docs").glob("*.md")) if f"]({page.name})" not in index and page.name != "README.md"] == []


def test_the_test_of_a_client_has_ten_lines_and_passes(tmp_path: Path) -> None:
    program = programs()[0]
    assert len([line for line in program.splitlines() if line]) == 10
    (tmp_path / "test_client.py").write_text(program)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_client.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_program_runs(tmp_path: Path) -> None:
    first, second = output(scripts(TESTING)[0], tmp_path)
    assert (first.count(","), second.count(":")) == (2, 1 + second.count(","))


def test_the_tests_of_clients_pass(tmp_path: Path) -> None:
    (program,) = [each for each in programs(TESTING) if "def test_" in each]
    (tmp_path / "test_clients.py").write_text(program)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin_arguments(), "test_clients.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{program.count('def test_')} passed" in run.stdout


def test_the_program_with_a_cluster_for_tests_runs(tmp_path: Path) -> None:
    (program,) = [each for each in programs(TESTING) if "aiokafka" in each]
    assert output(program, tmp_path) == ["1 ['Produce', 'Produce']"]


def output(program: str, folder: Path) -> list[str]:
    run = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@pytest.mark.slow
def test_the_programs_of_the_admin_client_run(tmp_path: Path) -> None:
    replicas, elected = output(scripts(TESTING)[1], tmp_path)
    assert replicas == "(4, 2, 3)"
    assert elected.startswith("{TopicPartition(topic='orders', partition=0): ")
    threads, loop, configs, groups = programs(ADMIN)
    refused, moved = output(threads, tmp_path)
    assert refused.startswith("orders-99 UNKNOWN_TOPIC_OR_PARTITION")
    assert moved == "(4, 2, 3)"
    assert output(loop, tmp_path) == ["True {}"]
    assert output(configs, tmp_path) == ["1000 delete,compact"]
    assert output(groups, tmp_path) == ["billing Empty", "[0, 0]", "{'unheard-of': GroupIdNotFoundError()}"]


def test_the_program_that_holds_the_controller_runs(tmp_path: Path) -> None:
    assert output(scripts(TESTING)[2], tmp_path) == ["DeletionReplicasStopped orders"]


def test_the_broker_that_registers_with_the_controller_comes_online_and_leaves(tmp_path: Path) -> None:
    (program,) = programs(REGISTER)
    assert output(program, tmp_path) == ["online, with topics ['orders']", "offline"]


_LINKING = (
    "README", "architecture", "control", "glossary", "admin", "documents", "register_broker", "serve", "testing_with_klamm", "what_works",
    "comparison", "containers", "index", "questions", "releases", "support", "troubleshooting",
)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
PAGES += [ROOT / "docs" / f"{name}.md" for name in _LINKING]
PAGES += [*sorted((ROOT / "docs" / "adr").glob("*.md")), *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


NEW = {"server/apis/offset_for_leader_epoch.py", "dist/", "src/test/java/OrdersTest.java", "tests/orders.rs"}
"""Files to create: an example, what `make wheels` writes, and those of tutorials."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    names = set(re.findall(r"`([a-z_]+/[\w./*-]*)`", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)))
    assert not sorted(name for name in names - NEW if not list(ROOT.glob(name.rstrip("/"))))
