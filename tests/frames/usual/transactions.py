"""Requests of transactions."""

from __future__ import annotations

import random
from typing import Any

from klamm.tests.frames.usual.groups import offsets
from klamm.tests.frames.usual.values import by_name, partition


def transaction(source: random.Random, **fields: Any) -> dict[str, Any]:
    return {
        "transactionalId": source.choice(("x", "x", "y")),
        "producerId": source.choice((1, 1, 2, 3, 0)),
        "producerEpoch": source.randint(0, 3),
        **fields,
    }


def init(source: random.Random) -> dict[str, Any]:
    known = source.random() < 0.3
    return {
        "transactionalId": source.choice(("x", "x", "y", None)),
        "transactionTimeoutMs": source.choice((600_000, 600_000, -1, 1_000_000_000)),
        "producerId": source.choice((1, 2)) if known else -1,
        "producerEpoch": source.randint(0, 3) if known else -1,
    }


def add_partitions(source: random.Random) -> dict[str, Any]:
    made = transaction(source)
    topics = by_name(source, partitions=lambda: [partition(source)])
    return {
        "transactions": [{**made, "verifyOnly": source.random() < 0.3, "topics": topics}],
        "v3AndBelowTransactionalId": made["transactionalId"],
        "v3AndBelowProducerId": made["producerId"],
        "v3AndBelowProducerEpoch": made["producerEpoch"],
        "v3AndBelowTopics": topics,
    }


def txn_offsets(source: random.Random) -> dict[str, Any]:
    return transaction(
        source,
        groupId=source.choice(("g", "h")),
        generationId=-1,
        memberId="",
        topics=by_name(source, partitions=lambda: offsets(source)),
    )
