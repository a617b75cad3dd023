"""The verb `klamm pipeline`: a group of commands, each in a file that is imported only when the command is used."""

from __future__ import annotations

import click

from klamm.cli.shell.lazy_group import LazyGroup

COMMANDS = {
    "check": "klamm.cli.pipeline.check",
    "compact": "klamm.cli.pipeline.compact",
    "jars": "klamm.cli.pipeline.jars",
    "publish": "klamm.cli.pipeline.publish",
    "retain": "klamm.cli.pipeline.retain",
    "run": "klamm.cli.pipeline.run",
    "serve": "klamm.cli.pipeline.serve",
    "simulate": "klamm.cli.pipeline.simulate",
    "submit": "klamm.cli.pipeline.submit",
    "tables": "klamm.cli.pipeline.tables",
    "watch": "klamm.cli.pipeline.watch",
}
"""Command → the module that has its `command`."""


@click.command(cls=LazyGroup, modules=COMMANDS, extra="pipeline", short_help="Turn journals into tables, verdicts and reports, with Spark.")
def command() -> None:
    """Turn the journals of a lake into tables, verdicts and reports, with Spark.

    A lake is the folder of `klamm serve --journal LAKE`; the tables grow beside the journal in it, as Parquet.

    \b
    klamm pipeline run LAKE     bring all tables up to date
    klamm pipeline check LAKE   judge the journals by the conformance rules
    klamm pipeline simulate     say what becomes of leaders: brokers lost, blacklists, elections, reassignments
    klamm report LAKE           draw what happened
    """
