"""Arguments and options that the commands of `klamm journal` share: the lake, and filters for its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from klamm.cli.journal.lake_folder import LakeFolder
from klamm.cli.shell.logs import printable
from klamm.cli.shell.parameters import Whole
from klamm.cli.shell.value_completion import complete_apis
from klamm.protocol.apis import APIS

if TYPE_CHECKING:
    from klamm.journal.rows import Choice
    from klamm.journal.segments import Segment

F = TypeVar("F", bound=Callable[..., Any])

LAKE = LakeFolder()
BROKER_ID = Whole(0, 2**31 - 1)


class Api(click.ParamType):
    """The name of an API, in any case, or its key."""

    name = "api"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The key of the API."""
        names = {api.name.lower(): int(key) for key, api in APIS.items()}
        text = str(value)
        if text.lower() in names:
            return names[text.lower()]
        if text.isascii() and text.isdigit() and int(text) < 1 << 15:
            return int(text)
        from klamm.protocol.errors import did_you_mean

        similar = did_you_mean(text, (api.name for api in APIS.values())) or "; give a name or a key, such as Metadata or 3"
        self.fail(f"{text!r} is not an API{similar}", param, ctx)


def choice_options(function: F) -> F:
    """Options --run, --node, --api, --client and --topic: arguments `runs`, `brokers`, `keys`, `clients` and `topic`."""
    for decorate in (
        click.option("--topic", metavar="NAME", help="Only rows that mention this topic."),
        click.option(
            "--client", "clients", multiple=True, metavar="PATTERN",
            help="Only frames with this client id or client software; * and ? are wildcards.",
        ),
        click.option(
            "--api", "keys", multiple=True, type=Api(), metavar="API", shell_complete=complete_apis,
            help="Only frames of this API; a name or a key.",
        ),
        click.option("--node", "brokers", multiple=True, type=BROKER_ID, metavar="ID", help="Only rows of this broker."),
        click.option(
            "--run", "runs", multiple=True, metavar="ID",
            help="Only this run. --run, --node, --api and --client can be given more than once.",
        ),
    ):
        function = decorate(function)
    return function


def existing(lake: Path) -> Path:
    """The lake. Raises ClickException if it has no journals."""
    if lake.exists() and not lake.is_dir():
        raise click.ClickException(f"{lake}: not a folder")
    if not lake.is_dir():
        raise click.ClickException(f"{lake}: no such folder; `klamm serve --journal {lake}` creates it")
    if not (lake / "journal").is_dir():
        raise click.ClickException(f"{lake}: not a lake: it has no folder `journal`")
    return lake


def check_chosen(lake: Path, runs: tuple[str, ...], brokers: tuple[int, ...]) -> None:
    """Raise ClickException if a chosen run or broker has no journal. The message lists those that have one."""
    from klamm.journal.reading import node_folders

    names = [(path.parent.name.removeprefix("run="), path.name.removeprefix("node=")) for path in node_folders(lake)]
    folders = [(run, int(broker_id)) for run, broker_id in names if broker_id.isdecimal()]
    there = list(dict.fromkeys(run for run, _ in folders))
    for run in runs:
        if run not in there:
            raise click.ClickException(f"no such run: {run}; runs: {', '.join(there) if there else 'none'}")
    ids = sorted({broker_id for run, broker_id in folders if not runs or run in runs})
    for broker in brokers:
        if broker not in ids:
            where = f" in {', '.join(runs)}" if runs else ""
            raise click.ClickException(f"no journal of broker {broker}{where}; brokers: {', '.join(map(str, ids)) if ids else 'none'}")


def choice(
    runs: tuple[str, ...], brokers: tuple[int, ...], keys: tuple[int, ...], clients: tuple[str, ...], topic: str | None, events: bool
) -> Choice:
    """The filter that the options describe."""
    from klamm.journal.rows import Choice
    from klamm.pipeline.decode.row_text import mentions

    is_about = None if topic is None else mentions(topic)
    return Choice(
        runs=frozenset(runs) if runs else None,
        brokers=frozenset(brokers) if brokers else None,
        keys=frozenset(keys) if keys else None,
        clients=clients if clients else None,
        tables=("frames", "events") if events else ("frames",),
        accepts=None if is_about is None else lambda row: is_about(row.table, row.columns),
    )


def tell_torn(segment: Segment, why: str) -> None:
    """Print a line on stderr about a segment with a damaged end, unless a broker is still writing it."""
    from klamm.journal.reading import is_written

    if segment.sealed or not is_written(segment.path.parent):
        click.echo(printable(f"{segment.path}: the end is damaged, read up to the last complete batch: {why}"), err=True)
