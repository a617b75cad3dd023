"""Elections by brokers, as the two election tools request and report them (controller 19, 21.3).

The lines are those of Kafka's tools, all on stdout: one for what was elected, one for what needed no election, one for each failure. A
failure makes the tool fail, with the count on stderr. Where there was nothing to do a line says so; Kafka's tool prints none.

An attempt that gets no response ends after its own time; while the time of the whole call lasts, the request goes to the controller of
then. What the first attempt had elected needs no election then.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from klamm.admin import AdminError, AsyncAdminClient, ElectionType, PartitionResult, TimedOut
from klamm.admin.arguments import check_partitions
from klamm.cli.logs import printable
from klamm.cli.output import say
from klamm.cli.tool_client import connected_client, error_text
from klamm.cli.tool_failures import ToolFailed
from klamm.cli.tool_texts import named
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

ALL_LED = "Valid replica already elected for all partitions"
NONE_GIVEN = "There are no partitions to elect leaders of"


class Times(NamedTuple):
    """Milliseconds for the whole call, and for one attempt: so long the controller may work on it too."""

    call_ms: int
    attempt_ms: int


class Texts(NamedTuple):
    """How the tool's lines begin. With `names_all` an election of all partitions names also those that needed none as completed."""

    completed: str
    failed: str
    names_all: bool = False


class Election(NamedTuple):
    """What is to be elected; `partitions` None means all there are."""

    type: ElectionType
    partitions: list[TopicPartition] | None


async def elect(bootstrap_server: str, config: Path | None, client_id: str, election: Election, times: Times, texts: Texts) -> None:
    """Elect, and print what came of each partition. Raises ToolFailed when something failed, and what a bad file of properties raises."""
    try:
        check_partitions(election.partitions or ())  # said before anything is connected
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
        known = (TopicPartition(topic, p.partition) for topic, each in described.found.items() for p in each.partitions)
        elected = sorted({*elected, *known} - errors.keys())
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
    """Raises AdminError; TimedOut at the end of the call's time."""
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
    """The failure of the whole request. What Kafka's tool says of two of them stands on stdout too."""
    if isinstance(error, TimedOut):
        what = "Timeout waiting for election results"
    elif error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        what = "Not authorized to perform leader election"
    else:
        return ToolFailed(error_text(error))
    say(what)
    return ToolFailed(f"{what}: {error_text(error)}")
