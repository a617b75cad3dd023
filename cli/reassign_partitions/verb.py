"""The command `klamm reassign-partitions`: reads the options and files, connects, and runs the action.

Options and files are checked before a connection is opened. Results go to stdout, warnings and failures to stderr.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.reassign_partitions.options import Action, check
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.cli.shell.parameters import INT64
from klamm.cli.tools.options import bootstrap_option, config_option, zookeeper_option

if TYPE_CHECKING:
    from klamm.cli.reassign_partitions.cluster import Cluster

DEFAULT_TIMEOUT_MS = 10_000


def _file(name: str, text: str) -> Any:
    return click.option(name, type=click.Path(path_type=Path), metavar="FILE", help=text)


@click.command(short_help="Move replicas of partitions to other brokers, with or without a throttle.")
@click.option("--generate", is_flag=True, help="Propose new replicas for all partitions of topics. Changes nothing.")
@click.option("--execute", is_flag=True, help="Start the reassignments of a file, or change the throttle of reassignments in progress.")
@click.option("--verify", is_flag=True, help="Print the status of the reassignments of a file. Remove throttles if none is in progress.")
@click.option("--cancel", is_flag=True, help="Cancel the reassignments of a file that are in progress. Throttles: see above.")
@click.option("--list", is_flag=True, help="Print all reassignments in progress.")
@click.option("--progress", is_flag=True, help="Print the lag of each replica of a file.")
@bootstrap_option()
@zookeeper_option
@config_option(text="Properties file for the admin client, with keys such as security.protocol.")
@_file("--reassignment-json-file", "File with partitions and their new replicas, the preferred replica first, as --generate prints it.")
@_file("--topics-to-move-json-file", 'With --generate: file with the topics, {"version":1,"topics":[{"topic":"orders"}]}.')
@click.option("--broker-list", metavar="ID[,…]", help="With --generate: brokers for the new replicas.")
@click.option("--disable-rack-aware", is_flag=True, help="With --generate: ignore racks.")
@click.option(
    "--throttle", type=INT64, metavar="BYTES",
    help="With --execute: limit in bytes per second between brokers. -1: no throttle.",
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    type=INT64,
    metavar="BYTES",
    help="With --execute: limit in bytes per second between log directories of a broker. -1: no throttle.",
)
@click.option(
    "--timeout",
    type=click.IntRange(0, 2**31 - 1),
    metavar="MS",
    help=f"With --execute: how long moves between log directories may take to start. Default: {DEFAULT_TIMEOUT_MS}.",
)
@click.option(
    "--additional", is_flag=True,
    help="With --execute: start even if other reassignments are in progress. Those of the same partitions are replaced.",
)
@click.option("--preserve-throttles", is_flag=True, help="With --verify and --cancel: do not remove throttles.")
@click.option(
    "--watch", is_flag=True,
    help="With --progress: repeat until nothing is in progress; also print the rate and the remaining time.",
)
@click.option("--json", is_flag=True, help="With --list and --progress: print one line of JSON. With --watch: one line for each change.")
def command(**given: Any) -> None:
    """Move replicas of partitions to other brokers: propose, start, verify, cancel and list reassignments.

    A reassignment file lists partitions and their new replicas: {"version":1,"partitions":[{"topic":"orders","partition":0,
    "replicas":[1,2],"log_dirs":["any","any"]}]}. log_dirs is optional.

    If the controller is Klamm, it removes the throttle of --throttle when the last reassignment ends, even after a fail-over; --cancel does
    not remove it from reassignments that continue. With Apache Kafka, or with --zookeeper, run --verify after the reassignment to remove
    the throttle; --cancel then removes the throttles of all reassignments.

    \b
    klamm reassign-partitions --bootstrap-server localhost:9092 --generate --topics-to-move-json-file topics.json --broker-list 1,2,4
    klamm reassign-partitions --bootstrap-server localhost:9092 --execute --reassignment-json-file moves.json --throttle 50000000
    klamm reassign-partitions --bootstrap-server localhost:9092 --progress --watch --reassignment-json-file moves.json
    klamm reassign-partitions --bootstrap-server localhost:9092 --verify --reassignment-json-file moves.json
    """
    action = check(given)
    logging.getLogger().addHandler(logging.NullHandler())  # hides log lines of libraries: the tool reports the same in its own words
    asyncio.run(_run(action, given))


async def _run(action: Action, given: dict[str, Any]) -> None:
    """Read the files, connect, and run the action."""
    from klamm.cli.reassign_partitions import actions, plan, watch
    from klamm.cli.tools.files import read_reassignment, read_topics

    console = actions.Console(say, lambda line: click.echo(printable(line), err=True))
    names = read_topics(given["topics_to_move_json_file"]) if action is Action.GENERATE else []
    broker_ids = plan.parse_broker_list(given["broker_list"]) if action is Action.GENERATE else []
    moves = read_reassignment(given["reassignment_json_file"]) if given["reassignment_json_file"] is not None else {}
    if given["zookeeper"] is not None:
        _check_log_dirs(moves)
    cluster = await _connect(given, console)
    try:
        match action:
            case Action.GENERATE:
                await actions.generate(cluster, names, broker_ids, not given["disable_rack_aware"], Random(), console)
            case Action.EXECUTE:
                await actions.execute(cluster, moves, _limits(given), console)
            case Action.VERIFY:
                await actions.verify(cluster, moves, given["preserve_throttles"], console)
            case Action.CANCEL:
                await actions.cancel(cluster, moves, given["preserve_throttles"], console)
            case Action.LIST:
                await actions.show_list(cluster, console, given["json"])
            case Action.PROGRESS if given["watch"]:
                await watch.watch(cluster, moves, console, given["json"])
            case Action.PROGRESS:
                await watch.show_once(cluster, moves, console, given["json"])
    finally:
        await cluster.close()


def _limits(given: dict[str, Any]) -> Any:
    from klamm.cli.reassign_partitions.actions import Limits

    timeout_ms = DEFAULT_TIMEOUT_MS if given["timeout"] is None else given["timeout"]
    return Limits(_rate(given["throttle"]), _rate(given["replica_alter_log_dirs_throttle"]), timeout_ms, given["additional"])


def _rate(given: int | None) -> int | None:
    return None if given is None or given < 0 else given


def _check_log_dirs(moves: Any) -> None:
    from klamm.cli.reassign_partitions.plan import requested_log_dirs

    if requested_log_dirs(moves):
        raise click.UsageError("log_dirs need --bootstrap-server; they cannot be used with --zookeeper")


async def _connect(given: dict[str, Any], console: Any) -> Cluster:
    if given["zookeeper"] is not None:
        from klamm.cli.reassign_partitions import znodes
        from klamm.cli.tools.texts import ZOOKEEPER_WARNING

        console.warn(ZOOKEEPER_WARNING)
        return await znodes.connect(given["zookeeper"])

    from klamm.cli.reassign_partitions import bootstrap

    return await bootstrap.connect(given["bootstrap_server"], given["command_config"])
