"""Mutants: one-line changes of the source, each of which some test must notice. `python -m klamm.tests.mutants` tries them, by hand.

`<room>.toml` lists the mutants of a room. A mutant names the rule that it breaks, its file, a text that occurs once in the file, what
stands there instead, and the tests that could notice (those of its file in the table `tests` when it names none). One that changes
nothing that could be observed says why: `equivalent`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent


class Mutant(NamedTuple):
    """One change. `tests` are arguments of pytest, paths from the root."""

    room: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str | None


def mutants() -> list[Mutant]:
    """All of them, by room. Raises KeyError, TypeError where a list is not as it should be."""
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        for entry in content["mutant"]:
            tests = entry.pop("tests", None) or content["tests"][entry["file"]]
            found.append(Mutant(room=path.stem, tests=tuple(tests), equivalent=entry.pop("equivalent", None), **entry))
    return found


def mutate(mutant: Mutant, text: str) -> str:
    """The file's text with the change. Raises ValueError unless the old text occurs exactly once."""
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file}: occurs {text.count(mutant.old)} times, not once: {mutant.old!r}")
    return text.replace(mutant.old, mutant.new)
