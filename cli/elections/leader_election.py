"""`klamm leader-election`: preferred and unclean elections (controller 19), like Kafka's kafka-leader-election.

Options are checked before the file is read, and the file before anything is connected. The messages for wrong options are Kafka's.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import click

from klamm.cli.tools.options import ADMIN_CONFIG, BOOTSTRAP, admin_config_option, bootstrap_option

CALL_MS = 30_000
"""Default timeout of the whole call; an attempt has half of it. The file of `--command-config` can set both."""


@click.command(short_help="Elect leaders of partitions: preferred or unclean.")
@bootstrap_option(text=f"{BOOTSTRAP} Required.")
@click.option(
    "--election-type",
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    help="Type of the election. Required.",
)
@click.option("--topic", metavar="NAME", help="Topic of a single partition; needs --partition.")
@click.option("--partition", type=click.IntRange(0, 2**31 - 1), metavar="NUMBER", help="Number of the partition of --topic.")
@click.option(
    "--path-to-json-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Elect leaders of these partitions: {"partitions":[{"topic":"orders","partition":0}]}.',
)
@click.option("--all-topic-partitions", is_flag=True, help="Elect leaders of all partitions.")
@admin_config_option(
    f"{ADMIN_CONFIG} default.api.timeout.ms (default: 30000) limits the whole command, "
    "request.timeout.ms (default: half of it) one attempt."
)
def command(**given: Any) -> None:
    """Elect leaders of partitions.

    With --election-type preferred, the preferred replica becomes leader if it is alive and in sync. It is the first one in the partition's
    list of replicas. With auto.leader.rebalance.enable=true, which is the default, the controller does this every five minutes. If the
    dynamic config preferred_leader_blacklist names one of the replicas, the leader is the first replica that is alive, in sync and not on
    that list. If there is none, it is the first replica that is alive and in sync.

    With --election-type unclean, a partition without a leader gets one: a live replica that is in sync, or any live replica if there is
    none. In the second case, records that only other replicas have are LOST. Partitions that have a leader keep it.

    Choose the partitions with exactly one of these: --topic and --partition, --path-to-json-file, --all-topic-partitions. The outcome of
    each partition is printed. The exit code is 1 if one of them failed.

    \b
    klamm leader-election --bootstrap-server localhost:9092 --election-type preferred --all-topic-partitions
    klamm leader-election --bootstrap-server localhost:9092 --election-type unclean --topic orders --partition 0
    """
    _check(given)
    logging.getLogger().addHandler(logging.NullHandler())  # hides log lines of libraries: the tool reports the same in its own words

    from klamm.admin import ElectionType
    from klamm.cli.elections.election import Election, Texts, elect

    election_type = ElectionType[given["election_type"].upper()]
    election = Election(election_type, _partitions(given))
    texts = Texts(
        completed=f"Successfully completed leader election ({election_type.name})",
        failed=f"Error completing leader election ({election_type.name}) for partition:",
    )
    config = given["command_config"]
    asyncio.run(elect(given["bootstrap_server"], config, "klamm-leader-election", election, _times(config), texts))


def _check(given: dict[str, Any]) -> None:
    """Raises UsageError, in the same order and with the same texts as Kafka's tool."""
    missing = [name for name in ("bootstrap_server", "election_type") if given[name] is None]
    if missing:
        raise click.UsageError(f"Missing required option(s): {', '.join(map(_option, missing))}")
    chosen = (given["topic"] is not None, given["all_topic_partitions"], given["path_to_json_file"] is not None)
    if sum(chosen) != 1:
        raise click.UsageError("One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file")
    if given["topic"] is not None and given["partition"] is None:
        raise click.UsageError("Missing required option(s): partition")
    if given["topic"] is None and given["partition"] is not None:
        raise click.UsageError("Option partition is only allowed if topic is used")


def _option(name: str) -> str:
    return name.replace("_", "-")


def _partitions(given: dict[str, Any]) -> Any:
    """The chosen partitions; None for all. Raises BadFile, OSError."""
    from klamm.cli.tools.files import read_partitions
    from klamm.protocol.nouns import TopicPartition

    if given["path_to_json_file"] is not None:
        return read_partitions(given["path_to_json_file"])
    return None if given["topic"] is None else [TopicPartition(given["topic"], given["partition"])]


def _times(config: Path | None) -> Any:
    from klamm.cli.elections.election import Times
    from klamm.cli.tools.client_properties import API_TIMEOUT, REQUEST_TIMEOUT, call_times

    times = call_times(config)
    call_ms = times.get(API_TIMEOUT, CALL_MS)
    return Times(call_ms, min(call_ms, times.get(REQUEST_TIMEOUT, CALL_MS // 2)))
