"""Plays a bug: a release of the client meets the cluster of the scenario, and the rule of the bug judges the journal."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klamm.conform.case import Absent, Broken
from klamm.conform.clients.client_lab import ClientLab
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.quick.check import check_quickly
from klamm.replay.bug import Bug
from klamm.replay.releases import command_of

LIMIT_S = 60.0
SHOWN = 3


class CannotPlay(Exception):
    """The scenario cannot be played. The message is one line."""


@dataclass
class Played:
    """What came of one release."""

    release: str
    violations: int = 0
    evidence: list[str] = field(default_factory=list)
    """Sentences of the first violations, each with the frames that prove it."""
    checked: int = 0
    """How often the rule had something to look at."""
    ended: str = ""
    """How the client ended, if that is not as it should."""
    output: str = ""
    """The last lines that it printed."""


def played(bug: Bug, zookeeper: str | None = None) -> tuple[Played, Played | None]:
    """Both releases, or a server's response with the bug and without it. Raises NotInstalled, CannotPlay."""
    if bug.response_fault is not None:
        return play(bug, bug.broken, zookeeper, bug.response_fault), play(bug, bug.broken, zookeeper)
    return play(bug, bug.broken, zookeeper), None if bug.mended is None else play(bug, bug.mended, zookeeper)


def play(bug: Bug, version: str, zookeeper: str | None = None, fault: dict[str, Any] | None = None) -> Played:
    """Play a bug with one release, and with this fault of a response. Raises NotInstalled, CannotPlay."""
    command = command_of(bug.client, version)
    if bug.response_fault is None:
        release = f"{bug.client} {version}"
    else:
        release = "a response with the bug" if fault is not None else "a response as it should be"
    with tempfile.TemporaryDirectory(prefix="klamm-replay-") as lake:
        ended, output = asyncio.run(_steered(bug, command, lake, zookeeper, fault))
        return _judged(bug, Played(release, ended=ended, output=output), Path(lake))


async def _steered(bug: Bug, command: str, lake: str, zookeeper: str | None, fault: dict[str, Any] | None = None) -> tuple[str, str]:
    """How the client ended, and what it printed. Raises CannotPlay."""
    lab, ended = ClientLab(command, zookeeper), ""
    lab.begin(bug.name, [])
    try:
        await lab.prepare(bug.case(lake))
        if fault is not None:
            lab.fault(**fault)
        try:
            async with asyncio.timeout(LIMIT_S):
                await bug.steer(lab)
        except TimeoutError:
            ended = f"it did not end within {LIMIT_S:.0f} s"
        except Broken as failure:
            ended = str(failure)
        if missed := [fault.text for fault in lab.cluster.faults if not fault.hits and not fault.may_miss]:
            ended += f"; nothing met {missed[0]}"
    except Absent as failure:
        raise CannotPlay(str(failure)) from None
    finally:
        lab.end()
        await lab.clean_up(0)
    return ended, lab.output


def _judged(bug: Bug, played: Played, lake: Path) -> Played:
    try:
        checked = check_quickly(lake, chosen=[bug.rule])
    except PipelineFailed as failure:
        raise CannotPlay(str(failure)) from None
    played.violations = checked.violations(None)
    played.checked = sum(stat.checked for stat in checked.judgement.stats)
    for verdict in checked.judgement.verdicts[:SHOWN]:
        played.evidence += [verdict.detail, *(f"  {line}" for line in checked.evidence(verdict))]
    return played


def is_shown(broken: Played, mended: Played | None) -> bool:
    """Whether the rule sees the bug in the broken release, and nothing in the mended one, if there is one."""
    return broken.violations > 0 and (mended is None or mended.violations == 0 < mended.checked)
