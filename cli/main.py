"""The command `klamm`: a group of commands, one small file each.

To start quickly, the file of a command is imported only when the command is used, and it imports what it needs only when it runs. An error
that the user can correct is one line on stderr and an exit code of `shell/exit_codes.py`. Any other exception is a bug and keeps its
traceback.
"""

from __future__ import annotations

import os
import signal
import sys

import click

from klamm import __version__
from klamm.cli.shell.exit_codes import FAILED, KAFKAS_TOOLS, SUCCESS, USAGE
from klamm.cli.shell.failures import StoppedEarly, one_line
from klamm.cli.shell.lazy_group import LazyGroup
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import ReaderGone, end_with_failure, open_standard_streams, tell_scripts

VERBS = {
    "acls": "klamm.cli.tools.acls",
    "broker": "klamm.cli.serving.broker",
    "chaos": "klamm.cli.serving.chaos",
    "completion": "klamm.cli.shell.completion",
    "configs": "klamm.cli.tools.configs",
    "conform": "klamm.cli.tools.conform",
    "consume": "klamm.cli.records.consume",
    "control": "klamm.cli.control.verb",
    "describe": "klamm.cli.tools.describe",
    "groups": "klamm.cli.groups.verb",
    "journal": "klamm.cli.journal.verb",
    "leader-election": "klamm.cli.elections.leader_election",
    "metadata-log": "klamm.cli.metadata_log.verb",
    "pipeline": "klamm.cli.pipeline.verb",
    "preferred-replica-election": "klamm.cli.elections.preferred_replica_election",
    "produce": "klamm.cli.records.produce",
    "proxy": "klamm.cli.serving.proxy",
    "reassign-partitions": "klamm.cli.reassign_partitions.verb",
    "replay": "klamm.cli.serving.replay",
    "report": "klamm.cli.pipeline.report",
    "serve": "klamm.cli.serving.serve",
    "topics": "klamm.cli.topics.verb",
    "transactions": "klamm.cli.transactions.verb",
}
"""Name of a command → the module that has its `command`."""


@click.command(
    cls=LazyGroup,
    modules=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Run `klamm COMMAND --help` for the help of a command. Exit codes: 0 success; 1 failure; 2 wrong command line (1 for the "
    "tools that replace Kafka's); 3 a rule is violated or rows are missing; 130 and 143 ended by SIGINT and SIGTERM. The reason of a "
    "failure is one line on stderr.",
)
@click.version_option(__version__, prog_name="klamm", message="%(prog)s %(version)s")
def klamm() -> None:
    """A replacement for the controller broker of Apache Kafka 3.9 in ZooKeeper mode, for clients, tools and brokers of Apache Kafka.

    `klamm serve` runs a cluster, `klamm broker` one broker. The other commands work with such a cluster or with any Kafka cluster, or they
    read the journals of `klamm serve --journal`.
    """


def check_texts(arguments: list[str]) -> None:
    """Raise ClickException for an argument that is neither UTF-8 nor the name of a file: everything else is sent or stored as UTF-8."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            if not os.path.lexists(argument):
                kind = click.ClickException if KAFKAS_TOOLS.intersection(arguments[:1]) else click.UsageError
                raise kind(f"{argument!r} is not valid UTF-8") from None


def main() -> None:
    """Run the command line, then exit."""
    open_standard_streams()
    try:
        check_texts(sys.argv[1:])
        code = klamm.main(prog_name="klamm", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as failure:
        click.echo(failure.ctx.get_help() if failure.ctx is not None else failure.format_message())
        sys.exit(0)
    except click.ClickException as failure:
        path = getattr(getattr(failure, "ctx", None), "command_path", "klamm")
        is_usage = isinstance(failure, click.UsageError) and not KAFKAS_TOOLS.intersection(path.split()[1:2])
        end_with_failure(path, printable(failure.format_message()), USAGE if is_usage else FAILED)
    except click.Abort:  # click has ended the terminal line that shows ^C
        end_with_failure("klamm", "interrupted", 128 + signal.SIGINT)
    except ReaderGone:
        sys.exit(128 + signal.SIGPIPE)
    except StoppedEarly as stopped:
        end_with_failure("klamm", str(stopped), stopped.exit_code)
    except Exception as failure:  # the only place that turns exceptions into one line; unknown exceptions are raised again
        line = one_line(failure)
        if line is None:
            tell_scripts(f"fault: {failure!r}")
            raise
        end_with_failure("klamm", line)
    sys.exit(code if isinstance(code, int) else SUCCESS)
