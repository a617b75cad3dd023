"""Clients × servers: the cases for clients, with each server behind a proxy, as one HTML page or as a table (`make matrix`).

    python -m klamm.tests.conform.matrix [CASE...] [--client NAME]... [--server NAME]... [--jobs N] [--timeout S] [--html FILE]

Without CASE those are run that need no steering of the cluster; `all` are all of them, which only Klamm has. The table of
`docs/conform.md` is what `all --server Klamm` prints.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from klamm.conform import reports
from klamm.conform.case import Outcome
from klamm.conform.clients.catalogue import SECTIONS
from klamm.conform.clients.client_lab import ClientLab, silent_brokers
from klamm.conform.runner import chosen, run_together
from klamm.protocol.addresses import Address
from klamm.tests.conform.adapters import CLIENTS
from klamm.tests.conform.servers import SERVERS

PLAIN = (
    "negotiation/1.1", "negotiation/1.14", "negotiation/1.15", "produce/3.11", "produce/3.17", "produce/3.20", "produce/3.26",
    "produce/3.32", "fetch/4.12", "fetch/4.15", "fetch/4.16", "fetch/4.21", "fetch/4.22", "fetch/4.27", "fetch/4.28", "groups/5.1",
    "groups/5.2", "groups/5.3", "groups/5.23", "groups/5.32", "groups/5.33", "transactions/6.1", "transactions/6.2", "transactions/6.3",
    "transactions/6.4", "transactions/6.22",
)
"""Cases that steer nothing."""
Cells = Mapping[tuple[str, str], Sequence[Outcome]]


def outcomes_of(command: str, server: Address | None, names: Sequence[str], jobs: int, limit_s: float) -> list[Outcome]:
    """What a client does with a server."""
    labs = [ClientLab(command, server=server) for _ in range(jobs)]
    return asyncio.run(run_together(chosen(SECTIONS, names), labs, limit_s, lambda outcome: None))[0]


def run(clients: Sequence[str], servers: Sequence[str], names: Sequence[str], jobs: int, limit_s: float) -> Cells:
    """(client, server) → its outcomes. Each pair has a server of its own: some end for what a client sends."""
    cells: dict[tuple[str, str], Sequence[Outcome]] = {}
    with tempfile.TemporaryDirectory() as place:
        commands = {client: CLIENTS[client](_folder(place, client)) for client in clients}
        for server in servers:
            for client in clients:
                with SERVERS[server](_folder(place, f"{server} {client}")) as address:
                    cells[client, server] = outcomes_of(commands[client], address, names, jobs, limit_s)
                print(f"{client}, {server}: {reports.totals(cells[client, server])}", file=sys.stderr)
    return cells


def _folder(place: str, name: str) -> Path:
    folder = Path(place, name.replace(" ", "-").replace("'", ""))
    folder.mkdir()
    return folder


def table(cells: Cells) -> list[str]:
    """Lines of Markdown: passed and failed cases by section for each client, of one server."""
    by_client = {client: reports.by_section(outcomes) for (client, _), outcomes in cells.items()}
    sections = next(iter(by_client.values()))
    rows = [f"| {section} | " + " | ".join(_counts(found[section]) for found in by_client.values()) + " |" for section in sections]
    return [f"| section | {' | '.join(by_client)} |", "|---" * (len(by_client) + 1) + "|", *rows]


def _counts(counts: dict[str, int]) -> str:
    """Pass, then Fail and Non-strict."""
    bad = [f"{counts[name]} {word}" for name, word in (("Fail", "fail"), ("Non-strict", "not strict")) if counts[name]]
    return f"{counts['Pass']}" + (f" ({', '.join(bad)})" if bad else "")


def main(arguments: list[str] | None = None) -> None:
    """Run, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="sections and cases, as `klamm conform --client` takes them, or `all`")
    parser.add_argument("--client", action="append", choices=[*CLIENTS], help="can be given more than once")
    parser.add_argument("--server", action="append", choices=[*SERVERS], help="can be given more than once")
    parser.add_argument("--jobs", type=int, default=2, help="how many cases run at the same time")
    parser.add_argument("--timeout", type=float, default=30, help="seconds that a case may take")
    parser.add_argument("--html", type=Path, default=Path("build/matrix.html"))
    options = parser.parse_args(arguments)
    names = () if options.cases == ["all"] else options.cases or PLAIN
    with silent_brokers():
        cells = run(options.client or [*CLIENTS], options.server or [*SERVERS], names, options.jobs, options.timeout)
    options.html.parent.mkdir(parents=True, exist_ok=True)
    options.html.write_text(reports.as_matrix(cells), encoding="utf-8")
    for server in dict.fromkeys(server for _, server in cells):
        print("", server, "", *table({pair: found for pair, found in cells.items() if pair[1] == server}), sep="\n")
    print(options.html)


if __name__ == "__main__":
    main()
