"""Which requests only brokers and controllers send, and which client ids they use."""

from __future__ import annotations

import re

from klamm.protocol.apis import ApiKey

INTER_BROKER = frozenset(
    (
        ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.REGISTER_BROKER, ApiKey.METADATA_FETCH,
    )
)  # fmt: skip
"""APIs of brokers and controllers alone."""
_OF_A_BROKER = re.compile(r"([0-9]+)|broker-([0-9]+)-.*|AddPartitionsToTxnManager-([0-9]+)")


def broker_of(client_id: str | None) -> int | None:
    """The broker that uses this client id for requests to others, as controller, as follower, or as leader that verifies a transaction;
    None if it is not of a broker.
    """
    match = _OF_A_BROKER.fullmatch(client_id or "")
    return None if match is None else int(next(each for each in match.groups() if each is not None))
