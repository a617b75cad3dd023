"""The page in a real browser: every picture is drawn, in the light and in the dark look, and nothing is loaded."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from klamm.pipeline.report.write import rendered
from klamm.tests.pipeline.report import lakes

pytestmark = pytest.mark.slow


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found is not None:
            return found
    raise AssertionError("the report is looked at in Chromium: install the package `chromium`")


def shown(page: Path, look: str, *arguments: str) -> str:
    """What a headless browser makes of the page; arguments are those of Chromium."""
    command = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,5200",
        "--virtual-time-budget=20000", f"--user-data-dir={page.parent / look}", *arguments, f"{page.as_uri()}?look={look}",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.parametrize("look", ["light", "dark"])
def test_all_pictures_are_drawn(tmp_path: Path, look: str) -> None:
    seqs = lakes.journal(tmp_path / "lake")
    lakes.write_bronze(tmp_path / "lake")
    lakes.tables(tmp_path / "lake", seqs)
    page = tmp_path / "report.html"
    page.write_text(rendered(lakes.stored(tmp_path / "lake"), {}))
    document = shown(page, look, "--dump-dom")
    assert f'data-look="{look}"' in document
    assert 'data-drawn="10"' in document and "data-failed" not in document
    pictures = dict(re.findall(r'<div class="picture[^"]*" id="([a-z-]+)".*?(<svg.*?</svg>)', document, re.DOTALL))
    assert len(pictures) == 10
    for name, drawing in pictures.items():
        marks = len(re.findall(r"<path[^>]* d=\"M", drawing)) + drawing.count("<line ")
        assert marks > 5, f"{name} is empty"
    assert "<title>Klamm: 20261122T120000Z-0001</title>" in document, "no text of the journal ran as a script"
    picture = tmp_path / f"{look}.png"
    shown(page, look, f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 100_000
