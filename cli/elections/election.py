"""Requests elections from brokers and reports the outcome, for both election tools (controller 19, 21.3).

The output is that of Kafka's tools, on stdout: one line for the partitions with a new leader, one for those that did not need an election,
one for each failure. If a partition failed, the tool fails and prints the number of failures on stderr. If there was nothing to do, it
prints a line that says so; Kafka's tool prints nothing.

Each attempt has its own timeout. After a timeout the request is sent again, to the controller at that time, until the timeout of the whole
call. Leaders that an earlier attempt elected then count as partitions that did not need an election.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from klamm.admin import AdminError, AsyncAdminClient, ElectionType, PartitionResult, TimedOut
from klamm.admin.calls.arguments import check_partitions
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.cli.tools.client import connected_client, error_text, failure_of
from klamm.cli.tools.failures import ToolFailed
from klamm.cli.tools.texts import named
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

ALL_LED = "Valid replica already elected for all partitions"
NONE_GIVEN = "There are no partitions to elect leaders of"


class Times(NamedTuple):
    """Timeouts in milliseconds of the whole call and of one attempt. The request carries the second one as its timeout for the controller.
    """

    call_ms: int
    attempt_ms: int


class Texts(NamedTuple):
    """How the lines of the tool begin. With `names_all`, an election of all partitions lists partitions that did not need one as completed
    too.
    """

    completed: str
    failed: str
    names_all: bool = False


class Election(NamedTuple):
    """The type of the election and the partitions; None for all partitions."""

    type: ElectionType
    partitions: list[TopicPartition] | None


async def elect(bootstrap_server: str, config: Path | None, client_id: str, election: Election, times: Times, texts: Texts) -> None:
    """Elect leaders and print the outcome of each partition. Raises ToolFailed if one failed, and the errors of `client_settings`."""
    try:
        check_partitions(election.partitions or ())  # before anything is connected
    except ValueError as problem:
        raise ToolFailed(str(problem)) from problem
    async with connected_client(bootstrap_server, config, client_id) as client:
        try:
            result = await _elected(client, election, times)
            described = await client.describe_topics() if texts.names_all and election.partitions is None else None
        except AdminError as failure:
            raise _failed(failure) from failure
        except ValueError as problem:
            raise ToolFailed(str(problem)) from problem
    errors = result.errors()
    refused = [error for error in errors.values() if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    if refused and len(refused) == len(result.values()):
        raise _failed(refused[0])
    elected = [partition for partition, error in result.values().items() if error is None]
    led = [partition for partition, error in errors.items() if error.code is ErrorCode.ELECTION_NOT_NEEDED]
    failed = {partition: error for partition, error in errors.items() if error.code is not ErrorCode.ELECTION_NOT_NEEDED}
    if described is not None:
        existing = (TopicPartition(topic, p.partition) for topic, each in described.found.items() for p in each.partitions)
        elected = sorted({*elected, *existing} - errors.keys())
    if elected:
        say(f"{texts.completed} for partitions {named(elected)}")
    if led:
        say(f"Valid replica already elected for partitions {named(led)}")
    if not (elected or errors):
        say(NONE_GIVEN if election.partitions is not None or described is not None else ALL_LED)
    for partition, error in sorted(failed.items()):
        say(printable(f"{texts.failed} {partition}: {error}"))
    if failed:
        raise ToolFailed(f"{len(failed)} replica(s) could not be elected")


async def _elected(client: AsyncAdminClient, election: Election, times: Times) -> PartitionResult:
    """The outcome of each partition. Raises AdminError; TimedOut after the timeout of the whole call."""
    loop = asyncio.get_running_loop()
    end = loop.time() + times.call_ms / 1000
    while True:
        remaining_ms = max(0, int((end - loop.time()) * 1000))
        try:
            return await client.elect_leaders(*election, timeout_ms=min(times.attempt_ms, remaining_ms))
        except TimedOut:
            if loop.time() >= end:
                raise


def _failed(error: AdminError) -> ToolFailed:
    """The failure of the whole request. The texts of Kafka's tool for two of them are printed on stdout too."""
    if isinstance(error, TimedOut):
        what = "Timeout waiting for election results"
    elif error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        what = "Not authorized to perform leader election"
    else:
        return ToolFailed(error_text(error))
    say(what)
    return failure_of(error, f"{what}: ", "ALTER")
