"""`klamm conform`: what a server or a client of Kafka's protocol does with each case of the suite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.shell.exit_codes import FAILED, SUCCESS, USAGE
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import counted, end_with_failure, say
from klamm.cli.shell.parameters import Decimal, HostPort, UserPassword, Whole

if TYPE_CHECKING:
    import ssl

    from klamm.conform.case import Case, Outcome, Section
    from klamm.conform.runner import Bench


FILE = click.Path(path_type=Path, dir_okay=False)
PEM = click.Path(path_type=Path, dir_okay=False, exists=True)


SERVER_S, CLIENT_S = 10, 30
"""The limits of time of a case unless one is given: clients have timeouts of their own."""


@click.command(short_help="Test a server or a client of Kafka's protocol case by case.")
@click.argument("names", nargs=-1, metavar="[HOST:PORT] [SECTION[/CASE]]...")
@click.option("--client", metavar="COMMAND", help="Test a client, which this shell command starts, instead of a server.")
@click.option("--server", type=HostPort(), help="Test the client with this server, behind a proxy, instead of a cluster of Klamm.")
@click.option(
    "--jobs", type=Whole(1, 64), default=1, show_default=True, help="How many cases of a client run at the same time, each with a cluster."
)
@click.option("--strict", is_flag=True, help="A SHOULD that is not obeyed is a failure too.")
@click.option("--dryrun", is_flag=True, help="List the cases, and send nothing.")
@click.option("--destructive", is_flag=True, help="Run also cases that change what the suite did not create, such as leaders.")
@click.option("--timeout", type=Decimal(0, 600, min_open=True), help="Seconds that a case may take: 10 of a server, 30 of a client.")
@click.option("--sasl-listener", type=HostPort(), help="A listener of the same cluster with SASL, for the cases that authenticate.")
@click.option("--sasl-user", type=UserPassword(), help="User and password for it.")
@click.option("--sasl-mechanism", type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]), default="PLAIN", show_default=True)
@click.option("--tls", is_flag=True, help="Connect with TLS; so do the other --tls- options.")
@click.option("--tls-ca", type=PEM, help="Authorities whose certificates the server has. Default: those of the system.")
@click.option("--tls-any-name", is_flag=True, help="Do not compare the server's name with its certificate.")
@click.option("--verbose", is_flag=True, help="Print also the cases that passed or are missing.")
@click.option("--json", "as_json", is_flag=True, help="Print the run as one line of JSON. A failure is also printed as JSON.")
@click.option("--junit", type=FILE, help="Write the run as JUnit's XML.")
@click.option("--html", type=FILE, help="Write one page with the frames of each case, decoded, and the responses of Apache Kafka.")
def command(
    names: tuple[str, ...], client: str | None, server: tuple[str, int] | None, jobs: int, strict: bool, dryrun: bool, destructive: bool,
    timeout: float | None, sasl_listener: tuple[str, int] | None, sasl_user: tuple[str, str] | None, sasl_mechanism: str, tls: bool,
    tls_ca: Path | None, tls_any_name: bool, verbose: bool, as_json: bool, junit: Path | None, html: Path | None,
) -> int:
    """Test a server or a client of Kafka's protocol, case by case: frames, versions, records, groups, transactions and more.

    Each case is a sentence that says what a server MUST or SHOULD do, with its source. It passes, or it fails (MUST), or the server is
    not strict (SHOULD), or the server lacks what the case needs (Missing). Info demands nothing. Apache Kafka 3.9.1 and 4.4.0 pass all
    cases that they have. Without SECTION or CASE all are run: `produce`, `6`, `produce/6.3` and `versions/3.Fetch.*` are such names.

    The suite connects to leaders and coordinators as the server names them. It creates topics and groups whose names begin with
    "conform-" and deletes them at the end. The exit code is 0 if no case failed, 1 if one did, and 2 for a wrong command line or a
    server that cannot be reached.

    With --client a cluster in this process is the server: it has faults, loses brokers and moves leaders. With --server another one is,
    and cases that steer the cluster are Missing. COMMAND is started for each
    case, with TESTCASE, BOOTSTRAP and what it needs besides in its environment (docs/conform.md). It ends with 0 if it did its task, 1
    if it could not, and 127 if it does not support it (Missing). The frames that it sent decide. If all are Missing, the exit code is 2.

    \b
    klamm conform localhost:9092
    klamm conform localhost:9092 produce fetch --html report.html
    klamm conform localhost:9092 groups/8.4 --verbose
    klamm conform --client 'python my_adapter.py' produce transactions
    """
    from klamm.conform.runner import NoSuchCase, chosen

    if client is None and (server or jobs > 1):
        raise click.UsageError("--server and --jobs are about --client")
    address = None if client is not None else _server(names)
    has_tls = bool(tls or tls_ca or tls_any_name)
    if client is not None and (destructive or sasl_listener or sasl_user or has_tls):
        raise click.UsageError("--client goes without --destructive and the options of SASL and TLS: these are about a server")
    if (sasl_listener is None) != (sasl_user is None):
        raise click.UsageError("--sasl-listener and --sasl-user belong together")
    try:
        wanted = names if address is None else names[1:]
        selected = [case for case in chosen(_sections(address is None), wanted) if destructive or not case.destructive]
    except NoSuchCase as wrong:
        raise click.UsageError(str(wrong)) from None
    if dryrun:
        _list(selected, as_json)
        return SUCCESS
    for file in (junit, html):
        _check_writable(file)
    if client is not None:
        from klamm.conform.clients.client_lab import ClientLab, silent_brokers

        benches: list[Bench] = [ClientLab(client, server=server) for _ in range(jobs)]
        with silent_brokers():
            return _run(benches, selected, strict, timeout or CLIENT_S, verbose, as_json, junit, html)
    from klamm.conform.lab import Lab, SaslPlace

    assert address is not None
    sasl = SaslPlace(*sasl_listener, sasl_mechanism, *sasl_user) if sasl_listener is not None and sasl_user is not None else None
    lab = Lab(*address, sasl, _tls_context(tls_ca, tls_any_name) if has_tls else None)
    return _run([lab], selected, strict, timeout or SERVER_S, verbose, as_json, junit, html)


def _tls_context(authority: Path | None, any_name: bool) -> ssl.SSLContext:
    """How the server is connected to. Raises UsageError."""
    from klamm.proxy.tls import BadTls, BrokerTls

    try:
        return BrokerTls(authority, any_name).context()
    except BadTls as problem:
        raise click.UsageError(str(problem)) from None


def _server(names: tuple[str, ...]) -> tuple[str, int]:
    """The server, which is the first argument. Raises UsageError."""
    if not names:
        raise click.UsageError("HOST:PORT of a server is missing, or --client with the command of a client")
    return HostPort().convert(names[0], None, None)


def _sections(of_clients: bool) -> Sequence[Section]:
    if of_clients:
        from klamm.conform.clients.catalogue import SECTIONS as CLIENT_SECTIONS

        return CLIENT_SECTIONS
    from klamm.conform.sections.catalogue import SECTIONS

    return SECTIONS


def _check_writable(file: Path | None) -> None:
    """Raise UsageError if it is not: a run is too long to find out at its end."""
    if file is None:
        return
    is_new = not file.exists()
    try:
        file.open("a").close()
        if is_new:
            file.unlink()
    except OSError as problem:
        raise click.UsageError(f"{file}: {problem.strerror}") from None


def _list(cases: list[Case], as_json: bool) -> None:
    from klamm.conform.reports import case_line

    if as_json:
        rows = [{"id": each.id, "level": each.level.value, "sentence": each.sentence, "source": each.source} for each in cases]
        say(json.dumps(rows))
        return
    for case in cases:
        say(case_line(case))
    say(counted(len(cases), "case"))


def _run(
    labs: list[Bench], cases: list[Case], strict: bool, timeout_s: float, verbose: bool, as_json: bool, junit: Path | None,
    html: Path | None,
) -> int:
    from klamm.conform import reports
    from klamm.conform.case import Result, Unreachable
    from klamm.conform.runner import run_together

    lab = labs[0]
    quiet = () if verbose else (Result.PASS, Result.MISSING, Result.INFO)

    def show(outcome: Outcome) -> None:
        if not as_json and outcome.result not in quiet:
            for each in reports.line(outcome).splitlines():
                say(printable(each))

    try:
        outcomes, left = asyncio.run(run_together(cases, labs, timeout_s, show))
    except Unreachable as reason:
        end_with_failure("klamm conform", printable(str(reason)), USAGE)
    if junit is not None:
        junit.write_text(reports.as_junit(outcomes, strict), encoding="utf-8")
    if html is not None:
        html.write_text(reports.as_html(lab.where, outcomes, left), encoding="utf-8")
    if as_json:
        say(json.dumps(reports.as_json(lab.party, lab.where, outcomes, left)))
    else:
        for name, counts in reports.by_section(outcomes).items():
            say(f"{name:<16} " + ", ".join(f"{count} {result}" for result, count in counts.items() if count))
        say(f"{counted(len(outcomes), 'case')}: " + ", ".join(f"{count} {result}" for result, count in reports.totals(outcomes).items()))
    if left:
        click.echo(printable(f"klamm conform: not deleted: {left}"), err=True)
    if lab.party == "client" and all(outcome.result is Result.MISSING for outcome in outcomes):
        click.echo("klamm conform: no case was decided; a shell that does not find COMMAND ends with 127 too", err=True)
        return USAGE
    return FAILED if reports.failed(outcomes, strict) else SUCCESS
