"""Runs cases one after the other, each with a limit of time, and decides what came out of each."""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from klamm.conform.case import Absent, Broken, Case, Exchange, Level, Outcome, Result, Section, Unreachable
from klamm.protocol.errors import LocalProtocolError

log = logging.getLogger(__name__)

INFO_S = 1.0
"""The limit of cases that only inform: some requests get no response from Apache Kafka."""


CLEAN_UP_S = 10.0
"""The least time for deleting all topics, and for deleting all groups: the limit of one case may be shorter than they need."""


class Bench(Protocol):
    """What the cases of a run work with: `lab.Lab` for servers, `clients.client_lab.ClientLab` for clients."""

    party: str
    """`server` or `client`."""

    @property
    def where(self) -> str:
        """The address or the command of what is under test."""

    output: str
    """What the party under test printed in the case that ended."""

    async def start(self) -> None:
        """Get ready. Raises Unreachable."""

    def begin(self, case_id: str, exchanges: list[Exchange]) -> None:
        """A case begins, which adds its exchanges to these."""

    async def prepare(self, case: Case) -> None:
        """Get ready for the case that has begun; this does not count for its limit of time. Raises Absent."""

    def end(self) -> None:
        """A case has ended."""

    async def clean_up(self, limit_s: float) -> str:
        """Undo what the run did, each kind within this time. What is left behind, as a text."""


class NoSuchCase(Exception):
    """A name on the command line is not that of a section or a case; the text is one line."""


def chosen(sections: Iterable[Section], names: Sequence[str]) -> list[Case]:
    """The cases of these names: `produce`, `6`, `produce/6.3`, or with `*`. All if there are none. Raises NoSuchCase."""
    cases = [case for section in sections for case in section.cases]
    if not names:
        return cases
    wanted: set[str] = set()
    for name in names:
        matches = [case.id for case in cases if name in (case.section, str(case.number)) or fnmatch.fnmatchcase(case.id, name)]
        if not matches:
            raise NoSuchCase(f"there is no section or case {name!r}; `--dryrun` lists them")
        wanted.update(matches)
    return [case for case in cases if case.id in wanted]


async def run_case(case: Case, lab: Bench, timeout_s: float) -> Outcome:
    """Run one case. Cases read frames as they have to be, so any exception is what came out of one that is not."""
    outcome = Outcome(case, Result.PASS)
    lab.begin(case.id, outcome.exchanges)
    begun = time.monotonic()
    limit_s = min(timeout_s, INFO_S) if case.level is Level.INFO else timeout_s
    limit = asyncio.timeout(limit_s)
    try:
        await lab.prepare(case)
        async with limit:
            outcome.reason = await case.run(lab) or ""
        if case.level is Level.INFO:
            outcome.result = Result.INFO
    except Absent as absent:
        outcome.result, outcome.reason = Result.MISSING, str(absent)
    except LocalProtocolError as absent:
        outcome.result, outcome.reason = Result.MISSING, f"no version of the server has the request: {absent}"
    except Exception as failure:  # noqa: BLE001 as said above
        outcome.result, outcome.is_broken = _BROKEN[case.level], True
        outcome.reason = f"no end within {limit_s:g} s" if limit.expired() else _reason(failure)
    finally:
        lab.end()
    outcome.output = lab.output if outcome.is_broken else ""
    outcome.seconds = time.monotonic() - begun
    return outcome


_BROKEN = {Level.MUST: Result.FAIL, Level.SHOULD: Result.NON_STRICT, Level.INFO: Result.INFO}


def _reason(failure: Exception) -> str:
    if isinstance(failure, Broken):
        return str(failure)
    log.debug("a response is not as a case reads it", exc_info=failure)
    return f"a response is not as it has to be: {type(failure).__name__}: {' '.join(str(failure).split())}"


async def run_together(
    cases: Sequence[Case], labs: Sequence[Bench], timeout_s: float, tell: Callable[[Outcome], None]
) -> tuple[list[Outcome], str]:
    """As `run`, at all of these labs at the same time: each takes the next case that is left. Raises Unreachable."""
    left = iter(cases)
    try:
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(run(left, lab, timeout_s, tell)) for lab in labs]
    except BaseExceptionGroup as problems:
        raise problems.exceptions[0] from None
    done = [part.result() for part in parts]
    order = {case.id: place for place, case in enumerate(cases)}
    outcomes = sorted((each for outcomes, _ in done for each in outcomes), key=lambda each: order[each.case.id])
    return outcomes, ", ".join(remains for _, remains in done if remains)


async def run(cases: Iterable[Case], lab: Bench, timeout_s: float, tell: Callable[[Outcome], None]) -> tuple[list[Outcome], str]:
    """The outcomes of all cases, and what could not be deleted; if the run ends early, a warning says that. Raises Unreachable."""
    try:
        async with asyncio.timeout(timeout_s if lab.party == "server" else None):  # what clients are tested with is the suite's own
            await lab.start()
    except TimeoutError:
        raise Unreachable(f"{lab.where} does not answer within {timeout_s:g} s") from None
    finally:
        lab.end()
    outcomes = []
    try:
        for case in cases:
            outcome = await run_case(case, lab, timeout_s)
            outcomes.append(outcome)
            tell(outcome)
    except BaseException:  # also when stdout is closed
        if left := await lab.clean_up(max(timeout_s, CLEAN_UP_S)):
            log.warning("not deleted: %s", left)
        raise
    return outcomes, await lab.clean_up(max(timeout_s, CLEAN_UP_S))
