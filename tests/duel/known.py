"""Differences that are known: each is named by the reason that stands in a recorded story, and recognised by its commands and outcomes.

The list of reasons is that of docs/compatibility.md; here is only how a random story shows one of them. What is recognised must be the
only thing that differs: each line in which the two sides differ needs the same reason.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from klamm.tests.duel.pair import Difference


class Known(NamedTuple):
    """`reason` is the beginning of the reason in a recorded story, `command` what the scene has done when it shows.

    `kafka` and `klamm` are what the two say in one place.
    """

    reason: str
    command: str
    kafka: str
    klamm: str


_VERSIONS = re.compile(r"^v\d+(-\d+)?: ")
"""In front of answers; which versions have a line in common may differ where one line does."""
_ELECTION_NODE = r"put /admin/preferred_replica_election \{"
_BELOW_ZERO = r'ask CreateTopics .*"partitionIndex":-'
_CODE = r'topics: \{{"name":.*"errorCode":"{}".*'
_BAD_LIST = _CODE.format("INVALID_REPLICA_ASSIGNMENT")
KNOWN = [
    Known(
        "a broker that is not the leader is refused", r"alter-partition .* leader=\d", r"NONE, leader .*", r"INVALID_REQUEST, leader 0 .*"
    ),
    Known(
        "a broker that has no replica of the partition does not join",
        r"alter-partition .* isr=\d+(,\d+)*( |$)",
        r"NONE, leader \d+ le \d+ isr \d+(,\d+)* pe \d+",
        r"(INELIGIBLE_REPLICA|OPERATION_NOT_ATTEMPTED), leader 0 le 0 isr none pe 0",
    ),
    Known(
        "an answer instead of none: the partition cannot be initialised",
        r"(elect|ask ElectLeaders) ",
        r"no answer",
        r".*(all NONE|replicaElectionResults|\"errorCode\":\"NONE\"|_NOT_AVAILABLE).*",
    ),
    Known(
        "refused, as any other list with gaps",
        _BELOW_ZERO,
        _CODE.format("(NONE|TOPIC_ALREADY_EXISTS|REQUEST_TIMED_OUT|INVALID_CONFIG)"),  # with which of them Kafka goes on past this check
        _BAD_LIST,
    ),
    Known("such a partition is one of those that cannot be elected", _ELECTION_NODE, r".*: version \d+, \{.*", r".*: no node"),
]


def explained(difference: Difference) -> str | None:
    """The reason of a known difference; None when any line of it has none."""
    theirs, ours = ([_VERSIONS.sub("", line) for line in outcome.split("\n")] for outcome in (difference.kafka, difference.klamm))
    kafka, klamm = [line for line in theirs if line not in ours], [line for line in ours if line not in theirs]
    for known in KNOWN:
        if (
            any(re.match(known.command, line) for line in difference.commands)
            and klamm
            and all(re.fullmatch(known.kafka, line) for line in kafka)
            and all(re.fullmatch(known.klamm, line) for line in klamm)
        ):
            return known.reason
    return None
