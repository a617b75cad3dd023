"""Writes conform/recorded.json: what releases of Apache Kafka answer to each case.

    python -m klamm.tests.conform.record 3.9.1=127.0.0.1:9092/9093 4.4.0=127.0.0.1:9192/9193

The second port is that of the listener with SASL, with PLAIN and the user `eve` whose password is `eve-secret`. A case that fails is
printed: the suite is wrong there, and must be changed.
"""

from __future__ import annotations

import asyncio
import json
import sys

from klamm.conform import recorded
from klamm.conform.case import Outcome, Result
from klamm.conform.connection import without_prefix
from klamm.conform.lab import Lab, SaslPlace
from klamm.conform.reports import line, response_text
from klamm.conform.runner import chosen, run
from klamm.conform.sections.catalogue import SECTIONS

LONGEST = 240
"""Characters that are kept of an answer."""


def answer(outcome: Outcome) -> str:
    """What the server answered, in short."""
    if outcome.is_broken:
        return f"broken: {outcome.reason}"
    text = outcome.reason
    if outcome.case.section != "versions" and outcome.exchanges and outcome.result is not Result.MISSING:
        text = " ".join(response_text(outcome.exchanges[-1]).split())
    return without_prefix(text)[:LONGEST]


async def record(host: str, port: int, sasl_port: int) -> dict[str, tuple[str, str]]:
    lab = Lab(host, port, SaslPlace(host, sasl_port, "PLAIN", "eve", "eve-secret"))
    cases = [case for case in chosen(SECTIONS, ()) if not case.destructive]
    outcomes, left = await run(cases, lab, 10, lambda outcome: None)
    print(left, *(line(each) for each in outcomes if each.result is Result.FAIL), sep="\n")
    return {each.case.id: (each.result.value, answer(each)) for each in outcomes}


def main() -> None:
    found = dict(recorded.answers())
    for argument in sys.argv[1:]:
        release, _, address = argument.partition("=")
        host, _, ports = address.partition(":")
        port, _, sasl_port = ports.partition("/")
        found[release] = asyncio.run(record(host, int(port), int(sasl_port)))
    recorded.FILE.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
