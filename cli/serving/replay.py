"""`klamm replay`: bugs of public clients, played with a broken and a mended release, and judged by the rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from klamm.cli.shell.exit_codes import FAILED, SUCCESS
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import counted, end_with_failure, say

if TYPE_CHECKING:
    from klamm.replay.bug import Bug
    from klamm.replay.play import Played


@click.command(short_help="Replay a bug of a public client with a broken and a mended release.")
@click.argument("name", required=False)
@click.option("--list", "as_list", is_flag=True, help="List the bugs that can be replayed.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one line of JSON. A failure is also printed as JSON.")
def command(name: str | None, as_list: bool, as_json: bool) -> int:
    """Replay the bug NAME: an unmodified broken release of a client, and a mended one, meet the same cluster with the same faults. A
    conformance rule judges the frames of both.

    The releases come from their package registries into the user's cache folder: PyPI, npm, the Go module proxy. npm and Go are needed
    for clients in these languages. docs/museum.md has the table of all bugs.

    The exit code is 0 if the rule sees the bug in the broken release and not in the mended one, or, where no release is without the bug,
    if it sees it. It is 1 if not, or if a release cannot be installed.

    \b
    klamm replay --list
    klamm replay librdkafka-topic-id-zero
    """
    from klamm.replay.table import BUGS

    if as_list:
        rows = [_row(bug) for bug in BUGS.values()]
        say(json.dumps(rows) if as_json else "\n".join(_line(bug) for bug in BUGS.values()))
        return SUCCESS
    if name is None:
        raise click.UsageError("NAME is missing; --list names all bugs")
    if name not in BUGS:
        from klamm.protocol.errors import did_you_mean

        raise click.UsageError(f"there is no bug {name!r}{did_you_mean(name, BUGS, quote=chr(39)) or '; --list names all'}")
    with extra_needed("quick", lambda: "klamm replay"):
        from klamm.conform.clients.client_lab import silent_brokers
        from klamm.replay.play import CannotPlay, is_shown, played
        from klamm.replay.releases import NotInstalled
    bug = BUGS[name]
    try:
        with silent_brokers():
            broken, mended = played(bug)
    except (NotInstalled, CannotPlay) as failure:
        end_with_failure("klamm replay", str(failure), FAILED)
    shown = is_shown(broken, mended)
    if as_json:
        both = [each for each in (broken, mended) if each is not None]
        outcomes = [{"release": each.release, "violations": each.violations, "evidence": each.evidence} for each in both]
        say(json.dumps({**_row(bug), "shown": shown, "outcomes": outcomes}))
    else:
        for line in _lines(bug, broken, mended):
            say(printable(line))
    return SUCCESS if shown else FAILED


def _row(bug: Bug) -> dict[str, object]:
    return {
        "name": bug.name, "links": bug.links, "client": bug.client, "broken": bug.broken, "mended": bug.mended, "rule": bug.rule,
        "symptom": bug.symptom, "of_server": bug.response_fault is not None,
    }


def _line(bug: Bug) -> str:
    return f"{bug.name}  {bug.rule}  {bug.symptom}"


def _lines(bug: Bug, broken: Played, mended: Played | None) -> list[str]:
    lines = [f"{bug.links[0]}: {bug.symptom}", bug.done]
    for each in (broken, mended):
        if each is not None:
            ended = f" ({each.ended})" if each.ended else ""
            lines.append(f"{each.release}: {counted(each.violations, 'violation')} of {bug.rule}, {each.checked} checked{ended}")
            lines += [f"  {line}" for line in each.evidence]
    return lines if mended is not None else [*lines, "there is no release without the bug"]
