"""`klamm` with a planted fault: records with acks=all are acknowledged when the leader has them."""

from __future__ import annotations

from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.chaos.schedule import Options, Schedule, Step
from klamm.cli.main import main
from klamm.protocol.errors import ErrorCode
from klamm.server.produce import delayed_produce

SLOW = [Step(1500 + rank, "slow-link", {"broker": "leader 0", "rank": rank, "ms": 1500}, 8000) for rank in range(3)]
KILL = Step(5000, "kill", {"broker": "leader 0", "expire": True}, 1000)
FOUND_BY = Schedule(1, 9000, Options(), (*SLOW, KILL))
"""The followers are slow, so they do not have what their leader acknowledged last when it dies."""

_settled = delayed_produce.settled


def _early(replicas: ReplicaManager, partition: HostedPartition, last_offset: int, acks: int) -> ErrorCode | None:
    return _settled(replicas, partition, last_offset, 1)


if __name__ == "__main__":
    delayed_produce.settled = _early
    main()
