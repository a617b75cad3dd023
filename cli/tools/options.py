"""Options that commands share whose modules import little until they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])

BOOTSTRAP = "Brokers for the first connection."
ADMIN_CONFIG = "Properties file for the admin client."

zookeeper_option = click.option(
    "--zookeeper", metavar="HOST:PORT[,…][/CHROOT]", help="Deprecated; use --bootstrap-server. ZooKeeper to connect to."
)


def bootstrap_option(*, required: bool = False, text: str = BOOTSTRAP) -> Callable[[F], F]:
    """`--bootstrap-server`; a command that says in its own words that it is missing does not have it `required`."""
    return click.option("--bootstrap-server", required=required, metavar="HOST:PORT[,…]", help=text)


def config_option(*names: str, text: str = ADMIN_CONFIG) -> Callable[[F], F]:
    """`--command-config`, with more names."""
    return click.option("--command-config", *names, "command_config", type=click.Path(path_type=Path), metavar="FILE", help=text)


def admin_config_option(text: str = ADMIN_CONFIG) -> Callable[[F], F]:
    """`--command-config`, also under its name in Kafka's tools for elections, `--admin.config`; `text` is its help."""
    return config_option("--admin.config", text=text)
