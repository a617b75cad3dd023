"""The command `klamm`: a group of verbs, one small file each.

To start quickly, the file of a verb is imported only when the verb is used, and imports the packages that it needs only when it runs.
An error that the user can correct is one line on stderr and exit code 1; any other exception is a fault and keeps its traceback.
"""

from __future__ import annotations

import sys

import click

from klamm import __version__
from klamm.cli.failures import one_line
from klamm.cli.lazy_group import LazyGroup
from klamm.cli.logs import printable
from klamm.cli.output import end_with_failure, open_standard_streams, tell_scripts

VERBS = {
    "broker": "klamm.cli.broker",
    "configs": "klamm.cli.configs",
    "journal": "klamm.cli.journal.verb",
    "leader-election": "klamm.cli.leader_election",
    "metadata-log": "klamm.cli.metadata_log.verb",
    "pipeline": "klamm.cli.pipeline.verb",
    "preferred-replica-election": "klamm.cli.preferred_replica_election",
    "reassign-partitions": "klamm.cli.reassign_partitions.verb",
    "report": "klamm.cli.report",
    "serve": "klamm.cli.serve",
}
"""Verb → the module that has its `command`."""


@click.command(
    cls=LazyGroup,
    modules=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="`klamm COMMAND --help` explains a command. Exit codes: 0 success; 1 failure, with the reason in one line on stderr.",
)
@click.version_option(__version__, prog_name="klamm", message="%(prog)s %(version)s")
def klamm() -> None:
    """A stand-in for the controller broker of Apache Kafka 3.9 in ZooKeeper mode, for clients, tools and brokers of Apache Kafka.

    \b
    klamm serve                      a cluster of three brokers and a ZooKeeper, in one process
    klamm broker server.properties   one broker of a cluster, as a process of its own
    klamm configs                    shows and changes dynamic configs of topics and brokers
    klamm journal                    shows, exports and verifies journals of frames and events
    klamm leader-election            elects leaders: preferred replicas, or unclean ones
    klamm metadata-log dump          shows the log that brokers follow which register with the controller
    klamm pipeline                   turns journals of frames and events into tables and verdicts, with Spark
    klamm preferred-replica-election makes preferred replicas the leaders (KIP-183)
    klamm reassign-partitions        moves replicas to other brokers, with or without a throttle
    klamm report                     draws what happened in a run, as one HTML file
    """


def main() -> None:
    """Run the command line, then exit."""
    open_standard_streams()
    try:
        code = klamm.main(prog_name="klamm", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as failure:
        click.echo(failure.ctx.get_help() if failure.ctx is not None else failure.format_message())
        sys.exit(0)
    except click.ClickException as failure:
        path = getattr(getattr(failure, "ctx", None), "command_path", "klamm")
        end_with_failure(path, printable(failure.format_message()))
    except click.Abort:
        sys.exit(130)
    except Exception as failure:  # the only place that turns exceptions into a line; an unknown exception goes on
        line = one_line(failure)
        if line is None:
            tell_scripts(f"fault: {failure!r}")
            raise
        end_with_failure("klamm", line)
    sys.exit(code if isinstance(code, int) else 0)
