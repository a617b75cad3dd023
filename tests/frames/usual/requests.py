"""Requests that a broker obeys, with values drawn from a source: topics are made, grow and go, records are written, groups have a member.

What only a broker knows has a mark of the same size, for which `Sender` writes what that broker said: the ids of topics, the id of the
member that it named last and its generation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from klamm.tests.frames.usual.groups import commit, committed, join, leave, member, sync
from klamm.tests.frames.usual.records import delete_records, epochs, fetch, list_offsets, produce
from klamm.tests.frames.usual.settings import acl, alter, alter_incrementally, describe_configs, describe_quotas, quotas, scram
from klamm.tests.frames.usual.topics import create_partitions, create_topics, delete_topics, elect, metadata, reassign
from klamm.tests.frames.usual.transactions import add_partitions, init, transaction, txn_offsets
from klamm.tests.frames.usual.values import by_name, partition
from klamm.tests.security.permission_requests import Asked


def usual(source: random.Random) -> Asked:
    """A request, mostly one that changes something."""
    api, body = source.choice(_DRAWN)
    return Asked(api, "", body(source))


_DRAWN: tuple[tuple[str, Callable[[random.Random], dict[str, Any]]], ...] = (
    *(("Produce", produce),) * 4,
    *(("Fetch", fetch),) * 3,
    *(("ListOffsets", list_offsets),) * 2,
    ("DeleteRecords", delete_records),
    ("OffsetForLeaderEpoch", epochs),
    ("Metadata", metadata),
    *(("CreateTopics", create_topics),) * 2,
    ("DeleteTopics", delete_topics),
    ("CreatePartitions", create_partitions),
    ("AlterConfigs", alter),
    ("IncrementalAlterConfigs", alter_incrementally),
    ("DescribeConfigs", describe_configs),
    ("AlterClientQuotas", quotas),
    ("DescribeClientQuotas", describe_quotas),
    ("AlterUserScramCredentials", scram),
    ("DescribeUserScramCredentials", lambda _: {"users": None}),
    ("CreateAcls", lambda source: {"creations": [acl(source, True) for _ in range(source.randint(1, 2))]}),
    ("DeleteAcls", lambda source: {"filters": [acl(source, False) for _ in range(source.randint(1, 2))]}),
    ("DescribeAcls", lambda source: acl(source, False)),
    *(("OffsetCommit", commit),) * 2,
    ("OffsetFetch", committed),
    *(("JoinGroup", join),) * 2,
    ("SyncGroup", sync),
    ("Heartbeat", member),
    ("LeaveGroup", leave),
    ("DescribeGroups", lambda _: {"groups": ["g", "h"]}),
    ("ListGroups", lambda _: {}),
    ("DeleteGroups", lambda _: {"groupsNames": ["g", "h"]}),
    ("InitProducerId", init),
    *(("AddPartitionsToTxn", add_partitions),) * 2,
    ("EndTxn", lambda source: transaction(source, committed=source.random() < 0.5)),
    ("AddOffsetsToTxn", lambda source: transaction(source, groupId="g")),
    ("TxnOffsetCommit", txn_offsets),
    ("DescribeTransactions", lambda _: {"transactionalIds": ["x", "y"]}),
    ("ListTransactions", lambda _: {}),
    ("DescribeProducers", lambda source: {"topics": by_name(source, partitionIndexes=lambda: [partition(source)])}),
    ("AlterPartitionReassignments", reassign),
    ("ListPartitionReassignments", lambda _: {"topics": None}),
    ("ElectLeaders", elect),
)
