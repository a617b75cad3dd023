"""The site is complete and needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.distributions import site
from klamm.tests.docs.site_search import build_index

pytestmark = pytest.mark.slow

LOADED = re.compile(r'<(?:script|img|iframe)[^>]+src="?https?:[^" >]+|<link[^>]+rel="?(?:stylesheet|preconnect)[^>]+href="?https?:[^" >]+')


@pytest.fixture(scope="module")
def built() -> Path:
    """The folder of the site, built once."""
    done = subprocess.run([sys.executable, "-m", "klamm.distributions.site"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return site.SITE


@pytest.mark.timeout(600)
def test_nothing_of_a_page_comes_from_a_network(built: Path) -> None:
    for page in built.rglob("*.html"):
        loaded = LOADED.findall(page.read_text())
        assert loaded == [], page.name
    assert (built / "assets" / "mermaid.js").stat().st_size > 1_000_000
    assert (built / "assets" / "iframe-worker.js").exists()


def test_its_search_is_the_one_that_questions_are_asked(built: Path, tmp_path: Path) -> None:
    assert (built / "search" / "search_index.json").read_bytes() == build_index(tmp_path).read_bytes()


def test_the_start_page_has_three_ways_in_and_each_leads_to_a_tutorial(built: Path) -> None:
    text = (built / "index.html").read_text()
    for tutorial in ("test_my_client", "run_a_cluster", "study_a_journal"):
        assert f'href="tutorials/{tutorial}.html"' in text.replace("href=tutorials", 'href="tutorials').replace(".html>", '.html">')
        assert (built / "tutorials" / f"{tutorial}.html").exists()


def test_the_reference_has_every_command_and_config(built: Path) -> None:
    from klamm.cli.main import klamm
    from klamm.configs.tables.broker import BROKER

    commands, configs = ((built / "reference" / f"{name}.html").read_text() for name in ("commands", "configs"))
    assert [name for name in klamm.commands if f"klamm {name}" not in commands] == []
    assert [name for name in BROKER if name not in configs] == []
