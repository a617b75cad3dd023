"""The search of the site: its index, built with a template of one line instead of the theme's, and the worker of the theme."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

from klamm.distributions import site

DRIVER = Path(__file__).with_name("search.cjs")


def build_index(folder: Path) -> Path:
    """The file that `make site` writes to search/search_index.json, with the same bytes; `folder` is empty."""
    site.stage(folder / "pages")
    (folder / "theme").mkdir()
    (folder / "theme" / "main.html").write_text("{{ page.content }}")
    theme = {"name": "material", "font": False, "custom_dir": str(folder / "theme")}
    config = load_config(
        str(site.ROOT / "mkdocs.yml"), docs_dir=str(folder / "pages"), site_dir=str(folder / "site"), theme=theme, extra_javascript=[]
    )
    build(config)
    return folder / "site" / "search" / "search_index.json"


def ask(index: Path, questions: Sequence[str]) -> list[list[list[str]]]:
    """For each question the results of the search box, best first: the places of a page and of its sections, as `serve.html#metrics`."""
    theme = importlib.util.find_spec("material")
    assert theme is not None and theme.origin is not None
    (worker,) = Path(theme.origin).parent.glob("templates/assets/javascripts/workers/search.*.min.js")
    done = subprocess.run(
        ["node", DRIVER, worker, index], input=json.dumps(questions), capture_output=True, text=True, check=True, timeout=120
    )
    results: list[list[list[str]]] = json.loads(done.stdout)
    return results
