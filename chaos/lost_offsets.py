"""Whether the cluster or librdkafka lost the committed offset of a consumer.

While a transaction with the offset of a partition is open, the coordinator responds UNSTABLE_OFFSET_COMMIT with offset -1 to a consumer
that reads committed records, and the consumer is to ask again. librdkafka 2.16 does not if its assignment has changed since its request:
it takes the -1 for "there is no offset" and applies `auto.offset.reset` (`rd_kafka_assignment_apply_offsets`). That is no fault of the
cluster. A response with -1 and no error is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klamm.control.client import ControlClient, ControlFailed
from klamm.control.json_object import JsonObject
from klamm.protocol.errors import ErrorCode

LIMIT = 100


def is_lost_by_client(api: ControlClient, client_id: str, partition: int) -> bool:
    """Whether the last responses to this client told that the offset is unstable, and none that there is no offset. False if the control
    API does not tell.
    """
    try:
        rows = api.get("requests", api="OffsetFetch", client_id=client_id, limit=LIMIT)["requests"]
    except ControlFailed:
        return False
    shown = [each for row in rows for each in _partitions(row["response"]) if each["partition_index"] == partition]
    is_unstable = any(each["error_code"] == ErrorCode.UNSTABLE_OFFSET_COMMIT for each in shown)
    return is_unstable and not any(each["error_code"] == ErrorCode.NONE and each["committed_offset"] < 0 for each in shown)


def _partitions(value: Any) -> Iterator[JsonObject]:
    """The partitions of a decoded response of any version."""
    if isinstance(value, dict):
        if "committed_offset" in value:
            yield value
        for each in value.values():
            yield from _partitions(each)
    elif isinstance(value, list):
        for each in value:
            yield from _partitions(each)
