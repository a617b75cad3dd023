"""The options --ship-to and --keep-local of servers that journal, and the properties that they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from klamm.cli.journal.lake_folder import LakeAddress
from klamm.cli.shell.parameters import Duration

F = TypeVar("F", bound=Callable[..., Any])

DIRECTORY, TARGET, KEEP = "klamm.journal.dir", "klamm.journal.ship.to", "klamm.journal.local.retention.ms"


def ship_options(function: F) -> F:
    """Options --ship-to and --keep-local: arguments `ship_to` and `keep_local_ns` of a command."""
    keep = click.option(
        "--keep-local", "keep_local_ns", type=Duration(),
        help="Remove segments from --journal that were sent and are older than this, such as 12h; 0m: at once. Default: they stay.",
    )
    to = click.option(
        "--ship-to", type=LakeAddress(), metavar="URL",
        help="Send the segments of --journal to this lake in an object store, such as s3://BUCKET/LAKE, from a process of its own. "
        "Needs klamm[ship].",
    )
    return to(keep(function))


def ship_properties(journal: Path | None, ship_to: Path | str | None, keep_local_ns: int | None) -> dict[str, str]:
    """The properties of these options. Raises click.UsageError."""
    if keep_local_ns is not None and ship_to is None:
        raise click.UsageError("--keep-local needs --ship-to: only segments that were sent are removed")
    if ship_to is None:
        return {}
    if journal is None:
        raise click.UsageError("--ship-to needs --journal: segments are written to a disk of this machine first")
    kept = {} if keep_local_ns is None else {KEEP: str(keep_local_ns // 1_000_000)}
    return {TARGET: str(ship_to.absolute() if isinstance(ship_to, Path) else ship_to), **kept}
