"""`klamm` with a planted fault: records with acks=all are acknowledged when the leader has them."""

from __future__ import annotations

from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.cli.main import main
from klamm.protocol.errors import ErrorCode
from klamm.server.produce import delayed_produce

_settled = delayed_produce.settled


def _early(replicas: ReplicaManager, partition: HostedPartition, last_offset: int, acks: int) -> ErrorCode | None:
    return _settled(replicas, partition, last_offset, 1)


if __name__ == "__main__":
    delayed_produce.settled = _early
    main()
