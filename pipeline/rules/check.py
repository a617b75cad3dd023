"""The verdicts of the rules on some runs, with the rows that prove them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.unjudged_rows import Missing, Torn, lines
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.evidence import Place, RowsOf, evidence_lines
from klamm.pipeline.rules.record import Rule
from klamm.pipeline.rules.runner import Judgement, Row, Stat, Verdict

EVIDENCE_KEPT = 100
"""Number of violations of one rule in one run whose evidence is read."""


@dataclass
class Checked:
    """The verdicts on some runs."""

    runs: list[str]
    rules: dict[str, Rule]
    judgement: Judgement
    notes: list[str] = field(default_factory=list)
    """For people, one line each."""
    missing: list[Missing] = field(default_factory=list)
    """Rows that are missing in the runs, and were not judged."""
    torn: list[Torn] = field(default_factory=list)
    """Segments whose end is lost."""
    quarantined: dict[str, int] = field(default_factory=dict)
    """Run → frames in quarantine, which no rule can read."""
    lines: dict[Place, str] = field(default_factory=dict)

    def evidence(self, verdict: Verdict) -> list[str]:
        """A line for each row that proves a verdict, in its order."""
        rows = dict.fromkeys(verdict.evidence or [Row(verdict.node_id, verdict.seq)])
        return [f"broker {row.node_id}, seq {row.seq}  {self.lines.get((verdict.run_id, *row), 'is missing')}" for row in rows]

    @property
    def is_complete(self) -> bool:
        """All rows of the journals were judged."""
        return not (self.missing or self.torn or self.quarantined)

    def by_rule(self) -> dict[tuple[str, str], list[Verdict]]:
        """(run, rule) → its violations."""
        groups: dict[tuple[str, str], list[Verdict]] = {}
        for verdict in self.judgement.verdicts:
            groups.setdefault((verdict.run_id, verdict.rule), []).append(verdict)
        return groups

    def stat(self, run: str, rule: str) -> Stat:
        """The counts of a rule in a run."""
        return next(stat for stat in self.judgement.stats if (stat.run_id, stat.rule) == (run, rule))

    def not_exercised(self) -> list[str]:
        """Rules that are applicable and had nothing to look at in any run."""
        exercised = {stat.rule for stat in self.judgement.stats if stat.checked > 0}
        return [rule for rule in self.rules if rule not in exercised and rule not in self.not_applicable()]

    def not_applicable(self) -> dict[str, str]:
        """Rules that no run has enough for → what is lacking."""
        able = {stat.rule for stat in self.judgement.stats if not stat.lacks}
        return {stat.rule: stat.lacks for stat in self.judgement.stats if stat.rule not in able}

    def exercised(self) -> int:
        """Number of rules that had something to look at in some run."""
        return len(self.rules) - len(self.not_exercised()) - len(self.not_applicable())

    def lines_of_others(self) -> list[str]:
        """A line of the rules that were not exercised, and of those that are not applicable for each reason."""
        silent = self.not_exercised()
        by_reason: dict[str, list[str]] = {}
        for rule, lacks in self.not_applicable().items():
            by_reason.setdefault(lacks, []).append(rule)
        named = [f"not exercised: {', '.join(silent)}"] if silent else []
        return named + [f"not applicable without {lacks}: {', '.join(rules)}" for lacks, rules in sorted(by_reason.items())]

    def violations(self, severity: str | None = None) -> int:
        """The number of violations, of one severity or of all."""
        return self.judgement.violations(severity)

    def note_what_is_not_judged(self) -> None:
        """Add a note for each kind of row that was not judged."""
        self.notes += lines(self.missing, self.torn)
        self.notes += [f"run {run}: {rows} frames in quarantine, no rule judges them" for run, rows in self.quarantined.items()]

    def read_evidence(self, rows_of: RowsOf) -> None:
        """Read the rows that prove the first violations of each rule in each run."""
        named = [verdict for verdicts in self.by_rule().values() for verdict in verdicts[:EVIDENCE_KEPT]]
        self.lines = evidence_lines(named, rows_of)


def asked_for(present: Sequence[str], runs: Sequence[str], chosen: Sequence[str]) -> tuple[list[str], dict[str, Rule]]:
    """The runs and rules to judge: all, or those that are named. Raises PipelineFailed for a name that does not exist."""
    known = runner.rules()
    for what, names, there in (("run", runs, present), ("rule", chosen, known)):
        for name in names:
            if name not in there:
                raise PipelineFailed(f"no such {what}: {name}; there are {', '.join(there)}")
    rules = {name: rule for name, rule in known.items() if not chosen or name in chosen}
    return [run for run in present if not runs or run in runs], rules
