"""Options that commands share whose modules import little until they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def admin_config_option(text: str) -> Callable[[F], F]:
    """`--command-config`, also under its name in Kafka's tools for elections, `--admin.config`; `text` is its help."""
    return click.option("--command-config", "--admin.config", "command_config", type=click.Path(path_type=Path), metavar="FILE", help=text)
