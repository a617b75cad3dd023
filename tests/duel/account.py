"""What a run has done so far, counted."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from klamm.tests.duel.tale import Tale
from klamm.tests.stories.both.answers import versions
from klamm.tests.stories.both.commands import ACTIONS

_SILENT = {"fakes", "die", "die-unseen", "back", "bounce", "unplug", "plug", "hold", "release", "answers", "rewrite", "steal", "resign",
           "put", "put-sequence", "put-ephemeral", "rm", "put-topic", "put-state", "put-config", "forget", "until"}
"""Actions that are no request to a broker under test."""
_VERSIONS = re.compile(r"^ask(?:ed)? (\w+) (v\S+)")


@dataclass
class Account:
    """Numbers of a run. A retelling that shows no difference any more is a race, counted as such."""

    stories: int = 0
    steps: int = 0
    requests: int = 0
    broken: int = 0
    races: int = 0
    pairs: int = 0
    kafka_lost: int = 0
    failed: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[Path] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def told(self, tale: Tale) -> None:
        """A story was told to both to its end or to its difference."""
        self.stories += 1
        self.steps += tale.steps
        self.requests += requests(tale)

    def text(self, seed: int) -> str:
        """The account at the end."""
        minutes = (time.monotonic() - self.begun) / 60
        lines = [
            f"seed {seed}, {minutes:.1f} minutes: {self.stories} stories, {self.steps} steps, {self.requests} requests",
            f"  pairs of brokers started: {self.pairs}; a real Kafka lost: {self.kafka_lost}; tellings that failed: {self.failed}; "
            f"races of one telling: {self.races}; stories that ended early on both sides: {self.broken}",
            f"  differences: {sum(self.explained.values())} explained, {len(self.unexplained)} unexplained",
        ]
        lines += [f"    {count} x {reason}" for reason, count in self.explained.most_common()]
        lines += [f"    unexplained: {path}" for path in self.unexplained]
        return "\n".join(lines)


def requests(tale: Tale) -> int:
    """How many requests of clients and brokers the story makes, each version of one counted."""
    count = 0
    for lines in tale.scenes:
        for line in lines:
            asked = _VERSIONS.match(line)
            if asked is not None:
                count += len(versions(asked[2], asked[1]))
            elif (line.split()[0] in ACTIONS and line.split()[0] not in _SILENT) or line.split()[0] in ("metadata", "brokers", "configs"):
                count += 1
    return count
