"""`klamm journal verify`: proves that no row is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.journal.options import BROKER_ID, LAKE, check_chosen, existing
from klamm.cli.shell.exit_codes import VIOLATED
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say

if TYPE_CHECKING:
    from klamm.journal.proof import Proof


@click.command("verify", short_help="Prove that no row is missing.")
@click.argument("lake", type=LAKE, metavar="LAKE")
@click.option("--run", "runs", multiple=True, metavar="ID", help="Only this run. --run and --node can be given more than once.")
@click.option("--node", "brokers", multiple=True, type=BROKER_ID, metavar="ID", help="Only this broker.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def command(lake: Path, runs: tuple[str, ...], brokers: tuple[int, ...], as_json: bool) -> None:
    """Prove that no row is missing in the journals of LAKE. In each run, each broker numbers its frames and events 1, 2, 3, … without a
    gap.

    Each gap is printed in one line, and the exit code is then 3. The command also lists damaged ends of segments, which a killed broker
    leaves, clocks that went back, and files that do not belong to a journal. They do not change the exit code.
    """
    existing(lake)
    from klamm.journal.proof import verify
    check_chosen(lake, runs, brokers)
    proofs, foreign = verify(lake, frozenset(runs) if runs else None, frozenset(brokers) if brokers else None)
    if not proofs:
        raise click.ClickException(f"{lake}: no journal")
    broken = sum(bool(proof.problems) for proof in proofs)
    if as_json:
        say(json.dumps({
            "journals": [vars(proof) | {"rows": proof.rows} for proof in proofs], "foreign_files": [str(path) for path in foreign],
            "gapless": not broken,
        }))
    else:
        for line in _lines(proofs, foreign, lake):
            say(printable(line))
    if broken:
        raise click.exceptions.Exit(VIOLATED)


def _lines(proofs: list[Proof], foreign: list[Path], lake: Path) -> Iterator[str]:
    from klamm.pipeline.decode.row_text import utc

    for proof in proofs:
        verdict = "gapless" if not proof.problems else f"{len(proof.problems) + proof.more_problems} problems"
        alive = ", still being written" if proof.is_written else ""
        processes = "1 process" if proof.processes == 1 else f"{proof.processes} processes"
        yield (
            f"run {proof.run} broker {proof.broker}: {verdict}; {proof.rows:,} rows = {proof.frames:,} frames + {proof.events:,} events, "
            f"{processes}{alive}; {utc(proof.first_ns)} to {utc(proof.last_ns)}"
        )
        yield from (f"  {line}" for line in proof.problems)
        if proof.more_problems:
            yield f"  … and {proof.more_problems} more"
        yield from (f"  note: {line}" for line in proof.notes)
    yield from (f"foreign file: {path.relative_to(lake)}" for path in foreign)
