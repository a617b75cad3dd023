"""docs/walks.txt, read: sequences of calls through the code, which tests/pages.py draws as diagrams."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "docs" / "walks.txt"
_PART = re.compile(r"part (\w+)(?: = (\S+))?$")
_STEP = re.compile(r"(\w+)(?:\.(\w+))? ([-~])> (\w+)(?:\.(\w+))?: (.+)$")


@dataclass(frozen=True)
class End:
    """A function of a part, or a part outside of Klamm."""

    part: str
    function: str

    def __str__(self) -> str:
        return f"{self.part}.{self.function}" if self.function else self.part


@dataclass(frozen=True)
class Step:
    """One arrow. `is_call`: the source calls the target by name."""

    source: End
    target: End
    is_call: bool
    text: str


@dataclass
class Walk:
    """One diagram. `parts` has the file of each column, None outside of Klamm."""

    title: str
    about: str = ""
    parts: dict[str, str | None] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def mermaid(self) -> str:
        """The diagram; dashed arrows are no direct calls."""
        lines = ["sequenceDiagram"]
        lines += [f"    participant {part}" + ("" if file is None else f" as {file}") for part, file in self.parts.items()]
        for step in self.steps:
            arrow = "->>" if step.is_call else "-->>"
            function = f"{step.target.function}(): " if step.target.function else ""
            lines.append(f"    {step.source.part}{arrow}{step.target.part}: {function}{step.text}")
        return "\n".join(lines)


def walks() -> list[Walk]:
    """All walks. Raises ValueError for a line that is none."""
    found: list[Walk] = []
    for line in FILE.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("walk "):
            found.append(Walk(line.removeprefix("walk ")))
        elif line.startswith("about "):
            found[-1].about = line.removeprefix("about ")
        elif part := _PART.match(line):
            found[-1].parts[part[1]] = part[2]
        elif step := _STEP.match(line):
            found[-1].steps.append(Step(End(step[1], step[2] or ""), End(step[4], step[5] or ""), step[3] == "-", step[6]))
        else:
            raise ValueError(f"not a line of walks.txt: {line}")
    return found
