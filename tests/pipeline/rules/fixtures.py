"""Tiny journals that rules are tested with. Each is a function that writes one run; a good one obeys its rule, a bad one breaks it.

    @good("W-01")
    def answers_in_order(run: Run) -> None:
        journal = run.journal()
        ...

    @bad("W-01")
    def an_answer_overtakes(run: Run) -> int:
        ...
        return seq_that_the_rule_must_name

All of them become runs of one lake, which is judged in one pass, because Spark starts slowly. The runs are named by rule, kind and
function. Other rules judge them too: what they flag is a failure, unless the fixture names them as `also`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

Kind = Literal["good", "bad", "silent"]
"""`silent`: what the rule looks at does not happen, so it must say "not exercised"."""

Flagged = int | tuple[int, int] | Iterable[int | tuple[int, int]] | None
"""What the rule must flag: seqs of broker 1, or (node id, seq)."""


@dataclass
class Run:
    """The run that a fixture writes."""

    lake: Path
    run_id: str
    _journals: dict[int, Any] = field(default_factory=dict)

    def journal(self, node: int = 1) -> Any:
        """The journal of a broker of this run; the same one at each call."""
        if node not in self._journals:
            writing = importlib.import_module("klamm.tests.journal.writing")
            self._journals[node] = writing.TinyJournal(self.lake, run=self.run_id, node=node)
        return self._journals[node]

    @property
    def journals(self) -> list[Any]:
        """All that were asked for."""
        return list(self._journals.values())

    def close(self) -> None:
        """Seal all journals of the run."""
        for journal in self._journals.values():
            journal.close()


class Fixture(NamedTuple):
    """A tiny journal, and the rule that it is for."""

    rule: str
    kind: Kind
    write: Callable[[Run], Flagged]
    also: frozenset[str]
    """Other rules that may flag it."""

    @property
    def run_id(self) -> str:
        """The run that it becomes."""
        return f"{self.rule}-{self.kind}-{self.write.__name__}"

    def into(self, lake: Path) -> frozenset[tuple[int, int]]:
        """Write the run; which (node id, seq) the rule must flag."""
        run = Run(lake, self.run_id)
        named = self.write(run)
        run.close()
        if named is None:
            return frozenset()
        each = [named] if isinstance(named, (int, tuple)) and not _is_list(named) else named
        return frozenset((1, one) if isinstance(one, int) else one for one in each)  # type: ignore[union-attr]


def _is_list(named: object) -> bool:
    return isinstance(named, tuple) and (len(named) != 2 or not all(isinstance(one, int) for one in named))


FIXTURES: dict[str, Fixture] = {}
"""Run id → fixture; filled by the decorators when the modules `fixtures_*.py` are imported (`all_fixtures`)."""


def all_fixtures() -> dict[str, Fixture]:
    """`FIXTURES`, when all modules are imported, in one order whatever was imported first: each process of a run has the same tests."""
    folder = Path(__file__).parent
    for file in folder.rglob("fixtures_*.py"):
        importlib.import_module(".".join(("klamm.tests.pipeline.rules", *file.relative_to(folder).with_suffix("").parts)))
    ordered = sorted(FIXTURES.items())
    FIXTURES.clear()
    FIXTURES.update(ordered)
    return FIXTURES


def good(rule: str, *, also: Iterable[str] = ()) -> Callable[[Callable[[Run], Flagged]], Callable[[Run], Flagged]]:
    """The function writes a run in which the rule is looked at and holds."""
    return _registered(rule, "good", also)


def bad(rule: str, *, also: Iterable[str] = ()) -> Callable[[Callable[[Run], Flagged]], Callable[[Run], Flagged]]:
    """The function writes a run in which the rule is broken, and returns what it must flag, which is all that it may flag."""
    return _registered(rule, "bad", also)


def silent(rule: str, *, also: Iterable[str] = ()) -> Callable[[Callable[[Run], Flagged]], Callable[[Run], Flagged]]:
    """The function writes a run in which the rule has nothing to look at."""
    return _registered(rule, "silent", also)


def _registered(rule: str, kind: Kind, also: Iterable[str]) -> Callable[[Callable[[Run], Flagged]], Callable[[Run], Flagged]]:
    def register(write: Callable[[Run], Flagged]) -> Callable[[Run], Flagged]:
        fixture = Fixture(rule, kind, write, frozenset(also))
        assert fixture.run_id not in FIXTURES, f"two fixtures are called {fixture.run_id}"
        FIXTURES[fixture.run_id] = fixture
        return write

    return register
