"""`klamm groups reset-offsets`: moves the offsets of a group, like `kafka-consumer-groups --reset-offsets`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.groups.options import CLIENT_ID, group_argument
from klamm.cli.shell.parameters import INT64
from klamm.cli.tools.chosen_topics import TOPIC, ChosenTopic, partitions_of
from klamm.cli.tools.commands import Place, connection_options, json_option, run, show

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient, CommittedOffset
    from klamm.cli.groups.new_offsets import Target
    from klamm.protocol.nouns import TopicPartition

HEAD = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
TARGETS = ("to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "to_datetime", "by_duration")


@click.command("reset-offsets", short_help="Move the offsets of a group without members.")
@group_argument
@click.option("--topic", "topics", type=TOPIC, multiple=True, help="Topic, with some of its partitions or with all. Repeatable.")
@click.option("--all-topics", is_flag=True, help="All partitions for which the group has offsets.")
@click.option("--to-earliest", is_flag=True, help="Reset to the first offset of each partition.")
@click.option("--to-latest", is_flag=True, help="Reset to the end of each partition.")
@click.option("--to-current", is_flag=True, help="The current offsets; the ends of the logs where there are none.")
@click.option("--to-offset", type=INT64, help="This offset.")
@click.option("--shift-by", type=INT64, help="The current offsets plus this number, which may be negative.")
@click.option("--to-datetime", metavar="TIME", help="The first record since 2026-11-25T12:00:00.000 (UTC if there is no zone).")
@click.option("--by-duration", metavar="DURATION", help="The first record since this long ago: P7D, PT1H30M.")
@click.option("--execute", is_flag=True, help="Commit the new offsets. Without it they are only printed.")
@connection_options
@json_option
def command(**given: Any) -> None:
    """Move the offsets of a group. Without --execute the new offsets are printed, and nothing is changed.

    Choose partitions with --topic or --all-topics, and exactly one target. An offset outside of the log becomes its start or its end. The
    group must not have members; it may not exist yet.

    \b
    klamm groups reset-offsets billing --topic orders --to-earliest --execute --bootstrap-server localhost:9092
    klamm groups reset-offsets billing --all-topics --by-duration PT1H --bootstrap-server localhost:9092
    """
    target = _target(given)
    if bool(given["topics"]) == given["all_topics"]:
        raise click.UsageError("exactly one of --topic and --all-topics is needed")

    async def work(client: AsyncAdminClient) -> None:
        from klamm.cli.tools.client import all_done

        offsets = await _new_offsets(client, given["group"], given["topics"], target)
        if given["execute"] and offsets:
            all_done(await client.alter_group_offsets(given["group"], offsets))
        rows = [(given["group"], *partition, offset) for partition, offset in offsets.items()]
        show("offsets", HEAD, rows, given["as_json"])

    run(Place(given["bootstrap_server"], given["command_config"]), CLIENT_ID, work)


def _target(given: Mapping[str, Any]) -> Target:
    """Raises UsageError."""
    chosen = [name for name in TARGETS if given[name] is not None and given[name] is not False]
    if len(chosen) != 1:
        names = ", ".join("--" + name.replace("_", "-") for name in TARGETS)
        raise click.UsageError(f"exactly one of these is needed: {names}")
    from klamm.cli.groups.new_offsets import Target, duration_ms, time_ms

    (name,) = chosen
    option, value = name.replace("_", "-"), given[name]
    try:
        if name == "to_datetime":
            return Target(option, time_ms(value))
        if name == "by_duration":
            return Target(option, int(time.time() * 1000) - duration_ms(value))
    except ValueError as problem:
        raise click.UsageError(f"--{option}: {problem}") from problem
    return Target(option, 0 if value is True else value)


async def _new_offsets(client: AsyncAdminClient, group: str, topics: tuple[ChosenTopic, ...], target: Target) -> dict[TopicPartition, int]:
    """Raises AdminError; ToolFailed if the group has members; ValueError."""
    from klamm.admin import GroupState, OffsetSpec
    from klamm.cli.groups.new_offsets import Logs, new_offsets, specs
    from klamm.cli.tools.client import all_found
    from klamm.cli.tools.failures import ToolFailed

    state = (await client.describe_groups([group]))[group].state
    if state not in (GroupState.EMPTY, GroupState.DEAD):
        raise ToolFailed(f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}.")
    committed: Mapping[TopicPartition, CommittedOffset | None] = all_found((await client.list_group_offsets([group]))[group])
    partitions = await partitions_of(client, topics) if topics else sorted(committed)
    logs = Logs(
        all_found(await client.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))),
        all_found(await client.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))),
        all_found(await client.list_offsets(specs(target, partitions))),
    )
    return new_offsets(target, partitions, committed, logs)
