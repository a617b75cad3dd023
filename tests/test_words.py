"""Words that are not used in code, tests and docs, each with the word that replaces it (docs/glossary.md)."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from klamm.tests.prose import prose

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".py", ".md", ".toml", ".txt", ".yml", ".java", ".c", ".mjs", ".json", "Makefile", "Dockerfile")

CLEAN = ("admin", "cli", "configs", "protocol", "schemas", "seams")
"""Packages whose comments and texts were gone through."""

PRODUCT = (
    "admin", "broker", "cli", "configs", "conform", "control", "controller", "journal", "machine", "pipeline", "protocol", "schemas",
    "seams", "server", "testing", "zk",
)

BANNED: list[tuple[str, str, tuple[str, ...]]] = [
    # pattern, what to write instead, folders where it is not used; "" is the whole repository
    (r"\bstocks?\b|_stock\b|\bstock_", "Apache Kafka", ("",)),
    (r"\basks? to shut down\b|\basked to shut down\b", "requests controlled shutdown", ("",)),
    (r"\b(?:take|takes|took|taking) office\b", "fail over", ("broker", "docs", *CLEAN)),
    (r"\brooms?\b", "package", ("broker", "docs", *CLEAN)),
    (r"\b(?:asks?|asked|asking|tells?|told|answers?|answered)\b", "request, response, send", CLEAN),
    (r"(?<![\"-])\bnodes?\b(?!\.id)", "broker or znode", CLEAN),
    (r"\b(?:whoever|anew)\b", "the one that does it; again", PRODUCT),
    (r"\b(?:after|at most|by|for|in|of|to|under|up to|with) so many\b", "name the number", PRODUCT),
    (r"\b(?:hosted|HostedPartitions)\b", "replica, ReplicaManager", CLEAN),
]
EXCEPT = {"tests/test_words.py", "docs/glossary.md"}


@cache
def files(folder: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", folder or "."], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name.endswith(SUFFIXES) and name not in EXCEPT and (ROOT / name).exists()]


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@pytest.mark.parametrize(("pattern", "instead", "folders"), BANNED, ids=[instead for _, instead, _ in BANNED])
def test_words_that_have_a_better_one_are_not_used(pattern: str, instead: str, folders: tuple[str, ...]) -> None:
    word = re.compile(pattern, re.IGNORECASE)
    seen = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in folders
        for path in files(folder)
        for text in [text_of(path)]
        if word.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if word.search(line)
    ]
    assert not seen, f"write: {instead}\n" + "\n".join(seen)


@pytest.mark.parametrize("folder", ["broker", "zk"])
def test_comments_and_docstrings_say_request_and_response(folder: str) -> None:
    """In these packages names in the code are older than the list."""
    word = re.compile(r"\b(?:asks?|asked|asking|tells?|told|answers?|answered)\b", re.IGNORECASE)
    sources = [path for path in files(folder) if path.suffix == ".py"]
    seen = [f"{path.relative_to(ROOT)}: {text}" for path in sources for text in prose(path.read_text()) if word.search(text)]
    assert not seen, "\n".join(seen)
